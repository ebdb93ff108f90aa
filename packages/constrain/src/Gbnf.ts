/**
 * Grammars in GBNF, the notation of llama.cpp: rules `name ::= ...` of literals, character classes, groups, names,
 * alternatives and repetitions; the text is what `root` matches. Comments begin with `#`.
 */
import { Result } from "effect"
import { UnsupportedGrammar } from "./ConstrainError.ts"
import * as Grammar from "./Grammar.ts"
import * as CharDfa from "./internal/charDfa.ts"
import * as CodePoints from "./internal/codePoints.ts"
import { compile as compileRules } from "./internal/compile.ts"
import * as Leaf from "./internal/leaf.ts"

/** The grammar of a GBNF text. */
export const compile = (text: string): Result.Result<Grammar.Grammar, UnsupportedGrammar> =>
  Result.flatMap(
    Result.try({
      try: () => new Reader(text).whole(),
      catch: (cause) => {
        if (cause instanceof UnsupportedGrammar) return cause
        throw cause
      }
    }),
    (grammar) =>
      Result.mapBoth(compileRules(grammar), {
        onFailure: ({ reason }) => new UnsupportedGrammar({ line: 1, column: 1, reason }),
        onSuccess: () => grammar
      })
  )

const escapes: Readonly<Record<string, number>> = { n: 10, r: 13, t: 9 }
const hexLengths: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 }

/** Groups inside of groups, and repetitions. */
const maxDepth = 200
const maxRepeats = 1_000_000

class Reader {
  private readonly text: string
  private at = 0
  private depth = 0
  private readonly rules = new Map<string, Grammar.Grammar>()
  /** Where each name is used for the first time. */
  private readonly uses = new Map<string, readonly [at: number, grammar: Grammar.Grammar]>()

  constructor(text: string) {
    this.text = text
  }

  whole(): Grammar.Grammar {
    this.skip(true)
    while (this.at < this.text.length) {
      const start = this.at
      const name = this.name() ?? this.refuse("expected the name of a rule")
      if (this.rules.has(name)) this.refuse(`${name} has a rule already`, start)
      this.skip(false)
      if (!this.eat("::=")) this.refuse("expected ::=")
      this.skip(true)
      this.rules.set(name, this.choice())
      this.skip(true)
    }
    for (const [name, [at]] of this.uses) if (!this.rules.has(name)) this.refuse(`no rule has the name ${name}`, at)
    return this.rules.get("root") ?? this.refuse("no rule has the name root", 0)
  }

  private refuse(reason: string, at = this.at): never {
    const lines = this.text.slice(0, at).split("\n")
    throw new UnsupportedGrammar({ line: lines.length, column: lines.at(-1)!.length + 1, reason })
  }

  private eat(text: string): boolean {
    if (!this.text.startsWith(text, this.at)) return false
    this.at += text.length
    return true
  }

