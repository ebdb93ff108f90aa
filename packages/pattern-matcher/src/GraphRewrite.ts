import { rebuild, type UOp } from "@tg/core-uop/UOp"
import { Result, Schema } from "effect"
import type { PatternMatcher, Trace } from "./PatternMatcher.ts"

/** A rule set that did not come to rest, with the rules that fired last. */
export class RewriteLimit extends Schema.TaggedError<RewriteLimit>()("RewriteLimit", {
  rules: Schema.Array(Schema.String),
  limit: Schema.Number,
  message: Schema.String
}) {}

/**
 * What pure code gives, or the rule set that did not come to rest in it. Rewriting is deep inside of passes, so `graphRewrite`
 * throws; whoever runs a pass for others (a service, a runner of passes) calls it through this.
 */
export const attempt = <A>(body: () => A): Result.Result<A, RewriteLimit> => {
  try {
    return Result.succeed(body())
  } catch (cause) {
    if (cause instanceof RewriteLimit) return Result.fail(cause)
    throw cause
  }
}

/** Counts what fires: the trace to give to the engine, and how often each rule has fired so far, by name. */
export const counting = (): { readonly trace: Trace; readonly counts: ReadonlyMap<string, number> } => {
  const counts = new Map<string, number>()
  return { trace: (rule) => void counts.set(rule, 1 + (counts.get(rule) ?? 0)), counts }
}

/** Results by node. A memo may outlive a call when the rules depend on nothing but the node. */
export interface Memo {
  get(node: UOp): UOp | undefined
  set(node: UOp, result: UOp): unknown
}

export interface Options<C> {
  /** Passed to every rewrite function. */
  readonly context?: C
  /** Rules tried on a node before its sources are visited, again and again until none applies. */
  readonly pre?: PatternMatcher<C>
  /** Sources of a node for which this is false are left alone. */
  readonly enter?: (node: UOp) => boolean
  /** Rewrites after which the rule set counts as not terminating. */
  readonly limit?: number
  /** Told about every rewrite; without it, the arena's `onRewrite` is. */
  readonly trace?: Trace | undefined
  readonly memo?: Memo
}

const defaultLimit = 1_000_000
/** Rewrites before the limit whose rules are reported. */
const reported = 64

const visit = 0
const combine = 1
const link = 2

/**
 * Rewrites a graph to the fixpoint of a rule set: sources first, then the node; results are rewritten in turn.
 * Equal nodes are rewritten once. Throws `RewriteLimit` when the rules do not come to rest.
 */
export const graphRewrite = <C = unknown>(
  root: UOp,
  matcher: PatternMatcher<C> | undefined,
  options: Options<C> = {}
): UOp => {
  const { enter, pre, trace = root.arena.onRewrite } = options
  const context = options.context as C
  const limit = options.limit ?? defaultLimit
  const memo: Memo = options.memo ?? new Map<UOp, UOp>()
  const nodes: Array<UOp> = [root]
  const phases: Array<number> = [visit]
  // for `link`: the node whose result becomes the result of nodes[i]
  const targets: Array<UOp> = [root]
  // no source of the node on top has changed
  let unchanged = false
  let fired = 0
  const last: Array<string> = []

  const push = (node: UOp, phase: number, target: UOp): void => {
    nodes.push(node)
    phases.push(phase)
    targets.push(target)
  }
  const pop = (): void => {
    nodes.pop()
    phases.pop()
    targets.pop()
  }
  const record = (rules: PatternMatcher<C>, before: UOp, after: UOp): void => {
    before.arena.inherit(after, before)
    if (trace !== undefined) trace(rules.lastRule, before, after)
    if (++fired > limit - reported) last.push(rules.lastRule)
    if (fired > limit) throw limitError(limit, last)
  }

  while (nodes.length > 0) {
    const top = nodes.length - 1
    const node = nodes[top]!
    const phase = phases[top]!
    if (phase === link) {
      const result = memo.get(targets[top]!)!
      memo.set(node, result)
      pop()
      continue
    }
    if (phase === visit) {
      if (memo.get(node) !== undefined) {
        pop()
        continue
      }
      if (pre !== undefined) {
        let current = node
        for (let next = pre.rewrite(current, context); next !== undefined; next = pre.rewrite(current, context)) {
          record(pre, current, next)
          current = next
        }
        if (current !== node) {
          phases[top] = link
          targets[top] = current
          push(current, visit, current)
          continue
        }
      }
      phases[top] = combine
      unchanged = true
      if (enter === undefined || enter(node)) {
        const { src } = node
        for (let i = src.length - 1; i >= 0; i--) {
          const result = memo.get(src[i]!)
          if (result === undefined) push(src[i]!, visit, src[i]!)
          if (result !== src[i]) unchanged = false
        }
        if (nodes.length - 1 > top) continue
      }
    } else unchanged = false
    const rebuilt = unchanged || (enter !== undefined && !enter(node)) ? node : withResults(node, memo)
    if (rebuilt !== node) {
      const known = memo.get(rebuilt)
      if (known !== undefined) {
        memo.set(node, known)
        pop()
        continue
      }
      if (pre !== undefined) {
        phases[top] = link
        targets[top] = rebuilt
        push(rebuilt, visit, rebuilt)
        continue
      }
    }
    const result = matcher === undefined ? undefined : matcher.rewrite(rebuilt, context)
    if (result === undefined) {
      memo.set(rebuilt, rebuilt)
      if (rebuilt !== node) memo.set(node, rebuilt)
      pop()
      continue
    }
    record(matcher!, rebuilt, result)
    const known = memo.get(result)
    if (known !== undefined) {
      memo.set(rebuilt, known)
      memo.set(node, known)
      pop()
      continue
    }
    phases[top] = link
    targets[top] = result
    if (rebuilt !== node) push(rebuilt, link, result)
    push(result, visit, result)
  }
  return memo.get(root)!
}

const withResults = (node: UOp, memo: Memo): UOp => {
  const { src } = node
  for (let i = 0; i < src.length; i++) {
    if (memo.get(src[i]!) === src[i]) continue
    return node.with(src.map((s) => memo.get(s)!))
  }
  return node
}

const limitError = (limit: number, last: ReadonlyArray<string>): RewriteLimit => {
  const rules = [...new Set(last)].sort()
  return new RewriteLimit({
    rules,
    limit,
    message: `the rules did not come to rest within ${limit} rewrites; those that kept firing: ${rules.join(", ")}. ` +
      "Let each rule make the node smaller by some measure, or raise the limit"
  })
}

/**
 * Visits each node once, sources first, and takes what a rule returns as it is. For replacements that contain what they
 * replace (`x` to `f(x)`) and for rules that must fire once per node.
 */
export const walkRewrite = <C = unknown>(
  root: UOp,
  matcher: PatternMatcher<C>,
  options: Pick<Options<C>, "context" | "trace"> = {}
): UOp => {
  const { context, trace = root.arena.onRewrite } = options
  return rebuild(root, (node, src) => {
    const rebuilt = node.with(src)
    const result = matcher.rewrite(rebuilt, context as C)
    if (result === undefined) return rebuilt
    rebuilt.arena.inherit(result, rebuilt)
    trace?.(matcher.lastRule, rebuilt, result)
    return result
  })
}
