/**
 * What the phases of a model's persistent launches take: of each launch its first phase, its first two, and so on, among their like of all layers, with workgroups of so many
 * threads. On the device's clock.
 *
 *     node bench/phase-times.ts model.gguf [--threads 512,1024] [--words 28,0] [--without waiting,waiting+weights,waiting+weights+words] [--context 512] [--depth 100]
 *         [--profile H100.json] [--persistent on]
 *
 * `--words` are words loaded ahead of each phase, at most. `--without` times each of them again without some of what it does, which says what bounds a phase: weights are read from a processor's own
 * cache, workgroups do not wait for each other, what other phases wrote is not read. Values are of no meaning in these orders.
 */
import { parseArgs } from "node:util"
import * as CorePhases from "../packages/core-uop/src/Phases.ts"
import { argOf, type UOp } from "../packages/core-uop/src/UOp.ts"
import { codeBytes, wordsInUse } from "../packages/devectorize/src/PhaseCosts.ts"
import * as Phases from "../packages/devectorize/src/Phases.ts"
import { Pipeline } from "../packages/jit/src/Pipeline.ts"
import * as Profiler from "../packages/jit/src/Profiler.ts"
import * as Stages from "../packages/jit/src/Stages.ts"
import type { KernelStep } from "../packages/rangeify/src/Schedule.ts"
import { Device, type Dispatch } from "../packages/runtime/src/Device.ts"
import { sampled } from "../packages/tuner/src/Workbench.ts"
import { Effect } from "effect"
import { decoding } from "./support/decoding.ts"
import * as Floors from "./support/floors.ts"
import { deviceGiven } from "./support/given.ts"

const { positionals: [path], values: given } = parseArgs({
  allowPositionals: true,
  options: {
    context: { type: "string", default: "512" },
    depth: { type: "string", default: "100" },
    device: { type: "string", default: "webgpu" },
    persistent: { type: "string", default: "on" },
    profile: { type: "string" },
    threads: { type: "string" },
    without: { type: "string" },
    words: { type: "string", default: "28,0" }
  }
})
if (path === undefined) throw new Error("which model?")
const [context, depth] = [Number(given.context), Number(given.depth)]
const numbers = (list: string): ReadonlyArray<number> => list.split(",").map(Number)
const rounds = 15
const lefts = [
  [],
  ...given.without === undefined ? [] : given.without.split(",").map((text) =>
    text.split("+").map((part) => {
      const found = Floors.parts.find((known) => known === part)
      if (found === undefined) throw new Error(`--without ${part}: ${Floors.parts.join(", ")} can be left out`)
      return found
    })
  )
]

/** How the phases of a launch are made one. */
interface Shape {
  readonly threads: number
  /** Words loaded ahead of each phase, at most. */
  readonly words: number
  /** What is left out. */
  readonly left: ReadonlyArray<Floors.Part>
}

/** The launches of a kernel with its first phases alone, up to one of them. */
const firstPhases = Effect.fnUntraced(function*(
  { ast, name }: KernelStep,
  launches: ReadonlyArray<Dispatch>,
  { last, left, linears, threads, words }: Shape & { readonly last: number; readonly linears: ReadonlyArray<UOp> }
) {
  const device = yield* Device
  const pipeline = yield* Pipeline
  const all = CorePhases.phasesOf(ast)
  const own = all.slice(0, last + 1)
  const launch = argOf(ast, "PERSISTENT")
  const ahead = launch.ahead.slice(0, last + 1).map((n) => Math.min(n, words))
  const kernel = CorePhases.persistent(ast.arena, own, { ...launch, threads, ahead })
  const linear = yield* pipeline.phases(kernel, linears.slice(0, last + 1))
  const program = yield* pipeline.render(name, linear)
  const executable = yield* device.load({ ...program, code: Floors.without(String(program.code), left) })
  const meeting = [own, all].map((phases) => CorePhases.meetingSlot(phases, launch)) as [number, number]
  return launches.map(({ buffers, executable: { program } }): Dispatch => {
    const bySlot = new Map(program.bindings.map(({ slot }, i) => [slot, buffers[i]!]))
    const places = executable.program.bindings.map(({ slot }) => slot === meeting[0] ? meeting[1] : slot)
    return { executable, buffers: places.map((slot) => bySlot.get(slot)!) }
  })
})

/** What is counted of a phase. */
const told = (linear: UOp, workgroups: number): string => {
  const sides = [256, 512, 768, 1024].map((threads) => Phases.besideOf(linear, { threads, workgroups }))
  return `${codeBytes(linear)} bytes of code, ${
    wordsInUse(linear)
  } words in use, so many workgroups side by side in 256, 512, 768, 1024 threads: ${sides.join(" ")}`
}

const run = Effect.gen(function*() {
  const { groups, prepared, steps, vars } = yield* decoding(path, { context, depth })
  const device = yield* Device
  const pipeline = yield* Pipeline
  const wait = Effect.provideService(Profiler.settle(prepared), Device, device)
  /** Microseconds of these launches, one after the other, behind as much of the same work as has the device at its clock. */
  const timed = Effect.fnUntraced(function*(dispatches: ReadonlyArray<Dispatch>) {
    const sample = sampled(yield* device.plan(dispatches), vars, wait, device.profile.kind)
    yield* sample
    return Profiler.median(yield* Effect.replicateEffect(sample, rounds))
  }, Effect.scoped)

  const all = prepared.dispatches
  console.log(`whole step ${(yield* timed(all)).toFixed(1)} us, ${all.length} launches`)
  for (const group of groups) {
    const step = steps[group[0]!]!
    const launches = group.map((i) => all[i]!)
    const each = (micros: number): string => (micros / launches.length).toFixed(2).padStart(7)
    console.log(`\n${each(yield* timed(launches))} us  ${step.name}`)
    if (step.kind === "custom" || !CorePhases.isPersistent(step.ast)) continue
    const launch = argOf(step.ast, "PERSISTENT")
    const linears = yield* Effect.forEach(
      CorePhases.phasesOf(step.ast),
      ({ kernel }) => Effect.map(Stages.ofPhase(pipeline, step.name, kernel), ({ linear }) => linear)
    )
    for (const linear of linears) console.log(`  ${told(linear, launch.workgroups)}`)
    const shapes = numbers(given.threads ?? `${launch.threads}`).flatMap((threads) =>
      numbers(given.words).flatMap((words) => lefts.map((left): Shape => ({ left, threads, words })))
    )
    // all are compiled before any is timed: while the host compiles, the device's clock falls
    const rows = yield* Effect.forEach(
      shapes,
      (shape) => Effect.forEach(linears, (_, last) => firstPhases(step, launches, { ...shape, last, linears }))
    )
    yield* Profiler.warm(prepared, vars)
    for (const [i, { left, threads, words }] of shapes.entries()) {
      const times = yield* Effect.forEach(rows[i]!, timed)
      console.log(
        `${times.map(each).join(" ")}  ${threads} threads, ${words} words ahead${
          left.map((part) => `, without ${part}`).join("")
        }`
      )
    }
  }
}).pipe(Effect.scoped)

await Effect.runPromise(run.pipe(Effect.provide(deviceGiven(given))))
