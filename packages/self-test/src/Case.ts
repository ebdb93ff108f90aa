/** One thing that a device has to get right. */
import type { Jit } from "@tg/jit/Jit"
import type { Pipeline } from "@tg/jit/Pipeline"
import type { Device } from "@tg/runtime/Device"
import { type Effect, Schema, type Scope } from "effect"
import type { Family } from "./Verdict.ts"

/** What a case runs on. */
export type Bench = Device | Jit | Pipeline

/** A device computed something else. */
export class WrongResult extends Schema.TaggedError<WrongResult>()("WrongResult", { message: Schema.String }) {}

/** One thing that a device has to get right. */
export interface Case {
  readonly family: Family
  readonly name: string
  /** Fails if it does not. */
  readonly check: Effect.Effect<void, { readonly message: string }, Bench | Scope.Scope>
}
