/** Reads a regular expression of ECMA-262 in Unicode mode. What no automaton can match is an error. */
import { Result } from "effect"
import { UnsupportedRegex } from "../ConstrainError.ts"
import * as CodePoints from "./codePoints.ts"

/** An expression. */
export type Expression =
  | { readonly _tag: "Set"; readonly set: CodePoints.CodePoints }
  | { readonly _tag: "Sequence"; readonly parts: ReadonlyArray<Expression> }
  | { readonly _tag: "Choice"; readonly parts: ReadonlyArray<Expression> }
  | { readonly _tag: "Repeat"; readonly part: Expression; readonly min: number; readonly max: number }
  | { readonly _tag: "Assert"; readonly assertion: Assertion }

/** What must hold between two characters. */
export type Assertion = "start" | "end" | "boundary" | "notBoundary"

const range = (low: string, high: string): readonly [number, number] => [low.codePointAt(0)!, high.codePointAt(0)!]

const digits = CodePoints.fromRanges([range("0", "9")])
/** The characters of `\w`. */
export const wordSet = CodePoints.fromRanges([range("0", "9"), range("A", "Z"), range("a", "z"), range("_", "_")])
const spaces = CodePoints.ofText(
  "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
const lineEnds = CodePoints.ofText("\n\r\u2028\u2029")

const classes: Readonly<Record<string, CodePoints.CodePoints>> = {
  d: digits,
  D: CodePoints.complement(digits),
  w: wordSet,
  W: CodePoints.complement(wordSet),
  s: spaces,
  S: CodePoints.complement(spaces)
}

const controls: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13 }

const properties = new Map<string, CodePoints.CodePoints>()

/** The characters with a Unicode property, as this JavaScript knows them. */
const property = (escape: string): CodePoints.CodePoints => {
  const known = properties.get(escape)
  if (known !== undefined) return known
  const test = new RegExp(`^${escape}$`, "u")
  const found: Array<[number, number]> = []
  for (let c = 0; c <= 0x10ffff; c++) {
    if (c === 0xd800) c = 0xe000
    if (!test.test(String.fromCodePoint(c))) continue
    const last = found.at(-1)
    if (last !== undefined && last[1] === c - 1) last[1] = c
    else found.push([c, c])
  }
  properties.set(escape, found)
  return found
}

/** Reads the whole pattern. */
export const parse = (pattern: string): Result.Result<Expression, UnsupportedRegex> =>
  Result.try({
    try: () => {
      // the engine decides what is an expression; the reader below need only tell apart what it has accepted
      try {
        void new RegExp(pattern, "u")
      } catch (cause) {
        throw new Refused(0, cause instanceof Error ? cause.message : String(cause))
      }
      return new Reader(pattern).whole()
    },
    catch: (cause) => {
      if (!(cause instanceof Refused)) throw cause
      return new UnsupportedRegex({ pattern, offset: cause.offset, reason: cause.reason })
    }
  })

class Refused {
  readonly offset: number
  readonly reason: string
  constructor(offset: number, reason: string) {
    this.offset = offset
    this.reason = reason
  }
}

/** Groups inside of groups. */
const maxDepth = 250

class Reader {
  private at = 0
  private depth = 0
  private readonly text: string

  constructor(text: string) {
    this.text = text
  }

  whole(): Expression {
    const found = this.choice()
    if (this.at < this.text.length) this.refuse("cannot be read")
    return found
  }

  private refuse(reason: string): never {
    throw new Refused(this.at, reason)
  }

  private eat(text: string): boolean {
    if (!this.text.startsWith(text, this.at)) return false
    this.at += text.length
    return true
  }

  private choice(): Expression {
    const parts = [this.sequence()]
    while (this.eat("|")) parts.push(this.sequence())
    return parts.length === 1 ? parts[0]! : { _tag: "Choice", parts }
  }

  private sequence(): Expression {
    const parts: Array<Expression> = []
    while (this.at < this.text.length && !"|)".includes(this.text[this.at]!)) parts.push(this.quantified())
    return parts.length === 1 ? parts[0]! : { _tag: "Sequence", parts }
  }

  private quantified(): Expression {
    const part = this.atom()
    const bounds = this.quantifier()
    if (bounds === undefined) return part
    this.eat("?") // lazy: the same texts
    return { _tag: "Repeat", part, min: bounds[0], max: bounds[1] }
  }

