/** Reads a call of pairs: a name, then keys and values between tags. */
import type { PairCalls, Tag } from "../ReplyStyle.ts"
import { type JsonType, type Tool, typeOf, typesOf } from "../Tool.ts"
import type { CallReader, Sink } from "./callReader.ts"
import { parse } from "./members.ts"

type Place = "name" | "pairs" | "key" | "colon" | "value"

/** The tags that are recognised at a place. */
const tagsAt = ({ close, key, value }: PairCalls, place: Place): ReadonlyArray<Tag> => {
  switch (place) {
    case "name":
    case "pairs":
      return [key.open, close]
    case "key":
      return [key.close, close]
    case "colon":
      return [value.open, close]
    case "value":
      return [value.close, ...(close.id === undefined ? [] : [close])]
  }
}

/** Emits the arguments as one JSON object. */
const argumentsTo = ({ argument }: Sink) => {
  let count = 0
  let types: ReadonlySet<JsonType> = new Set()
  let value = ""
  const isText = (): boolean => types.size === 1 && types.has("string")
  return {
    /** A key, whose value is of these types. */
    key: (name: string, ofTypes: ReadonlySet<JsonType>) => {
      types = ofTypes
      argument(`${count++ === 0 ? "{" : ", "}${JSON.stringify(name)}: `)
    },
    beginValue: () => {
      value = ""
      if (isText()) argument("\"")
    },
    /** A string streams; any other value is buffered until it is known whether it is JSON. */
    value: (text: string) => {
      if (isText()) argument(JSON.stringify(text).slice(1, -1))
      else value += text
    },
    endValue: () => {
      if (isText()) return argument("\"")
      const parsed = parse(value)
      const isJson = parsed !== undefined && (types.has(typeOf(parsed)) || !types.has("string"))
      argument(isJson ? value.trim() : JSON.stringify(value))
    },
    end: () => argument(count === 0 ? "{}" : "}")
  }
}

/** A reader of one call of pairs. */
export const pairReader = (calls: PairCalls, tools: ReadonlyArray<Tool>, sink: Sink): CallReader => {
  let place: Place = "name"
  let name = ""
  let key = ""
  let isClosed = false
  let isBroken = false
  const said = argumentsTo(sink)
  const start = (): void => {
    place = "pairs"
    name = name.trim()
    if (name === "") isBroken = true
    else sink.start(name)
  }
  const close = (): void => {
    isClosed = !isBroken && place === "pairs"
    if (isClosed) said.end()
  }
  return {
    tags: () => tagsAt(calls, place),
    text: (text) => {
      if (place === "name") name += text
      else if (place === "key") key += text
      else if (place === "value") said.value(text)
      return text.length
    },
    tag: (tag) => {
      if (place === "name") start()
      if (isBroken || tag === calls.close) {
        close()
        return true
      }
      if (tag === calls.key.open) {
        key = ""
        place = "key"
      } else if (tag === calls.key.close) {
        const tool = tools.find((tool) => tool.function.name === name)
        said.key(key.trim(), typesOf(tool, key.trim()))
        place = "colon"
      } else if (tag === calls.value.open) {
        said.beginValue()
        place = "value"
      } else if (tag === calls.value.close) {
        said.endValue()
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
