/** What reads one call, and what it tells. */
import type { Tag } from "../ReplyStyle.ts"

/** Takes what a call says. */
export interface Sink {
  /** The function's name, once. */
  readonly start: (name: string) => void
  /** A piece of the arguments as JSON text, after the name. */
  readonly argument: (json: string) => void
}

/** A reader of one call. */
export interface CallReader {
  /** The tags that mean something at this place. */
  readonly tags: () => ReadonlyArray<Tag>
  /** Takes text: how much of it was read before other tags count, or something else than before. */
  readonly text: (text: string) => number
  /** Takes one of `tags()`: whether the call ends with it. */
  readonly tag: (tag: Tag) => boolean
  /** Nothing follows: whether all of the call was there. */
  readonly end: () => boolean
}
