/** Persistent launches: linear kernels that depend on each other as one linear kernel, with barriers across the grid. */
import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import * as Phases from "@tg/core-uop/Phases"
import type { RendererCaps } from "@tg/core-uop/Program"
import { argOf, slotOf, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Workgroup from "@tg/core-uop/Workgroup"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { issueAhead } from "./Ahead.ts"
import { isMultiple, neighbour, ownTurns, type Shape, type Side, sideOf } from "./Beside.ts"
import * as Concatenate from "./Concatenate.ts"
import { decompose, rewrite, strength } from "./Decompose.ts"
import { leaveOut } from "./Surplus.ts"
import {
  type Beginning,
  type Copy,
  type Copying,
  type Parts,
  type Phase,
  type Restored,
  type Rule,
  stage,
  type Staged,
  stagedLoad,
  stagedOf,
  widest
} from "./Staging.ts"

export { besideOf } from "./Beside.ts"
export { type Phase, slotsStaged } from "./Staging.ts"

/** The shape of a persistent launch. */
export interface Launch extends Phases.PersistentArg, Rule {
  readonly caps: Pick<RendererCaps, "ops">
  /** The slot of the barrier's buffer. */
  readonly meeting: number
}

/** A phase with its launch shape, the arguments that it stages, and how many of its workgroups one of the launch runs side by side. */
interface Placed extends Concatenate.Member, Phase, Staged {
  readonly side: Side
  /** Its memory as long as all of these together need it. */
  readonly memory: ReadonlyMap<UOp, UOp>
}

/** The state that the phases of a launch share. */
interface Making extends Copying {
  readonly launch: Launch
  readonly workgroup: UOp
}

/**
 * One kernel of all phases. As many workgroups are launched as can be resident at once; in each phase they divide the workgroups that
 * the phase would have as a launch of its own, and wait at a grid barrier behind it. They have the threads of the largest phase at least:
 * in smaller ones a workgroup runs several of the phase's side by side, each with its own workgroup memory, and surplus threads wait.
 * Workgroup memory of phases is overlaid.
 */
export const phases = (parts: ReadonlyArray<Phase>, launch: Launch): UOp => {
  const { arena } = parts[0]!.linear
  const threads = threadsOf(parts, launch)
  const members = parts.map((part) => memberOf(part, { ...launch, threads }))
  const memory = Concatenate.overlaidMemory(members.map(memoryOf))
  const head = new Set<UOp>()
  const lowered = (x: UOp): UOp => rewrite(decompose(Symbolic.simplify(x), launch.caps.ops), strength)
  const emit = (x: UOp): UOp => {
    const made = lowered(x)
    for (const node of toposort(made)) head.add(node)
    return made
  }
  let numbers = 0
  const making: Making = {
    head,
    lowered,
    fresh: () => numbers++,
    awaits: launch.awaited !== undefined,
    launch,
    threads,
    thread: emit(Concatenate.special(arena, "lidx0", Expr.int(arena, threads))),
    workgroup: emit(Concatenate.special(arena, "gidx0", Expr.int(arena, launch.workgroups))),
    emit,
    argument: argumentsOf(members, launch)
  }
  // the head is complete before any phase is built, so no phase computes any of it again
  const shares = members.map((member) => shareOf(making, member))
  const restored = members.map((member, i) => restoredOf(making, members, { member, phase: i }))
  const body = members.flatMap((member, i) => [
    ...(i === 0 ? cleared(making) : [gridBarrier(making)]),
    ...phase(making, { member, memory: memory[i]!, share: shares[i]!, restored: restored[i]! })
  ])
  return issueAhead(arena.make("LINEAR", DType.none, [...head, ...body]), launch.ahead, lowered)
}

const gridBarrier = ({ argument, fresh, head, launch }: Making): UOp => {
  const { awaited, meeting, spins, workgroups } = launch
  const words = argument(meeting, DType.u32)
  for (const node of toposort(words)) head.add(node)
  const arg = { id: fresh(), workgroups, spins }
  return words.arena.make(
    "GRID_BARRIER",
    DType.none,
    [words],
    awaited === undefined ? arg : { ...arg, awaits: awaited[0] }
  )
}

/** Clears the words that readers of other launches wait for, each by one thread. */
const cleared = ({ argument, emit, fresh, head, launch, thread, threads, workgroup }: Making): ReadonlyArray<UOp> => {
  const { awaited, workgroups } = launch
  if (awaited === undefined) return []
  const [, slot, count] = awaited
  const { arena } = thread
  const words = argument(slot, DType.u32)
  const zero = arena.make("CONST", DType.u32, [], 0)
  for (const node of [...toposort(words), zero]) head.add(node)
  const step = threads * workgroups
  const turns = Math.ceil(count / step)
  const range = turns === 1
    ? undefined
    : arena.make("RANGE", DType.index, [emit(Expr.int(arena, turns))], { id: fresh(), axis: "LOOP" })
  const first = emit(Expr.add(Expr.mul(workgroup, threads), thread))
  const own = range === undefined ? first : Expr.add(first, Expr.mul(range, emit(Expr.int(arena, step))))
  const isInside = turns * step === count ? undefined : Expr.lt(own, count)
  const made: Array<UOp> = range === undefined ? [] : [range]
  for (const node of toposort(Expr.store(Expr.element(words, own, isInside), zero))) {
    if (node.op === "CONST") head.add(node)
    else if (!head.has(node) && !made.includes(node)) made.push(node)
  }
  return range === undefined ? made : [...made, arena.make("END", DType.none, [range])]
}

/** Threads of a workgroup of the launch. */
const threadsOf = (parts: ReadonlyArray<Phase>, { threads }: Shape): number =>
  Math.max(threads, Concatenate.threadsOf(parts.map(({ linear }) => Concatenate.memberOf(linear))))

const memberOf = (part: Phase, rule: Rule): Placed => {
  const member = { ...Concatenate.memberOf(part.linear), ...part, staged: stagedOf(part, rule) }
  const side = sideOf(member, rule)
  const locals = member.linear.src.filter(({ op }) => op === "LOCAL")
  return {
    ...member,
    side,
    memory: new Map(locals.map((node) => {
      const { id } = argOf(node, "LOCAL")
      return [
        node,
        side.beside === 1
          ? node
          : node.arena.make("LOCAL", node.dtype, [], { id, length: ownLength(node) * side.beside })
      ]
    }))
  }
}

/** Workgroup memory of a phase: its own, and that of what it copies. */
const memoryOf = ({ memory, staged }: Placed): ReadonlyArray<UOp> => [
  ...memory.values(),
  ...[...staged.values()].map(({ local }) => local)
]

/** Words from the memory of one workgroup to that of the next one beside it. */
const ownLength = (local: UOp): number => widest * Math.ceil(argOf(local, "LOCAL").length / widest)

/** One PARAM for each slot of the launch and each dtype: as long as the longest use of it. */
const argumentsOf = (
  members: ReadonlyArray<Placed>,
  { awaited, coherent }: Pick<Launch, "awaited" | "coherent">
): Making["argument"] => {
  const sizes = new Map<number, UOp>()
  const longer = (slot: number, size: UOp): void => {
    const known = sizes.get(slot)
    sizes.set(slot, known === undefined || known === size ? size : Symbolic.simplify(Expr.max(known, size)))
  }
  for (const member of members) {
    const { copies, kernel, linear, offsets, slots } = member
    for (const { offset, slot, to } of Phases.forwardsOf(member)) {
      longer(to, Expr.int(linear.arena, offset + Phases.windowOf(kernel!, slot)!.words))
    }
    for (const node of linear.src) {
      if (node.op !== "PARAM") continue
      const copy = copies?.[slotOf(node)] ?? -1
      if (copy >= 0) sizes.set(copy, node.src[0]!)
      const slot = slots[slotOf(node)]!
      // simplified, as accesses are shown to be inside of what has a constant size
      const size = Symbolic.simplify(Expr.add(node.src[0]!, offsets[slotOf(node)]!))
      longer(slot, size)
    }
  }
  const { arena } = members[0]!.linear
  return (slot, dtype) => {
    // what the launch clears and the barrier's buffer are no arguments of any phase
    const size = sizes.get(slot) ??
      Expr.int(arena, slot === awaited?.[1] ? awaited[2] : Phases.meetingWords.count)
    const isCoherent = coherent.has(slot) || !sizes.has(slot)
    return arena.make("PARAM", dtype, [size], isCoherent ? { slot, coherent: true } : { slot })
  }
}

/** The workgroups of a phase that one of the launch runs, and its threads for them. */
interface Share {
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
  /** How its workgroups each copy what they read. */
  readonly parts: Parts
  readonly before: ReadonlySet<UOp>
}

/** Bytes of workgroup memory that the launch takes. */
export const memoryBytes = (
  parts: ReadonlyArray<Phase>,
  launch: Rule & Shape
): number => {
  const threads = threadsOf(parts, launch)
  const { lengths } = Workgroup.overlay(parts.map((part) => memoryOf(memberOf(part, { ...launch, threads }))))
  return [...lengths.values()].reduce((bytes, length) => bytes + 4 * length, 0)
}

/** The instructions of a phase. */
const phase = (
  making: Making,
  { member, memory, restored, share }: {
    readonly member: Placed
    readonly memory: ReadonlyMap<UOp, UOp>
    readonly share: Share
    readonly restored: ReadonlyArray<Restored>
  }
): ReadonlyArray<UOp> => {
  const { argument, head, launch, lowered } = making
  const { copies, kernel, linear, offsets, side, slots, staged } = member
  const { arena } = linear
  const forwards = Phases.forwardsOf(member)
  const forwardOf = (buffer: UOp): Phases.Forward | undefined =>
    buffer.op === "PARAM" ? forwards.find(({ slot }) => slot === slotOf(buffer)) : undefined
  const loops = share.open.some(({ op }) => op === "RANGE")
  // what the workgroups of a turn read is copied in each turn
  const isOfTurn = ({ window }: Copy): boolean => loops && window !== undefined
  const stagedIn = (inTurn: boolean): Staged["staged"] =>
    new Map([...staged].filter(([, copy]) => isOfTurn(copy) === inTurn))
  const copying = { ...member, memory, parts: share.parts }
  const stages = stage(making, { ...copying, staged: stagedIn(false), restored })
  const ofTurn = stage(making, { ...copying, staged: stagedIn(true), restored: [], before: share.before })
  const copied = Concatenate.instructionsOf(making, {
    ...share,
    member,
    memory: new Map([...member.memory].map(([node, own]) => [node, memory.get(own)!])),
    areUniform: side.isAdjacent,
    argument: (node) => {
      const copy = staged.get(node)
      const slot = forwardOf(node)?.to ?? slots[slotOf(node)]!
      const made = copy === undefined ? argument(slot, node.dtype) : memory.get(copy.local)!
      for (const part of toposort(made)) head.add(part)
      return made
    },
    wordsOf: (buffer) => {
      if (!making.awaits || buffer.op !== "PARAM" || !launch.coherent.has(slotOf(buffer))) return undefined
      const words = argument(slotOf(buffer), DType.u32)
      for (const part of toposort(words)) head.add(part)
      return words
    },
    copyOf: (buffer) => {
      const copy = buffer.op === "PARAM" ? copies?.[slotOf(buffer)] ?? -1 : -1
      if (copy < 0) return undefined
      const made = argument(copy, buffer.dtype)
      for (const part of toposort(made)) head.add(part)
      return made
    },
    elsewhere: new Map([...staged].map(([param, { local, words }]) => {
      const place = { memory: memory.get(local)!, words, lowered, beginning: share.parts.beginnings.get(param) }
      return [param, (dtype: DType.DType, at: UOp, gate: UOp | undefined) => stagedLoad(dtype, { ...place, at, gate })]
    })),
    placeOf: (buffer, at) => {
      const forward = forwardOf(buffer)
      if (forward === undefined) return undefined
      const { base } = Phases.windowOf(kernel!, forward.slot)!
      return lowered(Expr.add(Expr.sub(at, base), forward.offset))
    },
    offsetOf: (node) => {
      if (node.op === "PARAM") return staged.has(node) ? 0 : offsets[slotOf(node)]!
      return share.places.get(node) ?? 0
    }
  })
  const count = side.beside * member.threads
  const body = share.works === undefined
    ? copied
    : leaveOut(copied, { isThread: share.works, count, fresh: making.fresh })
  const again = loops && member.hasBarriers
  const barrier = (): UOp => arena.make("BARRIER", DType.none, [], making.fresh())
  const [first, ...inner] = share.open
  // workgroups without a share copy nothing
  const own = first?.op === "IF" && first.src[0] === share.isWorkgroup ? [first] : []
  return [
    ...own,
    ...stages,
    ...(stages.length > 0 ? [barrier()] : []),
    // a later phase may have put some of it in front of all
    ...(own.length > 0 ? inner : share.open).filter((node) => !head.has(node)),
    ...ofTurn,
    ...(ofTurn.length > 0 ? [barrier()] : []),
    ...body,
    // write after read: the next iteration overwrites workgroup memory
    ...(again ? [barrier()] : []),
    ...share.close
  ]
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
const shareOf = (making: Making, member: Placed): Share => {
  const { emit, launch: { workgroups }, lowered, thread, threads } = making
  const { side: { beside, isAdjacent } } = member
  const { arena } = member.linear
  const count = lowered(member.grid.reduce((n, size) => Expr.mul(n, size)))
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
  const isLoop = open.some(({ op }) => op === "RANGE")
  const of = { workgroup: existing, thread: own, part, works: both, put: isLoop ? putAll : emit }
  const parts = partsOf(making, member, of)
  const rest = { open, before, places, isWorkgroup, parts }
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

/** How the workgroups of a phase that run side by side each copy what they read. */
const partsOf = (
  { emit }: Making,
  { grid, staged, threads }: Placed,
  { part, put, thread, workgroup, works }: {
    /** Makes what depends on the workgroup. */
    readonly put: (x: UOp) => UOp
    readonly workgroup: UOp
    readonly thread: UOp
    readonly part: UOp | undefined
    readonly works: UOp | undefined
  }
): Parts => {
  const beginnings = [...staged].flatMap(([param, { window }]): ReadonlyArray<readonly [UOp, Beginning]> => {
    if (window === undefined) return []
    const numbers = toposort(window.base).filter(({ op }) => op === "SPECIAL")
    const at = { grid, workgroup, thread }
    const places = new Map(numbers.map((node) => [node, Concatenate.indexOf(node, at)]))
    const own = part === undefined ? undefined : emit(Expr.mul(part, window.length))
    return [[param, { base: put(substitute(window.base, places)), own }]]
  })
  const isThread = works === undefined || beginnings.length === 0 ? undefined : put(works)
  return { thread, threads, isThread, beginnings: new Map(beginnings) }
}

/** What is forwarded to a phase, and where it belongs. */
const restoredOf = (
  { emit }: Making,
  members: ReadonlyArray<Placed>,
  { member, phase }: { readonly member: Placed; readonly phase: number }
): ReadonlyArray<Restored> =>
  members.flatMap((writer) =>
    Phases.forwardsOf(writer).filter(({ reader }) => reader === phase).map((forward) => {
      const { base, words } = Phases.windowOf(writer.kernel!, forward.slot)!
      const slot = writer.slots[forward.slot]!
      const { dtype } = member.linear.src.find((node) => node.op === "PARAM" && member.slots[slotOf(node)] === slot)!
      return { slot, dtype: DType.scalarOf(dtype), base: emit(base), words, from: { slot: forward.to, offset: forward.offset } }
    })
  )

const shareIn = (share: Omit<Share, "close">): Share => ({
  ...share,
  close: share.open.toReversed().flatMap((node) =>
    node.op === "RANGE" || node.op === "IF"
      ? [node.arena.make(node.op === "IF" ? "ENDIF" : "END", DType.none, [node])]
      : []
  )
})
