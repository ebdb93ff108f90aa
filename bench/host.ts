/**
 * What the host does for a token beside what it asks of Dawn: the engine's decoding as it is, with the launches of a model on an H200, which need not be there. Kernels do
 * nothing and memory is small; once everything is prepared, Dawn's own methods do nothing either, and a read is there at the next turn of the event loop.
 *
 *     node bench/host.ts [glm-4.7-flash:q4_0] [--launches 145] [--tokens 128] [--rounds 20] [--dawn] [--settles]
 *
 * Of each loop (a session's steps; a text with its words) the time of the calling thread for a token, in the first round, the least and in the middle, and the bytes of heap.
 * `--launches` leaves out those behind so many, `--settles` reads a word beside each token, as persistent launches have it; `--dawn` times with Dawn at work (software Vulkan).
 */
import { parseArgs } from "node:util"
import { getHeapStatistics } from "node:v8"
import { h200 } from "../packages/core-uop/src/DeviceProfile.ts"
import { Checked } from "../packages/core-uop/src/Spec.ts"
import * as Generate from "../packages/engine/src/Generate.ts"
import type * as Loader from "../packages/engine/src/Loader.ts"
import type { ModelFile } from "../packages/engine/src/ModelFile.ts"
import * as Packing from "../packages/engine/src/Packing.ts"
import * as Recovering from "../packages/engine/src/Recovering.ts"
import * as Session from "../packages/engine/src/Session.ts"
import { Compiler } from "../packages/jit/src/Compiler.ts"
import { Jit, type Settling } from "../packages/jit/src/Jit.ts"
import { Pipeline } from "../packages/jit/src/Pipeline.ts"
import {
  type Binding,
  bufferOf,
  Device,
  type DeviceBuffer,
  type DeviceShape,
  type Dispatch
} from "../packages/runtime/src/Device.ts"
import * as Node from "../packages/runtime-webgpu/src/Node.ts"
import type { Codec } from "../packages/tokenizer/src/Tokenizer.ts"
import { Effect, Layer, Stream } from "effect"
import { idle } from "./support/idle.ts"
import * as Compiled from "./support/compiled.ts"

const { positionals: [shape = "glm-4.7-flash:q4_0"], values: given } = parseArgs({
  allowPositionals: true,
  options: {
    launches: { type: "string", default: "10000" },
    tokens: { type: "string", default: "128" },
    rounds: { type: "string", default: "20" },
    dawn: { type: "boolean", default: false },
    settles: { type: "boolean", default: false }
  }
})
const [launches, tokens, rounds] = [Number(given.launches), Number(given.tokens), Number(given.rounds)]
const context = 4096
/** Of each window of a buffer. */
const windowBytes = 4096

/** The device with small buffers, whose kernels do nothing. It says of itself that it is an H200. */
const shrunk = (device: DeviceShape): DeviceShape => {
  const small = new Map<DeviceBuffer, DeviceBuffer>()
  const ofWindow = (binding: Binding): Binding => {
    const buffer = small.get(bufferOf(binding))!
    const offset = "buffer" in binding ? binding.offset / 256 * 256 % (buffer.bytes - windowBytes) : 0
    return { buffer, offset, bytes: windowBytes }
  }
  let loaded = 0
  return {
    ...device,
    profile: h200,
    allocate: (bytes, label) =>
      Effect.map(device.allocate(Math.min(Math.ceil(bytes / 256) * 256 + windowBytes, 2 ** 20), label), (buffer) => {
        const made: DeviceBuffer = { bytes, label }
        small.set(made, buffer)
        return made
      }),
    write: () => Effect.void,
    copy: () => Effect.void,
    read: (buffer, offset = 0, bytes = buffer.bytes - offset) =>
      bytes > windowBytes ? Effect.succeed(new Uint8Array(bytes)) : device.read(small.get(buffer)!, offset, bytes),
    load: (program) => device.load(idle(program, loaded++)),
    plan: (dispatches: ReadonlyArray<Dispatch>) =>
      device.plan(
        dispatches.slice(0, launches).map(({ buffers, executable }) => ({
          executable,
          buffers: buffers.map(ofWindow)
        }))
      ),
    submit: (work) =>
      device.submit!(work.map((each) => "buffer" in each ? { ...each, buffer: small.get(each.buffer)! } : each))
  }
}

/** Weights of a model, with no memory behind them. */
const weightsOf = Effect.fnUntraced(function*(model: ModelFile) {
  const device = yield* Device
  const tensors = new Map<string, Binding>()
  const sizes = model.weights.all.map(({ layout, name }) => ({ name, bytes: 4 * layout.words }))
  for (const { bytes, label, parts } of Packing.on(h200, sizes)) {
    const buffer = yield* device.allocate(bytes, label)
    for (const { bytes: own, name, offset } of parts) {
      tensors.set(name, own === bytes ? buffer : { buffer, offset, bytes: own })
    }
  }
  return tensors as Loader.Tensors
})

const instrumented = ["GPUQueue", "GPUCommandEncoder", "GPUComputePassEncoder", "GPUBuffer", "GPUDevice"] as const

