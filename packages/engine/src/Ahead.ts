/** Decoding under way: steps that are submitted before the tokens of those before them are known. */
import type { DeviceError } from "@tg/runtime/Device"
import { Context, type Fiber } from "effect"
import { mostDraws } from "./SampleProgram.ts"
import * as Sampler from "./Sampler.ts"
import { commonPrefix } from "./Tokens.ts"

/** Steps of one submission while tokens are generated: so many, or as the time of a step says. */
export type StepsTogether = "auto" | number

/** How many steps sessions submit together: one by default, since several were slower on an H200 (`docs/encoding.md`). */
export const StepsTogether = Context.Reference<StepsTogether>("@tg/engine/StepsTogether", {
  defaultValue: () => 1
})

/** Steps of a submission at most. */
export const mostTogether = mostDraws

/** Steps of a submission at most, unless it is told. */
const usuallyMost = 8

/** Milliseconds that a submission takes a device at most, as far as it can be known: tokens come so far apart, and stopping waits for two. */
const submissionMillis = 10

/** Submissions under way at a time: while the device computes one, the host encodes the next. Single steps are too short for two. */
const submissions = { several: 2, single: 3 } as const

/** Steps after which half of what is known of their time is forgotten. */
const remembered = 64

/** What a step takes, as far as those that came back have shown. */
export class Pace {
  #millis = 0
  #steps = 0

  /** So many steps came back so long after those in front of them. */
  add(millis: number, steps: number): void {
    this.#millis += millis
    this.#steps += steps
    if (this.#steps < remembered) return
    this.#millis /= 2
    this.#steps /= 2
  }

  /** Milliseconds of a step; nothing is known before the first ones came back. */
  get stepMillis(): number | undefined {
    return this.#millis > 0 ? this.#millis / this.#steps : undefined
  }
}

/** How many steps are worth a submission. */
export const togetherOf = (asked: StepsTogether, stepMillis: number | undefined): number => {
  if (asked !== "auto") return Math.max(1, Math.min(mostTogether, asked))
  if (stepMillis === undefined) return 1
  return Math.max(1, Math.min(usuallyMost, Math.floor(submissionMillis / stepMillis)))
}

/** Steps that were submitted together. */
export interface Submission {
  readonly steps: number
  /** The words of their tokens, in order. */
  readonly read: Fiber.Fiber<ReadonlyArray<Uint8Array>, DeviceError>
}

/** Decoding under way. */
export interface Ahead {
  readonly sampling: Sampler.Settings
  /** All tokens that were asked for so far, the last one perhaps not yet fed. */
  readonly tokens: Array<number>
  /** Where the next step to submit will put its token. */
  position: number
  /** Steps of the last submission. */
  steps: number
  /** Tokens on their way, in order. */
  readonly pending: Array<Submission>
  /** Tokens that have come back behind one that was asked for. */
  readonly ready: Array<number>
  /** When tokens came back last, in milliseconds. */
  arrived: number | undefined
}

/** Decoding that goes on behind these tokens, the last of which is not yet fed. */
export const begin = (sampling: Sampler.Settings, tokens: ReadonlyArray<number>): Ahead => ({
  sampling,
  tokens: [...tokens],
  position: tokens.length - 1,
  steps: 0,
  pending: [],
  ready: [],
  arrived: undefined
})

/**
 * Steps to submit now, if any, where `together` are worth a submission and there is room for `room` more. The first submissions
 * are small: the first token comes as soon as it can, and a short answer leaves little behind.
 */
export const stepsNow = (
  { pending, steps }: Pick<Ahead, "pending" | "steps">,
  { room, together }: { readonly together: number; readonly room: number }
): number =>
  pending.length < (together === 1 ? submissions.single : submissions.several)
    ? Math.max(0, Math.min(together, Math.max(1, 2 * steps), room))
    : 0

/** Whether these are the same tokens. */
export const isSame = (a: ReadonlyArray<number>, b: ReadonlyArray<number>): boolean =>
  a.length === b.length && commonPrefix(a, b) === a.length

/** Whether these settings draw the same tokens. */
export const isSameSampling = (a: Sampler.Settings, b: Sampler.Settings): boolean =>
  Sampler.isGreedy(a) && Sampler.isGreedy(b) ||
  (["temperature", "topK", "topP", "minP", "seed"] as const).every((name) => a[name] === b[name])
