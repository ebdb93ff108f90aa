/** How a phase's workgroups and threads are divided among those of a persistent launch. */
import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { isMultiple, neighbour, ownTurns } from "./Beside.ts"
import * as Concatenate from "./Concatenate.ts"
import { type Making, ownLength, type Placed } from "./internal/launching.ts"
import type { Beginning, Parts } from "./Staging.ts"

/** The workgroups of a phase that one of the launch runs, and its threads for them. */
export interface Share {
  /** The loops and branches around it, the outermost first, and their ends. */
  readonly open: ReadonlyArray<UOp>
  readonly close: ReadonlyArray<UOp>
  readonly workgroup: UOp
  readonly thread: UOp
  /** Where the workgroup memory of this thread begins, where several have their own side by side. */
  readonly places: ReadonlyMap<UOp, UOp>
  /** Where threads without work do not wait: whether this one has any. */
  readonly isThread: UOp | undefined
  /** Where there are barriers: whether the workgroup that this thread is of exists. */
  readonly isThere: UOp | undefined
  /** Where some threads come to barriers alone: whether this one has work. */
  readonly works: UOp | undefined
  /** Where not every workgroup has a share: whether this one does. */
  readonly isWorkgroup: UOp | undefined
  /** How its workgroups each copy what they read, if missing ones do not, and if they copy what the last one reads. */
  readonly parts: Parts
  readonly doubled: Parts
  /** Where its workgroups copy what they read in each turn of a loop, and words are forwarded to it: whether it is the first turn, in which these are copied, too. */
  readonly isFirst: UOp | undefined
  readonly before: ReadonlySet<UOp>
}

/** The number of a workgroup's turn: of a loop where there are more than the launch runs at once, or of those that have one. */
const turnOf = (
  { emit, fresh, launch: { workgroups }, workgroup }: Making,
  { put, step, turns }: { readonly put: (node: UOp) => void; readonly turns: UOp; readonly step: number }
): { readonly turn: UOp; readonly isWorkgroup: UOp | undefined } => {
  const { arena } = workgroup
  if (Bounds.of(turns).max > step) {
    const mine = ownTurns(turns, workgroup, step)
    const range = arena.make("RANGE", DType.index, [emit(mine)], { id: fresh(), axis: "LOOP" })
    put(range)
    return { turn: Expr.add(workgroup, Expr.mul(range, step)), isWorkgroup: undefined }
  }
  if (Bounds.of(turns).min >= workgroups) return { turn: workgroup, isWorkgroup: undefined }
  const isWorkgroup = emit(Expr.lt(workgroup, turns))
  put(arena.make("IF", DType.none, [isWorkgroup]))
  return { turn: workgroup, isWorkgroup }
}

