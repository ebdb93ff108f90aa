import { rebuild, type UOp } from "@tg/core-uop/UOp"
import { Result, Schema } from "effect"
import type { PatternMatcher, Trace } from "./PatternMatcher.ts"

/** A rule set that does not terminate, with the rules that fired last. */
export class RewriteLimit extends Schema.TaggedError<RewriteLimit>()("RewriteLimit", {
  rules: Schema.Array(Schema.String),
  limit: Schema.Number,
  message: Schema.String
}) {}

/**
 * The result of pure code, or the `RewriteLimit` that it threw. Rewriting is deep inside of passes, so `graphRewrite` throws; a
 * service or a pass runner calls it through this.
 */
export const attempt = <A>(body: () => A): Result.Result<A, RewriteLimit> => {
  try {
    return Result.succeed(body())
  } catch (cause) {
    if (cause instanceof RewriteLimit) return Result.fail(cause)
    throw cause
  }
}

/** A trace for the engine that counts how often each rule has fired, by name. */
export const counting = (): { readonly trace: Trace; readonly counts: ReadonlyMap<string, number> } => {
  const counts = new Map<string, number>()
  return { trace: (rule) => void counts.set(rule, 1 + (counts.get(rule) ?? 0)), counts }
}

/** Results by node. A memo may outlive a call if the rules depend on nothing but the node. */
export interface Memo {
  get(node: UOp): UOp | undefined
  set(node: UOp, result: UOp): unknown
}

/** Results of the nodes of one arena, which may outlive many calls: by the numbers of the nodes. */
export class ArenaMemo implements Memo {
  private readonly results: Array<UOp | undefined> = []

  get(node: UOp): UOp | undefined {
    return this.results[node.id]
  }

  set(node: UOp, result: UOp): void {
    // an array without holes stays fast
    while (this.results.length <= node.id) this.results.push(undefined)
    this.results[node.id] = result
  }
}

/** Told about every rewrite; by default the arena's `onRewrite` is. */
export interface Tracing {
  readonly trace?: Trace | undefined
}

export interface Options<C> extends Tracing {
  /** Passed to every rewrite function. */
  readonly context?: C
  /** Pre-order rules: tried on a node before its sources are visited, until none applies. */
  readonly pre?: PatternMatcher<C>
  /** Sources of a node for which this is false are left alone. */
  readonly enter?: (node: UOp) => boolean
  /** Rewrites after which the rule set counts as not terminating. */
  readonly limit?: number
  readonly memo?: Memo
}

const defaultLimit = 1_000_000
/** How many of the last rewrites before the limit are reported. */
const reported = 64

const visit = 0
const combine = 1
const link = 2

/** One rewrite of a graph, with an explicit stack: graphs are deeper than the call stack. */
class Run<C> {
  readonly memo: Memo
  private readonly matcher: PatternMatcher<C> | undefined
  private readonly pre: PatternMatcher<C> | undefined
  private readonly enter: ((node: UOp) => boolean) | undefined
  private readonly context: C
  private readonly limit: number
  private readonly trace: Trace | undefined
  private readonly nodes: Array<UOp> = []
  private readonly phases: Array<number> = []
  /** For `link`: the node whose result becomes the result of nodes[i]. */
  private readonly targets: Array<UOp> = []
  private fired = 0
  private readonly last: Array<string> = []

  constructor(root: UOp, matcher: PatternMatcher<C> | undefined, options: Options<C>) {
    this.matcher = matcher
    this.pre = options.pre
    this.enter = options.enter
    this.context = options.context as C
    this.limit = options.limit ?? defaultLimit
    this.trace = options.trace ?? root.arena.onRewrite
    this.memo = options.memo ?? new Map<UOp, UOp>()
    this.push(root, visit, root)
  }

