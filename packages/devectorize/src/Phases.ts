/** Persistent launches: linear kernels that depend on each other as one linear kernel, with barriers across the grid. */
import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { meetingWords } from "@tg/core-uop/Phases"
import type { RendererCaps } from "@tg/core-uop/Program"
import { groupArg, type PersistentArg, type PhaseArg, slotOf, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import * as Workgroup from "@tg/core-uop/Workgroup"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { issueAhead } from "./Ahead.ts"
import * as Concatenate from "./Concatenate.ts"
import { decompose, rewrite, strength } from "./Decompose.ts"

/** A linear kernel as a phase. */
export interface Phase extends PhaseArg {
  readonly linear: UOp
}

/** The shape of a persistent launch. */
export interface Launch extends PersistentArg {
  readonly caps: Pick<RendererCaps, "ops">
  /** Slots that one phase writes and another one touches. */
  readonly coherent: ReadonlySet<number>
  /** The slot of the barrier's buffer. */
  readonly meeting: number
}

/** A phase with its launch shape and the arguments that it stages. */
interface Member extends Concatenate.Member, PhaseArg {
  /** Coherent arguments that it reads from workgroup memory: its PARAM, and the memory before it is overlaid. */
  readonly staged: ReadonlyMap<UOp, UOp>
}

/** The state that the phases of a launch share. */
interface Making extends Concatenate.Launch {
  readonly launch: Launch
  readonly threads: number
  readonly thread: UOp
  readonly workgroup: UOp
  readonly emit: (x: UOp) => UOp
  /** The argument of the launch with the elements of a dtype. */
  readonly argument: (slot: number, dtype: DType.DType) => UOp
}

/**
 * One kernel of all phases. As many workgroups are launched as can be resident at once; in each phase they divide the workgroups that
 * the phase would have as a launch of its own, and wait at a grid barrier behind it. They have the threads of the largest phase: in
 * others the surplus threads wait, or take another workgroup of a phase without barriers. Workgroup memory is overlaid.
 */
export const phases = (parts: ReadonlyArray<Phase>, launch: Launch): UOp => {
  const { arena } = parts[0]!.linear
  const members = parts.map((part) => memberOf(part, launch))
  const threads = Math.max(launch.threads, Concatenate.threadsOf(members))
  const memory = Concatenate.overlaidMemory(
    members.map(({ linear, staged }) => [...linear.src.filter(({ op }) => op === "LOCAL"), ...staged.values()])
  )
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
    launch,
    threads,
    thread: emit(Concatenate.special(arena, "lidx0", Expr.int(arena, threads))),
    workgroup: emit(Concatenate.special(arena, "gidx0", Expr.int(arena, launch.workgroups))),
    emit,
    argument: argumentsOf(members, launch.coherent)
  }
  // the head is complete before any phase is built, so no phase computes any of it again
  const shares = members.map((member) => shareOf(making, member))
  const body = members.flatMap((member, i) => [
    ...(i === 0 ? [] : [gridBarrier(making)]),
    ...phase(making, { member, memory: memory[i]!, share: shares[i]! })
  ])
  return issueAhead(arena.make("LINEAR", DType.none, [...head, ...body]), launch.ahead, lowered)
}

const gridBarrier = ({ argument, fresh, head, launch }: Making): UOp => {
  const { meeting, spins, workgroups } = launch
  const words = argument(meeting, DType.u32)
  for (const node of toposort(words)) head.add(node)
  return words.arena.make("GRID_BARRIER", DType.none, [words], { id: fresh(), workgroups, spins })
}

const memberOf = (part: Phase, launch: Pick<Launch, "coherent" | "stagedBytes">): Member => ({
  ...Concatenate.memberOf(part.linear),
  ...part,
  staged: stagedOf(part, launch)
})

/** Arguments that a phase copies to workgroup memory: coherent ones that it only reads, and the memory. */
const stagedOf = (
  { linear, slots }: Phase,
  { coherent, stagedBytes }: Pick<Launch, "coherent" | "stagedBytes">
): ReadonlyMap<UOp, UOp> => {
  const { params, written } = usesOf(linear)
  const staged = new Map<UOp, UOp>()
  for (const node of params) {
    if (!coherent.has(slots[slotOf(node)]!) || written.has(slotOf(node))) continue
    const size = node.src[0]
    if (size?.op !== "CONST" || 4 * Number(size.arg) > stagedBytes) continue
    // a number that no memory of the kernel has
    staged.set(node, linear.arena.make("LOCAL", node.dtype, [], { id: -1 - slotOf(node), length: Number(size.arg) }))
  }
  return staged
}

