/** A model's reply as it streams: reasoning, text and tool calls. */
import { make as callReader } from "./internal/calls.ts"
import { cutAtTag, type Lexeme, make as lexer, type TokenText } from "./internal/lexemes.ts"
import { parse } from "./internal/members.ts"
import { type Calls, type ReplyStyle, type Section, type Tag, tagsOf } from "./ReplyStyle.ts"
import { type Tool, typeOf } from "./Tool.ts"

export type { TokenText } from "./internal/lexemes.ts"

/**
 * A part of a reply. Texts of the same kind that follow each other belong together. Each call has a `tool-start`, its
 * arguments as pieces of one JSON text, and a `tool-end`, which says whether the text is complete: it is not where the
 * reply ended inside of the call, or wrote something else than a call.
 */
export type Part =
  | { readonly type: "reasoning"; readonly text: string }
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "tool-start"; readonly index: number; readonly name: string }
  | { readonly type: "tool-arguments"; readonly index: number; readonly text: string }
  | { readonly type: "tool-end"; readonly index: number; readonly complete: boolean }

/** The context of a reply. */
export interface Options {
  /** The tools that the model was told of. Without any, calls are text. */
  readonly toolsGiven: ReadonlyArray<Tool>
  /** Whether the prompt ends inside of the thinking section. */
  readonly thinkingOpen: boolean
}

/** A streaming parser of a reply. */
export interface Reply {
  /** Takes a token; gives the parts that it settles. */
  readonly push: (token: TokenText) => ReadonlyArray<Part>
  /** Ends the reply; gives the remaining parts. */
  readonly end: () => ReadonlyArray<Part>
}

/** A parser at the start of a reply. However its text is split into tokens, the parts are the same when joined. */
export const make = (style: ReplyStyle, options: Options): Reply => {
  const lexemes = lexer(style.codec, tagsOf(style))
  const sections = reader(style, options)
  const take = (all: ReadonlyArray<Lexeme>): void => {
    for (const lexeme of all) {
      if (lexeme.type === "text") sections.text(lexeme.text)
      else sections.token(lexeme.tag, lexeme.printed)
    }
  }
  return {
    push: (token) => {
      take(lexemes.push(token))
      return sections.parts()
    },
    end: () => {
      take(lexemes.end())
      sections.rest()
      sections.finish()
      return sections.parts()
    }
  }
}

type Speech = "reasoning" | "text"

/** Emits text without the white space around sections, which belongs to their tags. */
const speaker = (say: (type: Speech, text: string) => void) => {
  let spaces = ""
  let isTrimming = false
  return {
    /** Begins a section: drops white space at its beginning, and the buffered white space of the one before. */
    begin: () => {
      spaces = ""
      isTrimming = true
    },
    /** Emits text. White space at its end is buffered if a tag that absorbs it may follow. */
    say: (type: Speech, piece: string, mayEnd: boolean) => {
      const text = spaces + (isTrimming && spaces === "" ? piece.trimStart() : piece)
      if (text === "") return
      isTrimming = false
      const kept = mayEnd ? text.trimEnd() : text
      spaces = text.slice(kept.length)
      if (kept !== "") say(type, kept)
    },
    end: (type: Speech) => {
      if (type === "text" && spaces !== "") say(type, spaces)
      spaces = ""
    }
  }
}

/** A streaming parser of one call, which emits parts. */
const callOf = (calls: Calls, tools: ReadonlyArray<Tool>, index: number, say: (part: Part) => void) => {
  /** The raw text before the call has a name. */
  let raw = calls.open.text
  let isStarted = false
  /** The arguments so far. */
  let json = ""
  const reader = callReader(calls, tools, {
    start: (name) => {
      isStarted = true
      say({ type: "tool-start", index, name })
    },
    argument: (text) => {
      json += text
      if (text !== "") say({ type: "tool-arguments", index, text })
    }
  })
  return {
    tags: reader.tags,
    text: (text: string): number => {
      const count = reader.text(text)
      if (!isStarted) raw += text.slice(0, count)
      return count
    },
    tag: (tag: Tag): boolean => {
      if (!isStarted) raw += tag.text
      return reader.tag(tag)
    },
    /** Ends the call; gives its raw text if it never had a name, and so is text. */
    end: (): string | undefined => {
      const complete = reader.end() && typeOf(parse(json)) === "object"
      if (!isStarted) return raw
      say({ type: "tool-end", index, complete })
      return undefined
    }
  }
}

