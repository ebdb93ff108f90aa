/** Finds better opts for one kernel by trying them on the device. */
import { Profile } from "@tg/core-uop/DeviceProfile"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import * as Bounds from "@tg/core-uop/Bounds"
import type { Renderer } from "@tg/core-uop/Program"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import { choose } from "@tg/heuristics/Heuristics"
import type * as Opt from "@tg/postrange/Opt"
import * as Loops from "@tg/postrange/Loops"
import type { Device, Executable } from "@tg/runtime/Device"
import { Clock, Context, Effect, Layer, Option, Schema } from "effect"
import * as Check from "./Check.ts"
import * as Inputs from "./Inputs.ts"
import * as Moves from "./Moves.ts"
import * as Search from "./Search.ts"
import * as Workbench from "./Workbench.ts"

/** The usual opts of a kernel compute something else than its reference does: a fault of the compiler or of the device. */
export class WrongResult extends Schema.TaggedError<WrongResult>()("WrongResult", {
  kernel: Schema.String,
  message: Schema.String
}) {}

/** A kernel and how it is set up. */
export interface Job {
  readonly name: string
  /** Spec `kernel`, with one END that writes a buffer: a member of a launch (`Horizontal.members`) and not a joined one. */
  readonly kernel: UOp
  readonly setup: Workbench.Setup
}

/** Opts and the time of one launch. */
export interface Timed {
  readonly opts: ReadonlyArray<Opt.Opt>
  readonly micros: number
}

/** What came out. */
export interface Tuned {
  /** The heuristics' choice: where the search starts, and what has to be beaten. */
  readonly usual: Timed
  /** `usual` itself where nothing is clearly better. */
  readonly best: Timed
  /** Lists that were timed, and those that gave no program or were far too slow. */
  readonly tried: number
  readonly failed: number
  /** Why faster opts were not taken: what they compute is not what the usual ones do. */
  readonly refused: ReadonlyArray<string>
}

/** Candidates that are compiled at once. */
const batch = 8
const patience = 1.3
/** A candidate that takes this many times as long as the best is not timed again. */
const hopeless = 2
/** One that takes this many times as long is not even looked at properly. */
const veryHopeless = 10
const compileSeconds = 10
/** Time on the device for a first look, and for one of the times of which the middle one counts. */
const lookMicros = 1000
const timeMicros = 4000
const rounds = 5
const finalRounds = 9
const finalists = 4
const wakeRounds = 12
const fewest = 2
const mostLaunches = 500
/** What is not better by this much may be chance. */
const worthwhile = 0.98
/** Iterations times operations that the evaluator does in about a second. */
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
  return median(yield* Effect.replicateEffect(timing.again, rounds))
}, Effect.scoped)

/** About the time of one launch, when nothing is known about it. */
const roughly = Effect.fnUntraced(function*(bench: Workbench.Workbench, executable: Executable) {
  const { again } = yield* bench.time(executable, fewest)
  yield* again
  const first = yield* again
  return yield* (yield* bench.time(executable, launchesFor(timeMicros, first))).again
}, Effect.scoped)

/** Iterations of all loops times operations: what evaluating a kernel takes. */
const workOf = (kernel: UOp): number =>
  Loops.all(kernel).reduce((n, loop) => n * Bounds.of(loop.node.src[0]!).max, toposort(kernel).length)

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
  const problem = Check.difference(wanted, outputs, Check.toleranceOf(kernel))
  if (problem !== undefined) {
    return yield* new WrongResult({ kernel: name, message: `${name} is wrong before any tuning: ${problem}` })
  }
})

/** Compiles what it can of a batch; nothing takes longer than some seconds. */
const compileAll = (bench: Workbench.Workbench, candidates: ReadonlyArray<Moves.Candidate>) =>
  Effect.forEach(
    candidates,
    ({ opts }) => bench.compile(opts).pipe(Effect.timeout(`${compileSeconds} seconds`), Effect.option),
    { concurrency: "unbounded" }
  )

const look = Effect.fn("Tuner.look")(function*({ kernel, name, setup }: Job) {
  const opts = choose(kernel, yield* Profile)
  // a first look needs no copies
  const bench = yield* Workbench.make(name, kernel, { ...setup, rotateBytes: 0 })
  return { opts, micros: yield* roughly(bench, yield* bench.compile(opts)) }
}, Effect.scoped)

/** The time of a launch with the usual opts, and their program. */
const timeUsual = Effect.fnUntraced(function*(bench: Workbench.Workbench, opts: ReadonlyArray<Opt.Opt>) {
  const program = yield* bench.compile(opts)
  const micros = yield* measure(bench, program, { best: Infinity, like: yield* roughly(bench, program) })
  return { micros, program }
})

