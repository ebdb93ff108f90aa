/** From a grammar to trimmed rules: every reachable state is productive (the end is reachable from it). */
import { Result } from "effect"
import { InvalidGrammar } from "../ConstrainError.ts"
import type { Grammar } from "../Grammar.ts"
import {
  addState,
  callEdge,
  emptyEdge,
  type Leaf,
  literal,
  makeNet,
  type Net,
  type NetState,
  type Rule
} from "./rule.ts"

const compiled = new WeakMap<Grammar, Result.Result<Rule, InvalidGrammar>>()

/** The trimmed rule of a grammar, memoised. */
export const compile = (grammar: Grammar): Result.Result<Rule, InvalidGrammar> => {
  const known = compiled.get(grammar)
  if (known !== undefined) return known
  const made = link(build(grammar))
  compiled.set(grammar, made)
  return made
}

/** Trims a rule and those it calls; fails if nothing is left, or on left recursion. */
export const link = (root: Rule): Result.Result<Rule, InvalidGrammar> => {
  const nets = reachable(root)
  const productive = prune(nets)
  if (!productive(root)) return Result.fail(new InvalidGrammar({ reason: "no text matches it" }))
  const loop = emptyLoop(nets)
  if (loop === undefined) return Result.succeed(root)
  return Result.fail(new InvalidGrammar({ reason: `${loop} can call itself before it has read anything` }))
}

const build = (grammar: Grammar): Rule => {
  const lazy = new Map<Grammar, Net>()
  const pending: Array<readonly [net: Net, grammar: Grammar]> = []
  const netOf = (grammar: Grammar, name: string): Net => {
    const net = makeNet(name)
    pending.push([net, grammar])
    return net
  }
  const add = (net: Net, from: number, part: Grammar): number => {
    switch (part._tag) {
      case "Bytes":
        return literal(net, from, part.bytes)
      case "Token": {
        const to = addState(net)
        net.states[from]!.tokens.push([part.id, to])
        return to
      }
      case "Rule": {
        const to = addState(net)
        callEdge(net, from, part.rule, to)
        return to
      }
      case "Sequence":
        return part.parts.reduce((at, inner) => add(net, at, inner), from)
      case "Choice": {
        const to = addState(net)
        for (const inner of part.parts) {
          const start = addState(net)
          emptyEdge(net, from, start)
          emptyEdge(net, add(net, start, inner), to)
        }
        return to
      }
      case "Repeat": {
        const to = addState(net)
        callEdge(net, from, repeatOf(part, netOf(part.part, "repeated")), to)
        return to
      }
      case "Lazy": {
        const known = lazy.get(part) ?? netOf(part.get(), "recursive")
        lazy.set(part, known)
        const to = addState(net)
        callEdge(net, from, known, to)
        return to
      }
    }
  }
  const root = netOf(grammar, "grammar")
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const [net, part] = next
    net.states[add(net, 0, part)]!.accept = true
  }
  return root
}

const repeatOf = ({ max, min }: { readonly min: number; readonly max: number }, body: Net): Net => {
  const net = makeNet("repeat")
  net.min = min
  net.max = max
  const [inner, end] = [addState(net), addState(net)]
  emptyEdge(net, 0, inner, "enter")
  callEdge(net, inner, body, 0)
  emptyEdge(net, 0, end, "leave")
  net.states[end]!.accept = true
  return net
}

/** The leaves that a rule calls, directly or not. */
export const leavesOf = (root: Rule): ReadonlyArray<Leaf> => {
  if (root._tag === "Leaf") return [root]
  const called = reachable(root).flatMap((net) => net.states.flatMap((state) => state.calls.map(([callee]) => callee)))
  return [...new Set(called)].flatMap((rule) => rule._tag === "Leaf" ? [rule] : [])
}

const reachable = (root: Rule): ReadonlyArray<Net> => {
  const found = new Set<Net>()
  const queue: Array<Rule> = [root]
  for (let rule = queue.pop(); rule !== undefined; rule = queue.pop()) {
    if (rule._tag === "Leaf" || found.has(rule)) continue
    found.add(rule)
    for (const state of rule.states) for (const [callee] of state.calls) queue.push(callee)
  }
  return [...found]
}

