/** Reads a JSON object as it comes: what each of its members holds, as it is written. */

/** Takes the text of the members, in pieces. */
export interface Sink {
  /** A piece of a member's value, as JSON text; the last one of a member is `isLast`, maybe empty. */
  readonly value: (key: string, piece: string, isLast: boolean) => void
}

/** How far the object is. */
export type Progress = "open" | "complete" | "invalid"

/** A reader of one object. */
export interface Members {
  /** Takes more of the text: how much of it belongs to the object. Once it is not open, nothing. */
  readonly push: (text: string) => number
  readonly progress: () => Progress
}

const isSpace = (char: string): boolean => char === " " || char === "\n" || char === "\r" || char === "\t"

type Expected = "object" | "first key" | "key" | "in key" | "colon" | "value" | "in value" | "comma"

/** A reader that checks what it has to know: where members begin and end. Values are not checked any further. */
export const make = (sink: Sink): Members => {
  let expected: Expected = "object"
  let progress: Progress = "open"
  let key = ""
  let depth = 0
  let isString = false
  let isEscaped = false

  /** Whether the value ends with this character, or before it. */
  const valueEnd = (char: string): "with" | "before" | "no" => {
    if (isString) {
      if (isEscaped) isEscaped = false
      else if (char === "\\") isEscaped = true
      else if (char === "\"") {
        isString = false
        return depth === 0 ? "with" : "no"
      }
      return "no"
    }
    if (char === "\"") isString = true
    else if (char === "{" || char === "[") depth++
    else if (char === "}" || char === "]") {
      if (depth === 0) return "before"
      depth--
      if (depth === 0) return "with"
    } else if (depth === 0 && (char === "," || isSpace(char))) return "before"
    return "no"
  }

  const readKey = (char: string): void => {
    key += char
    if (isEscaped) isEscaped = false
    else if (char === "\\") isEscaped = true
    else if (char === "\"") {
      const text = parse(key)
      if (typeof text !== "string") progress = "invalid"
      else {
        key = text
        expected = "colon"
      }
    }
  }

  /** A character between keys and values. */
  const readMark = (char: string): void => {
    if (isSpace(char)) return
    if (expected === "object" && char === "{") expected = "first key"
    else if ((expected === "first key" || expected === "comma") && char === "}") progress = "complete"
    else if ((expected === "first key" || expected === "key") && char === "\"") {
      expected = "in key"
      key = char
    } else if (expected === "colon" && char === ":") expected = "value"
    else if (expected === "comma" && char === ",") expected = "key"
    else progress = "invalid"
  }

  /** Reads a value from `at`: where it ends in the text. */
  const readValue = (text: string, at: number): number => {
    for (let i = at; i < text.length; i++) {
      const end = valueEnd(text[i]!)
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
        if (expected === "value" && !isSpace(char)) {
          expected = "in value"
          if (char === "," || char === "}" || char === "]" || char === ":") progress = "invalid"
        }
        if (progress !== "open") break
        if (expected === "in value") at = readValue(text, at)
        else {
          if (expected === "in key") readKey(char)
          else readMark(char)
          at++
        }
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