/** Slots that a phase copies to workgroup memory before it reads them. */
export const slotsStaged = (part: Phase, launch: Pick<Launch, "coherent" | "stagedBytes">): ReadonlySet<number> =>
  new Set([...stagedOf(part, launch).keys()].map(slotOf))

/** What a linear kernel uses. */
interface Uses {
  readonly params: ReadonlyArray<UOp>
  readonly locals: ReadonlyArray<UOp>
  readonly written: ReadonlySet<number>
}

const uses = new WeakMap<UOp, Uses>()

/** A kernel is asked for each launch that it may be in. */
const usesOf = (linear: UOp): Uses => {
  const { src } = linear
  const found = uses.get(linear) ?? {
    params: src.filter(({ op }) => op === "PARAM"),
    locals: src.filter(({ op }) => op === "LOCAL"),
    written: new Set(src.flatMap((node) => node.op === "STORE" ? [slotNumber(accessOf(node).buffer)] : []))
  }
  uses.set(linear, found)
  return found
}

const slotNumber = (buffer: UOp): number => buffer.op === "PARAM" ? slotOf(buffer) : -1

/** One PARAM for each slot of the launch and each dtype: as long as the longest use of it. */
const argumentsOf = (members: ReadonlyArray<Member>, coherent: ReadonlySet<number>): Making["argument"] => {
  const sizes = new Map<number, UOp>()
  for (const { linear, offsets, slots } of members) {
    for (const node of linear.src) {
      if (node.op !== "PARAM") continue
      const slot = slots[slotOf(node)]!
      const size = Expr.add(node.src[0]!, offsets[slotOf(node)]!)
      const known = sizes.get(slot)
      sizes.set(slot, known === undefined || known === size ? size : Symbolic.simplify(Expr.max(known, size)))
    }
  }
  const { arena } = members[0]!.linear
  return (slot, dtype) => {
    // only the barrier's buffer is not an argument of any phase
    const size = sizes.get(slot) ?? Expr.int(arena, meetingWords.count)
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
  /** Where threads without work do not wait: whether this one has any. */
  readonly isThread: UOp | undefined
  /** Where not every workgroup has a share: whether this one does. */
  readonly isWorkgroup: UOp | undefined
  readonly before: ReadonlySet<UOp>
}

/** Bytes of workgroup memory that the launch takes. */
export const memoryBytes = (parts: ReadonlyArray<Phase>, launch: Pick<Launch, "coherent" | "stagedBytes">): number => {
  const { lengths } = Workgroup.overlay(
    parts.map((part) => [...usesOf(part.linear).locals, ...stagedOf(part, launch).values()])
  )
  return [...lengths.values()].reduce((bytes, length) => bytes + 4 * length, 0)
}

/** The instructions of a phase. */
const phase = (
  making: Making,
  { member, memory, share }: {
    readonly member: Member
    readonly memory: ReadonlyMap<UOp, UOp>
    readonly share: Share
  }
): ReadonlyArray<UOp> => {
  const { argument, head } = making
  const { linear, offsets, slots, staged } = member
  const { arena } = linear
  const stages = [...staged].flatMap(([param, local]) => stage(making, member, param, memory.get(local)!))
  const body = Concatenate.instructionsOf(making, {
    ...share,
    member,
    memory,
    argument: (node) => {
      const local = staged.get(node)
      const made = local === undefined ? argument(slots[slotOf(node)]!, node.dtype) : memory.get(local)!
      for (const part of toposort(made)) head.add(part)
      return made
    },
    offsetOf: (node) => staged.has(node) ? 0 : offsets[slotOf(node)]!
  })
  const loops = share.open.some(({ op }) => op === "RANGE")
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
    ...body,
    // write after read: the next iteration overwrites workgroup memory
    ...(again ? [barrier()] : []),
    ...share.close
  ]
}

