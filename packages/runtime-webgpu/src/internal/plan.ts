import { DeviceError, type Dispatch, type Replay, type Span } from "@tg/runtime/Device"
import { Effect, type Scope } from "effect"
import { type Bound, boundOf } from "./bindings.ts"
import { type Launch, prepare, refusedOf, submit } from "./launches.ts"
import type { Memory } from "./memory.ts"
import { error, type Gpu, scoped, usage } from "./queue.ts"
import type { Storage } from "./storage.ts"
import * as Timer from "./timer.ts"
import * as Uniforms from "./uniforms.ts"

/** What a plan holds on the device. */
interface Prepared {
  /** The uniforms, if there are any. */
  readonly buffer: GPUBuffer | undefined
  readonly launches: ReadonlyArray<Launch>
  readonly spares: ReadonlyArray<GPUBuffer>
}

/** Prepares launches once; a run writes the variables and submits one command buffer. */
export const make =
  (gpu: Gpu, storage: Storage) =>
  (dispatches: ReadonlyArray<Dispatch>): Effect.Effect<Replay, DeviceError, Scope.Scope> =>
    Effect.gen(function*() {
      const { limits } = gpu.device
      const bound: Array<ReadonlyArray<Bound>> = []
      for (const dispatch of dispatches) {
        const found = boundOf(gpu, storage, dispatch)
        if (found instanceof DeviceError) return yield* found
        bound.push(found)
      }
      const uniforms = Uniforms.of(dispatches, limits.minUniformBufferOffsetAlignment)
      const prepared = yield* hold(gpu, storage, dispatches, { bound, uniforms })
      const refused = refusedOf(prepared.launches, limits.maxComputeWorkgroupsPerDimension)
      if (refused !== undefined) return yield* refused
      const memories = new Set(bound.flatMap((some) => some.map(({ memory }) => memory)))
      return replayOf(gpu, storage, { ...prepared, uniforms, memories })
    })

/** Makes what the plan holds; it is given back with the Scope, after which `isClosed`. */
const hold = (
  gpu: Gpu,
  storage: Storage,
  dispatches: ReadonlyArray<Dispatch>,
  { bound, uniforms }: {
    readonly bound: ReadonlyArray<ReadonlyArray<Bound>>
    readonly uniforms: Uniforms.Uniforms
  }
): Effect.Effect<Prepared & { readonly isClosed: () => boolean }, DeviceError, Scope.Scope> =>
  Effect.gen(function*() {
    const { device } = gpu
    const { bytes } = uniforms
    let closed = false
    const create = (): Prepared => {
      const buffer = bytes === 0
        ? undefined
        : device.createBuffer({ label: "variables", size: bytes, usage: usage.uniform | usage.copyDst })
      return { buffer, ...prepare(device, dispatches, { bound, buffer, uniforms }) }
    }
    const made = yield* Effect.acquireRelease(
      Effect.tap(scoped(gpu, create), () => Effect.sync(() => storage.count(bytes))),
      ({ value: { buffer, spares } }) =>
        Effect.sync(() => {
          closed = true
          buffer?.destroy()
          for (const spare of spares) spare.destroy()
          storage.count(-bytes)
        })
    )
    if (made.memory !== undefined) return yield* error("OutOfMemory", `preparing a plan: ${made.memory}`)
    if (made.validation !== undefined) return yield* error("BadArgument", `preparing a plan: ${made.validation}`)
    return { ...made.value, isClosed: () => closed }
  })

/** Runs what is prepared. */
const replayOf = (
  gpu: Gpu,
  storage: Storage,
  { buffer, isClosed, launches, memories, uniforms }: Prepared & {
    readonly isClosed: () => boolean
    readonly uniforms: Uniforms.Uniforms
    /** All that is bound. */
    readonly memories: ReadonlySet<Memory>
  }
): Replay => {
  const { device } = gpu
  /** Writes the variables, or says why the launches cannot run. */
  const begin = (vars: Uniforms.Vars): DeviceError | undefined => {
    const trouble = gpu.trouble()
    if (trouble !== undefined) return trouble
    if (isClosed()) return error("BadArgument", "a plan was run after its scope closed")
    for (const memory of memories) {
      const found = storage.own(memory)
      if (found instanceof DeviceError) return found
    }
    const words = uniforms.words(vars)
    if (words instanceof DeviceError) return words
    if (buffer !== undefined) device.queue.writeBuffer(buffer, 0, words)
    return undefined
  }
  const run = (vars: Uniforms.Vars): Effect.Effect<void, DeviceError> =>
    Effect.suspend(() => {
      const refused = begin(vars) ?? submit(device, launches, vars)
      return refused === undefined ? Effect.void : Effect.fail(refused)
    })
  const timed = (vars: Uniforms.Vars): Effect.Effect<number, DeviceError> =>
    Timer.time(gpu, (around) => begin(vars) ?? submit(device, launches, vars, around))
  const runAndRead = (vars: Uniforms.Vars, span: Span): Effect.Effect<Uint8Array, DeviceError> =>
    storage.readBehind(span, (behind) => begin(vars) ?? submit(device, launches, vars, { behind }))
  return device.features.has("timestamp-query") ? { run, runAndRead, timed } : { run, runAndRead }
}
