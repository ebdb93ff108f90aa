/** A model's reply as it streams: reasoning, text and tool calls. */
import { type CallReader, make as callReader } from "./internal/calls.ts"
import { cutAtTag, type Lexeme, make as lexer, type TokenText } from "./internal/lexemes.ts"
import { parse } from "./internal/members.ts"
import { type ReplyStyle, type Section, type Tag, tagsOf } from "./ReplyStyle.ts"
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

/** What is known before the reply begins. */
export interface Options {
  /** The tools that the model was told of. Without any, calls are text. */
  readonly toolsGiven: ReadonlyArray<Tool>
  /** Whether the prompt ends inside of the thinking section. */
  readonly thinkingOpen: boolean
}

/** A reply that is being read. */
export interface Reply {
  /** Takes a token: the parts that are certain with it. */
  readonly push: (token: TokenText) => ReadonlyArray<Part>
  /** Nothing follows: the rest. */
  readonly end: () => ReadonlyArray<Part>
}

/** Begins to read a reply. However its text is split into tokens, the parts are the same when joined. */
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
      sections.end()
      return sections.parts()
    }
  }
}

type Speech = "reasoning" | "text"

/** Says text without the white space around sections, which belongs to their tags. */
const speaker = (say: (type: Speech, text: string) => void) => {
  let spaces = ""
  let isTrimming = false
  return {
    /** A section begins: white space at its beginning is dropped, and what waited of the one before. */
    begin: () => {
      spaces = ""
      isTrimming = true
    },
    /** White space at the end waits if something may follow that makes it superfluous. */
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

/** The call that is being read. */
interface OpenCall {
  readonly reader: CallReader
  /** What was written before the call had a name. */
  raw: string
  isStarted: boolean
  /** The arguments so far. */
  json: string
}

const reader = ({ calls, thinking }: ReplyStyle, { thinkingOpen, toolsGiven }: Options) => {
  let parts: Array<Part> = []
  let place: Speech | "calls" | "call" = thinkingOpen ? "reasoning" : "text"
  let buffer = ""
  let index = 0
  let isSilent = true
  let call: OpenCall | undefined
  const hasTools = toolsGiven.length > 0
  const all: Section | undefined = calls.form === "function" ? calls.all : undefined
  const speech = speaker((type, text) => {
    if (text.trim() !== "") isSilent = false
    parts.push({ type, text })
  })
  if (thinkingOpen) speech.begin()

  /** The tags that mean something here. */
  const expected = (): ReadonlyArray<Tag> => {
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
      case "call":
        return call!.reader.tags()
    }
  }

  const openCall = (): void => {
    const mine = index
    const opened: OpenCall = {
      raw: calls.open.text,
      isStarted: false,
      json: "",
      reader: callReader(calls, toolsGiven, {
        start: (name) => {
          opened.isStarted = true
          parts.push({ type: "tool-start", index: mine, name })
        },
        argument: (text) => {
          opened.json += text
          if (text !== "") parts.push({ type: "tool-arguments", index: mine, text })
        }
      })
    }
    call = opened
    place = "call"
  }

  const closeCall = (): void => {
    const { isStarted, raw, reader } = call!
    const complete = reader.end() && typeOf(parse(call!.json)) === "object"
    call = undefined
    place = all === undefined ? "text" : "calls"
    if (isStarted) {
      parts.push({ type: "tool-end", index, complete })
      index++
      speech.begin()
    } else speech.say("text", raw, false)
  }

  const onTag = (tag: Tag): void => {
    if (call !== undefined) {
      if (!call.isStarted) call.raw += tag.text
      if (call.reader.tag(tag)) closeCall()
    } else if (tag === calls.open) {
      openCall()
    } else {
      place = tag === thinking?.open ? "reasoning" : tag === all?.open ? "calls" : "text"
      speech.begin()
    }
  }

  const onText = (text: string): number => {
    if (call !== undefined) {
      const count = call.reader.text(text)
      if (!call.isStarted) call.raw += text.slice(0, count)
      return count
    }
    if (place === "reasoning") speech.say("reasoning", text, true)
    // what stands between calls is text, too, so that nothing is lost but the white space around it
    else speech.say("text", text, hasTools || isSilent)
    return text.length
  }

  /** Takes what the buffer holds; at the end also what might have become a tag. */
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
    end: () => {
      drain(true)
      if (call !== undefined) closeCall()
      else speech.end(place === "reasoning" ? place : "text")
    },
    parts: (): ReadonlyArray<Part> => {
      const said = parts
      parts = []
      return said
    }
  }
}