/** Removes edges to unproductive states. Gives the predicate of productive rules. */
const prune = (nets: ReadonlyArray<Net>): (rule: Rule) => boolean => {
  const known = new Set<Net>()
  const productive = (rule: Rule): boolean => rule._tag === "Leaf" ? rule.accept.includes(1) : known.has(rule)
  const callers = new Map<Net, Array<Net>>()
  for (const net of nets) {
    for (const [callee] of net.states.flatMap((state) => state.calls)) {
      if (callee._tag === "Net") callers.set(callee, [...(callers.get(callee) ?? []), net])
    }
  }
  const queue = [...nets]
  for (let net = queue.pop(); net !== undefined; net = queue.pop()) {
    if (known.has(net) || !live(net, productive)[0]) continue
    known.add(net)
    queue.push(...(callers.get(net) ?? []))
  }
  for (const net of nets) {
    const alive = live(net, productive)
    net.states.forEach((state, i) => {
      net.states[i] = {
        bytes: state.bytes.filter(([, , to]) => alive[to]),
        tokens: state.tokens.filter(([, to]) => alive[to]),
        calls: state.calls.filter(([callee, to]) => alive[to] && productive(callee)),
        empty: state.empty.filter(([guard, to]) => alive[to] && (guard !== "enter" || net.max > 0)),
        accept: state.accept
      }
    })
  }
  return productive
}

/** For each state whether the end can be reached. */
const live = (net: Net, productive: (rule: Rule) => boolean): ReadonlyArray<boolean> => {
  const targets = (state: NetState, passes: (guard: string) => boolean): ReadonlyArray<number> => [
    ...state.bytes.map(([, , to]) => to),
    ...state.tokens.map(([, to]) => to),
    ...state.calls.flatMap(([callee, to]) => productive(callee) ? [to] : []),
    ...state.empty.flatMap(([guard, to]) => passes(guard) ? [to] : [])
  ]
  const reaching = (goal: (state: NetState) => boolean, passes: (guard: string) => boolean): Array<boolean> => {
    const sources = net.states.map((): Array<number> => [])
    net.states.forEach((state, from) => {
      for (const to of targets(state, passes)) sources[to]!.push(from)
    })
    const found = net.states.map(goal)
    const queue = [...found.keys()].filter((i) => found[i])
    for (let at = queue.pop(); at !== undefined; at = queue.pop()) {
      for (const from of sources[at]!) {
        if (found[from]) continue
        found[from] = true
        queue.push(from)
      }
    }
    return found
  }
  const enters = (guard: string): boolean => guard === "always" || (guard === "enter" && net.max > 0)
  // a loop with a positive minimum is left only if its body is productive
  const leavesAt = reaching((state) => state.empty.some(([guard]) => guard === "leave"), enters)
  const runs = net.states.some((state) =>
    net.max > 0 && state.empty.some(([guard, to]) => guard === "enter" && leavesAt[to])
  )
  const leaves = net.min <= net.max && (net.min === 0 || runs)
  return reaching((state) => state.accept, (guard) => guard === "leave" ? leaves : enters(guard))
}

/** The name of a left-recursive rule, or of one whose loop has a nullable body. */
const emptyLoop = (nets: ReadonlyArray<Net>): string | undefined => {
  const nullable = new Set<Net>()
  const isNullable = (rule: Rule): boolean => rule._tag === "Leaf" ? rule.accept[0] === 1 : nullable.has(rule)
  const early = (net: Net): ReadonlySet<number> => {
    const found = new Set([0])
    for (const at of found) {
      for (const [, to] of net.states[at]!.empty) found.add(to)
      for (const [callee, to] of net.states[at]!.calls) if (isNullable(callee)) found.add(to)
    }
    return found
  }
  for (let before = -1; before !== nullable.size;) {
    before = nullable.size
    for (const net of nets) if ([...early(net)].some((at) => net.states[at]!.accept)) nullable.add(net)
  }
  const calls = new Map(nets.map((net) => [
    net,
    [...early(net)].flatMap((at) => net.states[at]!.calls.flatMap(([callee]) => callee._tag === "Net" ? [callee] : []))
  ]))
  const state = new Map<Net, "open" | "done">()
  for (const root of nets) {
    const stack: Array<readonly [net: Net, next: number]> = [[root, 0]]
    while (stack.length > 0) {
      const [net, next] = stack.pop()!
      if (next === 0 && state.get(net) === "open") return net.name
      if (next === 0 && state.get(net) === "done") continue
      state.set(net, "open")
      const callee = calls.get(net)![next]
      if (callee === undefined) state.set(net, "done")
      else stack.push([net, next + 1], [callee, 0])
    }
  }
  const endless = nets.find((net) => net.max !== Infinity && net.max > 1000 && repeatsNothing(net, isNullable))
  return endless?.name
}

/** Whether a loop's body is nullable: its counter would run through all its values at once. */
const repeatsNothing = (net: Net, isNullable: (rule: Rule) => boolean): boolean =>
  net.states.some((state) =>
    state.empty.some(([guard, to]) =>
      guard === "enter" && net.states[to]!.calls.some(([callee, back]) => back === 0 && isNullable(callee))
    )
  )
