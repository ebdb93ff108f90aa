import { assert, describe, it } from "@effect/vitest"
import { h200, Profile, wasm } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Pass from "@tg/core-uop/Pass"
import { Checked } from "@tg/core-uop/Spec"
import { Arena, key, rebuild, type UOp } from "@tg/core-uop/UOp"
import { Devectorize, Linearize, linearPasses, passes as devectorizing } from "@tg/devectorize/Devectorize"
import { Heuristics } from "@tg/heuristics/Heuristics"
import { rule, rules } from "@tg/pattern-matcher/PatternMatcher"
import { Rewriter } from "@tg/pattern-matcher/Rewriter"
import { Postrange, whyIllegal } from "@tg/postrange/Postrange"
import * as P from "@tg/pattern-matcher/UPat"
import * as Body from "@tg/rangeify/Body"
import { passes as finishing } from "@tg/rangeify/Finish"
import { FusionCosts } from "@tg/rangeify/Fusion"
import { lists, Rangeify } from "@tg/rangeify/Rangeify"
import * as Reference from "@tg/runtime/Reference"
import * as TensorProgram from "@tg/tensor/Program"
import { type RandomProgram, randomProgram as random } from "@tg/tensor/Random"
import * as Tensor from "@tg/tensor/Tensor"
import { Effect, Layer } from "effect"
import * as Estimate from "../src/Estimate.ts"
import { Pipeline } from "../src/Pipeline.ts"
import * as Stages from "../src/Stages.ts"
import { blocks } from "./support/blocks.ts"
import * as Devices from "./support/devices.ts"
import { difference } from "./support/stages.ts"

const given = (...layers: ReadonlyArray<Layer.Layer<never>>) =>
  Effect.provide(
    Pipeline,
    Pipeline.layer.pipe(Layer.provide(Layer.mergeAll(Reference.renderer(), Profile.layer(h200), ...layers)))
  )

/** The same values, written otherwise. */
const reverseProducts = (root: UOp): UOp =>
  rebuild(
    root,
    (node, src) => node.op === "MUL" ? node.with(src.toReversed()) : src === node.src ? node : node.with(src)
  )

/** Constants need nothing, so they may stand anywhere before their uses. */
const constantsFirst = (linear: UOp): UOp =>
  linear.with(linear.src.toSorted((a, b) => Number(b.op === "CONST") - Number(a.op === "CONST")))

/** Stages with a pass more. */
const added = Layer.mergeAll(
  Postrange.layerOf({ passes: [{ name: "products reversed", from: "opted", to: "opted", run: reverseProducts }] }),
  Linearize.layerOf({
    ...linearPasses,
    passes: [...linearPasses.passes, { name: "constants first", from: "linear", to: "linear", run: constantsFirst }]
  })
)

/** Every kernel of a program, up to the renderer. */
const lowered = (pipeline: Pipeline["Service"], sink: UOp) =>
  Effect.flatMap(
    pipeline.schedule(sink),
    ({ steps }) =>
      Effect.forEach(steps, (step) =>
        step.kind === "kernel" ? Stages.ofKernel(pipeline, step.name, step.ast) : Effect.die("no kernel"))
  )

