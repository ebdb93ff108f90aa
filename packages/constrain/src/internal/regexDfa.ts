/** From an expression to a minimal DFA: Thompson's NFA and the subset construction. Assertions are resolved by the next character. */
import { Result } from "effect"
import { UnsupportedRegex } from "../ConstrainError.ts"
import * as CharDfa from "./charDfa.ts"
import * as CodePoints from "./codePoints.ts"
import { type Assertion, type Expression, wordSet } from "./regexParse.ts"

interface State {
  readonly empty: Array<readonly [assertion: Assertion | undefined, target: number]>
  readonly sets: Array<readonly [set: number, target: number]>
}

/** Repetitions are spelled out: more states than this are refused. */
const maxStates = 20_000

class Nfa {
  readonly states: Array<State> = []
  readonly sets: Array<CodePoints.CodePoints> = []
  hasBoundaries = false
  private readonly known = new Map<string, number>()

  state(): number {
    if (this.states.length >= maxStates) throw new CharDfa.TooManyStates(maxStates)
    return this.states.push({ empty: [], sets: [] }) - 1
  }

  empty(from: number, to: number, assertion?: Assertion): void {
    this.states[from]!.empty.push([assertion, to])
  }

  read(from: number, set: CodePoints.CodePoints, to: number): void {
    const key = set.join()
    const number = this.known.get(key) ?? this.sets.push(set) - 1
    this.known.set(key, number)
    this.states[from]!.sets.push([number, to])
  }

  /** The state after the expression. */
  add(from: number, expression: Expression): number {
    switch (expression._tag) {
      case "Set": {
        const to = this.state()
        this.read(from, expression.set, to)
        return to
      }
      case "Assert": {
        const to = this.state()
        this.hasBoundaries ||= expression.assertion === "boundary" || expression.assertion === "notBoundary"
        this.empty(from, to, expression.assertion)
        return to
      }
      case "Sequence":
        return expression.parts.reduce((at, part) => this.add(at, part), from)
      case "Choice": {
        const to = this.state()
        for (const part of expression.parts) {
          const start = this.state()
          this.empty(from, start)
          this.empty(this.add(start, part), to)
        }
        return to
      }
      case "Repeat":
        return this.repeat(from, expression)
    }
  }

  private repeat(from: number, { max, min, part }: Extract<Expression, { readonly _tag: "Repeat" }>): number {
    let at = from
    for (let i = 0; i < min; i++) {
      const before = at
      at = this.add(at, part)
      if (at === before) break // nothing, however often
    }
    const end = this.state()
    if (max === Infinity) {
      const loop = this.state()
      this.empty(at, loop)
      this.empty(this.add(loop, part), loop)
      this.empty(loop, end)
      return end
    }
    for (let i = min; i < max; i++) {
      this.empty(at, end)
      const start = this.state()
      this.empty(at, start)
      at = this.add(start, part)
    }
    this.empty(at, end)
    return end
  }
}

/** The set of states before a character: which, whether it is the first, whether the one before it is a word character. */
interface Subset {
  readonly key: string
  readonly states: ReadonlyArray<number>
  readonly isStart: boolean
  readonly afterWord: boolean
}

const subset = (states: ReadonlyArray<number>, isStart: boolean, afterWord: boolean): Subset => ({
  key: `${isStart ? "^" : ""}${afterWord ? "w" : ""}${states.join()}`,
  states,
  isStart,
  afterWord
})

/** The language of an expression: of whole texts, or of texts in which it is found. */
export const regexDfa = (
  pattern: string,
  expression: Expression,
  extent: "whole" | "search"
): Result.Result<CharDfa.CharDfa, UnsupportedRegex> =>
  Result.try({
    try: () => build(expression, extent),
    catch: (cause) => {
      if (!(cause instanceof CharDfa.TooManyStates)) throw cause
      const reason = `needs more than ${cause.limit} states; shorten its repetitions`
      return new UnsupportedRegex({ pattern, offset: 0, reason })
    }
  })

const build = (expression: Expression, extent: "whole" | "search"): CharDfa.CharDfa => {
  const nfa = new Nfa()
  const start = nfa.state()
  if (extent === "search") nfa.read(start, CodePoints.all, start)
  const end = nfa.add(start, expression)
  if (extent === "search") nfa.read(end, CodePoints.all, end)
  const { classes, members, starts } = CharDfa.partition([wordSet, ...nfa.sets])
  const hasSet = members.map((inside) => new Set(inside.map((set) => set - 1)))
  const isWord = members.map((inside) => inside.includes(0))

  const closure = (from: Subset, isEnd: boolean, beforeWord: boolean): ReadonlySet<number> => {
    const isBoundary = from.afterWord !== beforeWord
    const holds: Readonly<Record<Assertion, boolean>> = {
      start: from.isStart,
      end: isEnd,
      boundary: isBoundary,
      notBoundary: !isBoundary
    }
    const found = new Set(from.states)
    for (const at of found) {
      for (const [assertion, to] of nfa.states[at]!.empty) {
        if (assertion === undefined || holds[assertion]) found.add(to)
      }
    }
    return found
  }

  const closures = new Map<string, ReadonlySet<number>>()
  return CharDfa.explore<Subset>({
    starts,
    classes,
    width: members.length,
    start: subset([start], true, false),
    keyOf: (from) => from.key,
    step: (from, c) => {
      const key = `${isWord[c]}${from.key}`
      const closed = closures.get(key) ?? closure(from, false, isWord[c]!)
      if (closures.size > 64) closures.clear()
      closures.set(key, closed)
      const targets = new Set<number>()
      for (const at of closed) {
        for (const [set, to] of nfa.states[at]!.sets) if (hasSet[c]!.has(set)) targets.add(to)
      }
      // found: any continuation is accepted
      if (extent === "search" && targets.has(end)) return subset([end], false, false)
      return subset([...targets].sort((a, b) => a - b), false, nfa.hasBoundaries && isWord[c]!)
    },
    accepts: (from) => closure(from, true, false).has(end)
  })
}
