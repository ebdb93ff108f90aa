/** Readers of one tool call each, from behind its opening tag to its closing one. */
import type { Calls, FunctionCalls, PairCalls, Tag } from "../ReplyStyle.ts"
import { type JsonType, type Tool, typeOf, typesOf } from "../Tool.ts"
import * as Members from "./members.ts"

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

/** A reader for calls of this form. */
export const make = (calls: Calls, tools: ReadonlyArray<Tool>, sink: Sink): CallReader => {
  switch (calls.form) {
    case "json":
      return jsonReader(calls.close, sink)
    case "pairs":
      return pairReader(calls, tools, sink)
    case "function":
      return functionReader(calls, sink)
  }
}

const jsonReader = (close: Tag, sink: Sink): CallReader => {
  let isStarted = false
  let name = ""
  // arguments that came before the name, or as a string of JSON, wait
  let waiting = ""
  let isQuoted: boolean | undefined
  let isArgumentDone = false
  const flush = (): void => {
    if (!isStarted || waiting === "" || (isQuoted === true && !isArgumentDone)) return
    const text = isQuoted === true ? Members.parse(waiting) : waiting
    if (typeof text === "string") sink.argument(text)
    waiting = ""
  }
  const members = Members.make({
    value: (key, piece, isLast) => {
      if (key === "name") {
        name += piece
        const text = isLast ? Members.parse(name) : undefined
        if (typeof text !== "string" || isStarted) return
        isStarted = true
        sink.start(text)
      } else if ((key === "arguments" || key === "parameters") && !isArgumentDone) {
        isQuoted ??= piece.startsWith("\"")
        waiting += piece
        isArgumentDone = isLast
      }
      flush()
    }
  })
  const isComplete = (): boolean => {
    if (members.progress() !== "complete" || !isStarted) return false
    if (isQuoted === undefined) sink.argument("{}")
    return true
  }
  let complete: boolean | undefined
  return {
    tags: () => members.progress() === "open" && close.id === undefined ? [] : [close],
    text: (text) => members.progress() === "open" ? Math.max(1, members.push(text)) : text.length,
    tag: () => {
      complete = isComplete()
      return true
    },
    end: () => complete ??= isComplete()
  }
}

const pairReader = (calls: PairCalls, tools: ReadonlyArray<Tool>, sink: Sink): CallReader => {
  let place: "name" | "pairs" | "key" | "colon" | "value" = "name"
  let name = ""
  let key = ""
  let value = ""
  let count = 0
  let isClosed = false
  let isBroken = false
  let tool: Tool | undefined
  let types: ReadonlySet<JsonType> = new Set()
  const isText = (): boolean => types.size === 1 && types.has("string")
  const start = (): void => {
    const trimmed = name.trim()
    if (trimmed === "") {
      isBroken = true
      return
    }
    tool = tools.find((tool) => tool.function.name === trimmed)
    sink.start(trimmed)
  }
  const endValue = (): void => {
    if (isText()) sink.argument("\"")
    else {
      const parsed = Members.parse(value)
      const isJson = parsed !== undefined && (types.has(typeOf(parsed)) || !types.has("string"))
      sink.argument(isJson ? value.trim() : JSON.stringify(value))
    }
  }
  const close = (): void => {
    isClosed = !isBroken && place === "pairs"
    if (isClosed) sink.argument(count === 0 ? "{}" : "}")
  }
  return {
    tags: () => {
      switch (place) {
        case "name":
        case "pairs":
          return [calls.key.open, calls.close]
        case "key":
          return [calls.key.close, calls.close]
        case "colon":
          return [calls.value.open, calls.close]
        case "value":
          return [calls.value.close, ...(calls.close.id === undefined ? [] : [calls.close])]
      }
    },
    text: (text) => {
      if (place === "name") name += text
      else if (place === "key") key += text
      else if (place === "value" && isText()) sink.argument(JSON.stringify(text).slice(1, -1))
      else if (place === "value") value += text
      return text.length
    },
    tag: (tag) => {
      if (place === "name") {
        start()
        if (isBroken) return true
        place = "pairs"
      }
      if (tag === calls.close) {
        close()
        return true
      }
      if (tag === calls.key.open) {
        key = ""
        place = "key"
      } else if (tag === calls.key.close) {
        types = typesOf(tool, key.trim())
        sink.argument(`${count++ === 0 ? "{" : ", "}${JSON.stringify(key.trim())}: `)
        place = "colon"
      } else if (tag === calls.value.open) {
        value = ""
        if (isText()) sink.argument("\"")
        place = "value"
      } else if (tag === calls.value.close) {
        endValue()
        place = "pairs"
      }
      return false
    },
    end: () => {
      // a model that ends its turn behind a pair has said everything
      if (!isClosed && place === "pairs") close()
      return isClosed
    }
  }
}

const functionReader = (calls: FunctionCalls, sink: Sink): CallReader => {
  let place: "head" | "name" | "arguments" = "head"
  let head = ""
  const members = Members.make({ value: () => {} })
  const start = (): void => {
    place = "arguments"
    sink.start(head.trim())
  }
  const readName = (text: string): number => {
    const at = text.search(/[\n{]/)
    if (at < 0) {
      head += text
      return text.length
    }
    head += text.slice(0, at)
    // line breaks may stand before the name
    if (head.trim() === "") return at + 1
    start()
    return at
  }
  let isBegun = false
  const readArguments = (text: string): number => {
    if (members.progress() !== "open") return text.length
    if (!isBegun) {
      const at = text.indexOf("{")
      isBegun = at >= 0
      if (at !== 0) return at < 0 ? text.length : at
    }
    const count = members.push(text)
    if (count > 0) sink.argument(text.slice(0, count))
    return Math.max(1, count)
  }
  return {
    tags: () =>
      place === "head"
        ? [calls.separator, calls.close]
        : members.progress() === "open" && isBegun && calls.close.id === undefined
        ? []
        : [calls.close],
    text: (text) => {
      if (place === "name") return readName(text)
      if (place === "arguments") return readArguments(text)
      head += text
      return text.length
    },
    tag: (tag) => {
      if (tag !== calls.separator) return true
      if (head.trim() === "function") {
        head = ""
        place = "name"
      } else start()
      return false
    },
    end: () => members.progress() === "complete"
  }
}
