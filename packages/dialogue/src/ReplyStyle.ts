/**
 * How a model writes thinking and tool calls: found in its chat template and its vocabulary, never by its name.
 *
 * A tag that is a special token of the vocabulary is that token and nothing else: the same letters spelled with ordinary
 * tokens are text. A tag that the vocabulary lacks is text wherever it stands.
 */
import type { Renderer } from "@tg/tokenizer/ChatTemplate"
import { isSpecial } from "@tg/tokenizer/Vocabulary"
import type { Prompt } from "@tg/tokenizer/ChatTemplate"
import type { Codec } from "@tg/tokenizer/Tokenizer"

/** A tag. With an id it is that token, without one it is its letters. */
export interface Tag {
  readonly text: string
  readonly id: number | undefined
}

/** A section between two tags. */
export interface Section {
  readonly open: Tag
  readonly close: Tag
}

/** `<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>` */
export interface JsonCalls extends Section {
  readonly form: "json"
}

/** `<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>`: strings as they are, other values as JSON. */
export interface PairCalls extends Section {
  readonly form: "pairs"
  readonly key: Section
  readonly value: Section
}

/**
 * DeepSeek's: `BEGIN OPEN f SEPARATOR {"a": 1} CLOSE .. END`; where `isFenced`, each call is
 * `OPEN function SEPARATOR f`, and the arguments stand in a fenced block of Markdown.
 */
export interface FunctionCalls extends Section {
  readonly form: "function"
  readonly all: Section
  readonly separator: Tag
  readonly isFenced: boolean
}

/** How a model writes calls. */
export type Calls = JsonCalls | PairCalls | FunctionCalls

/** The syntax of a model's replies. */
export interface ReplyStyle {
  /** The section of thinking; undefined if the model has no tags for it. */
  readonly thinking: Section | undefined
  readonly calls: Calls
  /**
   * Where the form of calls was found: the template writes them, or the vocabulary has their tags, or neither, and the
   * model has to be told.
   */
  readonly callsFrom: "template" | "vocabulary" | "convention"
  readonly codec: Codec
}

const thinkTags = ["<think>", "</think>"] as const
const callTags = ["<tool_call>", "</tool_call>"] as const
const pairTags = ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"] as const
const functionTags = [
  "<｜tool▁calls▁begin｜>",
  "<｜tool▁calls▁end｜>",
  "<｜tool▁call▁begin｜>",
  "<｜tool▁call▁end｜>",
  "<｜tool▁sep｜>"
]

/** The style of a model. */
export const of = (template: Pick<Renderer, "source">, codec: Codec): ReplyStyle => {
  const { source } = template
  const hasTokens = (tags: ReadonlyArray<string>): boolean => tags.every((tag) => codec.specials.has(tag))
  const isWritten = (tags: ReadonlyArray<string>): boolean => tags.every((tag) => source.includes(tag))
  const tag = tagIn(codec)
  const section = ([open, close]: readonly [string, string]): Section => ({ open: tag(open), close: tag(close) })
  const pairs = (): Calls => ({
    form: "pairs",
    ...section(callTags),
    key: section([pairTags[0], pairTags[1]]),
    value: section([pairTags[2], pairTags[3]])
  })
  const functions = (): Calls => ({
    form: "function",
    ...section([functionTags[2]!, functionTags[3]!]),
    all: section([functionTags[0]!, functionTags[1]!]),
    separator: tag(functionTags[4]!),
    isFenced: !isWritten(functionTags) || source.includes("```json")
  })
  const json = (): Calls => ({ form: "json", ...section(callTags) })
  const written = isWritten([...callTags, ...pairTags])
    ? pairs
    : isWritten(functionTags)
    ? functions
    : isWritten(callTags)
    ? json
    : undefined
  const known = hasTokens([...callTags, ...pairTags])
    ? pairs
    : hasTokens(functionTags)
    ? functions
    : hasTokens(callTags)
    ? json
    : undefined
  return {
    thinking: hasTokens(thinkTags) || thinkTags.some((text) => source.includes(text)) ? section(thinkTags) : undefined,
    calls: (written ?? known ?? json)(),
    callsFrom: written !== undefined ? "template" : known !== undefined ? "vocabulary" : "convention",
    codec
  }
}

/** Whether a reply to this prompt begins inside of the thinking section, because the prompt opens it. */
export const isThinkingOpen = ({ thinking }: ReplyStyle, { segments, text }: Prompt): boolean => {
  if (thinking === undefined) return false
  const { id, text: open } = thinking.open
  const last = segments.findLast((segment) => segment.text.trim() !== "")
  return id === undefined ? text.trimEnd().endsWith(open) : last?.type === "special" && last.text === open
}

/** All tags of a style. */
export const tagsOf = ({ calls, thinking }: ReplyStyle): ReadonlyArray<Tag> => {
  const sections: Array<Section> = [calls, ...(thinking === undefined ? [] : [thinking])]
  if (calls.form === "pairs") sections.push(calls.key, calls.value)
  if (calls.form === "function") sections.push(calls.all)
  return [
    ...sections.flatMap(({ close, open }) => [open, close]),
    ...(calls.form === "function" ? [calls.separator] : [])
  ]
}

const tagIn = ({ specials, vocabulary }: Codec) => (text: string): Tag => {
  const id = specials.get(text)
  return { text, id: id !== undefined && isSpecial(vocabulary.kinds[id]!) ? id : undefined }
}
