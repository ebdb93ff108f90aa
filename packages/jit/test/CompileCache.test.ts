import { assert, describe, it } from "@effect/vitest"
import * as Wasm from "@tg/codegen-wasm/Wasm"
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import * as DType from "@tg/core-uop/DType"
import { type DeviceProfile, h200, Profile, wasm } from "@tg/core-uop/DeviceProfile"
import { evaluateIndex, type Program } from "@tg/core-uop/Program"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { Rangeify } from "@tg/rangeify/Rangeify"
import { Device } from "@tg/runtime/Device"
import * as WasmDevice from "@tg/runtime-wasm/WasmDevice"
import { randomProgram } from "@tg/tensor/Random"
import * as Int8 from "@tg/tensor/Int8"
import * as TensorProgram from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import { Effect, Layer, Result } from "effect"
import * as KeyValueStore from "effect/persistence/KeyValueStore"
import * as CompileCache from "../src/CompileCache.ts"
import { Compiler } from "../src/Compiler.ts"
import { Jit } from "../src/Jit.ts"
import { Pipeline } from "../src/Pipeline.ts"
import type { ExecutionPlan } from "../src/Plan.ts"
import * as PlanText from "../src/PlanText.ts"
import * as ProgramKey from "../src/ProgramKey.ts"
import { blocks } from "./support/blocks.ts"
import * as Devices from "./support/devices.ts"

/** Compiles for a device that takes everything; what would be kept. */
const compiled = (sink: UOp, profile: DeviceProfile) =>
  Effect.gen(function*() {
    const kept: Array<ExecutionPlan> = []
    const spy = Layer.succeed(CompileCache.CompileCache, {
      get: () => Effect.undefined,
      set: (_, plan) => Effect.sync(() => void kept.push(plan))
    })
    const renderer = profile === wasm ? Wasm.layer : WgslRenderer.layer({ subgroupSize: profile.subgroupSize })
    const compiler = Compiler.layer.pipe(
      Layer.provideMerge(Pipeline.layer),
      Layer.provide([renderer, Profile.layer(profile)])
    )
    const device = Layer.mock(Device, {
      profile,
      allocatedBytes: () => 0,
      load: (program) => Effect.succeed({ program })
    })
    const { compile } = yield* Effect.provide(
      Jit,
      Jit.layer.pipe(Layer.provide([device, compiler, spy]))
    )
    yield* compile(sink)
    assert.strictEqual(kept.length, 1)
    return kept[0]!
  }).pipe(Effect.scoped)

/** A program with its index expressions as their values. */
const withValues = ({ grid, instructions, ...rest }: Program, vars: Readonly<Record<string, number>>) => ({
  ...rest,
  grid: grid.map((size) => evaluateIndex(size, vars)),
  instructions: instructions === undefined
    ? undefined
    : [evaluateIndex(instructions.perPart, vars), evaluateIndex(instructions.perIteration, vars)]
})

describe("the text of a plan", () => {
  it("keeps programs of any target, text and bytes", () => {
    const program = { name: "k", workgroup: [1, 1, 1], grid: [4, 1, 1], bindings: [], vars: [] } as const
    const plan: ExecutionPlan = {
      programs: [
        { ...program, target: "javascript", code: "() => {}" },
        { ...program, target: "spirv", code: Uint8Array.of(3, 2, 35, 7) }
      ],
      launches: [],
      blocks: []
    }
    assert.deepStrictEqual(PlanText.decode("it", PlanText.encode("it", plan)!), Result.succeed(plan))
  })

  for (const profile of [h200, wasm]) {
    it.live(`gives the plan back (${profile.name})`, () =>
      Effect.gen(function*() {
        let windows = 0
        for (let seed = 0; seed < 25; seed++) {
          const { program, vars } = randomProgram(seed, 16)
          const plan = yield* compiled(program.sink, profile)
          const text = PlanText.encode("it", plan)!
          const back = Result.getOrThrow(PlanText.decode("it", text))
          assert.deepStrictEqual(back.launches, plan.launches)
          windows += plan.launches.filter(({ slots }) => slots.some(({ window }) => window !== undefined)).length
          assert.deepStrictEqual(back.blocks, plan.blocks)
          const values = ({ programs }: ExecutionPlan) => programs.map((one) => withValues(one, vars))
          assert.deepStrictEqual(values(back), values(plan), `seed ${seed}`)
        }
        assert.isAbove(windows, 0)
      }))
  }

  it.live("is refused where a character has changed, where the end is missing, and under another key", () =>
    Effect.gen(function*() {
      const text = PlanText.encode("it", yield* compiled(blocks(2).sink, h200))!
      const refused = (damaged: string, key = "it") => {
        const found = PlanText.decode(key, damaged)
        assert.isTrue(Result.isFailure(found))
        if (Result.isFailure(found)) assert.instanceOf(found.failure, PlanText.DamagedPlan)
      }
      for (let at = 0; at < text.length; at += 97) {
        refused(`${text.slice(0, at)}${text[at] === "x" ? "y" : "x"}${text.slice(at + 1)}`)
      }
      for (const end of [0, 1, 30, text.length >> 1, text.length - 1]) refused(text.slice(0, end))
      refused(text, "that")
      refused("{}")
    }))
})