describe("Pipeline", () => {
  it.effect("is named after its stages, their rules, the renderer and the costs; not if one of them has no name", () =>
    Effect.gen(function*() {
      const idOf = (...layers: ReadonlyArray<Layer.Layer<never>>) => Effect.map(given(...layers), ({ id }) => id)
      const usual = yield* idOf()
      assert.strictEqual(yield* idOf(), usual)
      const others = [
        yield* idOf(Heuristics.layerNone),
        yield* idOf(Rewriter.layerNoSimplify),
        yield* idOf(Layer.succeed(FusionCosts, () => undefined))
      ]
      assert.strictEqual(new Set([usual, ...others]).size, 4)
      assert.isUndefined(
        yield* idOf(Layer.succeed(Heuristics, { choose: () => Effect.succeed([]) }))
      )
    }))

  it.effect("tells who listens what each pass did, and which rules fired", () =>
    Effect.gen(function*() {
      const ran: Array<Pass.Ran> = []
      const pipeline = yield* given()
      yield* lowered(pipeline, blocks(1).sink).pipe(
        Effect.provideService(Pass.Listener, (each) => void ran.push(each))
      )
      const heard = new Set(ran.map(({ stage }) => stage))
      assert.deepStrictEqual([...heard].toSorted(), ["devectorize", "launch", "linearize", "postrange", "rangeify"])
      assert.isTrue(ran.some(({ pass, rules }) => pass === "simplify" && rules.size > 0))
      assert.isTrue(ran.every(({ micros }) => micros >= 0))
      // a listener changes nothing
      const quiet = yield* lowered(pipeline, blocks(1).sink)
      assert.strictEqual(ran.filter(({ stage }) => stage === "linearize").length, quiet.length)
    }))

  it("has lists of which each pass takes what the one before it leaves", () => {
    for (const gaps of [Pass.gaps(finishing), Pass.gaps(devectorizing), Pass.gaps(linearPasses)]) {
      assert.deepStrictEqual(gaps, [])
    }
  })

  it.effect("names the pass that leaves what it may not", () =>
    Effect.gen(function*() {
      const broken = {
        ...devectorizing,
        passes: devectorizing.passes.map((pass) => ({
          ...pass,
          run: (...[root, where, trace]: Parameters<typeof pass.run>) =>
            pass.name === "simplify" ? root.src[0]! : pass.run(root, where, trace)
        }))
      }
      const pipeline = yield* given(Devectorize.layerOf(broken))
      const error = yield* Effect.flip(lowered(pipeline, blocks(1).sink))
      assert.match(error.message, /devectorize, pass simplify: spec expanded: END: the root is not SINK/)
    }))

  it.effect("runs passes that a layer adds to a stage, and names them to who listens", () =>
    Effect.gen(function*() {
      const ran: Array<Pass.Ran> = []
      const pipeline = yield* given(added)
      const own = yield* lowered(pipeline, blocks(1).sink).pipe(
        Effect.provideService(Pass.Listener, (each) => void ran.push(each)),
        Effect.provideService(Checked, true)
      )
      const changedBy = (name: string) => ran.filter(({ after, before, pass }) => pass === name && after !== before)
      for (const name of ["products reversed", "constants first"]) assert.isAbove(changedBy(name).length, 0, name)
      const usual = yield* lowered(yield* given(), blocks(1).sink)
      assert.notDeepEqual(own.map(({ linear }) => key(linear)), usual.map(({ linear }) => key(linear)))
      assert.isUndefined(pipeline.id)
    }))

  it.live("computes the same with passes that were added", () =>
    Effect.gen(function*() {
      const program = random(4, 12)
      const usual = yield* Devices.run(program).pipe(Effect.provide(Devices.reference))
      const own = yield* Devices.run(program).pipe(Effect.provide(Devices.wasm().pipe(Layer.provide(added))))
      assert.isUndefined(difference(program, usual, own))
    }))

  it.live("plans and runs what a list of rangeify's passes makes", () =>
    Effect.gen(function*() {
      // a sine that a broadcast repeats 2048 times is stored, unless a pass moves what may be computed where it is used
      const arena = new Arena()
      const [x, y, out] = [[4, 1], [4, 2048], [4, 2048]].map((shape, id) =>
        Tensor.buffer(arena, id, { shape, dtype: DType.f32 })
      )
      const input = (id: number, capacity: ReadonlyArray<number>) => {
        const length = capacity.reduce((n, size) => n * size, 1)
        const data = Float32Array.from({ length }, (_, i) => i % 13)
        return { id, dtype: DType.f32, shape: capacity, capacity, data }
      }
      const program: RandomProgram = {
        steps: [],
        program: TensorProgram.make([TensorProgram.assign(out!, x!.sin().expand([4, 2048]).mul(y!))]),
        inputs: [input(0, [4, 1]), input(1, [4, 2048])],
        // a sine of one device is within a few units in the last place of another one's
        outputs: [{ id: 2, dtype: DType.f32, shape: [4, 2048], capacity: [4, 2048], tolerance: 1e-4 }],
        vars: {}
      }
      const inline: Body.BodyPass = {
        name: "inline what may be",
        from: "tensor",
        to: "tensor",
        run: (body) =>
          Body.withMarks(
            body,
            [...Body.marksOf(body)].map(([value, { home, legal }]) => [
              value,
              { home: legal.includes("inline") ? "inline" : home, legal }
            ])
          )
      }
      const own = Rangeify.layerOf({ ...lists, body: { ...lists.body, passes: [...lists.body.passes, inline] } })
      const launchesOf = Effect.gen(function*() {
        const { launches } = yield* Estimate.estimate(yield* Pipeline, program.program.sink)
        const planned = yield* launches(program.vars)
        return { planned: planned.length, ...yield* Devices.ran(program) }
      })
      const usual = yield* launchesOf.pipe(Effect.provide(Devices.wasm()))
      const replaced = yield* launchesOf.pipe(Effect.provide(Devices.wasm().pipe(Layer.provide(own))))
      assert.deepStrictEqual([usual.planned, usual.launches], [2, 2])
      assert.deepStrictEqual([replaced.planned, replaced.launches], [1, 1])
      assert.isUndefined(difference(program, usual.contents, replaced.contents))
    }))

  it.effect("chooses opts that the given Postrange allows", () =>
    Effect.gen(function*() {
      const asked = new Set<string>()
      const noThreads = Postrange.layerOf({
        whyIllegal: (kernel, opt, profile) => {
          asked.add(opt.kind)
          return opt.kind === "LOCAL" ? "none is wanted" : whyIllegal(kernel, opt, profile)
        }
      })
      const kindsOf = (pipeline: Pipeline["Service"]) =>
        Effect.map(lowered(pipeline, blocks(1).sink), (kernels) =>
          new Set(kernels.flatMap(({ opts }) => opts.flat().map(({ kind }) => kind))))
      assert.isTrue((yield* kindsOf(yield* given())).has("LOCAL"))
      const kinds = yield* kindsOf(yield* given(noThreads))
      assert.isFalse(kinds.has("LOCAL"))
      assert.isTrue(asked.has("LOCAL"))
      assert.isAbove(kinds.size, 0)
    }))

  it.effect("says which rules do not come to rest", () =>
    Effect.gen(function*() {
      const swap = rules("test", [
        rule("swap", P.op("MUL", P.any("a"), P.any("b")), ({ a, b }) => a.arena.make("MUL", a.dtype, [b, a]))
      ])
      const pipeline = yield* given(Rewriter.layerWith(swap))
      const error = yield* Effect.flip(lowered(pipeline, blocks(1).sink))
      assert.strictEqual(error._tag, "RangeifyError")
      assert.match(error.message, /did not come to rest.*test\/swap/s)
    }))

  it.live("computes the same without the simplifier's rules", () =>
    Effect.forEach([1, 2, 3], (seed) =>
      Effect.gen(function*() {
        const program = random(seed, 12)
        const usual = yield* Devices.run(program).pipe(Effect.provide(Devices.reference))
        const without = yield* Devices.run(program).pipe(
          Effect.provide(Devices.wasm().pipe(Layer.provide(Rewriter.layerNoSimplify)))
        )
        assert.isUndefined(difference(program, usual, without))
      })))
})

describe("a profile", () => {
  it.effect("is told by what it says, not by its name", () =>
    Effect.gen(function*() {
      const keyOf = (profile: typeof h200) =>
        Effect.map(
          Effect.provide(Pipeline, Pipeline.layer.pipe(Layer.provide([Reference.renderer(), Profile.layer(profile)]))),
          ({ limits }) => limits.fusion?.key
        )
      const [usual, slow] = [yield* keyOf(h200), yield* keyOf({ ...h200, dispatchMicros: 10 })]
      assert.isDefined(usual)
      assert.notStrictEqual(usual, slow)
      assert.isUndefined(yield* keyOf(wasm))
    }))
})
