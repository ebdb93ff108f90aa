import { assert, describe, it } from "@effect/vitest"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import { type Program, Renderer, RenderError } from "@tg/core-uop/Program"
import { Arena, transfer, type UOp } from "@tg/core-uop/UOp"
import * as DType from "@tg/core-uop/DType"
import { Devectorize, DevectorizeError, Linearize } from "@tg/devectorize/Devectorize"
import { Equality } from "@tg/egraph/Equality"
import { Split } from "@tg/egraph/SplitStage"
import { Heuristics } from "@tg/heuristics/Heuristics"
import * as Opt from "@tg/postrange/Opt"
import { Postrange } from "@tg/postrange/Postrange"
import { kernels, Rangeify, RangeifyError, schedule } from "@tg/rangeify/Rangeify"
import * as Reference from "@tg/runtime/Reference"
import { Effect, Layer } from "effect"
import { CompileError, Compiler } from "../src/Compiler.ts"
import { Pipeline } from "../src/Pipeline.ts"
import { blocks } from "./support/blocks.ts"

const steps = (count: number) => {
  const result = schedule(blocks(count).sink, { maxStorageBuffers: 8 })
  if (result instanceof RangeifyError) throw result
  return kernels(result)
}

/** A renderer that notes what it is asked for. */
const noting = (asked: Array<string>) =>
  Layer.succeed(Renderer, {
    caps: { ...Reference.caps, hasGrid: false },
    render: (name, linear) =>
      Effect.sync((): Program => {
        asked.push(name)
        return Reference.program(name, linear)
      })
  })

const profile = DeviceProfile.Profile.layer(DeviceProfile.wasm)
const compileAll = Effect.gen(function*() {
  const compiler = yield* Compiler
  return yield* Effect.forEach(steps(6), (step) => compiler.compile(step.name, step.ast))
})

/** The compiler over the default stages, some of them replaced. */
const compiler = (stages: {
  readonly heuristics?: Layer.Layer<Heuristics>
  readonly postrange?: Layer.Layer<Postrange>
  readonly devectorize?: Layer.Layer<Devectorize>
  readonly linearize?: Layer.Layer<Linearize>
  readonly renderer?: Layer.Layer<Renderer>
}) =>
  Compiler.layer.pipe(
    Layer.provide(Pipeline.layerNoDeps),
    Layer.provide([
      Equality.layer,
      Split.layer,
      Rangeify.layer,
      stages.heuristics ?? Heuristics.layerNone,
      stages.postrange ?? Postrange.layer,
      stages.devectorize ?? Devectorize.layer,
      stages.linearize ?? Linearize.layer,
      stages.renderer ?? noting([]),
      profile
    ])
  )

const failure = (name: string) =>
  Effect.gen(function*() {
    const { compile } = yield* Compiler
    const error = yield* Effect.flip(compile(name, steps(1)[0]!.ast))
    assert.instanceOf(error, CompileError)
    assert.strictEqual(error.kernel, name)
    return error
  })

