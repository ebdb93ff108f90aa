/** What the page and its worker say to each other: messages that structured clone takes as they are. */
import type { NonEmptyReadonlyArray } from "effect/Array"

/** What the page sends. The worker is sent nothing but the count until it is ready. */
export type Asking =
  /** A request with its number. */
  | readonly [0, request: number, name: string, payload: unknown]
  /** The last values of a request are taken: more may come. */
  | readonly [1, request: number]
  /** How many messages the page has sent, in memory that both share if they can. */
  | readonly [2, sent: Int32Array]
  /** Nobody waits for a request any more. */
  | readonly [3, request: number]

/** How a request ended. An error is a `ModelError`; of a defect there is what is said of it. */
export type End =
  | readonly ["done", value: unknown]
  | readonly ["failed", reason: string, message: string]
  | readonly ["died", name: string, message: string, stack: string | undefined]
  | readonly ["interrupted"]

/** What the worker sends. */
export type Answering =
  /** It is ready, or was when it was told of the count. */
  | readonly [0]
  /** Values of a stream, the end of a request, or both in one. */
  | readonly [1, request: number, values: NonEmptyReadonlyArray<unknown> | undefined, end?: End]
  /** A message of the page could not be read. */
  | readonly [2]

/** Some values of a stream, and whether it has no others. */
export interface Part<A> {
  readonly values: NonEmptyReadonlyArray<A>
  readonly isLast: boolean
}
