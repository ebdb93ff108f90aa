/** Printing tokens as they come: a token may end inside a UTF-8 sequence, whose bytes then wait for the next token. */
import { incompleteTail, join, readUtf8 } from "./internal/bytes.ts"
import type { Codec, DecodeOptions } from "./Tokenizer.ts"

/** The bytes that have been decoded but not printed: the beginning of one UTF-8 sequence, at most three bytes. */
export type Pending = Uint8Array

/** Nothing is waiting. */
export const empty: Pending = new Uint8Array(0)

/** Takes the bytes of the next token: the text that is complete, and what waits. */
export const step = (pending: Pending, bytes: Uint8Array): readonly [text: string, pending: Pending] => {
  const all = join([pending, bytes])
  const complete = all.length - incompleteTail(all)
  return [readUtf8(all.subarray(0, complete)), all.slice(complete)]
}

/** The text of what waits, when nothing follows: U+FFFD, or nothing. */
export const end = (pending: Pending): string => readUtf8(pending)

/** A decoder that remembers what waits. */
export interface Decoder {
  /** The text that is complete with this token: maybe empty. */
  readonly push: (id: number) => string
  /** The rest; the decoder then begins anew. */
  readonly flush: () => string
}

/** A decoder for one stream of tokens. All texts joined are `codec.decode` of all ids. */
export const make = (codec: Codec, options?: DecodeOptions): Decoder => {
  let pending = empty
  return {
    push: (id) => {
      const [text, rest] = step(pending, codec.bytesOf(id, options))
      pending = rest
      return text
    },
    flush: () => {
      const text = end(pending)
      pending = empty
      return text
    }
  }
}