/** Distributes a phase's workgroups cyclically: a loop where there are more than the launch runs at once. */
export const shareOf = (making: Making, member: Placed, hasForwarded: boolean): Share => {
  const { emit, launch: { workgroups }, lowered, thread, threads } = making
  const { side: { beside, isAdjacent } } = member
  const { arena } = member.linear
  const count = lowered(Concatenate.workgroupsOf(member))
  const part = beside === 1 ? undefined : emit(Expr.min(Expr.floordiv(thread, member.threads), beside - 1))
  const own = beside === 1 ? thread : emit(Expr.floormod(thread, member.threads))
  // numbers of workgroups of the launch that have work, and what the next turn adds to them
  const turns = isAdjacent ? lowered(Expr.floordiv(Expr.add(count, beside - 1), beside)) : count
  const step = isAdjacent ? workgroups : workgroups * beside
  const open: Array<UOp> = []
  const before = new Set<UOp>()
  const put = (node: UOp): void => {
    open.push(node)
    before.add(node)
  }
  const putAll = (value: UOp): UOp => {
    const made = lowered(value)
    for (const node of toposort(made)) {
      if (node.op === "CONST" || node.op === "VAR") making.head.add(node)
      else if (!making.head.has(node) && !before.has(node)) put(node)
    }
    return made
  }
  const { isWorkgroup, turn } = turnOf(making, { put, turns, step })
  const number = part === undefined
    ? turn
    : isAdjacent
    ? Expr.add(Expr.mul(turn, beside), part)
    : Expr.add(turn, Expr.mul(part, workgroups))
  const isSurplus = beside * member.threads < threads
  const isWhole = beside === 1 || isMultiple(count, isAdjacent ? beside : step)
  const isThread = isSurplus ? Expr.lt(thread, beside * member.threads) : undefined
  const isThere = isWhole ? undefined : Expr.lt(number, count)
  const locals = part === undefined ? [] : [...member.memory.keys()]
  const places = new Map(locals.map((local) => [local, emit(Expr.mul(part!, ownLength(local)))]))
  const existing = isThere === undefined
    ? number
    : isAdjacent && part !== undefined
    ? neighbour(turn, part, { count, beside })
    : Expr.min(number, Expr.sub(count, 1))
  const conditions = [isThread, isThere].filter((condition) => condition !== undefined)
  const both = conditions.length === 0 ? undefined : conditions.reduce((a, b) => Expr.and(a, b))
  const loop = open.find(({ op }) => op === "RANGE")
  const make = loop === undefined ? emit : putAll
  const beginnings = beginningsOf(making, member, { workgroup: existing, thread: own, part, make })
  const partsFor = (condition: UOp | undefined): Parts => ({
    thread: own,
    threads: member.threads,
    isThread: condition === undefined || beginnings.size === 0 ? undefined : make(condition),
    beginnings
  })
  const parts = partsFor(both)
  const doubled = member.hasBarriers ? partsFor(isThread) : parts
  const isFirst = hasForwarded && loop !== undefined && beginnings.size > 0 ? putAll(Expr.lt(loop, 1)) : undefined
  const rest = { open, before, places, isWorkgroup, parts, doubled, isFirst }
  if (member.hasBarriers) {
    const last = isSurplus && beside === 1 ? Expr.min(own, member.threads - 1) : own
    return shareIn({
      ...rest,
      workgroup: existing,
      thread: last,
      isThread: isThread === undefined ? undefined : emit(isThread),
      isThere: isThere === undefined ? undefined : putAll(isThere),
      works: both === undefined ? undefined : putAll(both)
    })
  }
  if (both !== undefined) put(arena.make("IF", DType.none, [putAll(both)]))
  return shareIn({ ...rest, workgroup: number, thread: own, isThread: undefined, isThere: undefined, works: undefined })
}

/** Where what each of the workgroups of a phase that run side by side copies begins. */
const beginningsOf = (
  { emit }: Making,
  { grid, staged }: Placed,
  { make, part, thread, workgroup }: {
    /** Makes what depends on the workgroup. */
    readonly make: (x: UOp) => UOp
    readonly workgroup: UOp
    readonly thread: UOp
    readonly part: UOp | undefined
  }
): ReadonlyMap<UOp, Beginning> =>
  new Map([...staged].flatMap(([param, { window }]): ReadonlyArray<readonly [UOp, Beginning]> => {
    if (window === undefined) return []
    const numbers = toposort(window.base).filter(({ op }) => op === "SPECIAL")
    const at = { grid, workgroup, thread }
    const places = new Map(numbers.map((node) => [node, Concatenate.indexOf(node, at)]))
    const own = part === undefined ? undefined : emit(Expr.mul(part, window.length))
    return [[param, { base: make(substitute(window.base, places)), own }]]
  }))

const shareIn = (share: Omit<Share, "close">): Share => ({
  ...share,
  close: share.open.toReversed().flatMap((node) =>
    node.op === "RANGE" || node.op === "IF"
      ? [node.arena.make(node.op === "IF" ? "ENDIF" : "END", DType.none, [node])]
      : []
  )
})
