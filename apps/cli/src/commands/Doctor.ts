/** `tg doctor`: what this machine offers, what would be used, and why. */
import { availableParallelism, totalmem } from "node:os"
import type { Facts } from "@tg/runtime-webgpu/WebGpuInfo"
import type { Restrictions } from "@tg/core-uop/DeviceLimits"
import * as Measure from "@tg/jit/Measure"
import * as Verdict from "@tg/self-test/Verdict"
import { Context, Effect, Exit, Layer, Option, Scope } from "effect"
import { Command, Flag } from "effect/cli"
import * as DeviceProfiles from "@tg/node/DeviceProfiles"
import * as CompiledFiles from "../CompiledFiles.ts"
import * as DeviceReport from "../DeviceReport.ts"
import * as Devices from "../Devices.ts"
import * as Flags from "../Flags.ts"
import * as OutFile from "../OutFile.ts"
import * as Output from "../Output.ts"
import * as Profiles from "../Profiles.ts"
import { UsageError } from "../Report.ts"
import * as SelfTesting from "../SelfTesting.ts"
import * as WeightSpeed from "../WeightSpeed.ts"

/** What WebGPU offers, or why not. */
type Gpu = (Facts & { readonly available: true }) | { readonly available: false; readonly reason: string }

const flags = {
  measure: Flag.Boolean("measure").pipe(
    Flag.withDescription(
      "Measure what the device is like, for all commands from now on: launches, memory, caches, processors, barriers"
    ),
    Flag.withDefault(false)
  ),
  out: Flag.String("out").pipe(
    Flag.withMetavar("FILE"),
    Flag.withDescription("Write what was measured as a profile, for --profile FILE"),
    Flag.optional
  ),
  force: OutFile.force,
  selfTest: Flag.Boolean("self-test").pipe(
    Flag.withDescription(
      "Compare what the device computes with recorded results; what is wrong is avoided by all commands from now on"
    ),
    Flag.withDefault(false)
  ),
  device: Flags.device,
  limits: Profiles.limits,
  noSubgroups: Profiles.noSubgroups,
  noMatrixUnits: Profiles.noMatrixUnits,
  json: Flags.json
} as const

/** Looks at the machine. */
export const command = Command.make(
  "doctor",
  flags,
  Effect.fn("cli.doctor")(function*(given) {
    const { json, measure } = given
    if (Option.isSome(given.out) && !measure) {
      return yield* new UsageError({ message: "--out is where --measure writes a profile; give both" })
    }
    if (given.selfTest && given.device === "reference") {
      return yield* new UsageError({
        message: "the reference evaluator is what is compared with; test --device webgpu or wasm"
      })
    }
    const restrictions = Profiles.restrictionsOf(given)
    if (restrictions instanceof UsageError) return yield* restrictions
    if (Option.isSome(given.out)) yield* OutFile.check(given.out.value, given)
    const gpu = yield* gpuFacts
    const chosen = verdict(gpu)
    const keeping = yield* Profiles.keeping
    const isGpu = gpu.available && (given.device === "webgpu" || given.device === "auto" && chosen.device === "webgpu")
    const measured = !measure
      ? undefined
      : isGpu
      ? yield* DeviceReport.measure(restrictions, gpu, keeping)
      : yield* speeds(given.device, restrictions)
    const subject = { device: isGpu ? "webgpu" : "wasm", adapter: gpu.available ? gpu.adapter : undefined } as const
    const tested = given.selfTest ? yield* SelfTesting.run({ ...subject, restrictions, keeping }) : undefined
    const kept = gpu.available && keeping !== undefined ? yield* DeviceProfiles.find(keeping, gpu.adapter) : undefined
    if (measured !== undefined && Option.isSome(given.out)) {
      yield* OutFile.writeText(given.out.value, `${JSON.stringify(measured.profile, null, 2)}\n`, given)
    }
    const found = {
      webgpu: gpu.available ? yield* SelfTesting.kept(keeping, { ...subject, device: "webgpu" }) : undefined,
      wasm: yield* SelfTesting.kept(keeping, { ...subject, device: "wasm" })
    }
    const report = {
      ...chosen,
      webgpu: gpu,
      ...(kept === undefined ? {} : { kept }),
      wasm: wasmFacts(),
      host: hostFacts(),
      cache: yield* CompiledFiles.usage,
      selfTests: found,
      ...(measured === undefined ? {} : { measured }),
      ...(tested === undefined ? {} : { tested })
    }
    yield* json ? Output.printJson(report) : Output.print(asText(report))
    if (tested?.verdict.refused === true) return yield* Verdict.refusal(tested.verdict)
  }, Effect.scoped)
).pipe(
  Command.withDescription("Show adapters, limits and features, and what would be used"),
  Command.withExamples([
    { command: "tg doctor --measure --out here.json", description: "Write a profile that --profile takes" },
    { command: "tg doctor --self-test", description: "See whether the device computes what it should" }
  ])
)