  /** Skips white space and comments, with line ends if those do not end a rule here. */
  private skip(withLines: boolean): void {
    const found = withLines || this.depth > 0 ? /(?:[ \t\r\n]|#[^\n]*)*/y : /(?:[ \t]|#[^\n]*)*/y
    found.lastIndex = this.at
    this.at += found.exec(this.text)![0].length
  }

  private name(): string | undefined {
    const found = /[A-Za-z][A-Za-z0-9-]*/y
    found.lastIndex = this.at
    const name = found.exec(this.text)?.[0]
    this.at += name?.length ?? 0
    return name
  }

  private choice(): Grammar.Grammar {
    const parts = [this.sequence()]
    while (this.nextIs("|")) {
      this.at++
      this.skip(true)
      parts.push(this.sequence())
    }
    return parts.length === 1 ? parts[0]! : Grammar.choice(...parts)
  }

  /** Whether a mark follows, on the next lines, too. */
  private nextIs(mark: string): boolean {
    const before = this.at
    this.skip(true)
    if (this.text[this.at] === mark) return true
    this.at = before
    return false
  }

  private sequence(): Grammar.Grammar {
    const parts: Array<Grammar.Grammar> = []
    for (let item = this.item(); item !== undefined; item = this.item()) parts.push(item)
    return Grammar.sequence(...parts)
  }

  private item(): Grammar.Grammar | undefined {
    const part = this.atom()
    if (part === undefined) return undefined
    let found = part
    for (let bounds = this.bounds(); bounds !== undefined; bounds = this.bounds()) found = Grammar.repeat(found, bounds)
    this.skip(false)
    return found
  }

  private bounds(): { readonly min: number; readonly max: number } | undefined {
    if (this.eat("*")) return { min: 0, max: Infinity }
    if (this.eat("+")) return { min: 1, max: Infinity }
    if (this.eat("?")) return { min: 0, max: 1 }
    const braces = /\{ *(\d+) *(, *(\d*) *)?\}/y
    braces.lastIndex = this.at
    const found = braces.exec(this.text)
    if (found === null) return this.text[this.at] === "{" ? this.refuse("expected {n}, {n,} or {n,m}") : undefined
    const min = Number(found[1])
    const max = found[2] === undefined ? min : found[3] === "" ? Infinity : Number(found[3])
    if (min > max || min > maxRepeats) this.refuse(`bounds must rise, up to ${maxRepeats}`)
    this.at += found[0].length
    return { min, max }
  }

  private atom(): Grammar.Grammar | undefined {
    if (this.eat("\"")) return this.literal()
    if (this.eat("[")) return this.bracket()
    if (this.eat(".")) return setOf(CodePoints.all)
    if (this.eat("(")) return this.group()
    const start = this.at
    const name = this.name()
    if (name === undefined) return undefined
    const known = this.uses.get(name)
    if (known !== undefined) return known[1]
    const use: Grammar.Grammar = { _tag: "Lazy", get: () => this.rules.get(name)! }
    this.uses.set(name, [start, use])
    return use
  }

  private group(): Grammar.Grammar {
    const start = this.at - 1
    if (++this.depth > maxDepth) this.refuse(`more than ${maxDepth} groups inside of each other`)
    this.skip(true)
    const inner = this.choice()
    this.skip(true)
    if (!this.eat(")")) this.refuse("this ( is not closed", start)
    this.depth--
    return inner
  }

  private literal(): Grammar.Grammar {
    const start = this.at - 1
    let found = ""
    while (!this.eat("\"")) found += String.fromCodePoint(this.character(start))
    return Grammar.literal(found)
  }

  private bracket(): Grammar.Grammar {
    const start = this.at - 1
    const isNegated = this.eat("^")
    const ranges: Array<readonly [number, number]> = []
    while (!this.eat("]")) {
      const low = this.character(start)
      const isRange = this.text[this.at] === "-" && this.text[this.at + 1] !== "]"
      if (isRange) this.at++
      ranges.push([low, isRange ? this.character(start) : low])
      if (ranges.at(-1)![1] < low) this.refuse("the range is the wrong way round")
    }
    const set = CodePoints.fromRanges(ranges)
    return setOf(isNegated ? CodePoints.complement(set) : set)
  }

  /** A character of a literal or a class, maybe escaped. */
  private character(start: number): number {
    const char = this.text.codePointAt(this.at)
    if (char === undefined || char === 10) return this.refuse("this is not closed", start)
    this.at += char > 0xffff ? 2 : 1
    if (char !== 0x5c) return char
    const letter = this.text[this.at] ?? this.refuse("expected a character after the backslash")
    this.at++
    if (escapes[letter] !== undefined) return escapes[letter]
    const length = hexLengths[letter]
    if (length === undefined) {
      return "\"\\[]-^".includes(letter) ? letter.codePointAt(0)! : this.refuse(`\\${letter} is not an escape`)
    }
    const digits = this.text.slice(this.at, this.at + length)
    const value = /^[0-9A-Fa-f]+$/.test(digits) && digits.length === length ? Number.parseInt(digits, 16) : Infinity
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) {
      this.refuse(`expected ${length} digits of a character`)
    }
    this.at += length
    return value
  }
}

/** One character of a set. */
const setOf = (set: CodePoints.CodePoints): Grammar.Grammar => {
  const { classes, members, starts } = CharDfa.partition([set])
  const dfa = CharDfa.explore<number>({
    starts,
    classes,
    width: members.length,
    start: 0,
    keyOf: (state) => state,
    step: (state, c) => state === 0 && members[c]!.length > 0 ? 1 : 2,
    accepts: (state) => state === 1
  })
  const rule = Leaf.ofText("characters", dfa)
  return rule === undefined ? Grammar.choice() : { _tag: "Rule", rule }
}
