import { assert, describe, it } from "@effect/vitest"
import * as Wasm from "@tg/codegen-wasm/Wasm"
import { Profile, wasm } from "@tg/core-uop/DeviceProfile"
import * as Expr from "@tg/core-uop/Expr"
import { Renderer } from "@tg/core-uop/Program"
import { rebuild, type UOp } from "@tg/core-uop/UOp"
import { Devectorize, Linearize, linearPasses } from "@tg/devectorize/Devectorize"
import { Heuristics } from "@tg/heuristics/Heuristics"
import * as P from "@tg/pattern-matcher/UPat"
import { rule, rules } from "@tg/pattern-matcher/PatternMatcher"
import { Rewriter } from "@tg/pattern-matcher/Rewriter"
import { Postrange } from "@tg/postrange/Postrange"
import { Rangeify } from "@tg/rangeify/Rangeify"
import { Effect, Layer } from "effect"
import { defaultModel } from "../src/Flags.ts"
import { tg } from "./support/run.ts"

const stages = ["rangeify", "heuristics", "postrange", "devectorize", "linearize", "renderer"] as const
type Calls = Record<typeof stages[number], number>

/** The usual stages, counted. They have no `id`, so nothing that was compiled before stands in for them. */
const counting = () => {
  const calls: Calls = { rangeify: 0, heuristics: 0, postrange: 0, devectorize: 0, linearize: 0, renderer: 0 }
  const counted = <Args extends ReadonlyArray<unknown>, A, E>(
    stage: keyof Calls,
    run: (...args: Args) => Effect.Effect<A, E>
  ) =>
  (...args: Args): Effect.Effect<A, E> =>
    Effect.suspend(() => {
      calls[stage]++
      return run(...args)
    })
  const layer = Layer.mergeAll(
    Layer.effect(
      Rangeify,
      Effect.map(Rangeify, ({ schedule }) => ({ schedule: counted("rangeify", schedule) }))
    ).pipe(Layer.provide(Rangeify.layer)),
    Layer.effect(
      Heuristics,
      Effect.map(Heuristics, ({ choose }) => ({ choose: counted("heuristics", choose) }))
    ).pipe(Layer.provide(Heuristics.layer), Layer.provide(Profile.layer(wasm))),
    Layer.effect(
      Postrange,
      Effect.map(Postrange, ({ apply, legal }) => ({ legal, apply: counted("postrange", apply) }))
    ).pipe(Layer.provide(Postrange.layer)),
    Layer.effect(
      Devectorize,
      Effect.map(Devectorize, ({ devectorize }) => ({ devectorize: counted("devectorize", devectorize) }))
    ).pipe(Layer.provide(Devectorize.layer)),
    Layer.effect(
      Linearize,
      Effect.map(Linearize, ({ linearize }) => ({ linearize: counted("linearize", linearize) }))
    ).pipe(Layer.provide(Linearize.layer)),
    Layer.effect(
      Renderer,
      Effect.map(Renderer, ({ caps, render }) => ({ caps, render: counted("renderer", render) }))
    ).pipe(Layer.provide(Wasm.layer))
  )
  return { calls, layer }
}

const model = defaultModel
const onWasm = ["--device", "wasm"]

