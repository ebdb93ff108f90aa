import { assert, describe, it } from "@effect/vitest"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { comparison, elementwise, mandatory, type Op, unary } from "@tg/core-uop/Op"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import { Effect, Layer } from "effect"
import { Devectorize, devectorize, DevectorizeError, Linearize } from "../src/Devectorize.ts"
import { listing } from "./support/listing.ts"
import * as Kernels from "./support/kernels.ts"
import { cpu, expanded, gpu, opted } from "./support/stages.ts"

const profile = DeviceProfile.webgpuDefault
const broken = (): UOp => {
  const arena = new Arena()
  return arena.make("SINK", DType.none, [arena.make("BARRIER", DType.none)])
}

describe("Devectorize", () => {
  it("leaves only operations and lanes that the renderer declared", () => {
    const ops: ReadonlySet<Op> = new Set<Op>(
      [...elementwise].filter((op) => op !== "MAX" && op !== "SUB" && op !== "FLOORMOD")
    )
    for (const lanes of [[1], [1, 4]] as const) {
      const kernel = expanded(Kernels.elementwise(), [Opt.upcast(1, 4), Opt.local(0, 3)], { ...gpu, ops, lanes })
      for (const node of toposort(kernel)) {
        assert.isTrue(!elementwise.has(node.op) || ops.has(node.op), node.op)
        assert.include(lanes, node.dtype.lanes)
      }
    }
  })

  describe("an operation that the renderer does not declare", () => {
    /** out[i] = op(a[i], b[i]), or of a[i] alone. */
    const kernelOf = (op: Op, dtype: DType.DType): UOp => {
      const arena = new Arena()
      const i = Expr.range(arena, 8, 0, "GLOBAL")
      const [out, ...inputs] = [0, 1, 2].map((slot) => Expr.element(param(arena, slot, dtype), i))
      const [a, b] = inputs.map((element) => Expr.load(element))
      const made = op === "WHERE"
        ? Expr.where(arena.make("CMPLT", DType.bool, [a!, b!]), a!, b!)
        : op === "CAST"
        ? Expr.cast(Expr.cast(a!, DType.i32), dtype)
        : op === "BITCAST"
        ? Expr.bitcast(Expr.add(Expr.bitcast(a!, DType.i32), 1), dtype)
        : comparison.has(op)
        ? Expr.cast(arena.make(op, DType.bool, [a!, b!]), dtype)
        : arena.make(op, dtype, unary.has(op) ? [a!] : [a!, b!])
      const end = arena.make("END", DType.none, [Expr.store(out!, made), i])
      return arena.make("SINK", DType.none, [end], { name: "k" })
    }
    const param = (arena: Arena, slot: number, dtype: DType.DType): UOp =>
      arena.make("PARAM", dtype, [Expr.int(arena, 8)], { slot })
    const integer = new Set<Op>(["FLOORDIV", "FLOORMOD", "AND", "OR", "XOR", "SHL", "SHR"])

    for (const op of mandatory) {
      it(`is named if no rule takes it apart: ${op}`, () => {
        const dtype = integer.has(op) ? DType.u32 : DType.f32
        const lowered = (ops: ReadonlySet<Op>) =>
          devectorize("k", opted(kernelOf(op, dtype), []), { ...cpu, target: "mine", ops }, profile)
        assert.notInstanceOf(lowered(mandatory), DevectorizeError)
        const refused = lowered(new Set([...mandatory].filter((other) => other !== op)))
        assert.instanceOf(refused, DevectorizeError)
        assert.strictEqual(refused.unsupported?.op, op)
        assert.strictEqual(refused.unsupported?.target, "mine")
        assert.match(refused.message, new RegExp(`^k: the renderer for mine does not declare ${op}, which computes `))
      })
    }

    for (const op of elementwise) {
      if (mandatory.has(op)) continue
      it(`is said with others if a rule takes it apart: ${op}`, () => {
        const dtype = op === "HALF_TO_FLOAT" || op === "DOT4I8" ? DType.u32 : DType.f32
        const arena = new Arena()
        const i = Expr.range(arena, 8, 0, "GLOBAL")
        const result = op === "FLOAT_TO_HALF" ? DType.u32 : op === "DOT4I8" ? DType.i32 : DType.f32
        const x = Expr.load(Expr.element(param(arena, 1, dtype), i))
        const sources = unary.has(op) ? [x] : op === "MULACC" ? [x, x, x] : [x, x]
        const out = Expr.element(param(arena, 0, result), i)
        const end = arena.make("END", DType.none, [Expr.store(out, arena.make(op, result, sources)), i])
        const kernel = arena.make("SINK", DType.none, [end], { name: "k" })
        const lowered = devectorize("k", kernel, { ...cpu, target: "mine", ops: mandatory }, profile)
        assert.notInstanceOf(lowered, DevectorizeError)
        assert.isFalse(toposort(lowered as UOp).some((node) => node.op === op))
      })
    }
  })

  it.effect("has a service that expands", () =>
    Effect.gen(function*() {
      const { devectorize } = yield* Devectorize
      const kernel = opted(Kernels.sums(), [Opt.unroll(1, 4)])
      const result = yield* devectorize("k", kernel, cpu, profile)
      assert.deepStrictEqual(Spec.check("expanded", result), [])
      assert.deepStrictEqual(Kernels.run(result), Kernels.run(kernel))
    }).pipe(Effect.provide(Devectorize.layer)))

  it.effect("names the kernel whose grid does not fit the device", () =>
    Effect.gen(function*() {
      const { devectorize } = yield* Devectorize
      const error = yield* Effect.flip(devectorize("rows_6", Kernels.elementwise(), gpu, { ...profile, maxGrid: 2 }))
      assert.strictEqual(error.kernel, "rows_6")
      assert.match(error.message, /^rows_6: a loop of \d workgroups does not fit/)
    }).pipe(Effect.provide(Devectorize.layer)))

  it.effect("refuses what is no opted kernel", () =>
    Effect.gen(function*() {
      const { devectorize } = yield* Devectorize
      const error = yield* Effect.flip(devectorize("k", broken(), cpu, profile))
      assert.instanceOf(error, DevectorizeError)
      assert.strictEqual(error.message, "k: spec opted: SINK: a kernel's roots are END nodes")
    }).pipe(Effect.provide(Devectorize.layer)))
})

