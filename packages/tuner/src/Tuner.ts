/** Finds better opts for the members of a launch by trying them on the device. */
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import * as Bounds from "@tg/core-uop/Bounds"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import type * as Opt from "@tg/postrange/Opt"
import * as Loops from "@tg/postrange/Loops"
import { Pipeline } from "@tg/jit/Pipeline"
import { printOpts } from "@tg/jit/Stages"
import { members } from "@tg/rangeify/Horizontal"
import type { Device, DeviceError, Executable } from "@tg/runtime/Device"
import { Clock, Context, Effect, Layer, Option, Schema, type Scope } from "effect"
import * as Check from "./Check.ts"
import type * as InStep from "./InStep.ts"
import * as Inputs from "./Inputs.ts"
import * as Launch from "./Launch.ts"
import * as Moves from "./Moves.ts"
import * as Search from "./Search.ts"
import * as Workbench from "./Workbench.ts"

/** The usual opts of a kernel compute something else than its reference does: a fault of the compiler or of the device. */
export class WrongResult extends Schema.TaggedError<WrongResult>()("WrongResult", {
  kernel: Schema.String,
  message: Schema.String
}) {}

/** A launch and how it is set up. */
export interface Job {
  readonly name: string
  /** Spec `kernel`, of one member or of several. */
  readonly kernel: UOp
  readonly setup: Workbench.Setup
  /** The opts of members that are not to be changed: other launches have them too, and were tuned before. */
  readonly held?: ((member: UOp) => ReadonlyArray<Opt.Opt> | undefined) | undefined
  /** Where candidates are timed; among launches of their like if it is not said. */
  readonly place?: InStep.Place | undefined
}

/** Opts of the members (`Horizontal.members`) and the time of one launch. */
export interface Timed {
  readonly opts: Launch.Opts
  readonly micros: number
}

/** The result of tuning. */
export interface Tuned {
  /** The heuristics' choice for all members. */
  readonly usual: Timed
  /** The same with the held members' opts: the baseline of the search. `usual` itself if that is the same. */
  readonly start: Timed
  /** `start` itself where nothing is clearly better. */
  readonly best: Timed
  /** Lists that were timed, and those that failed to compile or were far too slow. */
  readonly tried: number
  readonly failed: number
  /** Why faster opts were not taken: what they compute is not what the usual ones do. */
  readonly refused: ReadonlyArray<string>
}

/** Candidates that are compiled at once. */
const batch = 8
const patience = 1.3
/** A candidate that takes this many times as long as the best is timed once: only its rank matters. */
const near = 1.1
/** One that takes this many times as long is abandoned after a short timing. */
const hopeless = 2
/** One that takes this many times as long, twice, is abandoned after the fewest launches. */
const veryHopeless = 10
const compileSeconds = 10
/** Device time of a short timing, and of one sample for the median. */
const lookMicros = 1000
const timeMicros = 4000
const rounds = 5
const finalRounds = 9
const finalists = 4
const wakeRounds = 12
const fewest = 2
const mostLaunches = 500
/** What is left of a launch, at least, where a step is faster by more than the launches take among their like. */
const leastMicros = 0.01
/** Smaller gains may be noise. */
const worthwhile = 0.98
/** Work that the evaluator does in about a second: iterations times operations. */
const smallWork = 2 ** 24

const launchesFor = (micros: number, each: number): number =>
  Math.max(fewest, Math.min(mostLaunches, Math.ceil(micros / Math.max(each, 0.1))))

const median = (values: ReadonlyArray<number>): number => values.toSorted((a, b) => a - b)[values.length >> 1]!

/** The time of one launch; `Infinity` if it is hopeless beside `best`. */
const measure = Effect.fnUntraced(function*(
  bench: Workbench.Workbench,
  executable: Executable,
  { best, like }: { readonly best: number; readonly like: number }
) {
  const few = yield* bench.time(executable, fewest)
  // drivers may finish compiling when a program first runs
  const slow = veryHopeless * best
  if ((yield* few.again) > slow && (yield* few.again) > slow) return Infinity
  const first = yield* bench.time(executable, launchesFor(lookMicros, like))
  const look = yield* first.again
  if (look > hopeless * best) return Infinity
  const timing = yield* bench.time(executable, launchesFor(timeMicros, look))
  const once = yield* timing.again
  if (once > near * best) return once
  return median([once, ...yield* Effect.replicateEffect(timing.again, rounds - 1)])
}, Effect.scoped)

