/**
 * Loads that are issued while workgroups wait for each other: the first ones of the phase behind a barrier across the grid, of memory that
 * no phase writes. A load takes as long as a barrier; in front of it, both are waited for at once.
 */
import * as Bounds from "@tg/core-uop/Bounds"
import * as Expr from "@tg/core-uop/Expr"
import { elementwise } from "@tg/core-uop/Op"
import { isCoherent, slotOf, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { listOf } from "./Concatenate.ts"
import { isPlain, leaves, lengthOf, withinWords } from "./internal/issue.ts"

/** A load of a phase, and what it loads the first time that it is reached. */
interface First {
  readonly load: UOp
  /** The loops in which its place changes, or whether it is reached. */
  readonly loops: ReadonlyArray<UOp>
  /** Its place in their first turns. */
  readonly at: UOp
  /** The branches and loops that a thread takes to reach it. */
  readonly conditions: ReadonlyArray<UOp>
}

/**
 * The launch with loads of up to so many words for each thread in front of each phase, behind the first one. Where they stand in loops, the first turn takes what
 * was loaded, and later ones load as before; threads that do not reach them load nothing.
 */
export const issueAhead = (linear: UOp, words: ReadonlyArray<number>, lowered: (x: UOp) => UOp): UOp => {
  if (words.every((n) => n === 0) || !linear.src.some(({ op }) => op === "GRID_BARRIER")) return linear
  const segments = segmentsOf(linear)
  const written = slotsWritten([linear])
  const top = new Set<UOp>()
  const made: Array<UOp> = []
  segments.forEach((segment, i) => {
    const chosen = i === 0 ? [] : within(firstLoads(segment, written), words[i] ?? 0)
    const before = i === 0 ? [] : [segment[0]!]
    const carried = chosen.map((first) => carry(first, lowered))
    for (const { load } of carried) {
      for (const node of toposort(load)) {
        if (top.has(node)) continue
        top.add(node)
        made.push(node)
      }
    }
    const own = [...before, ...replaced(segment.slice(before.length), carried, top)]
    noteTop(own, top)
    made.push(...own)
  })
  return linear.with(made)
}

/** Slots of arguments that no phase of the launch writes, and that this kernel loads first from places that need no other load. */
export const slotsAhead = (linear: UOp): ReadonlySet<number> =>
  new Set(firstLoads(linear.src, slotsWritten([linear])).map(({ load }) => slotOf(accessOf(load).buffer)))

const slotsWritten = (linears: ReadonlyArray<UOp>): ReadonlySet<number> =>
  new Set(linears.flatMap(({ src }) =>
    src.flatMap((node) => {
      const buffer = node.op === "STORE" ? accessOf(node).buffer : undefined
      return buffer?.op === "PARAM" ? [slotOf(buffer)] : []
    })
  ))

/** The instructions of each phase, behind the barrier in front of it. */
const segmentsOf = (linear: UOp): ReadonlyArray<ReadonlyArray<UOp>> => {
  const segments: Array<Array<UOp>> = [[]]
  for (const node of linear.src) {
    if (node.op === "GRID_BARRIER") segments.push([])
    segments.at(-1)!.push(node)
  }
  return segments
}

/** What stands outside of all loops and branches, and means the same from there on: no value of memory that a phase writes. */
const noteTop = (instructions: ReadonlyArray<UOp>, top: Set<UOp>): void => {
  let depth = 0
  for (const node of instructions) {
    if (node.op === "END" || node.op === "ENDIF") depth--
    const isPure = leaves.has(node.op) || node.op === "PARAM" ||
      (elementwise.has(node.op) || node.op === "INDEX") && node.src.every((s) => top.has(s))
    if (depth === 0 && isPure && node.op !== "RANGE") top.add(node)
    if (node.op === "RANGE" || node.op === "IF") depth++
  }
}

/**
 * Loads of plain memory at places that follow from the indices of the hardware and of loops, in order. One that stands in several places is
 * not among them: each of its branches would need a load of its own.
 */
const firstLoads = (instructions: ReadonlyArray<UOp>, written: ReadonlySet<number>): ReadonlyArray<First> => {
  const open: Array<UOp> = []
  const found = new Map<UOp, First>()
  const seen = new Set<UOp>()
  for (const node of instructions) {
    if (node.op === "END" || node.op === "ENDIF") open.pop()
    if (node.op === "RANGE" || node.op === "IF") open.push(node)
    if (node.op !== "LOAD") continue
    const first = seen.has(node) ? undefined : firstOf(node, open, written)
    seen.add(node)
    if (first === undefined) found.delete(node)
    else found.set(node, first)
  }
  return [...found.values()]
}

/** What a load inside of these loops and branches loads first, if that is known in front of them. */
const firstOf = (load: UOp, open: ReadonlyArray<UOp>, written: ReadonlySet<number>): First | undefined => {
  const { at, buffer, gate } = accessOf(load)
  if (buffer.op !== "PARAM" || isCoherent(buffer) || written.has(slotOf(buffer)) || gate !== undefined) return undefined
  const branches = open.flatMap((around) => around.op === "IF" ? [around.src[0]!] : [])
  const counts = open.flatMap((around) =>
    around.op === "RANGE" && Bounds.of(around.src[0]!).min < 1 ? [around.src[0]!] : []
  )
  const deciding = [at, ...branches, ...counts]
  if (!deciding.every(isPlain)) return undefined
  const ranges = open.filter(({ op }) => op === "RANGE")
  const zeros = new Map(ranges.map((range) => [range, Expr.int(at.arena, 0)]))
  const used = new Set(deciding.flatMap((value) => toposort(value)))
  return {
    load,
    loops: ranges.filter((range) => used.has(range)),
    at: substitute(at, zeros),
    conditions: [
      ...branches.map((branch) => substitute(branch, zeros)),
      ...counts.map((count) => Expr.not(Expr.lt(substitute(count, zeros), 1)))
    ]
  }
}

/**
 * So many words of them: of the longest arguments first, because no cache holds them, and of those the widest loads; then the first
 * ones.
 */
const within = (all: ReadonlyArray<First>, words: number): ReadonlyArray<First> => {
  const sorted = all.toSorted((a, b) => lengthOf(b.load) - lengthOf(a.load) || b.load.dtype.lanes - a.load.dtype.lanes)
  const wanted = new Set(withinWords(sorted, words, ({ load }) => load))
  return all.filter((first) => wanted.has(first))
}

/** A load that is carried over a barrier. */
interface Carried {
  readonly of: UOp
  readonly load: UOp
  /** Whether this is the first turn of its loops; always, if it is not said. */
  readonly isFirst: UOp | undefined
}

const carry = ({ at, conditions, load, loops }: First, lowered: (x: UOp) => UOp): Carried => {
  const both = (all: ReadonlyArray<UOp>): UOp | undefined =>
    all.length === 0 ? undefined : lowered(all.reduce((a, b) => Expr.and(a, b)))
  const gate = both(conditions)
  const isAlways = gate?.op === "CONST" && gate.arg === true
  const element = Expr.element(accessOf(load).buffer, lowered(at), isAlways ? undefined : gate)
  return {
    of: load,
    load: load.with([element]),
    isFirst: both(loops.map((loop) => Expr.lt(loop, 1)))
  }
}

/** The instructions with what was carried in place of the first loads; without what stands in front of them already. */
const replaced = (
  instructions: ReadonlyArray<UOp>,
  carried: ReadonlyArray<Carried>,
  top: ReadonlySet<UOp>
): ReadonlyArray<UOp> => {
  const { here, push } = listOf((node) => top.has(node))
  const done = new Map<UOp, UOp>()
  const carriedOf = new Map(carried.map((one) => [one.of, one]))
  for (const node of instructions) {
    const src = node.src.map((s) => done.get(s) ?? s)
    const own = src.every((s, i) => s === node.src[i]) ? node : node.with(src)
    if (own !== node) node.arena.inherit(own, node)
    const one = carriedOf.get(node)
    if (one !== undefined && one.isFirst === undefined) {
      done.set(node, one.load)
      continue
    }
    push(own)
    done.set(node, own)
    if (one === undefined) continue
    const first = Expr.splat(one.isFirst!, node.dtype.lanes)
    const value = Expr.where(first, one.load, own)
    for (const part of toposort(value)) push(part)
    done.set(node, value)
  }
  return here
}
