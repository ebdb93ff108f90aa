/** What a device is like, found out by running kernels on it: the quantities that the compiler's rules and costs ask for. */
import { type DeviceProfile, processorsOf, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import { Device, type DeviceError, type DeviceShape } from "@tg/runtime/Device"
import { Clock, Context, Effect, Layer } from "effect"
import { type Bench, type Failure, make } from "./internal/measure/bench.ts"
import * as Fits from "./internal/measure/fits.ts"
import * as Probes from "./internal/measure/probes.ts"
import { WebGpuInfo } from "./WebGpuInfo.ts"

export type { Finding, Litmus, Measurable } from "./internal/measure/fits.ts"

/** How thorough to be. */
export interface Options {
  /** What is not measured by then stays unknown: 5 for a GPU, 20 for a processor that plays one. */
  readonly seconds?: number | undefined
  /** Only whether barriers across the grid hold: for devices whose figures are known. */
  readonly onlyBarriers?: boolean | undefined
}

/** What was found. */
export interface Measured {
  /** The device's profile with what was measured; what could not be is as it was. */
  readonly profile: DeviceProfile
  /** Every quantity: its value, or why there is none. */
  readonly findings: ReadonlyArray<Fits.Finding>
  /** Of barriers across the grid: each number of workgroups that was tried. */
  readonly litmus: ReadonlyArray<Fits.Litmus>
  readonly seconds: number
}

/** By whom a device is told apart from others in `measure`. */
interface Kind {
  readonly isSoftware: boolean
  readonly hasSubgroups: boolean
}

const usualSeconds = { hardware: 5, software: 20 } as const
const millis = 1000

/** A probe's findings. What it cannot find is told with the reason; a lost device ends everything. */
const attempt = <A>(
  probe: Effect.Effect<A, Failure>,
  quantities: ReadonlyArray<Fits.Measurable>,
  orElse: (findings: Probes.Findings) => A
): Effect.Effect<A, DeviceError> =>
  Effect.catch(probe, (error) =>
    error._tag === "DeviceError" && error.reason === "DeviceLost"
      ? Effect.fail(error)
      : Effect.succeed(orElse(quantities.map((quantity) => ({ quantity, problem: error.message })))))

/** What the probes found together. */
interface Found {
  readonly findings: Probes.Findings
  readonly litmus: ReadonlyArray<Fits.Litmus>
}

/** Barriers across the grid, on so many processors. */
const barriers = (bench: Bench, isSoftware: boolean, known: Record<"processors" | "residentThreads", number>) =>
  Effect.map(
    attempt(
      Probes.gridBarriers(bench, { ...known, kind: isSoftware ? "software" : "hardware" }),
      ["gridBarrierMicros"],
      (findings): Probes.GridBarriers => ({ tried: [], findings })
    ),
    ({ findings, tried }): Found => ({ findings, litmus: tried })
  )

const ofThroughput = ["bytesPerMicro", "operationsPerByte"] as const
const ofCaches = ["cachedPerByte", "ownCacheBytes"] as const

/** Runs all probes, those that others build on first. */
const all = Effect.fnUntraced(function*(bench: Bench, { hasSubgroups, isSoftware }: Kind) {
  const { profile } = bench.device
  const findings: Array<Fits.Finding> = []
  const add = (probe: Effect.Effect<Probes.Findings, Failure>, ...quantities: ReadonlyArray<Fits.Measurable>) =>
    Effect.map(attempt(probe, quantities, (found) => found), (found) => {
      findings.push(...found)
    })
  const valueOf = (name: Fits.Measurable): number | undefined =>
    findings.find(({ quantity }) => quantity === name)?.value
  yield* add(Effect.map(Probes.processors(bench), (found) => [Fits.finding("processors", found)]), "processors")
  const processors = valueOf("processors") ?? Math.ceil(processorsOf(profile))
  yield* add(Probes.launches(bench, processors), "dispatchMicros", "encodeMicros")
  const ofMemory = Effect.gen(function*() {
    const window = yield* Probes.window(bench, isSoftware ? "software" : "hardware")
    yield* add(Probes.throughput(bench, window, processors), ...ofThroughput)
    yield* add(Probes.saturation(bench, window, processors), "saturatingThreads")
    yield* add(Probes.chase(bench, window), "loadMicros", "cachedLoadMicros", "cacheBytes")
    return []
  }).pipe(Effect.scoped)
  yield* add(ofMemory, ...ofThroughput, "saturatingThreads", "loadMicros")
  const bytesPerMicro = valueOf("bytesPerMicro")
  if (bytesPerMicro !== undefined) {
    yield* add(Probes.caches(bench, { bytesPerMicro, count: processors }), ...ofCaches)
  }
  const held = ["residentThreads", "residentWorkgroups", "registerBytes", "residentBytes"] as const
  yield* add(Probes.residency(bench, processors), ...held)
  yield* add(Probes.together(bench, hasSubgroups), "barrierMicros", "stageMicros", "subgroupReduceMicros")
  const residentThreads = valueOf("residentThreads") ?? quantitiesOf(profile).residentThreads
  const found = yield* barriers(bench, isSoftware, { processors, residentThreads })
  return { findings: [...findings, ...found.findings], litmus: found.litmus }
})

/** Measures a device. Everything it allocates is given back. */
export const measure = Effect.fn("DeviceMeasure.measure")(
  function*(device: DeviceShape, kind: Kind, { onlyBarriers = false, seconds }: Options = {}) {
    const { profile } = device
    const began = yield* Clock.currentTimeMillis
    const most = seconds ?? usualSeconds[kind.isSoftware ? "software" : "hardware"]
    const bench = make(device, began + most * millis)
    const { findings, litmus } = yield* onlyBarriers
      ? barriers(bench, kind.isSoftware, quantitiesOf(profile))
      : all(bench, kind)
    // what was tried on this device before says nothing of its driver now
    const { gridBarrierHolds: _, gridBarrierWorkgroups: __, ...usual } = profile
    const measured: Measured = {
      profile: Fits.withFindings(usual, findings, litmus.length === 0 ? {} : Fits.gridBarrier(litmus)),
      findings,
      litmus,
      seconds: ((yield* Clock.currentTimeMillis) - began) / millis
    }
    return measured
  }
)

/** Measures the device at hand. */
export class DeviceMeasure extends Context.Service<DeviceMeasure, {
  readonly measure: (options?: Options) => Effect.Effect<Measured, DeviceError>
}>()("@tg/runtime-webgpu/DeviceMeasure") {
  static readonly layer = Layer.effect(
    DeviceMeasure,
    Effect.gen(function*() {
      const device = yield* Device
      const { adapter, subgroupSizes } = yield* WebGpuInfo
      const kind = { isSoftware: adapter.software, hasSubgroups: subgroupSizes !== undefined }
      return DeviceMeasure.of({ measure: (options) => measure(device, kind, options) })
    })
  )
}