/** The same as `measure` in a step, in which the program that is there takes `like`. One sample tells good candidates from bad ones. */
const measureIn = Effect.fnUntraced(function*(
  place: InStep.Place,
  executable: Executable,
  { best, like }: { readonly best: number; readonly like: number }
) {
  const again = Effect.map((yield* place.time(executable)).again, (longer) => like + longer)
  const once = yield* again
  const micros = once > near * best ? once : median([once, ...yield* Effect.replicateEffect(again, rounds - 1)])
  return Math.max(leastMicros, micros)
}, Effect.scoped)

/** A rough time of one launch, without an estimate. */
const roughly = Effect.fnUntraced(function*(bench: Workbench.Workbench, executable: Executable) {
  const { again } = yield* bench.time(executable, fewest)
  yield* again
  const first = yield* again
  return yield* (yield* bench.time(executable, launchesFor(timeMicros, first))).again
}, Effect.scoped)

/** The work of evaluating a kernel: iterations of all loops times operations, of all members. */
const workOf = (kernel: UOp): number =>
  members(kernel).reduce(
    (sum, { ast }) =>
      sum + Loops.all(ast).reduce((n, loop) => n * Bounds.of(loop.node.src[0]!).max, toposort(ast).length),
    0
  )

const checkUsual = Effect.fnUntraced(function*(
  { kernel, name, setup }: Job,
  bench: Workbench.Workbench,
  outputs: ReadonlyArray<Check.Output>
) {
  if (workOf(kernel) > smallWork) return
  const buffers = bench.data()
  evaluateKernel(kernel, buffers, Inputs.varsOf(kernel, setup.vars))
  const wanted = Inputs.argumentsOf(kernel).flatMap(({ role, scalar }, i) =>
    role.kind === "output" ? [{ scalar, words: new Uint32Array(buffers[i]!.slice().buffer) }] : []
  )
  const problem = Check.difference(wanted, outputs, Check.tolerancesOf(kernel))
  if (problem !== undefined) {
    return yield* new WrongResult({ kernel: name, message: `${name} is wrong before any tuning: ${problem}` })
  }
})

/** Compiles a batch concurrently; compilations that fail or time out give none. */
const compileAll = (bench: Workbench.Workbench, candidates: ReadonlyArray<Launch.Candidate>) =>
  Effect.forEach(
    candidates,
    (candidate) =>
      bench.compile(Launch.optsOf(candidate)).pipe(Effect.timeout(`${compileSeconds} seconds`), Effect.option),
    { concurrency: "unbounded" }
  )

const look = Effect.fn("Tuner.look")(function*({ kernel, name, setup }: Job) {
  const opts = yield* Launch.usual(kernel, yield* Pipeline)
  // a first look needs no copies
  const bench = yield* Workbench.make(name, kernel, { ...setup, rotateBytes: 0 })
  return { opts, micros: yield* roughly(bench, yield* bench.compile(opts)) }
}, Effect.scoped)

/** An idle GPU lowers its clock, to a sixth on an H200, and takes half a second of work until it is back. */
const idleMicros = 500_000

/** Runs a program until a GPU that idled while programs were compiled has its clock again. */
const warm = Effect.fnUntraced(function*(bench: Workbench.Workbench, executable: Executable, like: number) {
  const { profile } = yield* Pipeline
  if (profile.kind === "cpu") return
  const launches = launchesFor(timeMicros, like)
  const { again } = yield* bench.time(executable, launches)
  for (let spent = 0; spent < idleMicros;) spent += launches * (yield* again)
}, Effect.scoped)

/** The time of one launch, without an estimate. */
const timeFirst = Effect.fnUntraced(function*(bench: Workbench.Workbench, executable: Executable) {
  const like = yield* roughly(bench, executable)
  yield* warm(bench, executable, like)
  return yield* measure(bench, executable, { best: Infinity, like })
})

