import { type Op, ordinal } from "@tg/core-uop/Op"
import type { Arg, UOp } from "@tg/core-uop/UOp"
import type { Rule } from "../PatternMatcher.ts"
import type { UPat } from "../UPat.ts"

/** A rule as closures: `run` gives the replacement, `mayMatch` rejects early by bit sets of the sources' operations. */
export interface Compiled<C> {
  readonly name: string
  readonly ops: ReadonlyArray<Op> | undefined
  readonly mayMatch: (low: number, middle: number, high: number) => boolean
  readonly run: (node: UOp, context: C) => UOp | undefined
}

/**
 * State of one match, in continuation-passing style. Each position of the pattern has a slot; a step reads the node of its position
 * from there and calls the next step, so both orders of a commutative operation share one continuation.
 */
interface Attempt {
  readonly slots: Array<UOp>
  node: UOp
  context: unknown
  result: UOp | undefined
  busy: boolean
}

/** True when the rule produced a result. */
type Step = (attempt: Attempt) => boolean

type Bound = ReadonlyMap<string, number>

const equalArg = (a: Arg, b: Arg): boolean =>
  typeof a === "object" && typeof b === "object" ? JSON.stringify(a) === JSON.stringify(b) : Object.is(a, b)

/** The checks of the node alone. */
const compileCheck = (pattern: UPat<string>): (node: UOp) => boolean => {
  const { arg, ops, scalars, test } = pattern
  const set = ops === undefined ? undefined : new Set<string>(ops)
  const single = ops?.length === 1 ? ops[0] : undefined
  const types = scalars === undefined ? undefined : new Set<string>(scalars)
  return (node) =>
    (set === undefined || (single === undefined ? set.has(node.op) : node.op === single)) &&
    (types === undefined || types.has(node.dtype.scalar)) &&
    (arg === undefined || equalArg(node.arg, arg.value)) &&
    (test === undefined || test(node))
}

class Compiler {
  private slots = 0

  slot(): number {
    return this.slots++
  }

  step(pattern: UPat<string>, at: number, bound: Bound, next: (bound: Bound) => Step): Step {
    const check = compileCheck(pattern)
    const { name } = pattern
    if (name === undefined) {
      const rest = this.inside(pattern, at, bound, next)
      return (attempt) => check(attempt.slots[at]!) && rest(attempt)
    }
    const known = bound.get(name)
    if (known !== undefined) {
      const rest = this.inside(pattern, at, bound, next)
      return (attempt) => attempt.slots[at] === attempt.slots[known] && check(attempt.slots[at]!) && rest(attempt)
    }
    const rest = this.inside(pattern, at, new Map([...bound, [name, at]]), next)
    return (attempt) => check(attempt.slots[at]!) && rest(attempt)
  }

  /** Alternatives, then sources. */
  private inside(pattern: UPat<string>, at: number, bound: Bound, next: (bound: Bound) => Step): Step {
    const { alternatives } = pattern
    if (alternatives === undefined) return this.sources(pattern, at, bound, next)
    const steps = alternatives.map((alternative) =>
      this.step(alternative, at, bound, (b) => this.sources(pattern, at, b, next))
    )
    return (attempt) => {
      for (const step of steps) if (step(attempt)) return true
      return false
    }
  }

