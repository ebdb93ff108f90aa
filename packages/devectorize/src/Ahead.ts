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
import { remade } from "./internal/remade.ts"

/** Turns of a loop whose loads may be in front of a barrier. */
const mostTurns = 16

/** A load of a phase, and what it loads in one of the first turns of the loops around it. */
interface First {
  readonly load: UOp
  /** The loops in which its place changes, or whether it is reached, each with the turn. */
  readonly turns: ReadonlyMap<UOp, number>
  /** How many turns there are; not finite, where only some of them are known. */
  readonly of: number
  /** Its place in that turn. */
  readonly at: UOp
  /** The branches and loops that a thread takes to reach it. */
  readonly conditions: ReadonlyArray<UOp>
}

/**
 * The launch with loads of up to so many words for each thread in front of each phase, behind the first one. Where they stand in loops, the first turns take what
 * was loaded, and later ones load as before; threads that do not reach them load nothing.
 */
export const issueAhead = (linear: UOp, words: ReadonlyArray<number>, lowered: (x: UOp) => UOp): UOp => {
  if (words.every((n) => n === 0) || !linear.src.some(({ op }) => op === "GRID_BARRIER")) return linear
  const segments = segmentsOf(linear)
  const written = slotsWritten([linear])
  const top = new Set<UOp>()
  const made: Array<UOp> = []
  segments.forEach((segment, i) => {
    const chosen = i === 0 ? [] : within(firstLoads(segment, { written, turns: mostTurns }), words[i] ?? 0)
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
  new Set(
    firstLoads(linear.src, { written: slotsWritten([linear]), turns: 1 }).map(({ load }) =>
      slotOf(accessOf(load).buffer)
    )
  )

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

/** Which loads are looked for: in so many turns of a loop, of arguments that no phase writes. */
interface Wanted {
  readonly turns: number
  readonly written: ReadonlySet<number>
}

/**
 * Loads of plain memory at places that follow from the indices of the hardware and of loops, in order. One that stands in several places is
 * not among them: each of its branches would need a load of its own.
 */
const firstLoads = (instructions: ReadonlyArray<UOp>, wanted: Wanted): ReadonlyArray<First> => {
  const open: Array<UOp> = []
  const found = new Map<UOp, ReadonlyArray<First>>()
  const seen = new Set<UOp>()
  for (const node of instructions) {
    if (node.op === "END" || node.op === "ENDIF") open.pop()
    if (node.op === "RANGE" || node.op === "IF") open.push(node)
    if (node.op !== "LOAD") continue
    found.set(node, seen.has(node) ? [] : firstsOf(node, open, wanted))
    seen.add(node)
  }
  return [...found.values()].flat()
}

/** What a load inside of these loops and branches loads in their first turns, if that is known in front of them: in several turns, where one loop of so many is all that changes its place. */
const firstsOf = (load: UOp, open: ReadonlyArray<UOp>, { turns, written }: Wanted): ReadonlyArray<First> => {
  const { at, buffer, gate } = accessOf(load)
  if (buffer.op !== "PARAM" || isCoherent(buffer) || written.has(slotOf(buffer))) return []
  const branches = [
    ...open.flatMap((around) => around.op === "IF" ? [around.src[0]!] : []),
    ...gate === undefined ? [] : [gate]
  ]
  const counts = open.flatMap((around) =>
    around.op === "RANGE" && Bounds.of(around.src[0]!).min < 1 ? [around.src[0]!] : []
  )
  const deciding = [at, ...branches, ...counts]
  if (!deciding.every(isPlain)) return []
  const ranges = open.filter(({ op }) => op === "RANGE")
  const used = new Set(deciding.flatMap((value) => toposort(value)))
  const loops = ranges.filter((range) => used.has(range))
  const [only] = loops
  const isCounted = loops.length === 1 && only!.src[0]!.op === "CONST"
  const count = isCounted ? Number(only!.src[0]!.arg) : 1
  const of = isCounted || loops.length === 0 ? count : Infinity
  return Array.from({ length: Math.min(count, turns) }, (_, turn) => {
    const places = new Map(ranges.map((range) => [range, Expr.int(at.arena, range === only ? turn : 0)]))
    const inTurn = (value: UOp): UOp => substitute(value, places)
    return {
      load,
      turns: new Map(loops.map((range) => [range, range === only ? turn : 0])),
      of,
      at: inTurn(at),
      conditions: [
        ...branches.map(inTurn),
        ...counts.map((limit) => Expr.not(Expr.lt(inTurn(limit), 1)))
      ]
    }
  })
}

/** Elements between the first and the last place that threads load from: several arguments may lie in one buffer. */
const reachOf = (load: UOp): number => {
  const { max, min } = Bounds.of(accessOf(load).at)
  return Math.min(lengthOf(load), max - min + 1)
}

/**
 * So many words of them: of the longest arguments first, because no cache holds them, and of those the widest loads; then the first
 * ones.
 */
const within = (all: ReadonlyArray<First>, words: number): ReadonlyArray<First> => {
  const sorted = all.toSorted((a, b) => reachOf(b.load) - reachOf(a.load) || b.load.dtype.lanes - a.load.dtype.lanes)
  const wanted = new Set(withinWords(sorted, words, ({ load }) => load))
  return all.filter((first) => wanted.has(first))
}

/** A load that is carried over a barrier. */
interface Carried extends Pick<First, "of"> {
  readonly from: UOp
  readonly load: UOp
  /** Whether this is its turn of its loops; always, if it is not said. */
  readonly isTurn: UOp | undefined
}

const carry = ({ at, conditions, load, of, turns }: First, lowered: (x: UOp) => UOp): Carried => {
  const both = (all: ReadonlyArray<UOp>): UOp | undefined =>
    all.length === 0 ? undefined : lowered(all.reduce((a, b) => Expr.and(a, b)))
  const gate = both(conditions)
  const isAlways = gate?.op === "CONST" && gate.arg === true
  const element = Expr.element(accessOf(load).buffer, lowered(at), isAlways ? undefined : gate)
  return {
    from: load,
    load: load.with([element]),
    of,
    isTurn: both([...turns].map(([loop, turn]) => Expr.eq(loop, turn)))
  }
}

/** The instructions with what was carried in place of the first loads; without what stands in front of them already. */
const replaced = (
  instructions: ReadonlyArray<UOp>,
  carried: ReadonlyArray<Carried>,
  top: ReadonlySet<UOp>
): ReadonlyArray<UOp> => {
  const { here, push } = listOf((node) => top.has(node))
  const carriedOf = Map.groupBy(carried, ({ from }) => from)
  remade(instructions, (own, node) => {
    const turns = carriedOf.get(node) ?? []
    // where all turns are carried, nothing is left to load
    const isWhole = turns.length > 0 && turns.length === turns[0]!.of
    if (!isWhole) push(own)
    const value = turns.slice(isWhole ? 1 : 0).reduce(
      (rest, { isTurn, load }) => Expr.where(Expr.splat(isTurn!, node.dtype.lanes), load, rest),
      isWhole ? turns[0]!.load : own
    )
    if (turns.length > 0) { for (const part of toposort(value)) push(part) }
    return value
  })
  return here
}
