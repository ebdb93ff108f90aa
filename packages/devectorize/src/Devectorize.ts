import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { given } from "@tg/core-uop/Given"
import * as Pass from "@tg/core-uop/Pass"
import type { RendererCaps } from "@tg/core-uop/Program"
import * as Spec from "@tg/core-uop/Spec"
import { rebuild, type UOp } from "@tg/core-uop/UOp"
import { attempt } from "@tg/pattern-matcher/GraphRewrite"
import { Rewriter } from "@tg/pattern-matcher/Rewriter"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { Context, Effect, Layer, Schema } from "effect"
import { decompose, rewrite, strength, undeclared } from "./Decompose.ts"
import { expand } from "./Expand.ts"
import { withoutIdleLanes } from "./IdleLanes.ts"
import * as Linear from "./Linearize.ts"
import { addThreads, GridProblem } from "./Threads.ts"

/** A kernel that cannot be brought into the form the renderer wants. */
export class DevectorizeError extends Schema.TaggedError<DevectorizeError>()("DevectorizeError", {
  kernel: Schema.String,
  message: Schema.String,
  /** The operation that the renderer does not declare and no rule decomposes, where that is the reason. */
  unsupported: Schema.optionalKey(Schema.Struct({ op: Schema.String, dtype: Schema.String, target: Schema.String }))
}) {}

/** The error for an operation that a renderer lacks. */
const lacks = (kernel: string, node: UOp, { target }: RendererCaps): DevectorizeError => {
  const dtype = DType.print(node.dtype)
  const from = node.op === "CAST" || node.op === "BITCAST" ? ` from ${DType.print(node.src[0]!.dtype)}` : ""
  const message =
    `${kernel}: the renderer for ${target} does not declare ${node.op}, which computes ${dtype}${from}, and no ` +
    `rule takes it apart; add it to the renderer's ops (Op.mandatory lists those that every renderer needs)`
  return new DevectorizeError({ kernel, message, unsupported: { op: node.op, dtype, target } })
}

/** The target of a kernel, for the passes. */
export interface Where {
  readonly kernel: string
  readonly caps: RendererCaps
  readonly profile: DeviceProfile
  /** The simplifier's; by default those of the kernel's arena. */
  readonly rules: Symbolic.Rules | undefined
}

/** A pass of this stage. */
export type DevectorizePass = Pass.Pass<Where, DevectorizeError>

/** Spec `opted` to spec `expanded`, pass by pass: only ops, dtypes and lanes that the renderer declared. */
export const passes: Pass.PassList<Where, DevectorizeError> = {
  stage: "devectorize",
  passes: [
    { name: "sizes", from: "opted", to: "opted", run: (kernel, where, trace) => simplifySizes(kernel, where, trace) },
    { name: "expand", from: "opted", to: "unrolled", run: (kernel, { caps }) => expand(kernel, caps) },
    { name: "threads", from: "unrolled", to: "expanded", run: (kernel, where) => threaded(kernel, where) },
    {
      name: "simplify",
      from: "expanded",
      to: "expanded",
      run: (kernel, { rules = Symbolic.rulesIn(kernel.arena) }, trace) =>
        Symbolic.simplify(kernel, trace === undefined ? { rules } : { rules, trace })
    },
    {
      name: "idle lanes",
      from: "expanded",
      to: "expanded",
      run: (kernel, { caps }) => caps.hasGrid ? withoutIdleLanes(kernel) : kernel
    },
    { name: "decompose", from: "expanded", to: "expanded", run: (kernel, { caps }) => decompose(kernel, caps.ops) },
    { name: "strength", from: "expanded", to: "expanded", run: (kernel) => rewrite(kernel, strength) },
    { name: "declared", from: "expanded", to: "expanded", run: (kernel, where) => declared(kernel, where) }
  ]
}

/** Simplifies the sizes of loops first: a size is part of a loop's identity, and `expand` simplifies indices that contain loops. */
const simplifySizes = (
  kernel: UOp,
  { rules = Symbolic.rulesIn(kernel.arena) }: Where,
  trace: Pass.Trace | undefined
): UOp =>
  rebuild(kernel, (node, src) =>
    node.op !== "RANGE"
      ? src === node.src ? node : node.with(src)
      : node.with([Symbolic.simplify(src[0]!, trace === undefined ? { rules } : { rules, trace })]))

/** Maps loops to the grid where the target has one. */
const threaded = (kernel: UOp, { caps, kernel: name, profile }: Where): UOp | DevectorizeError => {
  if (!caps.hasGrid) return kernel
  const mapped = addThreads(kernel, profile.maxGrid)
  return mapped instanceof GridProblem
    ? new DevectorizeError({ kernel: name, message: `${name}: ${mapped.message}` })
    : mapped
}

