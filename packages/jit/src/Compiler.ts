import * as Custom from "@tg/core-uop/Custom"
import { type Program, RenderError, signature } from "@tg/core-uop/Program"
import * as Spec from "@tg/core-uop/Spec"
import { key, type UOp } from "@tg/core-uop/UOp"
import { DevectorizeError } from "@tg/devectorize/Devectorize"
import { IllegalOpt } from "@tg/postrange/Postrange"
import { Context, Effect, Layer, Schema } from "effect"
import * as Phased from "./internal/phased.ts"
import * as KernelLimits from "./KernelLimits.ts"
import { Pipeline } from "./Pipeline.ts"
import * as Stages from "./Stages.ts"

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
 * Kernel to program: the stages of the pipeline after the schedule; a hand-written one (CUSTOM) skips them. Equal
 * kernels are compiled once. The members of a kernel with several roots go through the stages separately, and are joined
 * in front of the renderer.
 */
export class Compiler extends Context.Service<Compiler, {
  /** For cache keys, as `Pipeline.id`. */
  readonly id?: string | undefined
  readonly compile: (name: string, kernel: UOp) => Effect.Effect<Program, CompileError>
}>()("@tg/jit/Compiler") {
  /** Over a pipeline. */
  static readonly layer = Layer.effect(
    Compiler,
    Effect.map(Pipeline, (pipeline) => {
      const lowerOnce = Effect.fn("Compiler.compile")(function*(name: string, kernel: UOp) {
        if (kernel.op === "CUSTOM") return yield* pipeline.written(kernel)
        const { linear } = yield* Stages.ofKernel(pipeline, name, kernel)
        return Phased.ofVariant(kernel, yield* pipeline.render(name, linear))
      })
      return Compiler.of({ id: pipeline.id, compile: once(lowerOnce) })
    })
  )

  /** No stages: the reference device evaluates kernels. */
  static readonly layerReference = Layer.succeed(Compiler, {
    id: "reference",
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

/** Memoised by the kernel's structure; failures are not. */
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
