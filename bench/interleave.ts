/**
 * What the launches of a model's step take among their like, of one layer again and again, and of more and more layers in turns: what their weights take that no cache
 * holds, and what changing from program to program takes. On the device's clock.
 *
 *     node bench/interleave.ts model.gguf [--context 4096] [--depth 64] [--device webgpu] [--profile H100.json] [--persistent auto]
 *
 * Values are of no meaning in these orders; bytes, and launches that wait for one another, are those of the step.
 */
import { parseArgs } from "node:util"
import { codeBytes } from "../packages/devectorize/src/PhaseCosts.ts"
import { Pipeline } from "../packages/jit/src/Pipeline.ts"
import * as Profiler from "../packages/jit/src/Profiler.ts"
import * as Stages from "../packages/jit/src/Stages.ts"
import { Device, type Dispatch } from "../packages/runtime/src/Device.ts"
import { Effect } from "effect"
import { decoding } from "./support/decoding.ts"
import { deviceGiven } from "./support/given.ts"

const { positionals: [path], values: given } = parseArgs({
  allowPositionals: true,
  options: {
    context: { type: "string", default: "4096" },
    depth: { type: "string", default: "64" },
    device: { type: "string", default: "webgpu" },
    persistent: { type: "string", default: "off" },
    profile: { type: "string" }
  }
})
if (path === undefined) throw new Error("which model?")
const [context, depth] = [Number(given.context), Number(given.depth)]
const rounds = 15
/** Launches of a kernel, and layers, of one timing. */
const launches = 96
const turns = 48

const run = Effect.gen(function*() {
  const { groups: ofPrograms, prepared, steps, vars } = yield* decoding(path, { context, depth })
  const device = yield* Device
  const pipeline = yield* Pipeline
  /** Microseconds of these launches, one after the other. */
  const timed = Effect.fnUntraced(function*(dispatches: ReadonlyArray<Dispatch>) {
    const replay = yield* device.plan(dispatches)
    const own = dispatches.flatMap(({ executable }) => executable.program.vars)
    const micros = yield* Profiler.onDevice({ ...prepared, ...replay, dispatches, vars: own }, vars, rounds)
    if (micros === undefined) throw new Error("the device has no clock")
    return micros
  }, Effect.scoped)

  const all = prepared.dispatches
  const layers = Math.min(...ofPrograms.map((group) => group.length))
  const groups = ofPrograms.map((group) => ({ group: group.slice(-layers), step: steps[group[0]!]! }))
  const codes = yield* Effect.forEach(
    groups,
    Effect.fnUntraced(function*({ step }) {
      if (step.kind === "custom") return 0
      const stages = yield* Stages.ofKernel(pipeline, step.name, step.ast)
      return codeBytes(stages.linear)
    })
  )
  console.log(`whole step ${(yield* timed(all)).toFixed(1)} us, ${layers} layers`)
  for (const [i, { group, step: { name } }] of groups.entries()) {
    const micros = (yield* timed(group.map((at) => all[at]!))) / layers
    console.log(`${micros.toFixed(2).padStart(7)} us  ${String(codes[i]).padStart(7)} bytes of code  ${name}`)
  }
  const counts = [...[1, 2, 3, 4, 6, 8, 12, 16, 24, 32].filter((n) => n < layers), layers]
  console.log(`us of a launch, among its like of so many layers in turns: ${counts.join(" ")}`)
  for (const { group, step: { name } } of groups) {
    const row: Array<string> = []
    for (const count of counts) {
      const some = Array.from({ length: launches }, (_, i) => all[group[i % count]!]!)
      row.push(((yield* timed(some)) / launches).toFixed(2).padStart(6))
    }
    console.log(`${row.join(" ")}  ${name}`)
  }
  console.log("all kernels of a layer, of so many layers in turns")
  const row: Array<string> = []
  for (const count of counts) {
    const some = Array.from({ length: turns }).flatMap((_, i) => groups.map(({ group }) => all[group[i % count]!]!))
    row.push(((yield* timed(some)) / turns).toFixed(2).padStart(6))
  }
  console.log(row.join(" "))
  console.log("what two programs in turns take more than each among its like, us")
  const alone = yield* Effect.forEach(groups, ({ group }) => timed(group.map((at) => all[at]!)))
  for (const [i, a] of groups.entries()) {
    for (const [j, b] of groups.entries()) {
      if (j <= i) continue
      const both = yield* timed(a.group.flatMap((at, k) => [all[at]!, all[b.group[k]!]!]))
      console.log(
        `${((both - alone[i]! - alone[j]!) / layers).toFixed(2).padStart(7)}  ${a.step.name} and ${b.step.name}`
      )
    }
  }
}).pipe(Effect.scoped)

await Effect.runPromise(run.pipe(Effect.provide(deviceGiven(given))))