const time = Effect.fn("Tuner.time")(function*({ kernel, name, setup }: Job) {
  const opts = choose(kernel, yield* Profile)
  const { micros } = yield* timeUsual(yield* Workbench.make(name, kernel, setup), opts)
  return { opts, micros }
}, Effect.scoped)

const tune = Effect.fn("Tuner.tune")(function*(job: Job, seconds: number) {
  const { kernel, name, setup } = job
  const profile = yield* Profile
  const usual = choose(kernel, profile)
  const end = (yield* Clock.currentTimeMillis) + 1000 * seconds
  const bench = yield* Workbench.make(name, kernel, setup)
  const { micros: usualMicros, program: usualProgram } = yield* timeUsual(bench, usual)
  const wanted = yield* bench.outputs(usualProgram)
  yield* checkUsual(job, bench, wanted)

  // while programs are compiled the device idles, and lowers its clock
  const usually = yield* bench.time(usualProgram, launchesFor(timeMicros, usualMicros))
  const wake = Effect.replicateEffect(usually.again, wakeRounds, { discard: true })
  const programs = new Map<Moves.Candidate, Executable>()
  let best = usualMicros
  let failed = 0
  const course = Search.search(
    Moves.space(kernel, usual, profile),
    [{ opts: usual, template: undefined }],
    { seed: setup.seed, batch, most: Infinity, patience }
  )
  const measured: Array<Search.Measured<Moves.Candidate>> = []
  const isOver = Effect.map(Clock.currentTimeMillis, (now) => now >= end)
  course.next()
  let step = course.next([usualMicros])
  // however short the time, something is tried
  while (step.done !== true && (measured.length === 0 || !(yield* isOver))) {
    const candidates = step.value
    const compiled = yield* compileAll(bench, candidates)
    yield* wake
    const costs: Array<number> = []
    for (const [i, program] of compiled.entries()) {
      if (measured.length > 0 && (yield* isOver)) break
      const cost = Option.isNone(program) ? Infinity : yield* measure(bench, program.value, { best, like: best })
      if (cost === Infinity) failed++
      else programs.set(candidates[i]!, Option.getOrThrow(program))
      best = Math.min(best, cost)
      costs.push(cost)
      measured.push({ candidate: candidates[i]!, cost })
    }
    if (costs.length === candidates.length) step = course.next(costs)
  }

  const promising = measured.filter(({ cost }) => cost < usualMicros).toSorted((a, b) => a.cost - b.cost)
  const last = [
    { opts: usual, program: usualProgram },
    ...promising.slice(0, finalists).map(({ candidate }) => ({
      opts: candidate.opts,
      program: programs.get(candidate)!
    }))
  ]
  const timings = yield* Effect.forEach(last, ({ program }) => bench.time(program, launchesFor(timeMicros, best)))
  const times = last.map((): Array<number> => [])
  for (let round = 0; round < finalRounds; round++) {
    for (const [i, { again }] of timings.entries()) times[i]!.push(yield* again)
  }
  const [first, ...rest] = last.map(({ opts, program }, i) => ({ opts, program, micros: median(times[i]!) }))
  const refused: Array<string> = []
  const result = (best: Timed): Tuned => ({ usual: first!, best, tried: measured.length, failed, refused })
  const isTelling = Check.isTelling(wanted)
  for (const { micros, opts, program } of rest.toSorted((a, b) => a.micros - b.micros)) {
    if (micros > worthwhile * first!.micros) break
    const problem = isTelling
      ? Check.difference(wanted, yield* bench.outputs(program), Check.toleranceOf(kernel))
      : "the results on random data say nothing"
    if (problem === undefined) return result({ opts, micros })
    refused.push(`${Moves.print(opts)}: ${problem}`)
  }
  return result(first!)
}, Effect.scoped)

/** Searches on the device of its layer. */
export class Tuner extends Context.Service<Tuner, {
  /** The heuristics' choice, and roughly what a launch takes with it, where caches may help. */
  readonly look: (job: Job) => Effect.Effect<Timed, Workbench.CompileError>
  /** The heuristics' choice, and what a launch takes with it, timed as well as `tune` does. */
  readonly time: (job: Job) => Effect.Effect<Timed, Workbench.CompileError>
  /** Tries opts until none is left that may be better, or the seconds are over. Takes the device for itself. */
  readonly tune: (job: Job, seconds: number) => Effect.Effect<Tuned, Workbench.CompileError | WrongResult>
}>()("@tg/tuner/Tuner") {
  static readonly layer = Layer.effect(
    Tuner,
    Effect.gen(function*() {
      const services = yield* Effect.context<Device | Renderer | Profile>()
      return Tuner.of({
        look: (job) => Effect.provideContext(look(job), services),
        time: (job) => Effect.provideContext(time(job), services),
        tune: (job, seconds) => Effect.provideContext(tune(job, seconds), services)
      })
    })
  )
}