/** From now on Dawn's methods that decoding calls do nothing. */
const silence = Effect.map(Node.classes, (classes) => {
  const nothing = (): void => undefined
  const pass = { setPipeline: nothing, setBindGroup: nothing, dispatchWorkgroups: nothing, end: nothing }
  const buffer = {}
  const encoder = { beginComputePass: () => pass, copyBufferToBuffer: nothing, finish: () => buffer }
  const methods: Readonly<Record<string, unknown>> = {
    createCommandEncoder: () => encoder,
    writeBuffer: nothing,
    submit: nothing,
    getMappedRange: (_: number, bytes: number) => new ArrayBuffer(bytes),
    mapAsync: () => new Promise<void>((resolve) => setImmediate(resolve)),
    unmap: nothing
  }
  for (const name of instrumented) {
    const { prototype } = classes[name] as { readonly prototype: object }
    for (const [own, method] of Object.entries(methods)) {
      if (Object.hasOwn(prototype, own)) Reflect.set(prototype, own, method)
    }
  }
})

/** Bytes of heap since the process began. Node's types do not know them yet. */
const allocated = (): number =>
  (getHeapStatistics() as { readonly total_allocated_bytes?: number }).total_allocated_bytes ?? 0

/** Rounds of a loop that makes so many tokens: micros and bytes of a token. */
const timed = Effect.fnUntraced(function*<E, R>(
  name: string,
  { loop, setup = Effect.void }: {
    readonly loop: Effect.Effect<unknown, E, R>
    readonly setup?: Effect.Effect<unknown, E, R>
  }
) {
  const micros: Array<number> = []
  const bytes: Array<number> = []
  for (let round = 0; round < rounds; round++) {
    yield* setup
    const heap = allocated()
    const before = performance.now()
    yield* loop
    micros.push(1000 * (performance.now() - before) / tokens)
    bytes.push((allocated() - heap) / tokens)
  }
  const [sorted, sizes] = [micros, bytes].map((all) => all.toSorted((a, b) => a - b))
  console.log(
    `${name}: ${micros[0]!.toFixed(1)} us in the first round, ${sorted![0]!.toFixed(1)} at least, ${
      sorted![rounds >> 1]!.toFixed(1)
    } in the middle; ${sizes![rounds >> 1]!.toFixed(0)} bytes of heap`
  )
})

/** What a token's word is: all that generating a text asks of a codec, hence the cast. */
const codec = {
  vocabulary: { eog: new Set<number>() },
  bytesOf: () => new Uint8Array([0x20, 0x61, 0x62])
} as unknown as Codec

const run = Effect.gen(function*() {
  // a shape has no file: what a model's file has besides, tokens and templates, nothing here reads
  const model = (yield* Compiled.modelOf(shape)) as unknown as ModelFile
  const first = yield* Session.make(model, yield* weightsOf(model), { context })
  const home = yield* Recovering.home(Effect.succeed({ first }), undefined)
  const session = yield* Recovering.session(home, (own) => Effect.succeed(own.first))
  const step = yield* session.decodeStep(1)
  console.log(`${shape}: ${Math.min(launches, step.dispatches.length)} launches of ${step.dispatches.length}`)
  const prompt = [1, 2, 3]
  const text: Array<number> = [...prompt]
  const next = Effect.map(session.next(text), (id) => {
    text.push(id)
  })
  const setup = Effect.gen(function*() {
    text.splice(prompt.length)
    yield* session.reset
    yield* next
    yield* next
  })
  yield* setup
  if (!given.dawn) yield* silence
  yield* timed("steps", { setup, loop: Effect.replicateEffect(next, tokens, { discard: true }) })
  const texts = Stream.runForEach(
    Generate.generate(session, {
      codec,
      request: { tokens: prompt, maxTokens: tokens, stop: ["nothing"] },
      speculation: undefined
    }),
    () => Effect.void
  )
  yield* timed("texts", { loop: texts })
})

const layers = Effect.gen(function*() {
  const pipeline = yield* Compiled.pipelineFor(Compiled.targets[0])
  const device = Layer.effect(Device, Effect.map(Device, shrunk)).pipe(
    Layer.provide(Node.layer({ allowSoftware: true }))
  )
  const own = Jit.layer.pipe(Layer.provide(Compiler.layer), Layer.provide(Layer.succeed(Pipeline, pipeline)))
  const settling = Effect.gen(function*() {
    const buffer = yield* (yield* Device).allocate(8, "meeting of workgroups")
    const settle: Settling = { span: () => ({ buffer, offset: 0, bytes: 8 }), check: () => Effect.void }
    return { ...yield* Jit, settle }
  })
  const jit = given.settles ? Layer.effect(Jit, settling).pipe(Layer.provide(own)) : own
  return jit.pipe(Layer.provideMerge(device))
})

await Effect.runPromise(
  run.pipe(Effect.scoped, Effect.provide(Layer.unwrap(layers)), Effect.provideService(Checked, false))
)
