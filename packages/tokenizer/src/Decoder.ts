/** Streaming decoding: a token may end inside a UTF-8 sequence, whose bytes are buffered until it is complete. */
import { incompleteTail, join, readUtf8 } from "./internal/bytes.ts"
import type { Codec, DecodeOptions } from "./Tokenizer.ts"

/** Buffered bytes: the beginning of one UTF-8 sequence, at most three bytes. */
export type Pending = Uint8Array

/** No buffered bytes. */
export const empty: Pending = new Uint8Array(0)

/** Takes the bytes of the next token; gives the complete text and the bytes to buffer. */
export const step = (pending: Pending, bytes: Uint8Array): readonly [text: string, pending: Pending] => {
  const all = join([pending, bytes])
  const complete = all.length - incompleteTail(all)
  return [readUtf8(all.subarray(0, complete)), all.slice(complete)]
}

/** The text of the buffered bytes at the end of the stream: U+FFFD, or nothing. */
export const end = (pending: Pending): string => readUtf8(pending)

/** A decoder with its buffer. */
export interface Decoder {
  /** The text that this token completes; may be empty. */
  readonly push: (id: number) => string
  /** The text of the buffered bytes; the decoder then starts afresh. */
  readonly flush: () => string
}

/**
 * A decoder for one stream of tokens. All texts joined are `codec.decode` of all ids, with the space in front that a SentencePiece
 * vocabulary adds and `decode` removes.
 */
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
