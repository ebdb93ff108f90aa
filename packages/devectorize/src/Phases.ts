/** Persistent launches: linear kernels that depend on each other as one linear kernel, with barriers across the grid. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import * as Phases from "@tg/core-uop/Phases"
import { slotOf, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Workgroup from "@tg/core-uop/Workgroup"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { issueAhead } from "./Ahead.ts"
import type { Shape } from "./Beside.ts"
import * as Concatenate from "./Concatenate.ts"
import { decompose, rewrite, strength } from "./Decompose.ts"
import { type Launch, type Making, memberOf, memoryOf, type Placed, threadsOf } from "./internal/launching.ts"
import { passing } from "./internal/passing.ts"
import { type Share, shareOf } from "./Shares.ts"
import { areLeftOut, leaveOut } from "./Surplus.ts"
import {
  type Copy,
  type Phase,
  type Restored,
  restoresOf,
  type Rule,
  stage,
  type Staged,
  stagedLoad
} from "./Staging.ts"

export { besideOf } from "./Beside.ts"
export type { Launch } from "./internal/launching.ts"
export { type Phase, slotsStaged } from "./Staging.ts"

/**
 * One kernel of all phases. As many workgroups are launched as can be resident at once; in each phase they divide the workgroups that
 * the phase would have as a launch of its own, and wait at a grid barrier behind it, or pass it. They have the threads of the largest phase at least:
 * in smaller ones a workgroup runs several of the phase's side by side, each with its own workgroup memory, and surplus threads wait.
 * Workgroup memory of phases is overlaid.
 */
export const phases = (parts: ReadonlyArray<Phase>, launch: Launch): UOp => {
  const { arena } = parts[0]!.linear
  const threads = threadsOf(parts, launch)
  const members = parts.map((part) => memberOf(part, { ...launch, threads }))
  const forwarded = parts.map((_, i) => forwardedTo(parts, i))
  const memory = Concatenate.overlaidMemory(
    members.map((member, i) => [...memoryOf(member), ...forwarded[i]!.map(({ local }) => local)])
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
    awaits: launch.awaited !== undefined,
    launch,
    threads,
    thread: emit(Concatenate.special(arena, "lidx0", Expr.int(arena, threads))),
    workgroup: emit(Concatenate.special(arena, "gidx0", Expr.int(arena, launch.workgroups))),
    emit,
    argument: argumentsOf(members, launch)
  }
  // the head is complete before any phase is built, so no phase computes any of it again
  const shares = members.map((member, i) => shareOf(making, member, forwarded[i]!.length > 0))
  const restored = forwarded.map((to, i) =>
    to.map((one): Restored => ({ ...one, base: emit(one.base), local: memory[i]!.get(one.local)! }))
  )
  const stretches = Phases.stretchesOf(members)
  const passed = passing(stretches, launch)
  const running = members.map(({ variants }) =>
    variants === undefined ? undefined : emit(isOneOf(arena, variants, launch.variant![1]))
  )
  const bodyOf = (member: Placed): ReadonlyArray<UOp> => {
    const i = members.indexOf(member)
    const own = phase(making, { member, memory: memory[i]!, share: shares[i]!, restored: restored[i]! })
    const condition = running[i]
    if (condition === undefined) return own
    const branch = arena.make("IF", DType.none, [condition])
    return [branch, ...own, arena.make("ENDIF", DType.none, [branch])]
  }
  const body = stretches.flatMap((stretch, i) => [
    ...(i === 0 ? cleared(making) : [gridBarrier(making, passed[i - 1])]),
    ...stretch.flatMap(bodyOf)
  ])
  // phases of which one runs share the registers for what is loaded ahead
  const ahead = stretches.map((stretch) =>
    Math.min(...stretch.map((member) => launch.ahead[members.indexOf(member)] ?? 0))
  )
  return issueAhead(arena.make("LINEAR", DType.none, [...head, ...body]), ahead, lowered)
}

/** Whether the launch is of one of these variants. */
const isOneOf = (arena: UOp["arena"], variants: ReadonlyArray<number>, count: number): UOp => {
  const variant = Expr.variable(arena, Phases.variantName, 0, count - 1)
  return variants.map((number) => Expr.eq(variant, number)).reduce((a, b) => Expr.or(a, b))
}

