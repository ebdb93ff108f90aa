/** How an answer looks while it comes. */
import type { Reply } from "@tg/dialogue"
import type { Show } from "./Command.ts"
import { dim, type Style, visible } from "./Style.ts"

/** Turns parts into what is written. */
export interface Shown {
  readonly part: (part: Reply.Part) => string
  /** What is written behind the last part, so that the line is whole. */
  readonly end: () => string
}

/** Where nobody watches, thinking is left out: what is written is the answer. */
export const make = (style: Style, show: Show): Shown => {
  const how: Show = style.isTerminal ? show : "hide"
  let place: "nothing" | "reasoning" | "text" = "nothing"
  let words = 0
  let isInWord = false
  let last = "\n"

  const count = (text: string): void => {
    for (const character of text) {
      const isSpace = /\s/u.test(character)
      if (!isSpace && !isInWord) words++
      isInWord = !isSpace
    }
  }
  const think = (text: string): string => {
    const isFirst = place !== "reasoning"
    place = "reasoning"
    count(text)
    switch (how) {
      case "dim":
        return dim(`${isFirst && !style.hasColors ? "(thinking) " : ""}${visible(text, style)}`, style)
      case "fold":
        return isFirst && style.hasColors ? dim("thinking ..", style) : ""
      case "hide":
        return ""
    }
  }
  const endThinking = (): string => {
    if (place !== "reasoning") return ""
    switch (how) {
      case "dim":
        return "\n\n"
      case "fold":
        return `${style.hasColors ? "\r\x1b[K" : ""}${
          dim(`(thought in ${words} words; /thinking dim shows them)`, style)
        }\n`
      case "hide":
        return ""
    }
  }
  const speak = (text: string): string => {
    const before = endThinking()
    place = "text"
    last = text.at(-1) ?? last
    return before + visible(text, style)
  }

  return {
    part: (part) => {
      switch (part.type) {
        case "reasoning":
          return think(part.text)
        case "text":
          return part.text === "" ? "" : speak(part.text)
        // no tools are given, so none are called
        case "tool-start":
        case "tool-arguments":
        case "tool-end":
          return ""
      }
    },
    end: () => place === "reasoning" ? endThinking() : last === "\n" && place === "text" ? "" : "\n"
  }
}
