import * as Custom from "@tg/core-uop/Custom"
import { type DeviceProfile, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { given } from "@tg/core-uop/Given"
import * as Pass from "@tg/core-uop/Pass"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, key, type UOp } from "@tg/core-uop/UOp"
import { RewriteLimit } from "@tg/pattern-matcher/GraphRewrite"
import { Rewriter } from "@tg/pattern-matcher/Rewriter"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { Context, Effect, Layer, Schema } from "effect"
import { type Boundary, type Cause, labelOf } from "./Explain.ts"
import { fit } from "./Fit.ts"
import * as Fusion from "./Fusion.ts"
import { orderHazards, writtenParams } from "./Hazards.ts"
import { canonical, joinIndependent } from "./Horizontal.ts"
import { finish } from "./Finish.ts"
import { bytesOf, isOverBinding, type Limits, mostBytes } from "./Limits.ts"
import { lower } from "./Lower.ts"
import { isStorage, place, storageOf } from "./Placement.ts"
import type { KernelStep, Ref, Schedule, Step, Temporary } from "./Schedule.ts"
import { allStored, search } from "./Search.ts"
import { wordBytes } from "./Windows.ts"

export type { Limits } from "./Limits.ts"

/** A tensor graph that has no schedule. */
export class RangeifyError extends Schema.TaggedError<RangeifyError>()("RangeifyError", {
  reason: Schema.Literals(["InvalidGraph", "OrderCycle", "TooManyBuffers", "BufferTooLarge", "BrokenPass"]),
  message: Schema.String
}) {}

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
 * node, within one call and, through the cache, within the bodies of one program. A cache belongs to one set of rules.
 */
export const schedule = (
  sink: UOp,
  limits: Limits,
  cache: ScheduleCache = new Map(),
  { rules = Symbolic.usual, watch }: {
    /** Those by which expressions are simplified. */
    readonly rules?: Symbolic.Rules | undefined
    readonly watch?: Pass.Watch | undefined
  } = {}
): Schedule | RangeifyError => {
  const arena = new Arena()
  Symbolic.use(arena, rules)
  try {
    return scheduleBody(sink.src, [], { arena, limits, cache, rules, watch, bodies: new Map() })
  } catch (error) {
    if (error instanceof RangeifyError) return error
    if (error instanceof Pass.BrokenPass || error instanceof RewriteLimit) {
      return new RangeifyError({ reason: "BrokenPass", message: error.message })
    }
    throw error
  }
}

interface Context_ {
  readonly arena: Arena
  readonly limits: Limits
  readonly cache: ScheduleCache
  readonly rules: Symbolic.Rules
  readonly watch: Pass.Watch | undefined
  readonly bodies: Map<UOp, Schedule>
}

const scheduleFunction = (body: UOp, context: Context_): Schedule => {
  const known = context.bodies.get(body)
  if (known !== undefined) return known
  const { fusion, ...limits } = context.limits
  const text = `${JSON.stringify(Object.entries({ ...limits, fusion: fusion?.key }).sort())}:${key(body)}`
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
    ? search(placement, context.limits, { rules: context.rules })
    : allStored(placement)
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
  const boundary = (root: UOp, kernel: string, cause: Cause): Boundary => {
    const users = [...placement.kernelsOf(root, stored)].filter((user) => user.op !== "GETTUPLE")
    return {
      kernel,
      value: labelOf(root),
      users: [...new Set(users.map(labelOf))],
      cause,
      placements: homes.considered.get(root) ?? [],
      inside: [...homes.considered].filter(([node]) => !stored.has(node) && placement.kernelsOf(node, stored).has(root))
        .map(([node, placements]) => ({ value: labelOf(node), cause: placement.causeOf(node), placements })),
      launch: { _tag: "Alone" }
    }
  }
  const kernel = (root: UOp): void => {
    const lowered = lower(context.arena, root, homes)
    if (root.op !== "STORE") memory.set(root, temporary(bytesOf(root)))
    const name = [labelOf(root).replace(/[^A-Za-z0-9_]+/g, "_"), ...lowered.sizes.filter((n) => n !== 1)].join("_")
    const ast = finish(lowered.ast, name, context.watch)
    const whole = { ast, args: lowered.storage.map((owner) => refOf(owner)) }
    const parts = fit(whole, context.limits, (words) => temporary(wordBytes * words))
    if (parts === undefined) throw tooMany(labelOf(root), lowered.storage, context.limits)
    const boundaries = [boundary(root, name, placement.causeOf(root))]
    for (const part of parts) {
      const { ast, slots } = canonical(part.ast)
      steps.push({ kind: "kernel", name, ast, args: slots.map((slot) => part.args[slot]!), boundaries })
    }
  }

  const custom = (node: UOp): void => {
    const { name, storage } = Custom.of(node)
    const large = storage.find((s) => isOverBinding(storageOf(s), context.limits))
    if (large !== undefined) {
      throw new RangeifyError({
        reason: "BufferTooLarge",
        message: `${name} is written by hand and given ${bytesOf(storageOf(large))} bytes in one buffer, the device ` +
          `binds ${mostBytes(context.limits)}; give it a part at a time`
      })
    }
    const args = storage.map((s) => refOf(storageOf(s)))
    const boundaries = [boundary(node, name, { _tag: "Required", by: "custom" })]
    steps.push({ kind: "custom", name, custom: node, args, boundaries })
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
    const { name } = node.arg as { readonly name: string }
    for (const step of inner.steps) {
      const site = [label, step.site].filter((part) => part !== undefined).join("/")
      steps.push({ body: name, ...step, args: step.args.map(bind), ...(site === "" ? {} : { site }) })
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

/** The kernels of a schedule, without the hand-written ones. */
export const kernels = (schedule: Schedule): ReadonlyArray<KernelStep> =>
  schedule.steps.filter((step) => step.kind === "kernel")

/** The rangeify stage: movement ops become index expressions, values are placed, kernels are split and ordered. */
export class Rangeify extends Context.Service<Rangeify, {
  /** Names what it makes, for those who keep it: equal for services that make the same. */
  readonly id?: string | undefined
  readonly schedule: (sink: UOp, limits: Limits) => Effect.Effect<Schedule, RangeifyError>
}>()("@tg/rangeify/Rangeify") {
  /** With the simplifier that the context has, the usual one if it has none. */
  static readonly layer = Layer.effect(
    Rangeify,
    Effect.map(Rewriter, ({ id, rules }) => {
      const cache: ScheduleCache = new Map()
      return Rangeify.of({
        id: id === undefined ? undefined : `@tg/rangeify ${id}`,
        schedule: Effect.fn("Rangeify.schedule")(function*(sink, limits) {
          const violation = yield* Spec.firstViolation("tensor", sink)
          if (violation !== undefined) {
            return yield* new RangeifyError({ reason: "InvalidGraph", message: violation })
          }
          const watch = yield* Pass.watch
          // who listens wants to hear of bodies that were scheduled before, too
          const known = watch.listener === undefined ? cache : new Map()
          const result = schedule(sink, limits, known, { rules, watch })
          return result instanceof RangeifyError ? yield* result : result
        })
      })
    })
  ).pipe(Layer.provide(given(Rewriter, Rewriter.layer)))
}
