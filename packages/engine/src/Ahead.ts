/** Decoding under way: steps that are submitted before the tokens of those before them are known. */
import type { DeviceError } from "@tg/runtime/Device"
import type { Fiber } from "effect"
import * as Sampler from "./Sampler.ts"

/** Steps that are submitted before the token of the first of them has come back. */
export const stepsAhead = 3

/** Decoding under way. */
export interface Ahead {
  readonly sampling: Sampler.Settings
  /** All tokens known so far, the last one perhaps not yet fed. */
  readonly tokens: Array<number>
  /** Where the next step to submit will put its token. */
  position: number
  /** Tokens on their way, in order. */
  readonly pending: Array<Fiber.Fiber<number, DeviceError>>
}

/** Whether these are the same tokens. */
export const isSame = (a: ReadonlyArray<number>, b: ReadonlyArray<number>): boolean =>
  a.length === b.length && a.every((id, i) => id === b[i])

/** Whether these settings draw the same tokens. */
export const isSameSampling = (a: Sampler.Settings, b: Sampler.Settings): boolean =>
  Sampler.isGreedy(a) && Sampler.isGreedy(b) ||
  (["temperature", "topK", "topP", "minP", "seed"] as const).every((name) => a[name] === b[name])
