/** Where programs run on this machine: the layers of a choice of device. What a choice does not need is not even imported. */
import { readdirSync } from "node:fs"
import { availableParallelism } from "node:os"
import { Worker } from "node:worker_threads"
import { type DeviceProfile, Profile } from "@tg/core-uop/DeviceProfile"
import { type Restrictions, unrestricted } from "@tg/core-uop/DeviceLimits"
import { given } from "@tg/core-uop/Given"
import { Renderer } from "@tg/core-uop/Program"
import * as CompileCache from "@tg/jit/CompileCache"
import { Compiler } from "@tg/jit/Compiler"
import { Jit } from "@tg/jit/Jit"
import * as Persistent from "@tg/jit/Persistent"
import { Pipeline } from "@tg/jit/Pipeline"
import { Device, DeviceError } from "@tg/runtime/Device"
import * as Limited from "@tg/runtime/Limited"
import type { Facts } from "@tg/runtime-webgpu/WebGpuInfo"
import * as Verdict from "@tg/self-test/Verdict"
import type * as Store from "@tg/tuner/Store"
import * as Tuned from "@tg/tuner/Tuned"
import { Tuner } from "@tg/tuner/Tuner"
import { Context, Effect, Layer } from "effect"
import { KeyValueStore } from "effect/persistence/KeyValueStore"
import * as DeviceProfiles from "./DeviceProfiles.ts"
import * as Ticks from "./Ticks.ts"

/** Where compiled programs are kept. */
export interface Keeping {
  /** A name of the compiler's code: programs of another one are not taken. */
  readonly compiler: string
  readonly store: KeyValueStore
  readonly onProblem: (problem: CompileCache.CacheProblem) => Effect.Effect<void>
}

/** What can be asked for. */
export const choices = ["auto", "webgpu", "wasm", "reference"] as const
/** One of them. */
export type Choice = typeof choices[number]

/** The device in use, in words. */
export class Chosen extends Context.Service<Chosen, {
  readonly kind: Exclude<Choice, "auto">
  /** For people: `wasm`, or the adapter. */
  readonly name: string
  /** Threads of the CPU that compute, where the CPU computes. */
  readonly threads?: number
  /** Why `auto` did not take a GPU. */
  readonly fallback: string | undefined
}>()("@tg/node/Devices/Chosen") {}

/** What every choice provides. */
export type Services = Device | Jit | Pipeline | Chosen | Tuner

const profileOfDevice = Layer.effect(Profile, Effect.map(Device, (device) => device.profile))

/**
 * The compiler for a device, over its renderer and its profile. Opts come from the store where it knows the kernel. Stages that
 * the context has stand in for the usual ones.
 */
export const pipeline = <R>(store: Store.Store, renderer: Layer.Layer<Renderer, never, R>) =>
  Pipeline.layerNoDeps.pipe(
    Layer.provide(Tuned.layer(store)),
    Layer.provide([Pipeline.stages, given(Renderer, renderer)])
  )

/** What runs on a device. */
const stages = <R>({ keeping, store }: Setup, renderer: Layer.Layer<Renderer, never, R>) =>
  Layer.mergeAll(
    Jit.layer.pipe(Layer.provide([Compiler.layer, kept(keeping)])),
    Tuner.layer
  ).pipe(Layer.provideMerge(pipeline(store, renderer)), Layer.provide(profileOfDevice))

/** Programs that were compiled by this code. */
const kept = (keeping: Keeping | undefined) =>
  keeping === undefined
    ? Layer.empty
    : CompileCache.layerStore(keeping).pipe(Layer.provide(Layer.succeed(KeyValueStore, keeping.store)))

/** How a choice is carried out: what a device is restricted to and taken to be, the opts that are known for it, threads of `wasm`, and where programs are kept. */
interface Setup {
  readonly restrictions: Restrictions
  readonly store: Store.Store
  readonly threads: number
  readonly keeping: Keeping | undefined
  readonly profiles: DeviceProfiles.Known
  /** What to do without; what the device's self-test has found if not said. */
  readonly avoid: ReadonlyArray<Verdict.Avoidance> | undefined
  readonly persistent: Persistent.Mode
  /** Why no launch is persistent any more, on whatever device is made later. */
  readonly refusal: { why: string | undefined }
}

