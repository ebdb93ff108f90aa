import * as DType from "@tg/core-uop/DType"
import * as Pass from "@tg/core-uop/Pass"
import { signature } from "@tg/core-uop/Program"
import { argOf, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Workgroup from "@tg/core-uop/Workgroup"
import type { Forbidden, Launch as Reason } from "./Explain.ts"
import { addedMicros, type FusionCost, type KernelMicros, launchOf, margin } from "./Fusion.ts"
import { move, type Offsets } from "./Members.ts"
import type { KernelStep, Ref, Step } from "./Schedule.ts"

export { canonical, members, type Part } from "./Members.ts"

/** The cost of a kernel where the device has no cost model. */
const nothing: KernelMicros = { wait: 0, work: 0 }

/** A kernel as part of a launch. */
interface Member {
  readonly step: KernelStep
  /** Its position in the given order. */
  readonly at: number
  readonly micros: KernelMicros
}

/** Kernels of one launch. A hand-written kernel runs alone. */
interface Launch {
  readonly members: Array<Member>
  readonly buffers: Set<string>
  readonly alone: Step | undefined
  /** Why its first member did not join another one. */
  readonly reason: Reason
}

/**
 * Horizontal fusion: list scheduling of one function body, in which independent kernels share a launch. There are as many levels as
 * the critical path has steps. Kernels on it have their level; any other one joins a launch of a level that its dependencies allow:
 * the one to which it adds least, the earliest if several are equal, within the room of a launch. Without costs no kernel adds
 * anything.
 */
export const joinIndependent = (
  steps: ReadonlyArray<Step>,
  room: Room,
  { fusion, list = passes, watch }: {
    readonly fusion?: FusionCost | undefined
    readonly list?: Pass.PassList<ReadonlyArray<UOp>> | undefined
    readonly watch?: Pass.Watch | undefined
  } = {}
): ReadonlyArray<Step> => {
  const before = dependencies(steps)
  const fixed = new Map<number, number>()
  const { first, last } = levels(before, fixed)
  const micros = steps.map((step) => step.kind === "kernel" ? fusion?.kernelMicros(step.ast) ?? nothing : nothing)
  const alone = micros.map((kernel) => launchOf([kernel]))
  const critical = [...steps.keys()].filter((i) => first[i] === last[i])
  const free = [...steps.keys()].filter((i) => first[i] !== last[i]).sort((a, b) => alone[b]! - alone[a]! || a - b)
  const launches: Array<Array<Launch>> = Array.from({ length: Math.max(0, ...last.map((n) => n + 1)) }, () => [])

  /** `first` is the earliest level of each step: one behind the last of its dependencies. */
  const place = (i: number, first: ReadonlyArray<number>, to: number): number => {
    const step = steps[i]!
    const from = first[i]!
    let refused: Forbidden | undefined
    const options: Array<Option> = []
    for (let level = from; level <= to; level++) {
      for (const launch of launches[level]!) {
        if (step.kind !== "kernel" || launch.alone !== undefined) continue
        const lacking = lack(launch, step, room)
        if (lacking !== undefined) {
          refused ??= lacking
          continue
        }
        options.push({ level, launch, ...joining(launch.members.map((member) => member.micros), micros[i]!) })
      }
    }
    const best = bestOf(options)
    const reason = (): Reason => {
      if (step.kind === "custom") return { _tag: "Alone" }
      if (refused !== undefined) return refused
      const needed = [...before[i]!].find((b) => first[b] === from - 1)
      return needed === undefined ? { _tag: "First" } : { _tag: "After", kernel: steps[needed]!.name }
    }
    const launch = best?.launch ?? {
      members: [],
      buffers: new Set(),
      alone: step.kind === "kernel" ? undefined : step,
      reason: reason()
    }
    if (best === undefined) launches[from]!.push(launch)
    if (step.kind === "kernel") {
      launch.members.push({ step, at: i, micros: micros[i]! })
      for (const ref of boundRefs(step)) launch.buffers.add(bindingOf(ref))
    }
    return best?.level ?? from
  }

  for (const i of critical) fixed.set(i, place(i, first, last[i]!))
  for (const i of free) {
    const now = levels(before, fixed)
    fixed.set(i, place(i, now.first, now.last[i]!))
  }
  return launches.flatMap((level) =>
    level.map((launch) => stepOf(launch, (members, name) => joinedBy(list, members, name, watch)))
  )
}

/** A launch that a kernel may join. */
interface Option {
  readonly level: number
  readonly launch: Launch
  /** What the kernel adds to it. */
  readonly added: number
  /** What it then takes. */
  readonly micros: number
  /** How much longer the kernel takes than the longest of the others. */
  readonly tail: number
}

const joining = (
  members: ReadonlyArray<KernelMicros>,
  kernel: KernelMicros
): Pick<Option, "added" | "micros" | "tail"> => ({
  added: addedMicros(members, kernel),
  micros: launchOf([...members, kernel]),
  tail: Math.max(0, launchOf([kernel]) - Math.max(...members.map((member) => launchOf([member]))))
})

/**
 * The launch to which a kernel adds least. Of those within the margin the one with the least tail effect: a launch ends with its
 * last workgroup, and few of them leave processors idle. Then the earliest: what it reads is still in the cache.
 */
const bestOf = (options: ReadonlyArray<Option>): Option | undefined => {
  const [least] = options.toSorted((a, b) => a.added - b.added)
  if (least === undefined) return undefined
  const equal = options.filter(({ added, micros }) => added - least.added <= margin * Math.max(micros, least.micros))
  return equal.toSorted((a, b) => a.tail - b.tail)[0]
}

/** The identity of a binding: different windows of a buffer are different bindings. */
export const bindingOf = (ref: Ref): string =>
  ref.window === undefined ? keyOf(ref) : `${keyOf(ref)}+${ref.window.offset}:${ref.window.bytes}`

/** The identity of memory, without its window. */
export const keyOf = (ref: Ref): string => {
  switch (ref.kind) {
    case "buffer":
      return `b${ref.node.id}`
    case "param":
      return `p${ref.slot}`
    case "temporary":
      return `t${ref.id}`
  }
}

/** Memory that a step touches, and which of it the step writes. */
const accesses = (step: Step): ReadonlyArray<{ readonly ref: Ref; readonly isWritten: boolean }> => {
  if (step.kind === "kernel") {
    return signature(step.ast).bindings.map((b) => ({ ref: step.args[b.slot]!, isWritten: b.access === "write" }))
  }
  const { writes } = argOf(step.custom, "CUSTOM")
  return step.args.map((ref, i) => ({ ref, isWritten: writes.includes(i) }))
}

const boundRefs = (step: KernelStep): ReadonlyArray<Ref> => accesses(step).map(({ ref }) => ref)

/** The dependencies of each step: read after write, write after read, write after write. */
const dependencies = (steps: ReadonlyArray<Step>): ReadonlyArray<ReadonlySet<number>> => {
  const writer = new Map<string, number>()
  const readers = new Map<string, Array<number>>()
  return steps.map((step, i) => {
    const before = new Set<number>()
    const touched = accesses(step).map(({ isWritten, ref }) => ({ key: keyOf(ref), isWritten }))
    for (const { isWritten, key } of touched) {
      const wrote = writer.get(key)
      if (wrote !== undefined) before.add(wrote)
      if (isWritten) { for (const reader of readers.get(key) ?? []) before.add(reader) }
    }
    for (const { isWritten, key } of touched) {
      if (isWritten) {
        writer.set(key, i)
        readers.delete(key)
      } else readers.set(key, [...readers.get(key) ?? [], i])
    }
    return before
  })
}

/** The first and the last level each step may have, given the levels that some of them have. */
const levels = (
  before: ReadonlyArray<ReadonlySet<number>>,
  fixed: ReadonlyMap<number, number>
): { readonly first: ReadonlyArray<number>; readonly last: ReadonlyArray<number> } => {
  const first: Array<number> = []
  before.forEach((earlier, i) => {
    first.push(fixed.get(i) ?? Math.max(-1, ...[...earlier].map((b) => first[b]!)) + 1)
  })
  const depth = Math.max(0, ...first)
  const last = first.map(() => depth)
  for (let i = before.length - 1; i >= 0; i--) {
    last[i] = fixed.get(i) ?? last[i]!
    for (const b of before[i]!) last[b] = Math.min(last[b]!, last[i]! - 1)
  }
  return { first, last }
}

/** The resources of a launch. */
export interface Room {
  /** Storage buffers it binds. */
  readonly buffers: number
  /** Workgroup memory for staged values. Reductions over threads need more, which is not counted here. */
  readonly stagedBytes: number
}

/**
 * The resource that a launch lacks for the kernel, if any. Kernels of one level are independent, so there are no hazards.
 */
const lack = (launch: Launch, step: KernelStep, room: Room): Forbidden | undefined => {
  const [kernel] = launch.members.map((member) => member.step.name)
  const kernels = [...launch.members.map((member) => member.step.ast), step.ast]
  // arrays that become vectors do not share memory with scalar ones
  const all = kernels.reduce((n, kernel) => n + Workgroup.bytesOf(kernel), 0)
  const staged = Math.max(Workgroup.overlaidBytes(kernels), all / 2)
  const forbidden = { _tag: "Forbidden" as const, kernel: `${kernel}+${step.name}` }
  if (staged > room.stagedBytes) return { ...forbidden, limit: "workgroupBytes", needs: staged, has: room.stagedBytes }
  const buffers = new Set([...launch.buffers, ...boundRefs(step).map(bindingOf)]).size
  return buffers > room.buffers ? { ...forbidden, limit: "bindings", needs: buffers, has: room.buffers } : undefined
}

/** One kernel with an END for each member, the longest first, to shorten the tail. Memory that members share is one argument. */
const stepOf = (
  { alone, members, reason }: Launch,
  join: (members: ReadonlyArray<UOp>, name: string) => UOp
): Step => {
  if (alone !== undefined) return alone
  const [first] = members
  const launched = ({ step }: Member): KernelStep["boundaries"] => {
    const launch: Reason = step === first!.step ? reason : { _tag: "Joined", with: first!.step.name }
    return step.boundaries.map((boundary) => ({ ...boundary, launch }))
  }
  if (members.length === 1) return { ...first!.step, boundaries: launched(first!) }
  const longestFirst = members.toSorted((a, b) => launchOf([b.micros]) - launchOf([a.micros]) || a.at - b.at)
  const ordered = longestFirst.map(({ step }) => step)
  const args: Array<Ref> = []
  const slots = new Map<string, number>()
  const slotOf = (ref: Ref): number => {
    const known = slots.get(bindingOf(ref))
    if (known !== undefined) return known
    slots.set(bindingOf(ref), args.length)
    return args.push(ref) - 1
  }
  let by: Offsets = { range: 0, memory: 0 }
  const kernels = ordered.map((step) => {
    const moved = move(step.ast, (slot) => slotOf(step.args[slot]!), by)
    const nodes = toposort(step.ast)
    by = {
      range: by.range + nodes.filter((node) => node.op === "RANGE").length,
      memory: by.memory + nodes.filter((node) => node.op === "LOCAL").length
    }
    return moved
  })
  const name = ordered.map(({ name }) => name).join("+")
  return {
    kind: "kernel",
    name,
    ast: join(kernels, name),
    args,
    boundaries: longestFirst.flatMap(launched)
  }
}

/** The pass over the first kernel of a launch: it gets the ENDs of the others, whose loops and slots are renumbered. */
export const passes: Pass.PassList<ReadonlyArray<UOp>> = {
  stage: "rangeify",
  passes: [{
    name: "join",
    from: "kernel",
    to: "kernel",
    run: (kernel, others) =>
      kernel.arena.make("SINK", DType.none, [...kernel.src, ...others.flatMap((other) => other.src)])
  }]
}

const joinedBy = (
  list: Pass.PassList<ReadonlyArray<UOp>>,
  [first, ...others]: ReadonlyArray<UOp>,
  name: string,
  watch: Pass.Watch | undefined
): UOp => {
  const made = Pass.run(list, first!, others, { kernel: name, watch })
  if (made instanceof Pass.BrokenPass) throw made
  return made
}