/** The barrier behind a phase, which so many workgroups pass. */
const gridBarrier = ({ argument, fresh, head, launch }: Making, passes: number | undefined): UOp => {
  const { awaited, meeting, spins, workgroups } = launch
  const words = argument(meeting, DType.u32)
  for (const node of toposort(words)) head.add(node)
  const arg = { id: fresh(), workgroups, spins, ...passes === undefined ? {} : { passes } }
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

/** Bytes of workgroup memory that the launch takes. */
export const memoryBytes = (
  parts: ReadonlyArray<Phase>,
  launch: Rule & Shape
): number => {
  const threads = threadsOf(parts, launch)
  const { lengths } = Workgroup.overlay(
    parts.map((part, i) => [
      ...memoryOf(memberOf(part, { ...launch, threads })),
      ...forwardedTo(parts, i).map(({ local }) => local)
    ])
  )
  return [...lengths.values()].reduce((bytes, length) => bytes + 4 * length, 0)
}

/** A phase and where it runs. */
interface Running {
  readonly member: Placed
  /** Its workgroup memory in that of the launch. */
  readonly memory: ReadonlyMap<UOp, UOp>
  readonly share: Share
}

/** A phase as a part of the launch: where its arguments lie there, and what becomes of what it reads and writes. */
const branchOf = (making: Making, { member, memory, share }: Running): Concatenate.Branch => {
  const { argument: argumentOf, head, launch, lowered } = making
  const { copies, kernel, offsets, side, slots, staged } = member
  const forwards = Phases.forwardsOf(member)
  const forwardOf = (buffer: UOp): Phases.Forward | undefined =>
    buffer.op === "PARAM" ? forwards.find(({ slot }) => slot === slotOf(buffer)) : undefined
  const argument = (slot: number, dtype: DType.DType): UOp => {
    const made = argumentOf(slot, dtype)
    for (const part of toposort(made)) head.add(part)
    return made
  }
  return {
    ...share,
    member,
    memory: new Map([...member.memory].map(([node, own]) => [node, memory.get(own)!])),
    areUniform: side.isAdjacent,
    argument: (node) => {
      const copy = staged.get(node)
      const slot = forwardOf(node)?.to ?? slots[slotOf(node)]!
      if (copy === undefined) return argument(slot, node.dtype)
      const local = memory.get(copy.local)!
      head.add(local)
      return local
    },
    wordsOf: (buffer) => {
      if (!making.awaits || buffer.op !== "PARAM" || !launch.coherent.has(slotOf(buffer))) return undefined
      return argument(slotOf(buffer), DType.u32)
    },
    copyOf: (buffer) => {
      const copy = buffer.op === "PARAM" ? copies?.[slotOf(buffer)] ?? -1 : -1
      return copy < 0 ? undefined : argument(copy, buffer.dtype)
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
  }
}

/** The instructions of a phase. */
const phase = (
  making: Making,
  { member, memory, restored, share }: Running & { readonly restored: ReadonlyArray<Restored> }
): ReadonlyArray<UOp> => {
  const { head } = making
  const { linear: { arena }, side, staged } = member
  const loops = share.open.some(({ op }) => op === "RANGE")
  // what the workgroups of a turn read is copied in each turn
  const isOfTurn = ({ window }: Copy): boolean => loops && window !== undefined
  const stagedIn = (inTurn: boolean): Staged["staged"] =>
    new Map([...staged].filter(([, copy]) => isOfTurn(copy) === inTurn))
  const count = side.beside * member.threads
  const copied = Concatenate.instructionsOf(making, branchOf(making, { member, memory, share }))
  // workgroups that are missing have nothing where what they read is looked at all the same
  const [working, parts] = areLeftOut(copied, { count })
    ? [share.works, share.parts]
    : [share.isThread, share.doubled]
  const copying = { ...member, memory, parts }
  // what is forwarded is waited for together with what the first turn reads, and by those alone that have one
  const { before, isFirst } = share
  const [once, inFirst] = isFirst === undefined ? [restored, []] : [[], restored]
  const inTurn = { before, isFirst }
  const stages = stage(making, { ...copying, staged: stagedIn(false), restored: once })
  const restores = once.flatMap((one) => restoresOf(making, one, {}))
  const ofTurn = stage(making, { ...copying, ...inTurn, staged: stagedIn(true), restored: inFirst })
  const restoresOfTurn = inFirst.flatMap((one) => restoresOf(making, one, inTurn))
  const body = working === undefined ? copied : leaveOut(copied, { isThread: working, count, fresh: making.fresh })
  const again = loops && member.hasBarriers
  const barrier = (): UOp => arena.make("BARRIER", DType.none, [], making.fresh())
  const met = (instructions: ReadonlyArray<UOp>): ReadonlyArray<UOp> =>
    instructions.length === 0 ? [] : [...instructions, barrier()]
  const [outermost, ...inner] = share.open
  // workgroups without a share copy nothing
  const own = outermost?.op === "IF" && outermost.src[0] === share.isWorkgroup ? [outermost] : []
  return [
    ...own,
    ...met(stages),
    ...met(restores),
    // a later phase may have put some of it in front of all
    ...(own.length > 0 ? inner : share.open).filter((node) => !head.has(node)),
    ...met(ofTurn),
    ...met(restoresOfTurn),
    ...body,
    // write after read: the next iteration overwrites workgroup memory
    ...(again ? [barrier()] : []),
    ...share.close
  ]
}

/** What is forwarded to a phase, with workgroup memory for it, and where it belongs. */
const forwardedTo = (parts: ReadonlyArray<Phase>, phase: number): ReadonlyArray<Restored> => {
  const { linear, slots } = parts[phase]!
  const forwards = parts.flatMap((part) =>
    Phases.forwardsOf(part).filter(({ reader }) => reader === phase).map((forward) => ({ part, forward }))
  )
  return forwards.map(({ forward, part }, i) => {
    const { base, words } = Phases.windowOf(part.kernel!, forward.slot)!
    const slot = part.slots[forward.slot]!
    const { dtype } = linear.src.find((node) => node.op === "PARAM" && slots[slotOf(node)] === slot)!
    // a number that neither memory of the kernel nor that of a copy has
    const arg = { id: -1 - slots.length - i, length: words }
    const local = linear.arena.make("LOCAL", DType.scalarOf(dtype), [], arg)
    return { slot, base, words, from: { slot: forward.to, offset: forward.offset }, local }
  })
}