describe("Compiler", () => {
  it.effect("compiles equal kernels once, whatever their names", () => {
    const asked: Array<string> = []
    return Effect.gen(function*() {
      const programs = yield* compileAll
      const different = new Set(steps(1).map((s) => s.ast)).size
      assert.strictEqual(asked.length, different)
      assert.strictEqual(new Set(programs).size, different)
      assert.isAbove(programs.length, 3 * different)
      const { compile } = yield* Compiler
      yield* compile("in another arena", transfer(steps(1)[0]!.ast, new Arena()))
      assert.strictEqual(asked.length, different)
    }).pipe(Effect.provide(compiler({ renderer: noting(asked) })))
  })

  it.effect("gives each stage the result of the one before", () => {
    const seen: Array<string> = []
    const [kernel] = steps(1)
    const [opted, expanded, linear] = ["opted", "expanded", "linear"].map((name) =>
      new Arena().make(name === "linear" ? "LINEAR" : "SINK", DType.none, [], { name })
    )
    const opts = [Opt.unroll(1, 2)]
    const note = (stage: string, ...inputs: ReadonlyArray<unknown>) => {
      seen.push(stage)
      return inputs
    }
    return Effect.gen(function*() {
      const { compile } = yield* Compiler
      const program = yield* compile("k", kernel!.ast)
      assert.strictEqual(program.code, linear)
      assert.deepStrictEqual(seen, ["heuristics", "postrange", "devectorize", "linearize", "render"])
    }).pipe(Effect.provide(compiler({
      heuristics: Layer.mock(Heuristics, {
        choose: (input) =>
          Effect.sync(() => {
            assert.deepStrictEqual(note("heuristics", input), [kernel!.ast])
            return opts
          })
      }),
      postrange: Layer.mock(Postrange, {
        legal: (kernel) => kernel,
        apply: (...inputs) =>
          Effect.sync(() => {
            assert.deepStrictEqual(note("postrange", ...inputs), ["k", kernel!.ast, opts, DeviceProfile.wasm])
            return opted!
          })
      }),
      devectorize: Layer.mock(Devectorize, {
        devectorize: (name, input) =>
          Effect.sync(() => {
            assert.isTrue(note("devectorize", name, input)[1] === opted)
            return expanded!
          })
      }),
      linearize: Layer.mock(Linearize, {
        linearize: (name, input) =>
          Effect.sync(() => {
            assert.isTrue(note("linearize", name, input)[1] === expanded)
            return linear!
          })
      }),
      renderer: Layer.mock(Renderer, {
        caps: Reference.caps,
        render: (name, input: UOp) =>
          Effect.sync(() => {
            assert.isTrue(note("render", name, input)[1] === linear)
            return Reference.program(name, input)
          })
      })
    })))
  })

  it.effect("names the kernel, and the stage that refused it: postrange", () =>
    Effect.gen(function*() {
      const error = yield* failure("ffn_gate_16")
      assert.strictEqual(error.reason._tag, "IllegalOpt")
      assert.match(error.message, /^ffn_gate_16 does not compile: ffn_gate_16: LOCAL\(r99, 4\) is not legal: /)
    }).pipe(Effect.provide(compiler({
      heuristics: Layer.mock(Heuristics, { choose: () => Effect.succeed([Opt.local(99, 4)]) })
    }))))

  it.effect("names the kernel, and the stage that refused it: devectorize", () =>
    Effect.gen(function*() {
      assert.strictEqual((yield* failure("k")).reason._tag, "DevectorizeError")
    }).pipe(Effect.provide(compiler({
      devectorize: Layer.mock(Devectorize, {
        devectorize: (kernel) => Effect.fail(new DevectorizeError({ kernel, message: "no" }))
      })
    }))))

  it.effect("names the kernel, and the stage that refused it: render", () =>
    Effect.gen(function*() {
      const error = yield* failure("k")
      assert.strictEqual(error.reason._tag, "RenderError")
      assert.strictEqual(error.message, "k does not compile: no such type")
    }).pipe(Effect.provide(compiler({
      renderer: Layer.mock(Renderer, {
        caps: Reference.caps,
        render: (kernel) => Effect.fail(new RenderError({ kernel, message: "no such type" }))
      })
    }))))

  it.effect("checks the linear kernel before it is rendered", () =>
    Effect.gen(function*() {
      const error = yield* failure("k")
      assert.strictEqual(error.reason._tag, "RenderError")
      assert.include(error.message, "spec linear: ")
    }).pipe(Effect.provide(compiler({
      linearize: Layer.mock(Linearize, { linearize: (_, kernel) => Effect.succeed(kernel) })
    }))))

  it.effect("does not remember a failure", () => {
    let calls = 0
    return Effect.gen(function*() {
      const { compile } = yield* Compiler
      const { ast } = steps(1)[0]!
      yield* Effect.flip(compile("k", ast))
      yield* compile("k", ast)
      assert.strictEqual(calls, 2)
    }).pipe(Effect.provide(compiler({
      renderer: Layer.mock(Renderer, {
        caps: Reference.caps,
        render: (kernel, linear) =>
          calls++ === 0
            ? Effect.fail(new RenderError({ kernel, message: "busy" }))
            : Effect.succeed(Reference.program(kernel, linear))
      })
    })))
  })

  it.effect("works as a whole: the default stages over a renderer", () => {
    const asked: Array<string> = []
    return Effect.gen(function*() {
      yield* compileAll
      assert.isAbove(asked.length, 0)
    }).pipe(Effect.provide(Compiler.layer.pipe(Layer.provide(Pipeline.layer), Layer.provide([noting(asked), profile]))))
  })

  it.effect("layerReference hands over kernels as they are, and checks them", () =>
    Effect.gen(function*() {
      const { compile } = yield* Compiler
      const [step] = steps(1)
      const program = yield* compile(step!.name, step!.ast)
      assert.strictEqual(program.code, step!.ast)
      assert.strictEqual(program.target, "reference")
      const error = yield* Effect.flip(compile("k", new Arena().make("LINEAR", DType.none)))
      assert.include(error.message, "spec kernel")
    }).pipe(Effect.provide(Compiler.layerReference)))
})
