import { type DeviceProfile, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, key, openRanges, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { Context, Effect, Layer, Schema } from "effect"
import { fit } from "./Fit.ts"
import { orderHazards, writtenParams } from "./Hazards.ts"
import { chain, cheapest, Cost } from "./Cost.ts"
import * as Fusion from "./Fusion.ts"
import { canonical, joinIndependent } from "./Horizontal.ts"
import { type Homes, lower } from "./Lower.ts"
import { mergeReductions } from "./MergeReductions.ts"
import { isStorage, place, type Placement, storageOf } from "./Placement.ts"
import type { KernelStep, Ref, Schedule, Step, Temporary } from "./Schedule.ts"
import { renumberRanges, splitRanges } from "./SplitRanges.ts"
import { type BindingLimits, wordBytes } from "./Windows.ts"

/** A tensor graph that has no schedule. */
export class RangeifyError extends Schema.TaggedError<RangeifyError>()("RangeifyError", {
  reason: Schema.Literals(["InvalidGraph", "OrderCycle", "TooManyBuffers", "BufferTooLarge"]),
  message: Schema.String
}) {}

/** What the schedule must respect. */
export interface Limits extends BindingLimits {
  /** Decides what workgroups stage in their own memory. Without it nothing is. */
  readonly fusion?: Fusion.FusionCost | undefined
  /** Whether kernels that do not depend on each other are joined, for a device that runs workgroups side by side. */
  readonly joinsKernels?: boolean | undefined
}

/** The limits of a device, and its costs. */
export const limitsOf = (profile: DeviceProfile, costsOf = Fusion.ofProfile): Limits => {
  // loops that do not fit a small grid run inside of threads, which staged values and joined kernels do not allow; and
  // what joined kernels need of a workgroup's memory adds up
  const hasUsualGrid = profile.maxGrid >= webgpuDefault.maxGrid
  const hasUsualMemory = profile.maxWorkgroupBytes >= webgpuDefault.maxWorkgroupBytes
  return {
    maxStorageBuffers: profile.maxStorageBuffers,
    maxBindingBytes: profile.maxBindingBytes,
    maxBufferBytes: profile.maxBufferBytes,
    fusion: hasUsualGrid ? costsOf(profile) : undefined,
    joinsKernels: profile.kind === "gpu" && hasUsualGrid && hasUsualMemory
  }
}

/** Schedules of function bodies by their structure: equal blocks are scheduled once. */
export type ScheduleCache = Map<string, Schedule>

/**
 * Turns a tensor graph (spec `tensor`, a SINK of effects) into kernels in order. Kernels of equal structure are the same
 * node, within one call and, through the cache, within the bodies of one program.
 */
export const schedule = (sink: UOp, limits: Limits, cache: ScheduleCache = new Map()): Schedule | RangeifyError => {
  const arena = new Arena()
  try {
    return scheduleBody(sink.src, [], { arena, limits, cache, bodies: new Map() })
  } catch (error) {
    if (error instanceof RangeifyError) return error
    throw error
  }
}

interface Context_ {
  readonly arena: Arena
  readonly limits: Limits
  readonly cache: ScheduleCache
  readonly bodies: Map<UOp, Schedule>
}

const scheduleFunction = (body: UOp, context: Context_): Schedule => {
  const known = context.bodies.get(body)
  if (known !== undefined) return known
  const { bindingAlignment, fusion, joinsKernels = false, maxBindingBytes, maxBufferBytes, maxStorageBuffers } =
    context.limits
  const limits = [maxStorageBuffers, maxBindingBytes, maxBufferBytes, bindingAlignment, fusion?.name, joinsKernels]
  const text = `${limits.join()}:${key(body)}`
  const cached = context.cache.get(text) ?? scheduleBody(
    body.src.filter((r) => r.dtype.scalar === "void"),
    body.src.filter((r) => r.dtype.scalar !== "void").map(computed),
    context
  )
  context.cache.set(text, cached)
  context.bodies.set(body, cached)
  return cached
}

/** A kernel over buffers of several windows may need more bindings than it has buffers: then it is given fewer of them. */
const scheduleBody = (
  effects: ReadonlyArray<UOp>,
  results: ReadonlyArray<UOp>,
  context: Context_
): Schedule => {
  let first: RangeifyError | undefined
  for (let reads = context.limits.maxStorageBuffers - 1; reads > 0; reads--) {
    try {
      return scheduleReading(reads, effects, results, context)
    } catch (error) {
      if (!(error instanceof RangeifyError && error.reason === "TooManyBuffers")) throw error
      first ??= error
    }
  }
  throw first!
}

const scheduleReading = (
  maxReads: number,
  effects: ReadonlyArray<UOp>,
  results: ReadonlyArray<UOp>,
  context: Context_
): Schedule => {
  const placement = place([...effects, ...results], results, maxReads)
  const { nodes } = placement
  const homes = maxReads === context.limits.maxStorageBuffers - 1
    ? stage(placement, context.limits)
    : { stored: placement.stored, staged: new Set<UOp>() }
  const { stored } = homes
  const steps: Array<Step> = []
  const temporaries: Array<Temporary> = []
  const memory = new Map<UOp, Ref>()
  const callResults = new Map<UOp, ReadonlyArray<Ref>>()

  const temporary = (bytes: number): Ref => {
    temporaries.push({ bytes })
    return { kind: "temporary", id: temporaries.length - 1 }
  }
  const refOf = (owner: UOp): Ref => {
    if (owner.op === "BUFFER") return { kind: "buffer", node: owner }
    if (owner.op === "PARAM") return { kind: "param", slot: (owner.arg as { slot: number }).slot }
    if (owner.op === "GETTUPLE" && !stored.has(owner)) return callResults.get(owner.src[0]!)![owner.arg as number]!
    return memory.get(owner)!
  }
  const kernel = (root: UOp): void => {
    const lowered = lower(context.arena, root, homes)
    if (root.op !== "STORE") memory.set(root, temporary(bytesOf(root)))
    const whole = { ast: finish(lowered.ast), args: lowered.storage.map((owner) => refOf(owner)) }
    const parts = fit(whole, context.limits, (words) => temporary(wordBytes * words))
    if (parts === undefined) throw tooMany(labelOf(root), lowered.storage, context.limits)
    const name = [labelOf(root).replace(/[^A-Za-z0-9_]+/g, "_"), ...lowered.sizes.filter((n) => n !== 1)].join("_")
    for (const part of parts) {
      const { ast, slots } = canonical(part.ast)
      steps.push({ kind: "kernel", name, ast, args: slots.map((slot) => part.args[slot]!) })
    }
  }

  const custom = (node: UOp): void => {
    const { name } = node.arg as { readonly name: string }
    const large = node.src.find((s) => isOverBinding(storageOf(s), context.limits))
    if (large !== undefined) {
      throw new RangeifyError({
        reason: "BufferTooLarge",
        message: `${name} is written by hand and given ${bytesOf(storageOf(large))} bytes in one buffer, the device ` +
          `binds ${mostBytes(context.limits)}; give it a part at a time`
      })
    }
    steps.push({ kind: "custom", name, custom: node, args: node.src.map((s) => refOf(storageOf(s))) })
  }

  const call = (node: UOp): void => {
    const args = node.src.slice(1).map((arg) => refOf(isStorage(arg) ? storageOf(arg) : arg))
    const body = node.src[0]!
    refuseAliases(node)
    const inner = scheduleFunction(body, context)
    const first = temporaries.length
    temporaries.push(...inner.temporaries)
    const bind = (ref: Ref): Ref => {
      const memory = ref.kind === "param"
        ? args[ref.slot]!
        : ref.kind === "temporary"
        ? { kind: ref.kind, id: first + ref.id }
        : ref
      return ref.window === undefined ? memory : { ...memory, window: ref.window }
    }
    const label = node.arena.labelOf(node)
    for (const step of inner.steps) {
      const site = [label, step.site].filter((part) => part !== undefined).join("/")
      steps.push({ ...step, args: step.args.map(bind), ...(site === "" ? {} : { site }) })
    }
    callResults.set(node, resultsByIndex(body, inner.results.map((id) => bind({ kind: "temporary", id }))))
  }

  const groups: Array<{ readonly node: UOp; readonly from: number; readonly to: number }> = []
  for (const node of nodes) {
    const from = steps.length
    if (node.op === "CALL") call(node)
    else if (node.op === "CUSTOM") custom(node)
    else if (node.op === "STORE" || stored.has(node)) kernel(node)
    else continue
    groups.push({ node, from, to: steps.length })
  }
  const order = orderHazards(groups.map((g) => g.node))
  if (order === undefined) {
    throw new RangeifyError({
      reason: "OrderCycle",
      message:
        "a buffer is read in its old state by something that also needs the new one; copy it first with contiguous()"
    })
  }
  // what a call does is one body's affair: its steps stay together, as they are
  const ordered: Array<Step> = []
  let own: Array<Step> = []
  const flush = (): void => {
    const { fusion, joinsKernels = false, maxStorageBuffers } = context.limits
    // half of the workgroup memory is left to reductions over threads
    const room = { buffers: maxStorageBuffers, stagedBytes: (fusion?.maxWorkgroupBytes ?? 0) / 2 }
    ordered.push(...joinsKernels ? joinIndependent(own, room) : own)
    own = []
  }
  for (const { from, node, to } of order.map((i) => groups[i]!)) {
    if (node.op === "CALL") flush()
    const target = node.op === "CALL" ? ordered : own
    target.push(...steps.slice(from, to))
  }
  flush()
  return {
    steps: ordered,
    temporaries,
    results: results.map((node) => (memory.get(node) as { readonly id: number }).id)
  }
}

/** A lowered kernel with its loops split, shared and numbered. */
const finish = (kernel: UOp): UOp => {
  const split = Symbolic.simplify(splitRanges(Symbolic.simplify(kernel)))
  const last = split.src.length - 1
  // a workgroup that needs only r // 6 stages nothing for each r % 6
  const ends = split.src.map((end, i) => {
    const open = openRanges(end.src[0]!)
    return i === last ? end : end.with([end.src[0]!, ...end.src.slice(1).filter((r) => open.has(r))])
  })
  return renumberRanges(mergeReductions(split.with(ends)))
}

/** Whether a kernel reads the buffer it writes. */
const readsTarget = (kernel: UOp): boolean =>
  toposort(kernel).some((n) => n.op === "LOAD" && (n.src[0]!.src[0]!.arg as { readonly slot?: number }).slot === 0)

/**
 * Moves stored values into the memory of the workgroups that read them, where that is cheaper than a kernel of their own:
 * a launch and a trip through memory less, against the same work in every workgroup.
 */
const stage = (placement: Placement, limits: Limits): Homes => {
  const { kernelsOf, movable, nodes, workOf } = placement
  let homes: Homes = { stored: placement.stored, staged: new Set() }
  const { fusion } = limits
  if (fusion === undefined) return homes
  const costs = new Map<string, number>()
  /** Microseconds of one kernel, or infinity if the device cannot run it. */
  const micros = (root: UOp, { staged, stored }: Homes): number => {
    const reached = [...movable].filter((node) => !stored.has(node) && kernelsOf(node, stored).has(root))
    const text = [root, ...reached].map((node) => `${node.id}${staged.has(node) ? "s" : ""}`).join()
    const known = costs.get(text)
    if (known !== undefined) return known
    const lowered = lower(new Arena(), root, { staged, stored })
    // a kernel that is cut into several has no stages
    const isCut = lowered.storage.some((owner) => isOverBinding(owner, limits))
    const fits = lowered.workgroupBytes <= (isCut ? 0 : fusion.maxWorkgroupBytes) &&
      lowered.storage.length <= limits.maxStorageBuffers && !(root.op === "STORE" && readsTarget(lowered.ast))
    const cost = fits ? fusion.kernelMicros(finish(lowered.ast)) : Cost.zero
    costs.set(text, cost)
    return cost
  }
  const total = (roots: Iterable<UOp>, at: Homes): number => chain([...roots].map((root) => micros(root, at)))
  // users first: what two kernels read is staged once if these two have become one
  for (const node of [...nodes].reverse()) {
    if (!movable.has(node)) continue
    const users = kernelsOf(node, homes.stored)
    const stored = new Set([...homes.stored].filter((n) => n !== node))
    const inline: Homes = { stored, staged: homes.staged }
    const workgroup: Homes = { stored, staged: new Set([...homes.staged, node]) }
    const before = total([node, ...users], homes)
    const candidates = workOf(node).iterations > 0 ? [workgroup] : [inline, workgroup]
    const best = cheapest(candidates, (home) => total(users, home))[0]!
    if (total(users, best) < before) homes = best
  }
  return homes
}

const bytesOf = (node: UOp): number => wordBytes * Math.max(1, Shape.maxElements(Shape.of(node)))

/** Bytes of the largest buffer that is bound as a whole. */
const mostBytes = ({ maxBindingBytes = Infinity, maxBufferBytes = Infinity }: Limits): number =>
  Math.min(maxBindingBytes, maxBufferBytes)

const isOverBinding = (owner: UOp, limits: Limits): boolean => bytesOf(owner) > mostBytes(limits)

const tooMany = (name: string, storage: ReadonlyArray<UOp>, limits: Limits): RangeifyError => {
  const large = storage.filter((owner) => isOverBinding(owner, limits))
  const windows = large.length === 0 ? "" : `, ${large.length} of them in windows of ${mostBytes(limits)} bytes`
  return new RangeifyError({
    reason: "TooManyBuffers",
    message: `${name} reads and writes ${storage.length} buffers${windows}, and the device binds ` +
      `${limits.maxStorageBuffers} at once; materialise a part of it with contiguous()` +
      (large.length === 0 ? "" : ", or raise the limit")
  })
}

/** A body knows its parameters apart; it cannot order a write to one behind a read of the same memory through another. */
const refuseAliases = (call: UOp): void => {
  const owners = call.src.slice(1).map(storageOf)
  for (const slot of writtenParams(call.src[0]!)) {
    const other = owners.findIndex((owner, i) => i !== slot && owner === owners[slot])
    if (other < 0) continue
    const { name } = call.arg as { readonly name: string }
    throw new RangeifyError({
      reason: "InvalidGraph",
      message: `${name} is given one buffer as arguments ${other} and ${slot}, and writes it; pass it once`
    })
  }
}

/** A result that is an argument, or the result of another call, is copied: results have memory of their own. */
const computed = (result: UOp): UOp =>
  isStorage(result) ? result.arena.make("CONTIGUOUS", result.dtype, [result]) : result

/** Stands at the place of an effect among a call's results. */
const noResult: Ref = { kind: "temporary", id: -1 }

/** Results in the order of the TUPLE; its effects have none. */
const resultsByIndex = (body: UOp, refs: ReadonlyArray<Ref>): ReadonlyArray<Ref> => {
  let next = 0
  return body.src.map((r) => r.dtype.scalar === "void" ? noResult : refs[next++]!)
}

/** The nearest model line: the node's own, or the first one found among what it computes. */
const labelOf = (root: UOp): string => {
  const queue = [root]
  const seen = new Set<UOp>(queue)
  for (let i = 0; i < queue.length && i < 64; i++) {
    const node = queue[i]!
    const label = node.arena.labelOf(node)
    if (label !== undefined) return label
    if (i > 0 && isStorage(node)) continue
    for (const s of node.src) {
      if (seen.has(s) || s.dtype === DType.index) continue
      seen.add(s)
      queue.push(s)
    }
  }
  return root.op === "STORE" ? "store" : root.op.toLowerCase()
}

/** The kernels of a schedule, without the hand-written ones. */
export const kernels = (schedule: Schedule): ReadonlyArray<KernelStep> =>
  schedule.steps.filter((step) => step.kind === "kernel")

/** The rangeify stage: movement ops become index expressions, values are placed, kernels are split and ordered. */
export class Rangeify extends Context.Service<Rangeify, {
  readonly schedule: (sink: UOp, limits: Limits) => Effect.Effect<Schedule, RangeifyError>
}>()("@tg/rangeify/Rangeify") {
  static readonly layer = Layer.sync(Rangeify, () => {
    const cache: ScheduleCache = new Map()
    return Rangeify.of({
      schedule: Effect.fn("Rangeify.schedule")(function*(sink, limits) {
        const violation = yield* Spec.firstViolation("tensor", sink)
        if (violation !== undefined) {
          return yield* new RangeifyError({ reason: "InvalidGraph", message: violation })
        }
        const result = schedule(sink, limits, cache)
        return result instanceof RangeifyError ? yield* result : result
      })
    })
  })
}
