import * as Bounds from "@tg/core-uop/Bounds"
import { accessOf } from "@tg/core-uop/View"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { elementwise } from "@tg/core-uop/Op"
import { veil } from "@tg/core-uop/Phases"
import type * as Pass from "@tg/core-uop/Pass"
import { type RendererCaps, signature } from "@tg/core-uop/Program"
import { argOf, groupArg, rangeArg, slotOf, specialName, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Workgroup from "@tg/core-uop/Workgroup"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { decompose, rewrite, strength } from "./Decompose.ts"

/** A linear kernel and the launch it was made for: workgroups along three dimensions, threads along one. */
export interface Member {
  readonly linear: UOp
  readonly grid: ReadonlyArray<UOp>
  readonly threads: number
  readonly hasBarriers: boolean
}

/** A linear kernel with its slots in the launch: slot i of it is `slots[i]` there. */
export interface Part {
  readonly linear: UOp
  readonly slots: ReadonlyArray<number>
}

/** Where the launch may run. */
export interface Target {
  readonly caps: Pick<RendererCaps, "ops">
  /** Workgroups along one dimension. */
  readonly maxGrid: number
}

/**
 * Linear kernels of which none touches what another one writes, as one linear kernel: the first workgroups run the first
 * kernel, the next ones the second, and so on. A workgroup has as many threads as the largest one needs. In the others
 * the surplus threads wait; where there are barriers to reach, they repeat what the last thread does and store nothing.
 * Workgroup memory is overlaid, because a workgroup runs only one of the kernels. One kernel stays as it is.
 */
export const concatenate = (parts: ReadonlyArray<Part>, { caps, maxGrid }: Target): UOp => {
  const linears = parts.map(({ linear }) => linear)
  if (linears.length === 1) return linears[0]!
  const { arena } = linears[0]!
  const members = linears.map(memberOf)
  const threads = threadsOf(members)
  const memory = overlaid(linears)
  /** Instructions in front of all branches, which all may use. */
  const head = new Set<UOp>()
  const body: Array<UOp> = []
  const lowered = (x: UOp): UOp => rewrite(decompose(Symbolic.simplify(x), caps.ops), strength)
  const emit = (x: UOp): UOp => {
    const made = lowered(x)
    for (const node of toposort(made)) head.add(node)
    return made
  }

  const ends: Array<UOp> = []
  for (const member of members) {
    const workgroups = workgroupsOf(member)
    ends.push(ends.length === 0 ? workgroups : Expr.add(ends.at(-1)!, workgroups))
  }
  const workgroup = workgroupNumber(ends.at(-1)!, maxGrid, lowered)
  const thread = special(arena, "lidx0", Expr.int(arena, threads))

  // the conditions of all branches are in the head before any branch is built, so no branch computes one again
  const branches = members.map((member, m) => {
    const isThread = member.threads < threads ? emit(Expr.lt(thread, member.threads)) : undefined
    const block = m === 0
      ? Expr.lt(workgroup, ends[0]!)
      : Expr.and(Expr.lt(workgroup, ends[m]!), Expr.not(Expr.lt(workgroup, ends[m - 1]!)))
    const mayWait = isThread !== undefined && !member.hasBarriers
    return {
      branch: arena.make("IF", DType.none, [emit(mayWait ? Expr.and(block, isThread) : block)]),
      isThread: mayWait ? undefined : isThread
    }
  })

  let numbers = 0
  const launch: Launch = { head, lowered, fresh: () => numbers++ }
  members.forEach((member, m) => {
    const { branch, isThread } = branches[m]!
    const copied = instructionsOf(launch, {
      member,
      argument: (node) =>
        arena.make("PARAM", node.dtype, node.src, { ...argOf(node, "PARAM"), slot: parts[m]!.slots[slotOf(node)]! }),
      memory: memory[m]!,
      workgroup: m === 0 ? workgroup : Expr.sub(workgroup, ends[m - 1]!),
      thread: isThread === undefined ? thread : Expr.min(thread, member.threads - 1),
      isThread
    })
    body.push(branch, ...copied, arena.make("ENDIF", DType.none, [branch]))
  })
  return arena.make("LINEAR", DType.none, [...head, ...body])
}

/** The pass over the first kernel of a launch: the others run beside it, in branches. */
export const passes: Pass.PassList<Target & { readonly parts: ReadonlyArray<Part> }> = {
  stage: "launch",
  passes: [{
    name: "concatenate",
    from: "linear",
    to: "linear",
    run: (_, { parts, ...target }) => concatenate(parts, target)
  }]
}

/** The state that the branches of a launch share. */
export interface Launch {
  /** Instructions in front of all branches. */
  readonly head: Set<UOp>
  readonly lowered: (x: UOp) => UOp
  /** A number for a loop, a register or a barrier. */
  readonly fresh: () => number
}

/** A kernel in its branch. */
export interface Branch {
  readonly member: Member
  /** The PARAM of the launch for a PARAM of the kernel. */
  readonly argument: (param: UOp) => UOp
  /** Where an argument or memory begins in that of the launch, in elements; 0 by default. An expression is in the head. */
  readonly offsetOf?: ((buffer: UOp) => UOp | number) | undefined
  /** Where a place of an argument lies in that of the launch, which is no distance from where that begins; none for others. */
  readonly placeOf?: ((buffer: UOp, at: UOp) => UOp | undefined) | undefined
  /** Instructions in front of the branch besides the head. */
  readonly before?: ReadonlySet<UOp> | undefined
  readonly memory: ReadonlyMap<UOp, UOp>
  /** The values that its hardware indices are computed from. */
  readonly workgroup: UOp
  readonly thread: UOp
  /** Where surplus threads do not wait: whether this thread is none of them. */
  readonly isThread: UOp | undefined
  /** Where one workgroup runs several of the kernel's: whether the one of this thread exists. Others store to no argument. */
  readonly isThere?: UOp | undefined
  /** The words of an argument whose readers wait for them; none of others. */
  readonly wordsOf?: ((buffer: UOp) => UOp | undefined) | undefined
  /** The argument of the launch that a store to this one of the kernel writes as well; none of others. */
  readonly copyOf?: ((buffer: UOp) => UOp | undefined) | undefined
  /** Branches are taken by whole workgroups of the launch, once their conditions are simplified. */
  readonly areUniform?: boolean | undefined
  /** Arguments that lie somewhere else, and what loads of them become: at this place, if the gate holds. */
  readonly elsewhere?: ReadonlyMap<UOp, (dtype: DType.DType, at: UOp, gate: UOp | undefined) => UOp> | undefined
}

/** An instruction list under construction: common-subexpression elimination within each loop and against the head. */
export const listOf = (
  isThere: (node: UOp) => boolean
): {
  readonly here: ReadonlyArray<UOp>
  readonly push: (node: UOp) => UOp
  /** Whether a node can be used here. */
  readonly has: (node: UOp) => boolean
} => {
  const here: Array<UOp> = []
  /** The instructions of each open loop, the branch itself first. */
  const seen: Array<Set<UOp>> = [new Set()]
  const has = (node: UOp): boolean => isThere(node) || seen.some((nodes) => nodes.has(node))
  return {
    here,
    has,
    push: (node) => {
      if (has(node)) return node
      if (node.op === "END" || node.op === "ENDIF") seen.pop()
      here.push(node)
      seen.at(-1)!.add(node)
      if (node.op === "RANGE" || node.op === "IF") seen.push(new Set())
      return node
    }
  }
}

/** The instructions of a branch under construction. */
interface List extends ReturnType<typeof listOf> {
  /** Puts a node in front of all branches. */
  readonly everywhere: (node: UOp) => UOp
  /** An expression of values that can be used here. */
  readonly pushAll: (node: UOp) => UOp
  /** Places before what they are in begins somewhere else, by their INDEX. */
  readonly places: Map<UOp, UOp>
}

const instructionList = (head: Set<UOp>, before: ReadonlySet<UOp> | undefined): List => {
  const list = listOf((node) => head.has(node) || before?.has(node) === true)
  const everywhere = (node: UOp): UOp => {
    head.add(node)
    return node
  }
  const pushAll = (node: UOp): UOp => {
    if (list.has(node)) return node
    for (const s of node.src) pushAll(s)
    return isFree(node) ? everywhere(node) : list.push(node)
  }
  return { ...list, everywhere, pushAll, places: new Map() }
}

/** The instructions of a kernel in its branch; those that mean the same everywhere go to the head. */
export const instructionsOf = ({ fresh, head, lowered }: Launch, branch: Branch): ReadonlyArray<UOp> => {
  const { argument, member, memory, thread, workgroup } = branch
  const { arena } = member.linear
  const list = instructionList(head, branch.before)
  const { everywhere, push, pushAll } = list
  const copy = (node: UOp, src: ReadonlyArray<UOp>): UOp => {
    switch (node.op) {
      case "CONST":
      case "VAR":
        return everywhere(node)
      case "PARAM":
        return everywhere(argument(node))
      case "LOCAL":
        return everywhere(memory.get(node)!)
      case "SPECIAL":
        return pushAll(lowered(indexOf(node, { grid: member.grid, workgroup, thread })))
      case "RANGE":
        return push(arena.make("RANGE", node.dtype, src, { ...rangeArg(node), id: fresh() }))
      case "REG":
        return push(arena.make("REG", node.dtype, src, { id: fresh() }))
      case "BARRIER":
        return push(arena.make("BARRIER", node.dtype, src, fresh()))
      case "IF":
        // what it loads, and what loops made of it, stays as it is
        return branch.areUniform === true && toposort(src[0]!).every(isOfIndices)
          ? push(node.with([pushAll(lowered(src[0]!))]))
          : push(node.with(src))
      case "LOAD":
      case "INDEX":
      case "STORE":
        return access(branch, list, { node, src })
      default:
        return push(node.with(src))
    }
  }
  const done = new Map<UOp, UOp>()
  for (const node of member.linear.src) {
    const made = copy(node, node.src.map((s) => done.get(s)!))
    arena.inherit(made, node)
    done.set(node, made)
  }
  return list.here
}

/** Whether a node of an expression follows from the indices of the hardware and of loops alone. */
export const isOfIndices = ({ op }: UOp): boolean =>
  elementwise.has(op) || op === "RANGE" || op === "CONST" || op === "VAR" || op === "SPECIAL"

/** A node that touches memory, with its copied sources: the memory may begin, or lie, somewhere else in the launch. */
const access = (
  { copyOf, elsewhere, isThere, isThread, offsetOf, placeOf, wordsOf }: Branch,
  { everywhere, places, push, pushAll }: List,
  { node, src }: { readonly node: UOp; readonly src: ReadonlyArray<UOp> }
): UOp => {
  const known = accessOf(node).buffer
  if (node.op === "INDEX") {
    // its loads say where
    if (elsewhere?.has(known) === true) return node.with(src)
    const place = placeOf?.(known, src[1]!)
    if (place !== undefined) return push(node.with([src[0]!, pushAll(place), ...src.slice(2)]))
    const offset = offsetOf?.(known) ?? 0
    if (offset === 0) return push(node.with(src))
    const at = Expr.add(src[1]!, typeof offset === "number" ? everywhere(Expr.int(node.arena, offset)) : offset)
    const made = push(node.with([src[0]!, at.op === "CONST" ? everywhere(at) : push(at), ...src.slice(2)]))
    places.set(made, src[1]!)
    return made
  }
  const { at, buffer, gate } = accessOf(src[0]!)
  if (node.op === "LOAD") {
    const load = elsewhere?.get(known)
    return load === undefined ? push(node.with(src)) : pushAll(load(node.dtype, at, gate))
  }
  const own = [isThread, buffer.op === "PARAM" ? isThere : undefined].filter((condition) => condition !== undefined)
  const words = wordsOf?.(buffer)
  if (own.length === 0 && words === undefined) return push(node.with(src))
  const all = [...gate === undefined ? [] : [gate], ...own]
  const open = all.length === 0 ? undefined : all.reduce((a, b) => push(Expr.and(a, b)))
  const copy = copyOf?.(known)
  if (copy !== undefined) {
    const element = push(Expr.element(everywhere(copy), places.get(src[0]!) ?? at, open))
    push(node.with([element, src[1]!]))
  }
  const value = words === undefined ? src[1]! : pushAll(veiled(src[1]!))
  return push(node.with([push(Expr.element(words === undefined ? buffer : everywhere(words), at, open)), value]))
}

/** A value as words that readers wait for. */
const veiled = (value: UOp): UOp => {
  const { arena, dtype } = value
  const type = DType.withLanes(DType.u32, dtype.lanes)
  const word = arena.make("CONST", DType.u32, [], veil)
  const words = dtype.scalar === "u32" ? value : arena.make("BITCAST", type, [value])
  const mask = dtype.lanes === 1 ? word : arena.make("STACK", type, Array.from({ length: dtype.lanes }, () => word))
  return arena.make("XOR", type, [words, mask])
}

/** A hardware index. */
export const special = (arena: UOp["arena"], name: string, size: UOp): UOp =>
  arena.make("SPECIAL", DType.index, [size], { name })

/** Whether a node means the same everywhere in a kernel. */
const isFree = ({ op }: UOp): boolean => op === "CONST" || op === "VAR" || op === "SPECIAL"

declare module "@tg/core-uop/UOp" {
  interface Cache {
    member?: Member
  }
}

/** A linear kernel and its launch. Memoised, because a kernel is asked about for each launch that it may join. */
export const memberOf = (linear: UOp): Member => linear.cache.member ??= launched(linear)

const launched = (linear: UOp): Member => {
  const { grid, workgroup } = signature(linear)
  return {
    linear,
    grid: grid.map((size) => typeof size === "number" ? Expr.int(linear.arena, size) : size),
    threads: workgroup[0],
    hasBarriers: linear.src.some((node) => node.op === "BARRIER")
  }
}

/** How many workgroups a kernel has. */
export const workgroupsOf = ({ grid }: Pick<Member, "grid">): UOp => grid.reduce((n, size) => Expr.mul(n, size))

/** Threads of the largest workgroup, rounded up to whole groups of every subgroup operation. */
export const threadsOf = (members: ReadonlyArray<Member>): number => {
  const most = Math.max(...members.map((m) => m.threads))
  const groups = members.flatMap(({ linear }) => linear.src.filter((node) => node.op === "SUBGROUP_REDUCE"))
  const width = Math.max(1, ...groups.map((node) => groupArg(node).threads))
  return width * Math.ceil(most / width)
}

/** The linear workgroup index; the launch takes two dimensions where one is too short. */
const workgroupNumber = (count: UOp, maxGrid: number, lowered: (x: UOp) => UOp): UOp => {
  const { arena } = count
  if (Bounds.of(count).max <= maxGrid) return special(arena, "gidx0", lowered(count))
  const column = special(arena, "gidx0", lowered(Expr.min(count, maxGrid)))
  const row = special(arena, "gidx1", lowered(Expr.floordiv(Expr.add(count, maxGrid - 1), maxGrid)))
  return Expr.add(Expr.mul(row, maxGrid), column)
}

/** A hardware index of a member, from those of the launch. */
export const indexOf = (
  node: UOp,
  at: { readonly grid: ReadonlyArray<UOp>; readonly workgroup: UOp; readonly thread: UOp }
): UOp => {
  const name = specialName(node)
  if (name.startsWith("lidx")) return at.thread
  const axis = Number(name.slice(-1))
  // non-negative wherever it is used; the bound makes the divisions unsigned
  const number = Expr.max(at.workgroup, 0)
  const below = at.grid.slice(0, axis).reduce((n, size) => Expr.mul(n, size), Expr.int(node.arena, 1))
  const isOutermost = at.grid.slice(axis + 1).every((size) => size.op === "CONST" && size.arg === 1)
  const rest = Expr.floordiv(number, below)
  return isOutermost ? rest : Expr.floormod(rest, node.src[0]!)
}

/** The LOCALs of each kernel, mapped to those of the launch. Kernels number theirs alike, so one node may belong to several. */
const overlaid = (linears: ReadonlyArray<UOp>): ReadonlyArray<ReadonlyMap<UOp, UOp>> =>
  overlaidMemory(linears.map(({ src }) => src.filter(({ op }) => op === "LOCAL")))

/** LOCALs with disjoint lifetimes, mapped to shared ones of the launch. */
export const overlaidMemory = (
  memories: ReadonlyArray<ReadonlyArray<UOp>>
): ReadonlyArray<ReadonlyMap<UOp, UOp>> => {
  const { lengths, places } = Workgroup.overlay(memories)
  const ids = new Map([...lengths.keys()].map((place, id) => [place, id]))
  return places.map((own) =>
    new Map(
      [...own].map(([node, place]) => {
        const arg = { id: ids.get(place)!, length: lengths.get(place)! }
        return [node, node.arena.make("LOCAL", node.dtype, [], arg)]
      })
    )
  )
}
