import { type DeviceProfile, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { given } from "@tg/core-uop/Given"
import * as Pass from "@tg/core-uop/Pass"
import * as Spec from "@tg/core-uop/Spec"
import * as DType from "@tg/core-uop/DType"
import { Arena, argOf, digest, key, toposort, type UOp } from "@tg/core-uop/UOp"
import { RewriteLimit } from "@tg/pattern-matcher/GraphRewrite"
import { Rewriter } from "@tg/pattern-matcher/Rewriter"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { Context, Effect, Layer } from "effect"
import * as Body from "./Body.ts"
import * as Finish from "./Finish.ts"
import * as Fusion from "./Fusion.ts"
import * as Horizontal from "./Horizontal.ts"
import type { Limits } from "./Limits.ts"
import { isEffect, isStorage, kernelAt } from "./Values.ts"
import { RangeifyError } from "./RangeifyError.ts"
import type { KernelStep, Schedule } from "./Schedule.ts"
import * as ScheduleCache from "./ScheduleCache.ts"
import { type Decided, OverBound, scheduleOf } from "./Steps.ts"

export type { Limits } from "./Limits.ts"
export { RangeifyError } from "./RangeifyError.ts"

/** The limits of a device, and its costs. */
export const limitsOf = (profile: DeviceProfile, costsOf = Fusion.ofProfile): Limits => {
  // loops that exceed a small grid run inside of threads, which staging and joining do not support; and the workgroup memory of
  // joined kernels adds up
  const hasUsualGrid = profile.maxGrid >= webgpuDefault.maxGrid
  const hasUsualMemory = profile.maxWorkgroupBytes >= webgpuDefault.maxWorkgroupBytes
  return {
    maxStorageBuffers: profile.maxStorageBuffers,
    maxBindingBytes: profile.maxBindingBytes,
    maxBufferBytes: profile.maxBufferBytes,
    fusion: hasUsualGrid ? costsOf(profile) : undefined,
    joinsKernels: profile.kind === "gpu" && hasUsualGrid && hasUsualMemory,
    atomicThreads: profile.kind === "gpu" ? profile.saturatingThreads : undefined
  }
}

/** The passes of this stage: over a body, over each of its kernels, and over the first kernel of a launch that has several. */
export interface Lists {
  readonly body: Pass.PassList<Body.Body>
  readonly kernel: Pass.PassList<undefined>
  readonly launch: Pass.PassList<ReadonlyArray<UOp>>
}

/** The usual ones. */
export const lists: Lists = { body: Body.passes, kernel: Finish.passes, launch: Horizontal.passes }

/** How a schedule is made. */
export interface ScheduleOptions {
  readonly lists?: Lists | undefined
  /** Those by which expressions are simplified. */
  readonly rules?: Symbolic.Rules | undefined
  readonly watch?: Pass.Watch | undefined
  /** The listener for lookups in the cache, and its clock. */
  readonly told?: ScheduleCache.Told | undefined
}

/**
 * Turns a tensor graph (spec `tensor`, a SINK of effects) into kernels in order. Kernels of equal structure are the same
 * node, within one call and, through the cache, within the bodies of one program. A cache belongs to one set of rules and passes.
 */
export const schedule = (
  sink: UOp,
  limits: Limits,
  cache: ScheduleCache.ScheduleCache = new Map(),
  { lists: given = lists, rules = Symbolic.usual, told, watch }: ScheduleOptions = {}
): Schedule | RangeifyError => {
  const arena = new Arena()
  Symbolic.use(arena, rules)
  try {
    return scheduleBody(sink, [], {
      arena,
      limits,
      cache,
      lists: given,
      rules,
      watch,
      told,
      keys: new Map(),
      name: "program"
    })
  } catch (error) {
    if (error instanceof RangeifyError) return error
    if (error instanceof Pass.BrokenPass || error instanceof RewriteLimit) {
      return new RangeifyError({ reason: "BrokenPass", message: error.message })
    }
    throw error
  }
}

interface Scheduling {
  readonly arena: Arena
  readonly limits: Limits
  readonly cache: ScheduleCache.ScheduleCache
  readonly lists: Lists
  readonly rules: Symbolic.Rules
  readonly watch: Pass.Watch | undefined
  readonly told: ScheduleCache.Told | undefined
  /** Of bodies, in the cache. */
  readonly keys: Map<UOp, string>
  /** Of the function whose body it is. */
  readonly name: string
}

/** All that the schedule of a body depends on, beside rules and passes. Labels too: kernels are named after them. */
const cacheKey = (body: UOp, { fusion, ...limits }: Limits): string => {
  const labels = toposort(body).map((node) => node.arena.labelOf(node) ?? "").join("\n")
  return [JSON.stringify(Object.entries({ ...limits, fusion: fusion?.key }).sort()), key(body), digest(labels)].join(
    ":"
  )
}

const scheduleFunction = (call: UOp, context: Scheduling): Schedule => {
  const body = call.src[0]!
  const { name } = argOf(call, "CALL")
  const text = context.keys.get(body) ?? cacheKey(body, context.limits)
  context.keys.set(body, text)
  const made = (): Schedule => {
    const results = body.src.filter((r) => !isEffect(r)).map(computed)
    const sink = body.arena.make("SINK", DType.none, [...body.src.filter(isEffect), ...results])
    return scheduleBody(sink, results, { ...context, name })
  }
  return ScheduleCache.lookUp(context.cache, { name, key: text }, made, context.told)
}

/**
 * A kernel over windows may need more bindings than it has buffers: then placement runs again with fewer buffers for that kernel
 * alone.
 */
const scheduleBody = (body: UOp, results: ReadonlyArray<UOp>, context: Scheduling): Schedule => {
  const tighter = new Map<UOp, number>()
  let first: OverBound | undefined
  for (;;) {
    const placed = placedBody(body, { results, tighter }, context)
    try {
      return scheduleOf({ ...context, scheduleOf: (call) => scheduleFunction(call, context) }, placed)
    } catch (error) {
      if (!(error instanceof OverBound)) throw error
      first ??= error
      const { root, buffers } = error
      const reads = Math.min(buffers - 1, tighter.get(root) ?? context.limits.maxStorageBuffers - 1) - 1
      if (reads < 1) throw first.reason
      for (const node of kernelAt(root, placed.homes.stored).computes) tighter.set(node, reads)
    }
  }
}

/** The body with a home for each value that has one. */
const placedBody = (
  body: UOp,
  asked: Pick<Body.Body, "results" | "tighter">,
  { limits, lists, name, rules, watch }: Scheduling
): Decided => {
  const found: Body.Found = {}
  const given = { ...asked, limits, rules, maxReads: limits.maxStorageBuffers - 1, found }
  const placed = Pass.run(lists.body, body, given, { kernel: name, watch })
  if (placed instanceof Pass.BrokenPass) throw placed
  const { considered = new Map(), placement, together } = found
  if (placement === undefined) {
    const message = `${name}: no pass of ${lists.body.stage} placed its values (Body.store does)`
    throw new RangeifyError({ reason: "BrokenPass", message })
  }
  return { placement, homes: { ...Body.homesIn(placed), together }, considered, results: asked.results }
}

/** A result that is an argument, or the result of another call, is copied: results have memory of their own. */
const computed = (result: UOp): UOp =>
  isStorage(result) ? result.arena.make("CONTIGUOUS", result.dtype, [result]) : result

/** The kernels of a schedule, without the hand-written ones. */
export const kernels = (schedule: Schedule): ReadonlyArray<KernelStep> =>
  schedule.steps.filter((step) => step.kind === "kernel")

/** The rangeify stage: movement ops become index expressions, values are placed, kernels are split and ordered. */
export class Rangeify extends Context.Service<Rangeify, {
  /** For cache keys: equal for services that make equal schedules. */
  readonly id?: string | undefined
  readonly schedule: (sink: UOp, limits: Limits) => Effect.Effect<Schedule, RangeifyError>
}>()("@tg/rangeify/Rangeify") {
  /** A stage of these passes. What is scheduled with other ones than the usual is not kept without an `id`. */
  static readonly layerOf = (lists: Lists, id?: string) =>
    Layer.effect(
      Rangeify,
      Effect.map(Rewriter, (rewriter) => {
        const cache: ScheduleCache.ScheduleCache = new Map()
        return Rangeify.of({
          id: id === undefined || rewriter.id === undefined ? undefined : `${id} ${rewriter.id}`,
          schedule: Effect.fn("Rangeify.schedule")(function*(sink, limits) {
            const violation = yield* Spec.firstViolation("tensor", sink)
            if (violation !== undefined) {
              return yield* new RangeifyError({ reason: "InvalidGraph", message: violation })
            }
            const watch = yield* Pass.watch
            // who listens wants to hear of bodies that were scheduled before, too
            const known = watch.listener === undefined ? cache : new Map()
            const told = { clock: watch.clock, listener: yield* ScheduleCache.Listener }
            const result = schedule(sink, limits, known, { lists, rules: rewriter.rules, told, watch })
            return result instanceof RangeifyError ? yield* result : result
          })
        })
      })
    ).pipe(Layer.provide(given(Rewriter, Rewriter.layer)))

  /** With the simplifier that the context has, the usual one if it has none. */
  static readonly layer = this.layerOf(lists, "@tg/rangeify")
}
