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
  probes: { halfSubnormals: true, f32Subnormals: true, linearSubgroups: true }
}
