import type { DeviceError } from "@tg/runtime/Device"
import { Effect, type Layer, Result } from "effect"
import * as Node from "./Node.ts"
import * as WebGpu from "./WebGpu.ts"
import type { Facts } from "./WebGpuInfo.ts"

/** An adapter that tests can use. */
export interface Available {
  readonly vendor: string
  readonly description: string
}

const environment =
  (globalThis as { readonly process?: { readonly env: Readonly<Record<string, string | undefined>> } }).process?.env

const find = async (): Promise<Available | undefined> => {
  const found = await Effect.runPromise(Effect.result(
    Effect.flatMap(Node.entry, (gpu) => WebGpu.selectAdapter(gpu, { allowSoftware: true }))
  ))
  if (Result.isSuccess(found)) return { vendor: found.success.info.vendor, description: found.success.info.description }
  if (environment?.["TG_REQUIRE_GPU"] === "1") throw new Error(`TG_REQUIRE_GPU=1, but ${found.failure.message}`)
  console.warn(`SKIPPED: tests that run WGSL, because ${found.failure.message}`)
  return undefined
}

let answer: Promise<Available | undefined> | undefined

/**
 * The adapter tests will run on, decided once. Without one it says on the console what is skipped; with
 * `TG_REQUIRE_GPU=1` in the environment it fails instead. Use as `describe.skipIf((await availableAdapter()) === undefined)`.
 */
export const availableAdapter = (): Promise<Available | undefined> => answer ??= find()

/** The device for tests: hardware if there is some, else a software adapter. */
export const layer: Layer.Layer<WebGpu.Services, DeviceError> = Node.layer({ allowSoftware: true })

/** Facts about a GPU that does not exist, which nothing is known of by its name. */
export const facts: Facts = {
  adapter: { vendor: "acme", architecture: "a1", device: "gpu", description: "driver 1.0", software: false },
  named: false,
  features: [],
  languageFeatures: [],
  limits: {},
  subgroupSizes: undefined,
  matrixUnits: false,
  unclamped: false,
  probes: { halfSubnormals: true, halfRounding: true, f32Subnormals: true, linearSubgroups: true }
}

type Method = (this: unknown, ...given: ReadonlyArray<unknown>) => unknown

/** What is asked of while kernels run. */
const asked = ["GPUDevice", "GPUQueue", "GPUCommandEncoder", "GPUComputePassEncoder"] as const

/** The methods of Dawn's classes that can be put in others' places. */
const methodsOf = (classes: Readonly<Record<string, unknown>>) =>
  asked.flatMap((name) => {
    const { prototype } = classes[name] as { readonly prototype: object }
    return Object.entries(Object.getOwnPropertyDescriptors(prototype)).flatMap(([own, { value, writable }]) =>
      own !== "constructor" && writable === true && typeof value === "function"
        ? [{ prototype, name: own, method: value as Method }]
        : []
    )
  })

/** The work, and how often it called each method of Dawn's: `setBindGroup`, `submit`. */
export const counted = Effect.fnUntraced(function*<A, E, R>(work: Effect.Effect<A, E, R>) {
  const methods = methodsOf(yield* Node.classes)
  const calls: Record<string, number> = {}
  for (const { method, name, prototype } of methods) {
    Reflect.set(prototype, name, function(this: unknown, ...given: ReadonlyArray<unknown>) {
      calls[name] = (calls[name] ?? 0) + 1
      return Reflect.apply(method, this, given)
    })
  }
  const takeBack = Effect.sync(() => {
    for (const { method, name, prototype } of methods) Reflect.set(prototype, name, method)
  })
  return [yield* Effect.ensuring(work, takeBack), calls] as const
})
