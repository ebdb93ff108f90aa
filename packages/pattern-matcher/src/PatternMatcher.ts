import { type Op, ops as allOps, ordinal } from "@tg/core-uop/Op"
import type { UOp } from "@tg/core-uop/UOp"
import { compile, type Compiled } from "./internal/compile.ts"
import type { UPat } from "./UPat.ts"

/** The nodes a pattern captured, by name. */
export type Captures<N extends string> = { readonly [K in N]: UOp }

/** One rewrite: `pattern`, under the side condition `when`, becomes what `rewrite` returns. */
export interface Rule<C = unknown> {
  readonly name: string
  readonly pattern: UPat<string>
  /** The replacement; undefined, or the node itself, is "no change". */
  readonly rewrite: (captures: Captures<string>, node: UOp, context: C) => UOp | undefined
  /** A condition on the matched node, checked before anything is captured. */
  readonly when: ((node: UOp) => boolean) | undefined
}

/** Rules with one theme, in the order they are tried. */
export interface RuleTable<C = unknown> {
  readonly name: string
  readonly rules: ReadonlyArray<Rule<C>>
}

/** Told about every rewrite: rule, node before, node after. */
export type Trace = (rule: string, before: UOp, after: UOp) => void

/** A rule: names in the pattern become typed captures of the rewrite function. */
export const rule = <N extends string, C = unknown>(
  name: string,
  pattern: UPat<N>,
  rewrite: (captures: Captures<N>, node: UOp, context: C) => UOp | undefined,
  options?: { readonly when?: (node: UOp) => boolean }
): Rule<C> => ({ name, pattern, rewrite, when: options?.when })

/** A table of rules; their names get the table's name in front (`fold/add-zero`). */
export const rules = <C = unknown>(name: string, list: ReadonlyArray<Rule<C>>): RuleTable<C> => ({
  name,
  rules: list.map((r) => ({ ...r, name: `${name}/${r.name}` }))
})

/** Rules compiled for matching, indexed by the operation of the root. */
export class PatternMatcher<C = unknown> {
  readonly rules: ReadonlyArray<Rule<C>>
  private readonly byOp: Readonly<Record<Op, ReadonlyArray<Compiled<C>>>>
  /** The rule that made the last replacement. */
  private fired = ""

  constructor(rules: ReadonlyArray<Rule<C>>) {
    this.rules = rules
    const byOp = Object.fromEntries(allOps.map((op) => [op, [] as Array<Compiled<C>>])) as Record<
      Op,
      Array<Compiled<C>>
    >
    for (const r of rules) {
      const compiled = compile(r)
      for (const op of compiled.ops ?? allOps) byOp[op].push(compiled)
    }
    this.byOp = byOp
  }

  /** The name of the rule that made the last replacement. */
  get lastRule(): string {
    return this.fired
  }

  /** The result of the first rule that changes this node, or undefined. Sources are not searched. */
  rewrite(node: UOp, context: C): UOp | undefined {
    const candidates = this.byOp[node.op]
    if (candidates.length === 0) return undefined
    let low = 0
    let middle = 0
    let high = 0
    const src = node.src
    for (let i = 0; i < src.length; i++) {
      const position = ordinal[src[i]!.op]
      if (position < 32) low |= 1 << position
      else if (position < 64) middle |= 1 << (position - 32)
      else high |= 1 << (position - 64)
    }
    for (let i = 0; i < candidates.length; i++) {
      const candidate = candidates[i]!
      if (!candidate.mayMatch(low, middle, high)) continue
      const result = candidate.run(node, context)
      if (result !== undefined) {
        this.fired = candidate.name
        return result
      }
    }
    return undefined
  }
}

/** A matcher over tables, tried in this order. */
export const make = <C = unknown>(...tables: ReadonlyArray<RuleTable<C>>): PatternMatcher<C> =>
  new PatternMatcher(tables.flatMap((t) => t.rules))

/** The rules of the first matcher, then those of the others. */
export const concat = <C>(...matchers: ReadonlyArray<PatternMatcher<C>>): PatternMatcher<C> =>
  new PatternMatcher(matchers.flatMap((m) => m.rules))