/** Copies an argument to workgroup memory. */
const stage = (making: Making, { offsets, slots }: Member, param: UOp, local: UOp): ReadonlyArray<UOp> => {
  const { argument, emit, fresh, head, thread, threads } = making
  const { arena } = param
  const length = Number(param.src[0]!.arg)
  const lanes = length % 4 === 0 ? 4 : 1
  const vectors = length / lanes
  const from = argument(slots[slotOf(param)]!, param.dtype)
  for (const node of [...toposort(from), local]) head.add(node)
  const range = arena.make("RANGE", DType.index, [emit(Expr.int(arena, Math.ceil(vectors / threads)))], {
    id: fresh(),
    axis: "LOOP"
  })
  const number = Expr.add(Expr.mul(range, threads), thread)
  const isThere = vectors % threads === 0 ? undefined : Expr.lt(number, vectors)
  const at = Expr.mul(number, lanes)
  const offset = offsets[slotOf(param)]!
  const source = Expr.element(from, offset === 0 ? at : Expr.add(at, offset), isThere)
  const load = arena.make("LOAD", DType.withLanes(param.dtype, lanes), [source])
  const store = Expr.store(Expr.element(local, at, isThere), load)
  const free = (node: UOp): boolean => node.op === "CONST" || head.has(node)
  for (const node of toposort(store)) if (node.op === "CONST") head.add(node)
  const inside = toposort(store).filter((node) => !free(node) && node !== range)
  return [range, ...inside, arena.make("END", DType.none, [range])]
}

/** Distributes a phase's workgroups cyclically: a loop where there are more than the launch has. */
const shareOf = (making: Making, member: Member): Share => {
  const { emit, fresh, launch: { workgroups }, lowered, thread, threads, workgroup } = making
  const { arena } = member.linear
  const count = lowered(member.grid.reduce((n, size) => Expr.mul(n, size)))
  const beside = besides(member, threads, { count, workgroups })
  const turns = lowered(Expr.floordiv(Expr.add(count, beside - 1), beside))
  const own = beside === 1 ? thread : emit(Expr.floormod(thread, member.threads))
  const open: Array<UOp> = []
  const before = new Set<UOp>()
  const put = (node: UOp): void => {
    open.push(node)
    before.add(node)
  }
  let turn = workgroup
  let isWorkgroup: UOp | undefined
  if (Bounds.of(turns).max > workgroups) {
    const mine = Expr.floordiv(Expr.add(Expr.sub(turns, workgroup), workgroups - 1), workgroups)
    const range = arena.make("RANGE", DType.index, [emit(mine)], { id: fresh(), axis: "LOOP" })
    put(range)
    turn = Expr.add(workgroup, Expr.mul(range, workgroups))
  } else if (Bounds.of(turns).min < workgroups) {
    isWorkgroup = emit(Expr.lt(workgroup, turns))
    put(arena.make("IF", DType.none, [isWorkgroup]))
  }
  const number = beside === 1
    ? turn
    : Expr.add(Expr.mul(turn, beside), Expr.min(Expr.floordiv(thread, member.threads), beside - 1))
  const conditions = [
    ...(beside * member.threads < threads ? [Expr.lt(thread, beside * member.threads)] : []),
    ...(beside > 1 ? [Expr.lt(number, count)] : [])
  ]
  const isThread = conditions.length === 0 ? undefined : conditions.reduce((a, b) => Expr.and(a, b))
  if (isThread === undefined) return shareIn(open, { workgroup: number, thread: own, isThread, isWorkgroup, before })
  if (member.hasBarriers) {
    const last = Expr.min(own, member.threads - 1)
    return shareIn(open, { workgroup: number, thread: last, isThread: emit(isThread), isWorkgroup, before })
  }
  const condition = lowered(isThread)
  for (const node of toposort(condition)) {
    if (node.op === "CONST" || node.op === "VAR") making.head.add(node)
    else if (!making.head.has(node) && !before.has(node)) put(node)
  }
  put(arena.make("IF", DType.none, [condition]))
  return shareIn(open, { workgroup: number, thread: own, isThread: undefined, isWorkgroup, before })
}

const shareIn = (open: ReadonlyArray<UOp>, share: Omit<Share, "open" | "close">): Share => ({
  ...share,
  open,
  close: open.toReversed().flatMap((node) =>
    node.op === "RANGE" || node.op === "IF"
      ? [node.arena.make(node.op === "IF" ? "ENDIF" : "END", DType.none, [node])]
      : []
  )
})

/** How many workgroups of a phase one of the launch runs side by side: several where the phase has no barriers and few threads. */
const besides = (
  { hasBarriers, linear, threads: own }: Member,
  threads: number,
  { count, workgroups }: { readonly count: UOp; readonly workgroups: number }
): number => {
  const isWhole = linear.src.every((node) => node.op !== "SUBGROUP_REDUCE" || own % groupArg(node).threads === 0)
  if (hasBarriers || !isWhole || linear.src.some(({ op }) => op === "LOCAL")) return 1
  return Math.max(1, Math.min(Math.floor(threads / own), Math.ceil(Bounds.of(count).max / workgroups)))
}
