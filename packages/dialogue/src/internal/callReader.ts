/** The interface of a streaming parser of one call. */
import type { Tag } from "../ReplyStyle.ts"

/** Receives the events of a call. */
export interface Sink {
  /** The function's name, once. */
  readonly start: (name: string) => void
  /** A piece of the arguments as JSON text, after the name. */
  readonly argument: (json: string) => void
}

/** A reader of one call. */
export interface CallReader {
  /** The tags that are recognised at this place. */
  readonly tags: () => ReadonlyArray<Tag>
  /** Takes text; gives how many characters were consumed before the recognised tags, or the state, changed. */
  readonly text: (text: string) => number
  /** Takes one of `tags()`; gives whether the call ends with it. */
  readonly tag: (tag: Tag) => boolean
  /** Ends the input; gives whether the call was complete. */
  readonly end: () => boolean
}
