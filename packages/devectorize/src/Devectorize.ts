import type { RendererCaps } from "@tg/core-uop/Program"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Spec from "@tg/core-uop/Spec"
import type { UOp } from "@tg/core-uop/UOp"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { Context, Effect, Layer, Schema } from "effect"
import { decompose, rewrite, strength, undeclared } from "./Decompose.ts"
import { expand } from "./Expand.ts"
import * as Linear from "./Linearize.ts"
import { addThreads } from "./Threads.ts"

/** A kernel that cannot be brought into the form the renderer wants. */
export class DevectorizeError extends Schema.TaggedError<DevectorizeError>()("DevectorizeError", {
  kernel: Schema.String,
  message: Schema.String,
  /** The operation that the renderer does not declare and no rule takes apart, where that is the reason. */
  unsupported: Schema.optionalKey(Schema.Struct({ op: Schema.String, dtype: Schema.String, target: Schema.String }))
}) {}

/** What is said about an operation that a renderer lacks. */
const lacks = (kernel: string, node: UOp, { target }: RendererCaps): DevectorizeError => {
  const dtype = DType.print(node.dtype)
  const from = node.op === "CAST" || node.op === "BITCAST" ? ` from ${DType.print(node.src[0]!.dtype)}` : ""
  const message =
    `${kernel}: the renderer for ${target} does not declare ${node.op}, which computes ${dtype}${from}, and no ` +
    `rule takes it apart; add it to the renderer's ops (Op.mandatory lists those that every renderer needs)`
  return new DevectorizeError({ kernel, message, unsupported: { op: node.op, dtype, target } })
}

/** Spec `opted` to spec `expanded`: only ops, dtypes and lanes that the renderer declared. */
export const devectorize = (
  name: string,
  kernel: UOp,
  caps: RendererCaps,
  profile: DeviceProfile
): UOp | DevectorizeError => {
  const expanded = expand(kernel, caps)
  const mapped = caps.hasGrid ? addThreads(expanded, profile.maxGrid) : expanded
  if ("message" in mapped) return new DevectorizeError({ kernel: name, message: `${name}: ${mapped.message}` })
  const decomposed = rewrite(decompose(Symbolic.simplify(mapped), caps.ops), strength)
  const lacking = undeclared(decomposed, caps.ops)
  return lacking === undefined ? decomposed : lacks(name, lacking, caps)
}

/** Expands typed axes into copies, lanes and threads, and decomposes what the renderer lacks. */
export class Devectorize extends Context.Service<Devectorize, {
  readonly devectorize: (
    name: string,
    kernel: UOp,
    caps: RendererCaps,
    profile: DeviceProfile
  ) => Effect.Effect<UOp, DevectorizeError>
}>()("@tg/devectorize/Devectorize") {
  static readonly layer = Layer.succeed(Devectorize, {
    devectorize: Effect.fn("Devectorize.devectorize")(function*(name, kernel, caps, profile) {
      const violation = yield* Spec.firstViolation("opted", kernel)
      if (violation !== undefined) {
        return yield* new DevectorizeError({ kernel: name, message: `${name}: ${violation}` })
      }
      const result = devectorize(name, kernel, caps, profile)
      return result instanceof DevectorizeError ? yield* result : result
    })
  })
}

/** Puts an expanded kernel into instruction order. */
export class Linearize extends Context.Service<Linearize, {
  readonly linearize: (name: string, kernel: UOp, caps: RendererCaps) => Effect.Effect<UOp, DevectorizeError>
}>()("@tg/devectorize/Linearize") {
  static readonly layer = Layer.succeed(Linearize, {
    linearize: Effect.fn("Linearize.linearize")(function*(name, kernel, caps) {
      const violation = yield* Spec.firstViolation("expanded", kernel)
      if (violation !== undefined) {
        return yield* new DevectorizeError({ kernel: name, message: `${name}: ${violation}` })
      }
      return Linear.linearize(kernel, caps)
    })
  })
}
