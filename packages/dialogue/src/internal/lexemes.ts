/**
 * The lexer: tokens to text and tags. A token's text may come later than its id (part of a character, or the prefix of a stop string),
 * so every tag is recorded with its offset in the whole text.
 */
import * as Decoder from "@tg/tokenizer/Decoder"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import type { Tag } from "../ReplyStyle.ts"

/** Text, or a tag that came as one token. `printed` is the text of that token: nothing for a control token. */
export type Lexeme =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "tag"; readonly tag: Tag; readonly printed: string }

/** A generated token: all texts joined are the text of the reply. */
export interface TokenText {
  readonly id: number
  readonly text: string
}

/** Cuts a stream of tokens into lexemes. */
export interface Lexer {
  readonly push: (token: TokenText) => ReadonlyArray<Lexeme>
  /** The rest: letters of a tag that was cut in two. */
  readonly end: () => ReadonlyArray<Lexeme>
}

interface Mark {
  readonly start: number
  readonly end: number
  readonly tag: Tag
}

/** A lexer that knows these tags by their ids. */
export const make = (codec: Codec, tags: ReadonlyArray<Tag>): Lexer => {
  const byId = new Map(tags.flatMap((tag) => tag.id === undefined ? [] : [[tag.id, tag] as const]))
  const decoder = Decoder.make(codec)
  const marks: Array<Mark> = []
  let decoded = 0
  let seen = 0

  const take = (text: string): ReadonlyArray<Lexeme> => {
    const found: Array<Lexeme> = []
    let rest = text
    const say = (count: number): void => {
      if (count > 0) found.push({ type: "text", text: rest.slice(0, count) })
      rest = rest.slice(Math.max(0, count))
      seen += Math.max(0, count)
    }
    for (let mark = marks[0]; mark !== undefined && mark.start <= seen + rest.length; mark = marks[0]) {
      say(mark.start - seen)
      const letters = Math.min(mark.end - seen, rest.length)
      rest = rest.slice(letters)
      seen += letters
      if (seen < mark.end) return found
      marks.shift()
      found.push({ type: "tag", tag: mark.tag, printed: mark.tag.text.slice(0, mark.end - mark.start) })
    }
    say(rest.length)
    return found
  }

  return {
    push: ({ id, text }) => {
      const own = decoder.push(id)
      decoded += own.length
      const tag = byId.get(id)
      if (tag !== undefined) {
        const printed = own.endsWith(tag.text) ? tag.text.length : 0
        marks.push({ start: decoded - printed, end: decoded, tag })
      }
      return take(text)
    },
    end: () => {
      const cut = marks[0]
      return cut === undefined || seen <= cut.start
        ? []
        : [{ type: "text", text: cut.tag.text.slice(0, seen - cut.start) }]
    }
  }
}

/**
 * The first of the tags in a text, by its letters. If there is none, `rest` is what may still become one at the end of
 * the text.
 */
export const cutAtTag = (
  text: string,
  tags: ReadonlyArray<Tag>
): { readonly before: string; readonly tag: Tag | undefined; readonly rest: string } => {
  let first: { readonly at: number; readonly tag: Tag } | undefined
  for (const tag of tags) {
    const at = text.indexOf(tag.text)
    if (at >= 0 && (first === undefined || at < first.at)) first = { at, tag }
  }
  if (first !== undefined) {
    const { at, tag } = first
    return { before: text.slice(0, at), tag, rest: text.slice(at + tag.text.length) }
  }
  const kept = Math.max(0, ...tags.map((tag) => overlap(text, tag.text)))
  return { before: text.slice(0, text.length - kept), tag: undefined, rest: text.slice(text.length - kept) }
}

/** The length of the longest suffix of the text that is a proper prefix of the tag. */
const overlap = (text: string, tag: string): number => {
  for (let n = Math.min(text.length, tag.length - 1); n > 0; n--) if (text.endsWith(tag.slice(0, n))) return n
  return 0
}