/** What runs WebAssembly here: what a self-test of it is about. */
export const wasmIdentity = `WebAssembly\nV8 ${process.versions.v8}\n${process.platform} ${process.arch}`

/** What a device of this identity is to do without. */
const avoidedBy = ({ avoid, profiles }: Setup, identity: string) =>
  Verdict.remembered({ avoid, identity, store: profiles.keeping?.store })

/** The layer's device without what its self-test has found wrong. */
const trusted = (setup: Setup, identity: string) => <E>(layer: Layer.Layer<Device, E>) =>
  Layer.effect(
    Device,
    Effect.gen(function*() {
      const device = yield* Device
      return { ...device, profile: Verdict.without(device.profile, yield* avoidedBy(setup, identity)) }
    })
  ).pipe(Layer.provide(layer))

/** Threads that `wasm` has if nobody says how many. */
export const cores = (): number => availableParallelism()

/** Generated WebAssembly on the calling thread and others. */
const wasmBecause = (
  fallback: string | undefined,
  setup: Setup
): Layer.Layer<Services, DeviceError> =>
  Layer.unwrap(Effect.gen(function*() {
    const [wasm, { layer: device }, nodeThreads] = yield* Effect.promise(() =>
      Promise.all([
        import("@tg/codegen-wasm/Wasm"),
        import("@tg/runtime-wasm/WasmDevice"),
        import("@tg/runtime-wasm/NodeThreads")
      ])
    )
    const chosen = Layer.succeed(Chosen, { kind: "wasm", name: "wasm", threads: setup.threads, fallback })
    return Layer.merge(stages(setup, wasm.layer), chosen).pipe(
      Layer.provideMerge(
        Limited.within(setup.restrictions)(
          trusted(setup, wasmIdentity)(Limited.plannedAs(setup.profiles.given)(device()))
        )
      ),
      Layer.provide(nodeThreads.layer(Worker, setup.threads))
    )
  }))

/** Persistent launches on a GPU. Where workgroups turn out not to run at once, that is remembered of it. */
const persistentOn = (
  { persistent: mode, profiles: { keeping }, refusal }: Setup,
  { adapter }: Pick<Facts, "adapter">,
  profile: DeviceProfile
): Persistent.Service => ({
  mode,
  get refused() {
    return refusal.why
  },
  set refused(why) {
    refusal.why = why
  },
  onRefused: (why) =>
    keeping === undefined
      ? Effect.void
      : keeping.tell(`warning: ${why}; kernels are launched one by one from now on`).pipe(
        Effect.andThen(DeviceProfiles.refuseBarriers(keeping, adapter, { profile, why }))
      )
})

/** A GPU through WebGPU. Software adapters only where the user asked for WebGPU by name. */
const webgpu = (
  options: { readonly allowSoftware: boolean },
  setup: Setup
): Layer.Layer<Services, DeviceError> =>
  Layer.unwrap(Effect.gen(function*() {
    const [node, { identityOf, layerOf, WebGpuInfo, withoutPackedDot }, renderer] = yield* Effect.promise(() =>
      Promise.all([
        import("@tg/runtime-webgpu/Node"),
        import("@tg/runtime-webgpu/WebGpuInfo"),
        import("@tg/codegen-wgsl/WgslRenderer")
      ])
    )
    const rendererOfDevice = layerOf(renderer.layer)
    const chosen = Layer.effect(
      Chosen,
      Effect.map(WebGpuInfo, ({ adapter }) => ({
        kind: "webgpu" as const,
        name: `webgpu (${adapter.description || adapter.vendor}${adapter.software ? ", software" : ""})`,
        fallback: undefined
      }))
    )
    const device = node.layer({ ...options, maxBufferBytes: setup.restrictions.limits["maxBufferSize"] })
    const settled = Layer.effectContext(Effect.gen(function*() {
      const info = yield* WebGpuInfo
      const device = yield* DeviceProfiles.settle(yield* Device, info, setup.profiles)
      const avoid = yield* avoidedBy(setup, identityOf(info.adapter))
      return Context.make(Device, { ...device, profile: Verdict.without(device.profile, avoid) }).pipe(
        Context.add(WebGpuInfo, avoid.includes("packed-dot") ? withoutPackedDot(info) : info)
      )
    })).pipe(Layer.provide(device))
    const persistent = Layer.effect(
      Persistent.Persistent,
      Effect.gen(function*() {
        return persistentOn(setup, yield* WebGpuInfo, (yield* Device).profile)
      })
    )
    return Layer.merge(stages(setup, rendererOfDevice).pipe(Layer.provide(persistent)), chosen).pipe(
      Layer.provideMerge(Limited.within(setup.restrictions)(settled)),
      Layer.provideMerge(Ticks.layer)
    )
  }))

