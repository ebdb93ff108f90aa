/** Why two nodes are equal: the rules in between. */
import type { EGraph, Justified } from "./EGraph.ts"
import { type ClassId, print } from "./ENode.ts"

/** One step: the node before it, the rule, and the node behind it. */
export interface Step {
  readonly rule: string
  readonly before: ClassId
  readonly after: ClassId
}

/** The nodes on the way to the root of the proof tree, the node itself first. */
const pathOf = <F>(graph: EGraph<F>, from: ClassId): ReadonlyArray<ClassId> => {
  const path = [from]
  for (let next = graph.justification(from); next !== undefined; next = graph.justification(next.to)) path.push(next.to)
  return path
}

/**
 * The steps from a node to an equal one, each a rule applied at this node or inside of it; each pair of arguments is explained
 * once. Undefined where they are not known to be equal; empty where they are the same expression.
 */
export const explain = <F>(graph: EGraph<F>, from: ClassId, to: ClassId): ReadonlyArray<Step> | undefined => {
  if (!graph.areEqual(from, to)) return undefined
  const done = new Set<string>()
  const steps: Array<Step> = []
  const edge = (a: ClassId, { reason, to: b }: Justified, isBack: boolean): void => {
    const [before, after] = isBack ? [b, a] : [a, b]
    if (reason.kind === "rule") steps.push({ rule: reason.rule, before, after })
    else argumentsOf(before, after)
  }
  const argumentsOf = (a: ClassId, b: ClassId): void => {
    // arguments of contractions commute: those of one class belong together
    const sorted = (id: ClassId) => graph.nodeOf(id).args.toSorted((x, y) => graph.find(x) - graph.find(y))
    const others = sorted(b)
    sorted(a).forEach((arg, i) => between(arg, others[i]!))
  }
  const between = (a: ClassId, b: ClassId): void => {
    const name = `${a} ${b}`
    if (a === b || done.has(name)) return
    done.add(name)
    const up = pathOf(graph, a)
    const down = pathOf(graph, b)
    const meeting = up.find((id) => down.includes(id))!
    for (const id of up.slice(0, up.indexOf(meeting))) edge(id, graph.justification(id)!, false)
    for (const id of down.slice(0, down.indexOf(meeting)).toReversed()) edge(id, graph.justification(id)!, true)
  }
  between(from, to)
  return steps
}

/** An expression as it was added, so many operations deep. */
export const expression = <F>(graph: EGraph<F>, id: ClassId, depth = 3): string =>
  print(graph.nodeOf(id), (arg) => depth <= 1 ? `c${graph.find(arg)}` : expression(graph, arg, depth - 1))

/** The steps as lines. */
export const printSteps = <F>(graph: EGraph<F>, steps: ReadonlyArray<Step>): ReadonlyArray<string> =>
  steps.map(({ after, before, rule }) => `${rule}: ${expression(graph, before, 2)} = ${expression(graph, after, 2)}`)