/** What was measured of a device. */
interface Speeds extends Measure.Measured {
  readonly device: string
  readonly weights?: WeightSpeed.WeightSpeed
}

/**
 * How fast the device of a choice is. A CPU reads memory much faster than it unpacks weights, so that its profile has the speed of
 * that.
 */
const speeds = (choice: Devices.Choice, restrictions: Restrictions) =>
  Effect.gen(function*() {
    const { name: device } = yield* Devices.Chosen
    const measured = yield* Measure.measure()
    if (measured.profile.kind === "gpu") return { device, ...measured }
    const weights = yield* WeightSpeed.measure()
    const profile = { ...measured.profile, bytesPerMicro: weights.bytesPerMicro }
    const speeds: Speeds = { device, ...measured, profile, weights }
    return speeds
  }).pipe(Effect.provide(Devices.layer(choice, { restrictions })))

/** Starts the device as `--device webgpu` would, and lets go of it. */
const gpuFacts: Effect.Effect<Gpu> = Effect.gen(function*() {
  const [node, { WebGpuInfo }] = yield* Effect.promise(() =>
    Promise.all([import("@tg/runtime-webgpu/Node"), import("@tg/runtime-webgpu/WebGpuInfo")])
  )
  const scope = yield* Scope.make()
  return yield* Layer.buildWithScope(node.layer({ allowSoftware: true }), scope).pipe(
    Effect.map((services): Gpu => ({ available: true, ...Context.get(services, WebGpuInfo) })),
    Effect.catchTag("DeviceError", (error) => Effect.succeed<Gpu>({ available: false, reason: error.message })),
    Effect.ensuring(Scope.close(scope, Exit.void))
  )
})

/** What `--device auto` takes. */
const verdict = (gpu: Gpu): { readonly device: "webgpu" | "wasm"; readonly why: string } => {
  if (!gpu.available) return { device: "wasm", why: gpu.reason }
  if (!Devices.hasGraphicsNode() && !gpu.adapter.software) return { device: "wasm", why: Devices.noGraphicsNode }
  return gpu.adapter.software
    ? {
      device: "wasm",
      why: `the only adapter is software (${gpu.adapter.description}); --device webgpu uses it all the same`
    }
    : { device: "webgpu", why: `${gpu.adapter.description || gpu.adapter.vendor} is a hardware adapter` }
}

// (module (func (result v128) v128.const i32x4 0 0 0 0))
const simdModule = Uint8Array.from(
  [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 22, 1, 20, 0, 253, 12].concat(
    new Array<number>(16).fill(0),
    11
  )
)

const wasmFacts = () => ({
  simd: WebAssembly.validate(simdModule),
  sharedMemory: typeof SharedArrayBuffer !== "undefined"
})

const hostFacts = () => ({
  node: process.version,
  platform: `${process.platform} ${process.arch}`,
  cores: availableParallelism(),
  memoryBytes: totalmem()
})