  /** Runs until the stack is empty; the memo then has the result of every node that was visited. */
  finish(): void {
    const { memo, nodes, phases, targets } = this
    while (nodes.length > 0) {
      const top = nodes.length - 1
      const node = nodes[top]!
      if (phases[top] === visit) this.visit(top, node)
      else if (phases[top] === combine) this.combine(top, node, false)
      else {
        memo.set(node, memo.get(targets[top]!)!)
        this.pop()
      }
    }
  }

  private push(node: UOp, phase: number, target: UOp): void {
    this.nodes.push(node)
    this.phases.push(phase)
    this.targets.push(target)
  }

  private pop(): void {
    this.nodes.pop()
    this.phases.pop()
    this.targets.pop()
  }

  /** The node on top gets the result of `target`, which is pushed. */
  private link(top: number, target: UOp): void {
    this.phases[top] = link
    this.targets[top] = target
    this.push(target, visit, target)
  }

  private record(rules: PatternMatcher<C>, before: UOp, after: UOp): void {
    before.arena.inherit(after, before)
    if (this.trace !== undefined) this.trace(rules.lastRule, before, after)
    if (++this.fired > this.limit - reported) this.last.push(rules.lastRule)
    if (this.fired > this.limit) throw limitError(this.limit, this.last)
  }

  /** Pre-order rules, then the sources. */
  private visit(top: number, node: UOp): void {
    const { enter, memo, pre } = this
    if (memo.get(node) !== undefined) return this.pop()
    if (pre !== undefined) {
      let current = node
      for (let next = pre.rewrite(current, this.context); next !== undefined;) {
        this.record(pre, current, next)
        current = next
        next = pre.rewrite(current, this.context)
      }
      if (current !== node) return this.link(top, current)
    }
    this.phases[top] = combine
    let unchanged = true
    if (enter === undefined || enter(node)) {
      const { src } = node
      for (let i = src.length - 1; i >= 0; i--) {
        const result = memo.get(src[i]!)
        if (result === undefined) this.push(src[i]!, visit, src[i]!)
        if (result !== src[i]) unchanged = false
      }
      if (this.nodes.length - 1 > top) return
    }
    this.combine(top, node, unchanged)
  }

  /** Rebuilds the node from the results of its sources, and applies the rules to it. */
  private combine(top: number, node: UOp, unchanged: boolean): void {
    const { enter, matcher, memo } = this
    const rebuilt = unchanged || (enter !== undefined && !enter(node)) ? node : withResults(node, memo)
    if (rebuilt !== node) {
      const known = memo.get(rebuilt)
      if (known !== undefined) {
        memo.set(node, known)
        return this.pop()
      }
      if (this.pre !== undefined) return this.link(top, rebuilt)
    }
    const result = matcher === undefined ? undefined : matcher.rewrite(rebuilt, this.context)
    if (result === undefined) {
      memo.set(rebuilt, rebuilt)
      if (rebuilt !== node) memo.set(node, rebuilt)
      return this.pop()
    }
    this.record(matcher!, rebuilt, result)
    const known = memo.get(result)
    if (known !== undefined) {
      memo.set(rebuilt, known)
      memo.set(node, known)
      return this.pop()
    }
    this.phases[top] = link
    this.targets[top] = result
    if (rebuilt !== node) this.push(rebuilt, link, result)
    this.push(result, visit, result)
  }
}

/**
 * Rewrites a graph to the fixpoint of a rule set: sources first, then the node; results are rewritten in turn.
 * Each node is rewritten once. Throws `RewriteLimit` if the rules do not terminate: see `attempt`.
 */
export const graphRewrite = <C = unknown>(
  root: UOp,
  matcher: PatternMatcher<C> | undefined,
  options: Options<C> = {}
): UOp => {
  const known = options.memo?.get(root)
  if (known !== undefined) return known
  const run = new Run(root, matcher, options)
  run.finish()
  return run.memo.get(root)!
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
 * Visits each node once, sources first; results of rules are not rewritten again. For replacements that contain what they
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
