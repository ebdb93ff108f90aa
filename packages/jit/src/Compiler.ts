import * as Custom from "@tg/core-uop/Custom"
import { Profile } from "@tg/core-uop/DeviceProfile"
import { type Program, Renderer, RenderError, signature } from "@tg/core-uop/Program"
import * as Spec from "@tg/core-uop/Spec"
import { key, type UOp } from "@tg/core-uop/UOp"
import { concatenate } from "@tg/devectorize/Concatenate"
import { Devectorize, DevectorizeError, Linearize } from "@tg/devectorize/Devectorize"
import { Heuristics } from "@tg/heuristics/Heuristics"
import { IllegalOpt, Postrange } from "@tg/postrange/Postrange"
import { members } from "@tg/rangeify/Horizontal"
import { Context, Effect, Layer, Schema } from "effect"
import * as KernelLimits from "./KernelLimits.ts"

/** Which kernel did not compile, and which stage refused it. */
export class CompileError extends Schema.TaggedError<CompileError>()("CompileError", {
  kernel: Schema.String,
  reason: Schema.Union([IllegalOpt, DevectorizeError, RenderError, KernelLimits.KernelLimit])
}) {
  override get message(): string {
    return `${this.kernel} does not compile: ${this.reason.message}`
  }
}

/**
 * Kernel to program: a hand-written one (CUSTOM) is taken as it is, others go through heuristics, postrange, devectorize, linearize, render. Equal kernels are compiled once. The members of
 * a kernel with several roots go through the stages each for itself, and are put together in front of the renderer.
 */
export class Compiler extends Context.Service<Compiler, {
  readonly compile: (name: string, kernel: UOp) => Effect.Effect<Program, CompileError>
}>()("@tg/jit/Compiler") {
  static readonly layerNoDeps = Layer.effect(
    Compiler,
    Effect.gen(function*() {
      const profile = yield* Profile
      const heuristics = yield* Heuristics
      const postrange = yield* Postrange
      const devectorize = yield* Devectorize
      const linearize = yield* Linearize
      const renderer = yield* Renderer
      const lowerMember = Effect.fnUntraced(function*(name: string, kernel: UOp) {
        const opts = yield* heuristics.choose(kernel)
        const opted = yield* postrange.apply(name, kernel, opts, profile)
        const expanded = yield* devectorize.devectorize(name, opted, renderer.caps, profile)
        return yield* linearize.linearize(name, expanded, renderer.caps)
      })
      const assemble = renderer.assemble ?? Effect.succeed
      const lowerOnce = Effect.fn("Compiler.compile")(function*(name: string, kernel: UOp) {
        if (kernel.op === "CUSTOM") {
          const written = Custom.program(kernel, renderer.caps.target)
          return written instanceof RenderError ? yield* written : yield* assemble(written)
        }
        const parts = yield* Effect.forEach(
          members(kernel),
          ({ ast, slots }) => Effect.map(lowerMember(name, ast), (linear) => ({ linear, slots }))
        )
        const linear = concatenate(parts, { caps: renderer.caps, maxGrid: profile.maxGrid })
        const violation = yield* Spec.firstViolation("linear", linear)
        if (violation !== undefined) return yield* new RenderError({ kernel: name, message: `${name}: ${violation}` })
        const exceeded = KernelLimits.check(name, linear, profile)
        if (exceeded !== undefined) return yield* exceeded
        return yield* renderer.render(name, linear)
      })
      return Compiler.of({ compile: once(lowerOnce) })
    })
  )

  /** The default stages over whatever renderer and profile are given. */
  static readonly layer = this.layerNoDeps.pipe(
    Layer.provide([Heuristics.layer, Postrange.layer, Devectorize.layer, Linearize.layer])
  )

  /** Hands kernels to the reference device as they are. */
  static readonly layerReference = Layer.succeed(Compiler, {
    compile: (name, kernel) =>
      Effect.gen(function*() {
        const violation = kernel.op === "CUSTOM" ? undefined : yield* Spec.firstViolation("kernel", kernel)
        const program = kernel.op === "CUSTOM"
          ? Custom.program(kernel, "reference")
          : { name, target: "reference", code: kernel, ...signature(kernel) }
        if (violation === undefined && !(program instanceof RenderError)) return program
        const reason = program instanceof RenderError
          ? program
          : new RenderError({ kernel: name, message: violation! })
        return yield* new CompileError({ kernel: name, reason })
      })
  })
}

/** Remembers programs by kernel structure. */
const once = (
  compile: (name: string, kernel: UOp) => Effect.Effect<Program, (typeof CompileError)["fields"]["reason"]["Type"]>
): Compiler["Service"]["compile"] => {
  const programs = new Map<string, Program>()
  return (name, kernel) => {
    const known = programs.get(key(kernel))
    if (known !== undefined) return Effect.succeed(known)
    return compile(name, kernel).pipe(
      Effect.tap((program) => Effect.sync(() => programs.set(key(kernel), program))),
      Effect.mapError((reason) => new CompileError({ kernel: name, reason }))
    )
  }
}