/** The evaluator: right, and slow. */
const reference = ({ profiles, restrictions }: Setup): Layer.Layer<Services, DeviceError> =>
  Layer.unwrap(Effect.gen(function*() {
    const { layer: device, renderer } = yield* Effect.promise(() => import("@tg/runtime/Reference"))
    const jit = Jit.layer.pipe(
      Layer.provide(Compiler.layerReference),
      Layer.provideMerge(Pipeline.layer),
      Layer.provide([renderer(), profileOfDevice])
    )
    const chosen = Layer.succeed(Chosen, { kind: "reference", name: "the reference evaluator", fallback: undefined })
    const untunable = Effect.fail(
      new DeviceError({
        reason: "Unavailable",
        message: "the reference evaluator runs kernels as they are; tune for --device webgpu or wasm"
      })
    )
    const tuner = Layer.succeed(Tuner, { look: () => untunable, time: () => untunable, tune: () => untunable })
    return Layer.mergeAll(jit, chosen, tuner).pipe(Layer.provideMerge(
      Limited.within(restrictions)(Limited.plannedAs(profiles.given)(device))
    ))
  }))

// Render nodes of the kernel's drivers, NVIDIA's own, Windows' under WSL, and those of phones.
const graphicsNodes = /^(dri|nvidia\d+|dxg|kgsl-3d0|mali\d+)$/

/**
 * Whether a hardware GPU can be there. On Linux a driver without a device node has nothing to drive; asking WebGPU would
 * only tell that 0.7 s later, and Dawn prints what it misses.
 */
export const hasGraphicsNode = (): boolean => {
  if (process.platform !== "linux") return true
  try {
    return readdirSync("/dev").some((name) => graphicsNodes.test(name))
  } catch {
    return true
  }
}

/** What to say where `hasGraphicsNode` is false. */
export const noGraphicsNode = "this machine has no graphics device under /dev"

/**
 * The layers of a choice. `auto` is a hardware GPU if there is one, else `wasm`. Opts come from the store where it knows the
 * kernel and the device.
 */
export const layer = (
  choice: Choice,
  {
    avoid,
    keeping,
    persistent = "off",
    profiles = {},
    restrictions = unrestricted,
    store = Tuned.shipped,
    threads = cores()
  }: {
    readonly restrictions?: Restrictions | undefined
    readonly store?: Store.Store | undefined
    /** Of `wasm`, with the calling one; one for each core if not said. */
    readonly threads?: number | undefined
    /** Where compiled programs are kept; nowhere if not said. */
    readonly keeping?: Keeping | undefined
    /** A profile to plan for, and where measured ones are kept; a device is what it says itself if not said. */
    readonly profiles?: DeviceProfiles.Known | undefined
    /** What to do without; what the device's self-test has found if not said. */
    readonly avoid?: ReadonlyArray<Verdict.Avoidance> | undefined
    /** When launches are persistent; `off` if not said. */
    readonly persistent?: Persistent.Mode | undefined
  } = {}
): Layer.Layer<Services, DeviceError> => {
  const refusal = { why: undefined }
  const setup: Setup = { avoid, keeping, persistent, profiles, refusal, restrictions, store, threads }
  switch (choice) {
    case "wasm":
      return wasmBecause(undefined, setup)
    case "webgpu":
      return webgpu({ allowSoftware: true }, setup)
    case "reference":
      return reference(setup)
    case "auto":
      return Layer.suspend(() =>
        hasGraphicsNode()
          ? webgpu({ allowSoftware: false }, setup).pipe(
            // what to do about it is the device's business; that it was not used is ours
            Layer.catchTag("DeviceError", (error) => wasmBecause(error.message.split(";")[0], setup))
          )
          : wasmBecause(noGraphicsNode, setup)
      )
  }
}
