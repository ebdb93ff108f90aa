/**
 * Whether the persistent launches of a model's decoding step compute on the GPU at hand what the evaluator computes from the same memory: random values where the launch reads values,
 * the model's weights, of any size. Each different launch once, run ten times.
 *
 *     node bench/phase-values.ts model.gguf [--context 512] [--depth 100] [--profile H100.json]
 *
 * The first words that differ tell the phase, by the places in the arena that `kernel` prints.
 */
import { parseArgs } from "node:util"
import { argOf, type UOp } from "../packages/core-uop/src/UOp.ts"
import { evaluateLinear } from "../packages/core-uop/src/EvaluateLinear.ts"
import { isPersistent, meetingSlot, phasesOf } from "../packages/core-uop/src/Phases.ts"
import type { KernelStep } from "../packages/rangeify/src/Schedule.ts"
import { fromModel } from "../packages/engine/src/Engine.ts"
import * as ModelFile from "../packages/engine/src/ModelFile.ts"
import * as Sampler from "../packages/engine/src/Sampler.ts"
import * as GgufFile from "../packages/gguf/src/GgufFile.ts"
import { Pipeline } from "../packages/jit/src/Pipeline.ts"
import * as Stages from "../packages/jit/src/Stages.ts"
import * as Trial from "../packages/jit/src/Trial.ts"
import { known } from "../packages/models/src/Models.ts"
import { type Binding, bufferOf, Device, type Dispatch } from "../packages/runtime/src/Device.ts"
import { Effect } from "effect"
import { deviceGiven } from "./support/given.ts"

const { positionals: [path], values: given } = parseArgs({
  allowPositionals: true,
  options: {
    context: { type: "string", default: "512" },
    depth: { type: "string", default: "100" },
    profile: { type: "string" }
  }
})
if (path === undefined) throw new Error("which model?")
const [context, depth] = [Number(given.context), Number(given.depth)]
const runs = 10
/** Bytes of the largest argument that is taken for values, not weights. */
const mostValues = 2 ** 19

const wordsOf = ({ buffer, byteLength, byteOffset }: Uint8Array): Uint32Array =>
  new Uint32Array(buffer, byteOffset, byteLength / 4)
const floatsOf = (words: Uint32Array): Float32Array => new Float32Array(words.buffer, words.byteOffset, words.length)
const offsetOf = (place: Binding): number => "buffer" in place ? place.offset : 0

const read = Effect.fnUntraced(function*(place: Binding) {
  const device = yield* Device
  return wordsOf((yield* device.read(bufferOf(place), offsetOf(place), place.bytes)).slice())
})
const write = Effect.fnUntraced(function*(place: Binding, words: Uint32Array) {
  const device = yield* Device
  yield* device.write(bufferOf(place), new Uint8Array(words.slice().buffer), offsetOf(place))
})

/** Runs a launch from random values, and says where what it leaves in its arena differs from what its instructions do. */
const compared = Effect.fnUntraced(
  function*({ ast, name }: KernelStep, dispatch: Dispatch, linear: UOp) {
    const vars = { T: 1, startPos: depth }
    const { buffers, executable: { program } } = dispatch
    const arg = argOf(ast, "PERSISTENT")
    const { awaited: [words = -1, cleared = -1] = [] } = arg
    const empty = new Set([meetingSlot(phasesOf(ast), arg), words, cleared])
    for (const [i, place] of buffers.entries()) {
      if (place.bytes > mostValues) continue
      const count = place.bytes / 4
      const isEmpty = empty.has(program.bindings[i]!.slot)
      // what barriers count, and words that are awaited, are 0 before
      yield* write(place, isEmpty ? new Uint32Array(count) : Trial.wordsOf(count, i + 1))
    }
    const before = yield* Effect.forEach(buffers, read)
    const written = program.bindings.flatMap(({ access }, i) => access === "write" ? [i] : [])
    const replay = yield* (yield* Device).plan([dispatch])
    const found: Array<ReadonlyArray<Uint32Array>> = []
    for (let n = 0; n < runs; n++) {
      for (const i of written) yield* write(buffers[i]!, before[i]!)
      yield* replay.run(vars)
      found.push(yield* Effect.forEach(written, (i) => read(buffers[i]!)))
    }
    const after = before.map((words) => words.slice())
    evaluateLinear(linear, new Map(program.bindings.map(({ slot }, i) => [slot, after[i]!])), vars, {
      checkRaces: false
    })
    const others = found.filter((run) => run.some((words, i) => words.some((word, at) => word !== found[0]![i]![at])))
    console.log(`${name}: ${others.length} of ${runs} runs differ from the first`)
    for (const [i, binding] of written.entries()) {
      const [want, own] = [after[binding]!, found[0]![i]!]
      const places = Trial.differing(want, own)
      const first = places.slice(0, 4).map((at) => `${at}: ${floatsOf(want)[at]} ${floatsOf(own)[at]}`)
      console.log(
        `  slot ${
          program.bindings[binding]!.slot
        }: ${places.length} of ${want.length} words differ from the evaluator's${
          places.length === 0 ? "" : `, ${places[0]} to ${places.at(-1)}; ${first.join(", ")}`
        }`
      )
    }
  },
  Effect.scoped
)

const run = Effect.gen(function*() {
  const { gguf, source } = yield* GgufFile.open(path)
  const file = yield* ModelFile.ofGguf(gguf, known)
  const { session } = yield* fromModel(source, file, { context, prepare: ["last", Sampler.greedy] })
  const { dispatches, schedule } = yield* session.decodeStep(depth)
  const { steps } = yield* schedule
  const pipeline = yield* Pipeline
  const seen = new Set<unknown>()
  for (const [i, step] of steps.entries()) {
    if (step.kind === "custom" || !isPersistent(step.ast) || seen.has(step.ast)) continue
    seen.add(step.ast)
    yield* compared(step, dispatches[i]!, (yield* Stages.ofKernel(pipeline, step.name, step.ast)).linear)
  }
}).pipe(Effect.scoped)

await Effect.runPromise(
  run.pipe(
    Effect.provide(deviceGiven({ device: "webgpu", persistent: "on", profile: given.profile }))
  )
)
