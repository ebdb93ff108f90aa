import { DeviceError, type Dispatch, type Replay, type Vars } from "@tg/runtime/Device"
import { Effect, type Scope } from "effect"
import { type Bound, boundOf } from "./bindings.ts"
import { type Launches, prepare, refusedOf } from "./launches.ts"
import type { Memory } from "./memory.ts"
import { error, type Gpu, scoped, usage } from "./queue.ts"
import type { Storage } from "./storage.ts"
import { type Planned, Run, type Submit } from "./submission.ts"
import * as Timer from "./timer.ts"
import * as Uniforms from "./uniforms.ts"

/** What a plan holds on the device. */
interface Prepared extends Launches {
  /** The uniforms, if there are any. */
  readonly buffer: GPUBuffer | undefined
}

/** Prepares launches once; a run writes the variables and submits one command buffer. */
export const make =
  (gpu: Gpu, storage: Storage, submit: Submit) =>
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
      const refused = refusedOf(prepared.grids, limits.maxComputeWorkgroupsPerDimension)
      if (refused !== undefined) return yield* refused
      const memories = new Set(bound.flatMap((some) => some.map(({ memory }) => memory)))
      const { buffer, grids, isClosed, launches } = prepared
      const unfit = fitness(storage, memories, isClosed)
      return replayOf(gpu, submit, { buffer, grids, launches, uniforms, unfit })
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

/** Why a plan that binds these cannot be run. */
const fitness = (storage: Storage, memories: ReadonlySet<Memory>, isClosed: () => boolean): Planned["unfit"] => {
  let returned: number | undefined
  return () => {
    if (isClosed()) return error("BadArgument", "a plan was run after its scope closed")
    if (returned === storage.returned()) return undefined
    for (const memory of memories) {
      const found = storage.own(memory)
      if (found instanceof DeviceError) return found
    }
    returned = storage.returned()
    return undefined
  }
}

/** Runs what is prepared. */
const replayOf = (gpu: Gpu, submit: Submit, plan: Planned): Replay => {
  const run = (vars: Vars): Effect.Effect<void, DeviceError> =>
    Effect.suspend(() => {
      const refused = submit([new Run(gpu, plan, vars)])
      return refused === undefined ? Effect.void : Effect.fail(refused)
    })
  const stage = (vars: Vars) => new Run(gpu, plan, vars)
  const timed = (vars: Vars): Effect.Effect<number, DeviceError> =>
    Timer.time(gpu, ({ behind, descriptor }) => submit([new Run(gpu, plan, vars, descriptor), behind]))
  return gpu.device.features.has("timestamp-query") ? { run, stage, timed } : { run, stage }
}