  private sources(pattern: UPat<string>, at: number, bound: Bound, next: (bound: Bound) => Step): Step {
    const { sources } = pattern
    if (sources === undefined) return next(bound)
    if (sources.kind === "every") {
      const one = this.slot()
      const matches = this.step(sources.pattern, one, bound, () => () => true)
      const rest = next(bound)
      return (attempt) => {
        const { src } = attempt.slots[at]!
        for (let i = 0; i < src.length; i++) {
          attempt.slots[one] = src[i]!
          if (!matches(attempt)) return false
        }
        return rest(attempt)
      }
    }
    const { kind, patterns } = sources
    const first = this.slots
    this.slots += patterns.length
    const chain = (i: number, b: Bound): Step =>
      i === patterns.length ? next(b) : this.step(patterns[i]!, first + i, b, (c) => chain(i + 1, c))
    const rest = chain(0, bound)
    const count = patterns.length
    switch (kind) {
      case "commutative":
        return (attempt) => {
          const { src } = attempt.slots[at]!
          if (src.length !== 2) return false
          attempt.slots[first] = src[0]!
          attempt.slots[first + 1] = src[1]!
          if (rest(attempt)) return true
          if (src[0] === src[1]) return false
          attempt.slots[first] = src[1]!
          attempt.slots[first + 1] = src[0]!
          return rest(attempt)
        }
      case "exact":
      case "prefix":
        return (attempt) => {
          const { src } = attempt.slots[at]!
          if (kind === "exact" ? src.length !== count : src.length < count) return false
          for (let i = 0; i < count; i++) attempt.slots[first + i] = src[i]!
          return rest(attempt)
        }
    }
  }
}

const words = (ops: ReadonlyArray<Op>): readonly [number, number, number] => {
  const mask: [number, number, number] = [0, 0, 0]
  for (const op of ops) mask[ordinal[op] >> 5]! |= 1 << (ordinal[op] & 31)
  return mask
}

/** Operation sets that must each occur among the sources of a match. */
const requirements = (pattern: UPat<string>): ReadonlyArray<readonly [number, number, number]> => {
  const { sources } = pattern
  if (sources === undefined || sources.kind === "every") return []
  return sources.patterns.flatMap((p) => p.ops === undefined ? [] : [words(p.ops)])
}

const rootOps = (pattern: UPat<string>): ReadonlyArray<Op> | undefined => {
  if (pattern.ops !== undefined) return pattern.ops
  if (pattern.alternatives === undefined) return undefined
  const sets = pattern.alternatives.map(rootOps)
  return sets.some((s) => s === undefined) ? undefined : [...new Set(sets.flatMap((s) => s!))]
}

const always = (): boolean => true

const compileReject = (pattern: UPat<string>): Compiled<unknown>["mayMatch"] => {
  const required = requirements(pattern)
  if (required.length === 0) return always
  if (required.length === 1) {
    const [a, b, c] = required[0]!
    return (low, middle, high) => (low & a) !== 0 || (middle & b) !== 0 || (high & c) !== 0
  }
  return (low, middle, high) => {
    for (let i = 0; i < required.length; i++) {
      const [a, b, c] = required[i]!
      if ((low & a) === 0 && (middle & b) === 0 && (high & c) === 0) return false
    }
    return true
  }
}

/** Compiles a rule to closures specialised to its pattern. */
export const compile = <C>(rule: Rule<C>): Compiled<C> => {
  const compiler = new Compiler()
  const root = compiler.slot()
  const { rewrite, when } = rule
  const finish = (bound: Bound): Step => {
    const names = [...bound]
    return (attempt) => {
      const captures: Record<string, UOp> = {}
      for (const [name, slot] of names) captures[name] = attempt.slots[slot]!
      const result = rewrite(captures, attempt.node, attempt.context as C)
      if (result === undefined || result === attempt.node) return false
      attempt.result = result
      return true
    }
  }
  const start = compiler.step(rule.pattern, root, new Map(), finish)
  const fresh = (): Attempt => ({ slots: [], node: undefined!, context: undefined, result: undefined, busy: false })
  const shared = fresh()
  return {
    name: rule.name,
    ops: rootOps(rule.pattern),
    mayMatch: compileReject(rule.pattern),
    run: (node, context) => {
      if (when !== undefined && !when(node)) return undefined
      // re-entrant: a rewrite function may use the matcher itself
      const attempt = shared.busy ? fresh() : shared
      attempt.busy = true
      attempt.slots[root] = node
      attempt.node = node
      attempt.context = context
      attempt.result = undefined
      try {
        return start(attempt) ? attempt.result : undefined
      } finally {
        attempt.busy = false
      }
    }
  }
}