/** Refuses operations that the renderer lacks and no rule decomposes. */
const declared = (kernel: UOp, { caps, kernel: name }: Where): UOp | DevectorizeError => {
  const lacking = undeclared(kernel, caps.ops)
  return lacking === undefined ? kernel : lacks(name, lacking, caps)
}

/** Spec `opted` to spec `expanded` by these passes. */
export const devectorize = (
  name: string,
  kernel: UOp,
  caps: RendererCaps,
  profile: DeviceProfile,
  { list = passes, rules, watch }: {
    readonly list?: Pass.PassList<Where, DevectorizeError> | undefined
    readonly rules?: Symbolic.Rules | undefined
    readonly watch?: Pass.Watch | undefined
  } = {}
): UOp | DevectorizeError => {
  return run(list, kernel, { kernel: name, caps, profile, rules }, watch)
}

/** Runs passes, and turns their failures into this package's error. */
const run = <C extends { readonly kernel: string }>(
  list: Pass.PassList<C, DevectorizeError>,
  root: UOp,
  where: C,
  watch: Pass.Watch | undefined
): UOp | DevectorizeError => {
  const { kernel } = where
  const made = attempt(() => Pass.run(list, root, where, { kernel, watch }))
  if (made._tag === "Failure") return new DevectorizeError({ kernel, message: `${kernel}: ${made.failure.message}` })
  return made.success instanceof Pass.BrokenPass
    ? new DevectorizeError({ kernel, message: made.success.message })
    : made.success
}

/** Expands typed axes into copies, lanes and threads, and decomposes what the renderer lacks. */
export class Devectorize extends Context.Service<Devectorize, {
  /** Names what it makes, for those who keep it: equal for services that make the same. */
  readonly id?: string | undefined
  readonly devectorize: (
    name: string,
    kernel: UOp,
    caps: RendererCaps,
    profile: DeviceProfile
  ) => Effect.Effect<UOp, DevectorizeError>
}>()("@tg/devectorize/Devectorize") {
  /** A stage of these passes. What is compiled with other ones than the usual is not kept without an `id`. */
  static readonly layerOf = (list: Pass.PassList<Where, DevectorizeError>, id?: string) =>
    Layer.effect(
      Devectorize,
      Effect.map(Rewriter, (rewriter) =>
        Devectorize.of({
          id: id === undefined || rewriter.id === undefined ? undefined : `${id} ${rewriter.id}`,
          devectorize: Effect.fn("Devectorize.devectorize")(function*(name, kernel, caps, profile) {
            const violation = yield* Spec.firstViolation("opted", kernel)
            if (violation !== undefined) {
              return yield* new DevectorizeError({ kernel: name, message: `${name}: ${violation}` })
            }
            const watch = yield* Pass.watch
            const result = devectorize(name, kernel, caps, profile, { list, rules: rewriter.rules, watch })
            return result instanceof DevectorizeError ? yield* result : result
          })
        }))
    ).pipe(Layer.provide(given(Rewriter, Rewriter.layer)))

  /** With the simplifier that the context has, the usual one if it has none. */
  static readonly layer = this.layerOf(passes, "@tg/devectorize")
}

/** The target of a kernel, for the passes of `linearize`. */
export interface LinearWhere {
  readonly kernel: string
  readonly caps: RendererCaps
}

/** A pass of the stage `linearize`. */
export type LinearPass = Pass.Pass<LinearWhere, DevectorizeError>

/** Spec `expanded` to spec `linear`, pass by pass. */
export const linearPasses: Pass.PassList<LinearWhere, DevectorizeError> = {
  stage: "linearize",
  passes: [
    { name: "order", from: "expanded", to: "linear", run: (kernel, { caps }) => Linear.linearize(kernel, caps) }
  ]
}

/** The linearize stage: instructions in order (spec `expanded` to spec `linear`). */
export class Linearize extends Context.Service<Linearize, {
  /** Names what it makes, for those who keep it: equal for services that make the same. */
  readonly id?: string | undefined
  readonly linearize: (name: string, kernel: UOp, caps: RendererCaps) => Effect.Effect<UOp, DevectorizeError>
}>()("@tg/devectorize/Linearize") {
  /** A stage of these passes. What is compiled with other ones than the usual is not kept without an `id`. */
  static readonly layerOf = (list: Pass.PassList<LinearWhere, DevectorizeError>, id?: string) =>
    Layer.succeed(Linearize, {
      id,
      linearize: Effect.fn("Linearize.linearize")(function*(name, kernel, caps) {
        const violation = yield* Spec.firstViolation("expanded", kernel)
        if (violation !== undefined) {
          return yield* new DevectorizeError({ kernel: name, message: `${name}: ${violation}` })
        }
        const made = run(list, kernel, { kernel: name, caps }, yield* Pass.watch)
        return made instanceof DevectorizeError ? yield* made : made
      })
    })

  static readonly layer = this.layerOf(linearPasses, "@tg/devectorize")
}
