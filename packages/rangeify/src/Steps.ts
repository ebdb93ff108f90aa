/** The steps of a placed body: kernels, hand-written ones, and the inlined steps of calls. */
import * as Custom from "@tg/core-uop/Custom"
import type * as Pass from "@tg/core-uop/Pass"
import { type Arena, argOf, slotOf, type UOp } from "@tg/core-uop/UOp"
import { type Boundary, type Cause, type Considered, labelOf } from "./Explain.ts"
import { finish } from "./Finish.ts"
import { fit } from "./Fit.ts"
import { orderHazards, writtenParams } from "./Hazards.ts"
import { canonical, joinIndependent } from "./Horizontal.ts"
import { bytesOf, isOverBinding, type Limits, mostBytes } from "./Limits.ts"
import { type Homes, lowerAll, type Lowered } from "./Lower.ts"
import type { Placement } from "./Placement.ts"
import { isStorage, kernelAt, readBy, storageOf } from "./Values.ts"
import { RangeifyError } from "./RangeifyError.ts"
import type { Ref, Schedule, Step, Temporary } from "./Schedule.ts"
import { wordBytes } from "./Bindings.ts"

/** The context of making steps. */
export interface Making {
  readonly arena: Arena
  readonly limits: Limits
  readonly watch: Pass.Watch | undefined
  /** The passes of a kernel that has been lowered, and of the first one of a launch. */
  readonly lists: {
    readonly kernel: Pass.PassList<undefined>
    readonly launch: Pass.PassList<ReadonlyArray<UOp>>
  }
  /** The schedule of the function that a CALL calls. */
  readonly scheduleOf: (call: UOp) => Schedule
}

/** A body whose values have homes. */
export interface Decided {
  readonly placement: Placement
  readonly homes: Homes
  readonly considered: ReadonlyMap<UOp, ReadonlyArray<Considered>>
  readonly results: ReadonlyArray<UOp>
}

/** The steps of a body as they are made, and where its values are in memory. */
class Steps {
  readonly temporaries: Array<Temporary> = []
  private readonly memory = new Map<UOp, Ref>()
  private readonly callResults = new Map<UOp, ReadonlyArray<Ref>>()
  private readonly making: Making
  private readonly decided: Decided

  constructor(making: Making, decided: Decided) {
    this.making = making
    this.decided = decided
  }

  /** The steps of one node that has any. */
  of(node: UOp): ReadonlyArray<Step> | undefined {
    if (node.op === "CALL") return this.call(node)
    if (node.op === "CUSTOM") return [this.custom(node)]
    return node.op === "STORE" || this.decided.homes.stored.has(node) ? this.kernel(node) : undefined
  }

  /** The temporaries that hold the results. */
  results(): ReadonlyArray<number> {
    return this.decided.results.map((node) => {
      const ref = this.memory.get(node)
      if (ref?.kind !== "temporary") throw new Error("a result that was not stored")
      return ref.id
    })
  }

  private temporary(bytes: number): Ref {
    this.temporaries.push({ bytes })
    return { kind: "temporary", id: this.temporaries.length - 1 }
  }

  private refOf(owner: UOp): Ref {
    if (owner.op === "BUFFER") return { kind: "buffer", node: owner }
    if (owner.op === "PARAM") return { kind: "param", slot: slotOf(owner) }
    return owner.is("GETTUPLE") && !this.decided.homes.stored.has(owner)
      ? this.callResults.get(owner.src[0]!)![owner.arg]!
      : this.memory.get(owner)!
  }

  private boundary(root: UOp, kernel: string, cause: Cause, sources = readBy(root)): Boundary {
    const { considered, homes: { stored }, placement } = this.decided
    const { computes } = kernelAt(root, stored, sources)
    const users = [...placement.kernelsOf(root, stored)].filter((user) => user.op !== "GETTUPLE")
    return {
      kernel,
      value: labelOf(root),
      users: [...new Set(users.map(labelOf))],
      cause,
      placements: considered.get(root) ?? [],
      inside: [...considered].filter(([node]) => !stored.has(node) && computes.has(node))
        .map(([node, placements]) => ({ value: labelOf(node), cause: placement.causeOf(node), placements })),
      launch: { _tag: "Alone" }
    }
  }

  private kernel(root: UOp): ReadonlyArray<Step> {
    const { arena, limits } = this.making
    const { homes } = this.decided
    if (root.op !== "STORE") this.memory.set(root, this.temporary(bytesOf(root)))
    return lowerAll(arena, root, homes, limits).flatMap((lowered) => this.kernelOf(root, lowered))
  }

  private kernelOf(root: UOp, lowered: Lowered): ReadonlyArray<Step> {
    const { limits, lists, watch } = this.making
    const { placement } = this.decided
    const name = [labelOf(root).replace(/[^A-Za-z0-9_]+/g, "_"), ...lowered.sizes.filter((n) => n !== 1)].join("_")
    const ast = finish(lowered.ast, name, { list: lists.kernel, watch })
    const whole = { ast, args: lowered.storage.map((owner) => this.refOf(owner)) }
    const parts = fit(whole, limits, (words) => this.temporary(wordBytes * words))
    if (parts === undefined) throw new OverBound(root, lowered.storage, limits)
    const boundaries = [this.boundary(root, name, placement.causeOf(root), lowered.sources)]
    return parts.map((part) => {
      const { ast, slots } = canonical(part.ast)
      return { kind: "kernel", name, ast, args: slots.map((slot) => part.args[slot]!), boundaries }
    })
  }

