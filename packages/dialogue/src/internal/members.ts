/** A streaming parser of a JSON object, which emits the raw text of each member's value. */

/** Receives the text of the members, in pieces. */
export interface Sink {
  /** A piece of a member's value, as JSON text; the last one of a member is `isLast`, maybe empty. */
  readonly value: (key: string, piece: string, isLast: boolean) => void
}

/** The state of the object. */
export type Progress = "open" | "complete" | "invalid"

/** A reader of one object. */
export interface Members {
  /** Takes more text; gives how many characters belong to the object: none once it is not open. */
  readonly push: (text: string) => number
  readonly progress: () => Progress
}

const isSpace = (char: string): boolean => char === " " || char === "\n" || char === "\r" || char === "\t"

type Expected = "object" | "first key" | "key" | "in key" | "colon" | "value" | "in value" | "comma"

/** A string of JSON, character by character: whether one ends it. */
class Quoted {
  #isEscaped = false

  /** Whether the string ends with this character behind its opening quote. */
  ends(char: string): boolean {
    if (this.#isEscaped) this.#isEscaped = false
    else if (char === "\\") this.#isEscaped = true
    else return char === "\""
    return false
  }
}

/** A value of JSON, character by character: where it ends. */
class Value {
  #depth = 0
  #string: Quoted | undefined

  /** Whether the value ends with this character, or before it. */
  end(char: string): "with" | "before" | "no" {
    if (this.#string !== undefined) {
      if (!this.#string.ends(char)) return "no"
      this.#string = undefined
      return this.#depth === 0 ? "with" : "no"
    }
    if (char === "\"") this.#string = new Quoted()
    else if (char === "{" || char === "[") this.#depth++
    else if (char === "}" || char === "]") {
      if (this.#depth === 0) return "before"
      this.#depth--
      if (this.#depth === 0) return "with"
    } else if (this.#depth === 0 && (char === "," || isSpace(char))) return "before"
    return "no"
  }
}

/** The transition on a character between keys and values. */
const afterMark = (expected: Expected, char: string): Expected | "complete" | "invalid" => {
  if (isSpace(char)) return expected
  switch (expected) {
    case "object":
      return char === "{" ? "first key" : "invalid"
    case "first key":
      return char === "}" ? "complete" : char === "\"" ? "in key" : "invalid"
    case "key":
      return char === "\"" ? "in key" : "invalid"
    case "colon":
      return char === ":" ? "value" : "invalid"
    case "comma":
      return char === "}" ? "complete" : char === "," ? "key" : "invalid"
    case "value":
      return ",}]:".includes(char) ? "invalid" : "in value"
    default:
      return "invalid"
  }
}

/** A reader that checks only where members begin and end. Values are not validated. */
export const make = (sink: Sink): Members => {
  let expected: Expected = "object"
  let progress: Progress = "open"
  let key = ""
  let keyText = new Quoted()
  let value = new Value()

  const readKey = (char: string): void => {
    key += char
    if (!keyText.ends(char)) return
    const text = parse(key)
    if (typeof text !== "string") progress = "invalid"
    else {
      key = text
      expected = "colon"
    }
  }

  /** Takes a character between keys and values, or the first of a key: how many it is. The first of a value is none. */
  const readMark = (char: string): 0 | 1 => {
    const isOfValue = expected === "value" && !isSpace(char)
    const next = afterMark(expected, char)
    if (next === "complete" || next === "invalid") progress = next
    else expected = next
    if (next === "in key") {
      key = char
      keyText = new Quoted()
    } else if (next === "in value") value = new Value()
    return isOfValue ? 0 : 1
  }

  /** Reads a value from `at`: where it ends in the text. */
  const readValue = (text: string, at: number): number => {
    for (let i = at; i < text.length; i++) {
      const end = value.end(text[i]!)
      if (end === "no") continue
      const next = end === "with" ? i + 1 : i
      expected = "comma"
      sink.value(key, text.slice(at, next), true)
      return next
    }
    sink.value(key, text.slice(at), false)
    return text.length
  }

  return {
    progress: () => progress,
    push: (text) => {
      let at = 0
      while (at < text.length && progress === "open") {
        const char = text[at]!
        if (expected === "in value") at = readValue(text, at)
        else if (expected === "in key") {
          readKey(char)
          at++
        } else at += readMark(char)
      }
      return at
    }
  }
}

/** The value of a JSON text; nothing if it is none. */
export const parse = (text: string): unknown => {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}