type Place = Speech | "calls"

/** The tags that are recognised outside of calls. `isSilent`: no text was emitted yet. */
const tagsAt = (
  place: Place,
  { calls, thinking }: ReplyStyle,
  { hasTools, isSilent }: { readonly hasTools: boolean; readonly isSilent: boolean }
): ReadonlyArray<Tag> => {
  const all = allOf(calls)
  switch (place) {
    case "reasoning":
      return [thinking!.close]
    case "text":
      return [
        // letters that look like the tag open a section only where one may begin
        ...(thinking !== undefined && (isSilent || thinking.open.id !== undefined) ? [thinking.open] : []),
        ...(thinking?.close.id === undefined ? [] : [thinking.close]),
        ...(hasTools ? [calls.open, ...(all === undefined ? [] : [all.open])] : [])
      ]
    case "calls":
      return [calls.open, all!.close]
  }
}

/** The section around all calls, where there is one. */
const allOf = (calls: Calls): Section | undefined => calls.form === "function" ? calls.all : undefined

/** Reads text and tags. */
const reader = (style: ReplyStyle, { thinkingOpen, toolsGiven }: Options) => {
  const { calls, thinking } = style
  let parts: Array<Part> = []
  let place: Place = thinkingOpen ? "reasoning" : "text"
  let index = 0
  let isSilent = true
  let call: ReturnType<typeof callOf> | undefined
  const hasTools = toolsGiven.length > 0
  const all = allOf(calls)
  const say = (part: Part): void => void parts.push(part)
  const speech = speaker((type, text) => {
    if (text.trim() !== "") isSilent = false
    say({ type, text })
  })
  if (thinkingOpen) speech.begin()

  const expected = (): ReadonlyArray<Tag> => call?.tags() ?? tagsAt(place, style, { hasTools, isSilent })

  const endCall = (): void => {
    const raw = call!.end()
    call = undefined
    place = all === undefined ? "text" : "calls"
    if (raw !== undefined) return speech.say("text", raw, false)
    index++
    speech.begin()
  }

  const onTag = (tag: Tag): void => {
    if (call !== undefined) {
      if (call.tag(tag)) endCall()
    } else if (tag === calls.open) call = callOf(calls, toolsGiven, index, say)
    else {
      place = tag === thinking?.open ? "reasoning" : tag === all?.open ? "calls" : "text"
      speech.begin()
    }
  }

  const onText = (text: string): number => {
    if (call !== undefined) return call.text(text)
    if (place === "reasoning") speech.say("reasoning", text, true)
    // text between calls is text too: only the white space around it is dropped
    else speech.say("text", text, hasTools || isSilent)
    return text.length
  }

  return {
    ...tagged(expected, onTag, onText),
    /** Ends the reply. */
    finish: () => {
      if (call !== undefined) endCall()
      else speech.end(place === "reasoning" ? place : "text")
    },
    parts: (): ReadonlyArray<Part> => {
      const said = parts
      parts = []
      return said
    }
  }
}

/** Finds the expected tags in a stream of text, with a buffer for the prefix of one. */
const tagged = (
  expected: () => ReadonlyArray<Tag>,
  onTag: (tag: Tag) => void,
  /** How much of the text was read. */
  onText: (text: string) => number
) => {
  let buffer = ""
  /** Empties the buffer, except for the prefix of a tag; at the end that too. */
  const drain = (isEnd: boolean): void => {
    while (buffer !== "") {
      const { before, rest, tag } = cutAtTag(buffer, expected().filter(({ id }) => id === undefined))
      if (before !== "") {
        const count = onText(before)
        buffer = buffer.slice(count)
        continue
      }
      if (tag !== undefined) {
        buffer = rest
        onTag(tag)
      } else if (isEnd) {
        buffer = buffer.slice(onText(buffer))
      } else return
    }
  }
  return {
    text: (text: string) => {
      buffer += text
      drain(false)
    },
    token: (tag: Tag, printed: string) => {
      drain(true)
      if (expected().includes(tag)) onTag(tag)
      else if (printed !== "") onText(printed)
    },
    /** Empties the buffer at the end. */
    rest: () => drain(true)
  }
}