  private quantifier(): readonly [number, number] | undefined {
    if (this.eat("*")) return [0, Infinity]
    if (this.eat("+")) return [1, Infinity]
    if (this.eat("?")) return [0, 1]
    const braces = /^\{(\d+)(,(\d*))?\}/.exec(this.text.slice(this.at, this.at + 60))
    if (braces === null) return undefined
    this.at += braces[0].length
    const min = Number(braces[1])
    return [min, braces[2] === undefined ? min : braces[3] === "" ? Infinity : Number(braces[3])]
  }

  private atom(): Expression {
    if (this.eat("^")) return { _tag: "Assert", assertion: "start" }
    if (this.eat("$")) return { _tag: "Assert", assertion: "end" }
    if (this.eat("(")) return this.group()
    if (this.eat("[")) return { _tag: "Set", set: this.bracket() }
    if (this.eat(".")) return { _tag: "Set", set: CodePoints.complement(lineEnds) }
    if (this.eat("\\b")) return { _tag: "Assert", assertion: "boundary" }
    if (this.eat("\\B")) return { _tag: "Assert", assertion: "notBoundary" }
    if (/^\\(?:[1-9]|k<)/.test(this.text.slice(this.at, this.at + 3))) {
      this.refuse("references to groups are not supported")
    }
    if (this.text[this.at] === "\\") return { _tag: "Set", set: this.escape() }
    return { _tag: "Set", set: CodePoints.single(this.character()) }
  }

  private group(): Expression {
    if (++this.depth > maxDepth) this.refuse(`more than ${maxDepth} groups inside of each other`)
    if (this.eat("?")) {
      if (this.eat("=") || this.eat("!") || this.eat("<=") || this.eat("<!")) {
        this.refuse("look-around is not supported")
      }
      if (this.eat("<")) this.at = this.text.indexOf(">", this.at) + 1
      else if (!this.eat(":")) this.refuse("flags inside of an expression are not supported")
    }
    const inner = this.choice()
    if (!this.eat(")")) this.refuse("expected )")
    this.depth--
    return inner
  }

  private character(): number {
    const codePoint = this.text.codePointAt(this.at)!
    this.at += codePoint > 0xffff ? 2 : 1
    return codePoint
  }

  private bracket(): CodePoints.CodePoints {
    const isNegated = this.eat("^")
    const found: Array<CodePoints.CodePoints> = []
    while (!this.eat("]")) {
      const low = this.member()
      const [from] = low
      if (this.text[this.at] !== "-" || this.text[this.at + 1] === "]" || typeof low === "object" && low.length !== 1) {
        found.push(low)
        continue
      }
      this.at++
      const high = this.member()
      if (from === undefined || high.length !== 1) this.refuse("a range needs two characters")
      found.push(CodePoints.fromRanges([[from[0], high[0]![1]]]))
    }
    const set = CodePoints.union(...found)
    return isNegated ? CodePoints.complement(set) : set
  }

  private member(): CodePoints.CodePoints {
    if (this.eat("\\b")) return CodePoints.single(8)
    if (this.eat("\\-")) return CodePoints.single(0x2d)
    return this.text[this.at] === "\\" ? this.escape() : CodePoints.single(this.character())
  }

  /** After a backslash that is no assertion and no reference. */
  private escape(): CodePoints.CodePoints {
    const rest = this.text.slice(this.at)
    const propertyEscape = /^\\[pP]\{[^}]*\}/.exec(rest)
    if (propertyEscape !== null) {
      this.at += propertyEscape[0].length
      return property(propertyEscape[0])
    }
    const hex =
      /^\\(?:x([0-9a-fA-F]{2})|u\{([0-9a-fA-F]+)\}|u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|u([0-9a-fA-F]{4}))/i
        .exec(rest)
    if (hex !== null) {
      this.at += hex[0].length
      const single = hex[1] ?? hex[2] ?? hex[5]
      if (single !== undefined) return CodePoints.single(Number.parseInt(single, 16))
      const [high, low] = [Number.parseInt(hex[3]!, 16), Number.parseInt(hex[4]!, 16)]
      return CodePoints.single(((high - 0xd800) << 10) + (low - 0xdc00) + 0x10000)
    }
    const letter = rest[1]!
    this.at += 2
    const set = classes[letter]
    if (set !== undefined) return set
    if (letter === "0") return CodePoints.single(0)
    if (letter === "c") return CodePoints.single(this.character() % 32)
    const control = controls[letter]
    if (control !== undefined) return CodePoints.single(control)
    // in Unicode mode only the characters of the syntax are escaped, and stand for themselves
    return CodePoints.single(letter.codePointAt(0)!)
  }
}
