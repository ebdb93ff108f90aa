/** Readers of one tool call each, from behind its opening tag to its closing one. */
import type { Calls, FunctionCalls, Tag } from "../ReplyStyle.ts"
import type { Tool } from "../Tool.ts"
import type { CallReader, Sink } from "./callReader.ts"
import * as Members from "./members.ts"
import { pairReader } from "./pairReader.ts"

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
  // buffers arguments in front of the name, and arguments as a string of JSON
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
