/** Cascades of a program, each in as many pieces as take the least time on a device. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { rebuild, toposort, type UOp } from "@tg/core-uop/UOp"
import { isCall } from "./Calls.ts"
import { type Cascade, cascadeAt } from "./Cascade.ts"
import { inPieces } from "./Pieces.ts"
import { cheapest, type Costed, rowsTogether, type Site, siteOf } from "./SplitCost.ts"

/** A function that computes something, and the labels of its calls in their order. */
export interface Caller {
  readonly body: string
  readonly sites: ReadonlyArray<string>
}

/** What became of a cascade. Microseconds by the cost model. */
export interface SplitReport extends Omit<Site, "pieces"> {
  /** The functions that compute it; none if it is outside of all. */
  readonly callers: ReadonlyArray<Caller>
  /** What its result is called in the model. */
  readonly label: string | undefined
  /** Positions of a piece; none where all of them together take less time. */
  readonly piece: number | undefined
  /** Whether scores are stored, and pieces are those of the result alone. */
  readonly isStored: boolean
  /** Rows that are computed together. */
  readonly together: number
  readonly wholeMicros: number
  readonly micros: number
}

/** A program in pieces, and what became of each cascade. */
export interface Splitted {
  readonly sink: UOp
  readonly reports: ReadonlyArray<SplitReport>
}

/** The cascades that are no steps of others. */
const cascadesOf = (nodes: ReadonlyArray<UOp>): ReadonlyMap<UOp, Cascade> => {
  const found = new Map<UOp, Cascade>()
  for (const node of nodes) {
    const cascade = cascadeAt(node)
    if (cascade !== undefined) found.set(node, cascade)
  }
  for (const { steps } of [...found.values()]) for (const { reduce } of steps) found.delete(reduce)
  return found
}

/** The names that models give to values or to what is only another view of them. */
const labelsOf = (nodes: ReadonlyArray<UOp>): ReadonlyMap<UOp, string> => {
  const labels = new Map<UOp, string>()
  for (const node of nodes.toReversed()) {
    const label = node.arena.labelOf(node) ?? labels.get(node)
    if (label === undefined) continue
    labels.set(node, label)
    if (["RESHAPE", "PERMUTE", "SHRINK"].includes(node.op)) labels.set(node.src[0]!, label)
  }
  return labels
}

/** The functions that compute each of these nodes. */
const callersOf = (
  nodes: ReadonlyArray<UOp>,
  asked: { readonly has: (node: UOp) => boolean }
): ReadonlyMap<UOp, ReadonlyArray<Caller>> => {
  const found = new Map<UOp, Array<Caller>>()
  for (const [body, calls] of Map.groupBy(nodes.filter(isCall), (call) => call.src[0]!)) {
    const sites = calls.flatMap((call) => call.arena.labelOf(call) ?? [])
    const caller = { body: calls[0]!.arg.name, sites: [...new Set(sites)] }
    for (const node of toposort(body)) {
      if (asked.has(node)) found.set(node, [...found.get(node) ?? [], caller])
    }
  }
  return found
}

/** What is chosen for a cascade; or what stands in its place, in which the plan's pieces are those of the result alone. */
export interface Choice extends Costed {
  readonly stored?: UOp | undefined
  /** Puts the cascade into pieces of a plan, if not as every device computes them. */
  readonly inPieces?: typeof inPieces | undefined
}

/** Chooses by the figures of a cascade, if not by what it is. */
export type Choose = (site: Site, profile: DeviceProfile, cascade: Cascade) => Choice

/** The program with the cascades of its bodies in pieces, where that takes less time, or where somebody else chooses so. */
export const ofProgram = (sink: UOp, profile: DeviceProfile, choose: Choose = cheapest): Splitted => {
  // on a CPU pieces wait for each other
  if (profile.kind === "cpu") return { sink, reports: [] }
  const nodes = toposort(sink)
  const roots = cascadesOf(nodes)
  if (roots.size === 0) return { sink, reports: [] }
  const labels = labelsOf(nodes)
  const callers = callersOf(nodes, roots)
  const reports: Array<SplitReport> = []
  const made = rebuild(sink, (node, src) => {
    const now = src === node.src ? node : node.with(src)
    // what it reads may be in pieces now
    const cascade = roots.has(node) ? cascadeAt(now) : undefined
    if (cascade === undefined) return now
    const { pieces, ...site } = siteOf(cascade)
    const { inPieces: pieced = inPieces, micros, plan, stored, wholeMicros } = choose(
      { pieces, ...site },
      profile,
      cascade
    )
    const label = labels.get(node)
    const split = stored ?? (plan && pieced(cascade, { ...plan, label }))
    reports.push({
      ...site,
      callers: callers.get(node) ?? [],
      label,
      piece: split && plan?.piece,
      isStored: stored !== undefined,
      together: rowsTogether((split && plan) ?? {}),
      wholeMicros,
      micros: split === undefined ? wholeMicros : micros
    })
    return split ?? now
  })
  return { sink: made, reports }
}