describe("the key of a program", () => {
  const target = { profile: h200, stages: "usual" }
  const program = (width: number, label: string) => {
    const arena = new Arena()
    const [x, y] = [0, 1].map((id) => Tensor.buffer(arena, id, { shape: [width], dtype: DType.f32 }))
    return TensorProgram.make([TensorProgram.assign(y!, x!.mul(2).label(label))]).sink
  }
  const of = ProgramKey.of

  it("is equal for equal programs", () => assert.strictEqual(of(program(4, "a"), target), of(program(4, "a"), target)))

  it("tells apart what compiles to something else", () => {
    const keys = [
      of(program(4, "a"), target),
      of(program(8, "a"), target),
      of(program(4, "b"), target),
      of(program(4, "a"), { ...target, stages: "mine" }),
      of(program(4, "a"), { ...target, profile: { ...h200, subgroupSize: undefined } }),
      of(program(4, "a"), { ...target, profile: { ...h200, matrixUnits: true } }),
      of(program(4, "a"), { ...target, profile: { ...h200, bytesPerMicro: 1 } })
    ]
    assert.strictEqual(new Set(keys).size, keys.length)
  })

  it("tells apart products whose operand is read as it costs least", () => {
    const sinkOf = (isLeft: boolean): UOp => {
      const arena = new Arena()
      const [x, words, scale, y] =
        ([[[32], DType.f32], [[4, 1, 2, 4], DType.u32], [[4, 1, 1], DType.f32], [[4], DType.f32]] as const)
          .map(([shape, dtype], id) => Tensor.buffer(arena, id, { shape, dtype }))
      const rows = { words: words!, scale: scale!, zero: 8, minimum: undefined }
      const made = Int8.contract(Int8.quantise(x!), rows, isLeft ? () => x!.sum(-1) : undefined)
      return TensorProgram.make([TensorProgram.assign(y!, made)]).sink
    }
    assert.strictEqual(of(sinkOf(true), target), of(sinkOf(true), target))
    assert.notStrictEqual(of(sinkOf(true), target), of(sinkOf(false), target))
  })
})

/** A device of its own, over programs kept in a store. Counts what is scheduled, and notes problems. */
const over = (store: KeyValueStore.KeyValueStore, compiler = "one") => {
  const counts = { scheduled: 0 }
  const problems: Array<string> = []
  const counting = Layer.effect(
    Rangeify,
    Effect.map(Rangeify, ({ id, schedule }) => ({
      id,
      schedule: (...args: Parameters<typeof schedule>) =>
        Effect.suspend(() => {
          counts.scheduled++
          return schedule(...args)
        })
    }))
  ).pipe(Layer.provide(Rangeify.layer))
  const onProblem = ({ _tag }: CompileCache.CacheProblem) => Effect.sync(() => void problems.push(_tag))
  const cache = CompileCache.layerStore({ compiler, onProblem }).pipe(
    Layer.provide(Layer.succeed(KeyValueStore.KeyValueStore, store))
  )
  const stages = Compiler.layer.pipe(
    Layer.provideMerge(Pipeline.layer),
    Layer.provide(counting),
    Layer.provide([Wasm.layer, Profile.layer(wasm)])
  )
  const layer = Jit.layer.pipe(Layer.provide([cache, stages]), Layer.provideMerge(WasmDevice.layer()))
  return { counts, problems, run: Devices.run(random).pipe(Effect.provide(layer)), layer }
}

const random = randomProgram(3, 16)
const memory = Effect.provide(KeyValueStore.KeyValueStore, KeyValueStore.layerMemory)