describe("Linearize, the service", () => {
  it.effect("puts an expanded kernel in order", () =>
    Effect.gen(function*() {
      const { linearize } = yield* Linearize
      const result = yield* linearize("k", expanded(Kernels.window(0, 8), [], gpu), gpu)
      assert.deepStrictEqual(Spec.check("linear", result), [])
      assert.deepStrictEqual(listing(result), ["gidx0 < 8", "v0: f32 = p1[gidx0]", "p0[gidx0] = v0"])
    }).pipe(Effect.provide(Linearize.layer)))

  it.effect("refuses what is no expanded kernel", () =>
    Effect.gen(function*() {
      const { linearize } = yield* Linearize
      const error = yield* Effect.flip(linearize("k", opted(Kernels.sums(), [Opt.group(1, 4)]), gpu))
      assert.include(error.message, "k: spec expanded: ")
      assert.include(error.message, "axis GROUP is not allowed")
    }).pipe(Effect.provide(Linearize.layer)))

  it.effect("works without its neighbours: after a mocked Devectorize", () =>
    Effect.gen(function*() {
      const { devectorize } = yield* Devectorize
      const { linearize } = yield* Linearize
      const kernel = yield* devectorize("k", broken(), gpu, profile)
      assert.deepStrictEqual(listing(yield* linearize("k", kernel, gpu)).at(-1), "p0[gidx0] = v0")
    }).pipe(Effect.provide([
      Linearize.layer,
      Layer.mock(Devectorize, { devectorize: () => Effect.succeed(expanded(Kernels.window(0, 8), [], gpu)) })
    ])))
})