describe("stages that are given from outside", () => {
  const commands: Readonly<Record<string, ReadonlyArray<string>>> = {
    generate: ["generate", "hello", "-n", "1", ...onWasm],
    plan: ["plan", "--shape", "tiny-youtu:q4_0", "--ctx", "64", "--profile", "wasm"],
    kernel: ["kernel", "ffn_inp", "--profile", "wasm"],
    profile: ["profile", "--json", ...onWasm],
    tune: ["tune", "--kernel", "ffn_inp", "--budget", "0", ...onWasm]
  }
  it.live.each(Object.keys(commands))("%s goes through each of them", (command) =>
    Effect.gen(function*() {
      const { calls, layer } = counting()
      const { code, stderr } = yield* Effect.provide(tg(commands[command]!), layer)
      assert.strictEqual(code, 0, stderr)
      // a plan ends in front of the code
      const expected = command === "plan" ? stages.slice(0, -1) : stages
      for (const stage of expected) assert.isAbove(calls[stage], 0, stage)
    }))

  it.live("schedule otherwise in a plan as in a run", () => {
    /** Binds so few buffers at once that there are more kernels. */
    const few = Layer.effect(
      Rangeify,
      Effect.map(Rangeify, ({ schedule }) => ({
        schedule: (...[sink, limits]: Parameters<typeof schedule>) =>
          schedule(sink, { ...limits, maxStorageBuffers: 4 })
      }))
    ).pipe(Layer.provide(Rangeify.layer))
    const launches = (args: ReadonlyArray<string>) =>
      Effect.map(tg([...args, "--json"]), ({ stdout }): number => JSON.parse(stdout).dispatchesPerToken)
    const both = Effect.all([
      launches(["plan", "--model", model, "--ctx", "512", "--profile", "wasm", "--no-tune"]),
      launches(["profile", "--model", model, "--context", "512", "--no-tune", ...onWasm])
    ])
    return Effect.gen(function*() {
      const [planned, run] = yield* both
      assert.strictEqual(planned, run)
      const [plannedOtherwise, runOtherwise] = yield* Effect.provide(both, few)
      assert.strictEqual(plannedOtherwise, runOtherwise)
      assert.isAbove(runOtherwise, run)
    })
  })

  it.live("show in `kernel --passes` what was added to them", () => {
    const written = (name: string, run: (root: UOp) => UOp) => ({ name, run })
    const rewritten = written(
      "products reversed",
      (root) =>
        rebuild(
          root,
          (node, src) => node.op === "MUL" ? node.with(src.toReversed()) : src === node.src ? node : node.with(src)
        )
    )
    const ordered = written(
      "constants first",
      (linear) => linear.with(linear.src.toSorted((a, b) => Number(b.op === "CONST") - Number(a.op === "CONST")))
    )
    const own = rules("test", [
      rule(
        "sqrt by powers",
        P.op("SQRT", P.any("x")),
        ({ x }) => x.arena.make("EXP2", x.dtype, [Expr.mul(x.arena.make("LOG2", x.dtype, [x]), Expr.like(x, 0.5))])
      )
    ])
    const layers = Layer.mergeAll(
      Rewriter.layerWith(own),
      Postrange.layerOf({ passes: [{ ...rewritten, from: "opted", to: "opted" }] }),
      Linearize.layerOf({
        ...linearPasses,
        passes: [...linearPasses.passes, { ...ordered, from: "linear", to: "linear" }]
      })
    )
    return Effect.gen(function*() {
      const args = ["kernel", "int8_32_8_12", "--profile", "wasm", "--passes"]
      const usual = yield* tg(args)
      const { code, stderr, stdout } = yield* Effect.provide(tg(args), layers)
      assert.strictEqual(code, 0, stderr)
      for (const name of ["products reversed", "constants first", "sqrt by powers"]) {
        assert.include(stdout, name)
        assert.notInclude(usual.stdout, name)
      }
    })
  })

  it.live("simplify with a rule that was added, and the model still answers", () => {
    let fired = 0
    // within rounding: exact enough for an answer
    const own = rules("test", [
      rule("sqrt by powers", P.op("SQRT", P.any("x")), ({ x }) => {
        fired++
        const log = x.arena.make("LOG2", x.dtype, [x])
        return x.arena.make("EXP2", x.dtype, [Expr.mul(log, Expr.like(x, 0.5))])
      })
    ])
    return Effect.gen(function*() {
      const args = ["generate", "What is 17 + 25?", "--temperature", "0", ...onWasm]
      const { stderr, stdout } = yield* Effect.provide(tg(args), Rewriter.layerWith(own))
      assert.include(stdout, "42", stderr)
      assert.isAbove(fired, 0)
    })
  })
})