describe("what was kept", () => {
  it.live("runs without being scheduled, with the same results", () =>
    Effect.gen(function*() {
      const store = yield* memory
      const [first, second] = [over(store), over(store)]
      const expected = yield* first.run
      assert.deepStrictEqual(yield* second.run, expected)
      assert.deepStrictEqual([first.counts.scheduled, second.counts.scheduled], [1, 0])
      assert.strictEqual(yield* store.size, 1)
    }))

  it.live("has its schedule for whoever asks", () =>
    Effect.gen(function*() {
      const store = yield* memory
      const prepare = Effect.gen(function*() {
        const device = yield* Device
        const { sink, buffers } = blocks(2)
        const memory = yield* Effect.forEach(buffers, ({ id, shape }) =>
          Effect.map(
            device.allocate(4 * shape.reduce<number>((n, d) => n * Number(d), 1), `${id}`),
            (b) => [id, b] as const
          ))
        const { plan, schedule } = yield* (yield* Jit).prepare(sink, new Map(memory))
        return { names: plan.launches.map(({ name }) => name), schedule }
      }).pipe(Effect.scoped)
      yield* prepare.pipe(Effect.provide(over(store).layer))
      const { counts, layer } = over(store)
      const { names, schedule } = yield* prepare.pipe(Effect.provide(layer))
      assert.strictEqual(counts.scheduled, 0)
      assert.deepStrictEqual((yield* schedule).steps.map(({ name }) => name), names)
      // weighing forms that are equal schedules, too
      const once = counts.scheduled
      assert.isAbove(once, 0)
      yield* schedule
      assert.strictEqual(counts.scheduled, once)
    }))

  it.live("is not found by another compiler", () =>
    Effect.gen(function*() {
      const store = yield* memory
      yield* over(store).run
      const other = over(store, "two")
      yield* other.run
      assert.strictEqual(other.counts.scheduled, 1)
      assert.strictEqual(yield* store.size, 2)
    }))

  it.live("is compiled and kept again if it is damaged", () =>
    Effect.gen(function*() {
      const store = yield* memory
      const expected = yield* over(store).run
      const [key] = yield* store.keys
      const text = (yield* store.get(key!))!
      for (const damaged of ["", "foreign", text.slice(0, -9), text.replace("launches", "lunches")]) {
        yield* store.set(key!, damaged)
        const { counts, problems, run } = over(store)
        assert.deepStrictEqual(yield* run, expected)
        assert.deepStrictEqual({ counts, problems }, { counts: { scheduled: 1 }, problems: ["DamagedPlan"] })
        assert.strictEqual(yield* store.get(key!), text)
      }
    }))

  it.live("is done without where the store fails, which is told", () =>
    Effect.gen(function*() {
      const store = yield* memory
      const fail = (method: string) =>
        Effect.fail(new KeyValueStore.KeyValueStoreError({ method, message: "the disk is on fire" }))
      const { counts, problems, run } = over({ ...store, get: () => fail("get"), set: () => fail("set") })
      yield* run
      assert.strictEqual(counts.scheduled, 1)
      assert.deepStrictEqual(problems, ["KeyValueStoreError", "KeyValueStoreError"])
    }))

  it.effect("is nothing where programs are not text", () =>
    Effect.gen(function*() {
      const plans = new Map<string, ExecutionPlan>()
      const cache = Layer.succeed(CompileCache.CompileCache, {
        get: (key) => Effect.sync(() => plans.get(key)),
        set: (key, plan) => Effect.sync(() => void plans.set(key, plan))
      })
      const arena = new Arena()
      const x = Tensor.buffer(arena, 0, { shape: [4], dtype: DType.f32 })
      const kernel = { name: "by_hand", writes: [0], reference: () => undefined }
      const device = Layer.mock(Device, {
        profile: wasm,
        allocatedBytes: () => 0,
        load: (loaded) => Effect.succeed({ program: loaded }),
        plan: () => Effect.succeed({ run: () => Effect.void })
      })
      const jit = yield* Effect.provide(
        Jit,
        Jit.layer.pipe(Layer.provide([device, Devices.referencePipeline, Compiler.layerReference, cache]))
      )
      yield* jit.compile(TensorProgram.make([TensorProgram.custom(kernel, [x])]).sink)
      yield* jit.compile(blocks(1).sink)
      assert.deepStrictEqual([...plans.values()].map((plan) => PlanText.encode("it", plan)), [undefined, undefined])
    }).pipe(Effect.scoped))
})

describe("a cache in memory", () => {
  it.effect("keeps what it was given", () =>
    Effect.gen(function*() {
      const cache = yield* CompileCache.CompileCache
      const plan = { programs: [], launches: [], blocks: [4] }
      assert.isUndefined(yield* cache.get("a"))
      yield* cache.set("a", plan)
      assert.strictEqual(yield* cache.get("a"), plan)
      assert.isUndefined(yield* cache.get("b"))
    }).pipe(Effect.provide(CompileCache.layerMemory)))

  it.effect("is not there if nobody provides one", () =>
    Effect.gen(function*() {
      const cache = yield* CompileCache.CompileCache
      yield* cache.set("a", { programs: [], launches: [], blocks: [] })
      assert.isUndefined(yield* cache.get("a"))
    }))
})