const time = Effect.fn("Tuner.time")(function*({ kernel, name, setup }: Job) {
  const opts = yield* Launch.usual(kernel, yield* Pipeline)
  const bench = yield* Workbench.make(name, kernel, setup)
  return { opts, micros: yield* timeFirst(bench, yield* bench.compile(opts)) }
}, Effect.scoped)

/** How candidates are timed. */
interface Clocked {
  /** The time of one launch, as exactly as it takes beside `best`. */
  readonly measure: (executable: Executable, best: number) => Effect.Effect<number, DeviceError>
  /** Prepares a timing that is repeated in turns with others, whose differences are those of launches. */
  readonly prepare: (executable: Executable, best: number) => Effect.Effect<Workbench.Timing, DeviceError, Scope.Scope>
}

/** Among launches of their like, or in a step whose program takes `start`. */
const clockedBy = (bench: Workbench.Workbench, place: InStep.Place | undefined, start: number): Clocked =>
  place === undefined
    ? {
      measure: (executable, best) => measure(bench, executable, { best, like: best }),
      prepare: (executable, best) => bench.time(executable, launchesFor(timeMicros, best))
    }
    : {
      measure: (executable, best) => measureIn(place, executable, { best, like: start }),
      prepare: place.time
    }

/** What a search has measured, with the programs of all that could be. */
interface Explored {
  readonly measured: ReadonlyArray<Search.Measured<Launch.Candidate>>
  readonly programs: ReadonlyMap<Launch.Candidate, Executable>
  readonly best: number
  readonly failed: number
}

/** Searches until `isOver`, at least one batch. While programs are compiled the device idles, and lowers its clock: `wake` is run before any is timed. */
const explore = Effect.fnUntraced(function*(
  bench: Workbench.Workbench,
  course: ReturnType<typeof Search.search<Launch.Candidate>>,
  { isOver, measure, start, wake }: Pick<Clocked, "measure"> & {
    readonly start: number
    readonly isOver: Effect.Effect<boolean>
    readonly wake: Effect.Effect<void, DeviceError>
  }
) {
  const programs = new Map<Launch.Candidate, Executable>()
  const measured: Array<Search.Measured<Launch.Candidate>> = []
  let best = start
  let failed = 0
  course.next()
  let step = course.next([start])
  while (step.done !== true && (measured.length === 0 || !(yield* isOver))) {
    const candidates = step.value
    const compiled = yield* compileAll(bench, candidates)
    yield* wake
    const costs: Array<number> = []
    for (const [i, program] of compiled.entries()) {
      if (measured.length > 0 && (yield* isOver)) break
      const cost = Option.isNone(program) ? Infinity : yield* measure(program.value, best)
      if (cost === Infinity) failed++
      else programs.set(candidates[i]!, Option.getOrThrow(program))
      best = Math.min(best, cost)
      costs.push(cost)
      measured.push({ candidate: candidates[i]!, cost })
    }
    if (costs.length === candidates.length) step = course.next(costs)
  }
  const explored: Explored = { measured, programs, best, failed }
  return explored
})

/** A program with its opts. */
interface Compiled {
  readonly opts: Launch.Opts
  readonly program: Executable
}

/** Times programs in turns, since a device's clock drifts. */
const timedInTurns = Effect.fnUntraced(function*(
  all: ReadonlyArray<Compiled>,
  prepare: (program: Executable) => Effect.Effect<Workbench.Timing, DeviceError, Scope.Scope>
) {
  const timings = yield* Effect.forEach(all, ({ program }) => prepare(program))
  const times = all.map((): Array<number> => [])
  for (let round = 0; round < finalRounds; round++) {
    for (const [i, { again }] of timings.entries()) times[i]!.push(yield* again)
  }
  return all.map((own, i) => ({ ...own, micros: median(times[i]!) }))
})