const asText = (report: {
  readonly device: string
  readonly why: string
  readonly webgpu: Gpu
  readonly wasm: ReturnType<typeof wasmFacts>
  readonly host: ReturnType<typeof hostFacts>
  readonly cache: CompiledFiles.Usage
  readonly kept?: DeviceProfiles.Kept
  readonly measured?: Speeds | DeviceReport.MeasuredGpu
  readonly selfTests: { readonly webgpu: Verdict.Verdict | undefined; readonly wasm: Verdict.Verdict | undefined }
  readonly tested?: SelfTesting.Tested
}): string => {
  const { cache, device, host, kept, measured, selfTests, tested, wasm, webgpu, why } = report
  return [
    `--device auto uses ${device}: ${why}`,
    "",
    ...(webgpu.available
      ? [...gpuLines(webgpu), ...DeviceReport.keptLines(webgpu, kept), ...SelfTesting.keptLines(selfTests.webgpu)]
      : [`webgpu: not available: ${webgpu.reason}`]),
    "",
    `wasm: 128-bit SIMD ${wasm.simd ? "yes" : "no: kernels will be refused; use a newer Node"}, ` +
    `shared memory ${wasm.sharedMemory ? "yes" : "no"}`,
    ...SelfTesting.keptLines(selfTests.wasm),
    "",
    `host: Node ${host.node}, ${host.platform}, ${host.cores} cores, ${(host.memoryBytes / 2 ** 30).toFixed(1)} GiB`,
    "",
    `compiled programs: ${cache.programs}, ${(cache.bytes / 1e6).toFixed(1)} MB, in ${cache.folder}`,
    ...(measured === undefined
      ? []
      : ["", ..."litmus" in measured ? DeviceReport.measuredLines(measured) : measuredLines(measured)]),
    ...(tested === undefined ? [] : ["", ...SelfTesting.testedLines(tested)]),
    ""
  ].join("\n")
}

const measuredLines = (
  { device, dispatchMicros, encodeMicros, readings, weights }: Speeds
): ReadonlyArray<string> => [
  `measured on ${device}:`,
  `  a launch takes ${dispatchMicros} us, submitting it ${encodeMicros} us`,
  ...readings.map(({ bytes, bytesPerMicro, micros }) =>
    `  reading ${bytes / 2 ** 20} MiB takes ${micros} us: ${(bytesPerMicro / 1000).toPrecision(3)} GB/s`
  ),
  ...(weights === undefined ? [] : [
    `  products with the weights of ${weights.shape} read ${(weights.bytesPerMicro / 1000).toPrecision(3)} GB/s: ` +
    `what the profile says`
  ])
]

const gpuLines = (
  { adapter, features, languageFeatures, limits, matrixUnits, probes, subgroupSizes, unclamped }: Facts
): ReadonlyArray<string> => [
  `webgpu: ${adapter.description || "an adapter"}${adapter.software ? " (software)" : ""}`,
  `  vendor ${adapter.vendor || "unknown"}, architecture ${adapter.architecture || "unknown"}, device ${
    adapter.device || "unknown"
  }`,
  `  subgroups: ${subgroupSizes === undefined ? "none" : `${subgroupSizes[0]} to ${subgroupSizes[1]} threads`}`,
  `  matrix units: ${matrixUnits ? "16 x 16 halves" : "none"}`,
  `  indices: kept inside of buffers by ${unclamped ? "kernels, where they are not proved to be" : "the device"}`,
  `  features: ${features.join(", ")}`,
  `  WGSL language features: ${languageFeatures.join(", ")}`,
  `  found by running: ${Object.entries(probes).map(([name, found]) => `${name} ${found ? "yes" : "no"}`).join(", ")}`,
  "  limits:",
  ...Object.entries(limits).map(([name, value]) => `    ${name} ${value}`)
]