  private custom(node: UOp): Step {
    const { limits } = this.making
    const { name, storage } = Custom.of(node)
    const large = storage.find((s) => isOverBinding(storageOf(s), limits))
    if (large !== undefined) {
      throw new RangeifyError({
        reason: "BufferTooLarge",
        message: `${name} is written by hand and given ${bytesOf(storageOf(large))} bytes in one buffer, the device ` +
          `binds ${mostBytes(limits)}; give it a part at a time`
      })
    }
    const args = storage.map((s) => this.refOf(storageOf(s)))
    const boundaries = [this.boundary(node, name, { _tag: "Required", by: "custom" })]
    return { kind: "custom", name, custom: node, args, boundaries }
  }

  private call(node: UOp): ReadonlyArray<Step> {
    const [body, ...given] = node.src
    const args = given.map((arg) => this.refOf(isStorage(arg) ? storageOf(arg) : arg))
    refuseAliases(node)
    const inner = this.making.scheduleOf(node)
    const first = this.temporaries.length
    this.temporaries.push(...inner.temporaries)
    const bind = (ref: Ref): Ref => {
      const memory = ref.kind === "param"
        ? args[ref.slot]!
        : ref.kind === "temporary"
        ? { kind: ref.kind, id: first + ref.id }
        : ref
      return ref.window === undefined ? memory : { ...memory, window: ref.window }
    }
    const label = node.arena.labelOf(node)
    const { name } = argOf(node, "CALL")
    this.callResults.set(node, resultsByIndex(body!, inner.results.map((id) => bind({ kind: "temporary", id }))))
    return inner.steps.map((step) => {
      const site = [label, step.site].filter((part) => part !== undefined).join("/")
      return { body: name, ...step, args: step.args.map(bind), ...(site === "" ? {} : { site }) }
    })
  }
}

/** The steps of one node. */
interface Group {
  readonly node: UOp
  readonly steps: ReadonlyArray<Step>
}

/** The schedule of a body. */
export const scheduleOf = (making: Making, decided: Decided): Schedule => {
  const made = new Steps(making, decided)
  const groups = decided.placement.nodes.flatMap((node): ReadonlyArray<Group> => {
    const steps = made.of(node)
    return steps === undefined ? [] : [{ node, steps }]
  })
  const order = orderHazards(groups.map(({ node }) => node))
  if (order === undefined) {
    throw new RangeifyError({
      reason: "OrderCycle",
      message:
        "a buffer is read in its old state by something that also needs the new one; copy it first with contiguous()"
    })
  }
  const steps = launches(order.map((i) => groups[i]!), making)
  return { steps, temporaries: made.temporaries, results: made.results() }
}

/** Joins kernels between two calls. The steps of a call were joined within its body, and stay together. */
const launches = (groups: ReadonlyArray<Group>, { limits, lists, watch }: Making): ReadonlyArray<Step> => {
  const { fusion, joinsKernels = false, maxStorageBuffers } = limits
  // half of the workgroup memory is left to reductions over threads
  const room = { buffers: maxStorageBuffers, stagedBytes: (fusion?.maxWorkgroupBytes ?? 0) / 2 }
  const joined = (steps: ReadonlyArray<Step>): ReadonlyArray<Step> =>
    joinsKernels ? joinIndependent(steps, room, { fusion, list: lists.launch, watch }) : steps
  const ordered: Array<Step> = []
  let own: Array<Step> = []
  for (const { node, steps } of groups) {
    if (node.op !== "CALL") {
      own.push(...steps)
      continue
    }
    ordered.push(...joined(own), ...steps)
    own = []
  }
  return [...ordered, ...joined(own)]
}

/** A kernel of this root binds more than it may, however it is cut. */
export class OverBound extends Error {
  readonly root: UOp
  /** Buffers that it reads and writes. */
  readonly buffers: number
  /** What is said if nothing helps. */
  readonly reason: RangeifyError

  constructor(root: UOp, storage: ReadonlyArray<UOp>, limits: Limits) {
    const large = storage.filter((owner) => isOverBinding(owner, limits))
    const windows = large.length === 0 ? "" : `, ${large.length} of them in windows of ${mostBytes(limits)} bytes`
    const message = `${labelOf(root)} reads and writes ${storage.length} buffers${windows}, and the device binds ` +
      `${limits.maxStorageBuffers} at once; materialise a part of it with contiguous()` +
      (large.length === 0 ? "" : ", or raise the limit")
    super(message)
    this.root = root
    this.buffers = storage.length
    this.reason = new RangeifyError({ reason: "TooManyBuffers", message })
  }
}

/** Aliased arguments: a body cannot order a write to one parameter behind a read of the same memory through another. */
const refuseAliases = (call: UOp): void => {
  const owners = call.src.slice(1).map(storageOf)
  for (const slot of writtenParams(call.src[0]!)) {
    const other = owners.findIndex((owner, i) => i !== slot && owner === owners[slot])
    if (other < 0) continue
    const { name } = argOf(call, "CALL")
    throw new RangeifyError({
      reason: "InvalidGraph",
      message: `${name} is given one buffer as arguments ${other} and ${slot}, and writes it; pass it once`
    })
  }
}

/** Stands at the place of an effect among a call's results. */
const noResult: Ref = { kind: "temporary", id: -1 }

/** Results in the order of the TUPLE; its effects have none. */
const resultsByIndex = (body: UOp, refs: ReadonlyArray<Ref>): ReadonlyArray<Ref> => {
  let next = 0
  return body.src.map((r) => r.dtype.scalar === "void" ? noResult : refs[next++]!)
}