const tune = Effect.fn("Tuner.tune")(function*(job: Job, seconds: number) {
  const { held = () => undefined, kernel, name, place, setup } = job
  const pipeline = yield* Pipeline
  const { profile } = pipeline
  const usual = yield* Launch.usual(kernel, pipeline)
  const holding = members(kernel).map(({ ast }) => held(ast))
  const start = usual.map((opts, i) => holding[i] ?? opts)
  const isOther = start.some((opts, i) => Moves.print(opts) !== Moves.print(usual[i]!))
  const end = (yield* Clock.currentTimeMillis) + 1000 * seconds
  const bench = yield* Workbench.make(name, kernel, setup)
  const usualProgram = yield* bench.compile(usual)
  const wanted = yield* bench.outputs(usualProgram)
  yield* checkUsual(job, bench, wanted)
  const startProgram = isOther ? yield* bench.compile(start) : usualProgram
  const startMicros = yield* timeFirst(bench, startProgram)
  place?.keep(startProgram)

  const working = yield* bench.time(startProgram, launchesFor(timeMicros, startMicros))
  const { measure, prepare } = clockedBy(bench, place, startMicros)
  const course = Search.search(
    Launch.space(kernel, { usual, holding, profile, legal: pipeline.legal }),
    [start.map((opts) => ({ opts, template: undefined }))],
    { seed: setup.seed, batch, most: Infinity, patience }
  )
  const { best, failed, measured, programs } = yield* explore(bench, course, {
    isOver: Effect.map(Clock.currentTimeMillis, (now) => now >= end),
    measure,
    start: startMicros,
    wake: Effect.replicateEffect(working.again, wakeRounds, { discard: true })
  })

  const promising = measured.filter(({ cost }) => cost < startMicros).toSorted((a, b) => a.cost - b.cost)
  const last: ReadonlyArray<Compiled> = [
    { opts: usual, program: usualProgram },
    ...isOther ? [{ opts: start, program: startProgram }] : [],
    ...promising.slice(0, finalists).map(({ candidate }) => ({
      opts: Launch.optsOf(candidate),
      program: programs.get(candidate)!
    }))
  ]
  const turns = yield* timedInTurns(last, (program) => prepare(program, best))
  // of a step only differences are known
  const shift = place === undefined ? 0 : startMicros - turns[isOther ? 1 : 0]!.micros
  const timed = turns.map((own) => ({ ...own, micros: Math.max(leastMicros, own.micros + shift) }))
  const [first] = timed
  const from = isOther ? timed[1]! : first!
  const refused: Array<string> = []
  const result = (best: Timed): Tuned => ({ usual: first!, start: from, best, tried: measured.length, failed, refused })
  const isTelling = Check.isTelling(wanted)
  const tolerances = Check.tolerancesOf(kernel)
  for (const { micros, opts, program } of timed.slice(isOther ? 2 : 1).toSorted((a, b) => a.micros - b.micros)) {
    if (micros > worthwhile * from.micros) break
    const problem = isTelling
      ? Check.difference(wanted, yield* bench.outputs(program), tolerances)
      : "the results on random data say nothing"
    if (problem === undefined) {
      place?.keep(program)
      return result({ opts, micros })
    }
    refused.push(`${printOpts({ opts }).join(", ")}: ${problem}`)
  }
  return result(from)
}, Effect.scoped)

/** Searches on the device of its layer. */
export class Tuner extends Context.Service<Tuner, {
  /** The heuristics' choice, and the rough time of a launch with it, with warm caches. */
  readonly look: (job: Job) => Effect.Effect<Timed, Workbench.CompileError>
  /** The heuristics' choice, and the time of a launch with it, measured as `tune` does. */
  readonly time: (job: Job) => Effect.Effect<Timed, Workbench.CompileError>
  /** Searches until the frontier is empty or the time is up. Takes the device for itself. */
  readonly tune: (job: Job, seconds: number) => Effect.Effect<Tuned, Workbench.CompileError | WrongResult>
}>()("@tg/tuner/Tuner") {
  static readonly layer = Layer.effect(
    Tuner,
    Effect.gen(function*() {
      const services = yield* Effect.context<Device | Pipeline>()
      return Tuner.of({
        look: (job) => Effect.provideContext(look(job), services),
        time: (job) => Effect.provideContext(time(job), services),
        tune: (job, seconds) => Effect.provideContext(tune(job, seconds), services)
      })
    })
  )
}
