import { assert, describe, it } from "@effect/vitest"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { evaluateIndex } from "@tg/core-uop/Program"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, rangeArg, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { Effect, Schema } from "effect"
import * as Loops from "../src/Loops.ts"
import * as Opt from "../src/Opt.ts"
import { apply, IllegalOpt, maxCopies, Postrange } from "../src/Postrange.ts"
import {
  beside,
  elementwise,
  manySums,
  nested,
  run,
  sums,
  symbolic,
  twoLengths,
  twoReductions
} from "./support/kernels.ts"

const gpu = DeviceProfile.webgpuDefault
const { group, local, loop, outer, spread, unroll, upcast } = Opt

/** The loops as text: `r0:GLOBAL 6`. */
const loops = (kernel: UOp): ReadonlyArray<string> => Loops.all(kernel).map((l) => `r${l.id}:${l.axis} ${l.size}`)

const applied = (kernel: UOp, opts: ReadonlyArray<Opt.Opt>, profile = gpu): UOp => {
  const result = apply("k", kernel, opts, profile)
  if (result instanceof IllegalOpt) throw result
  return result
}

const kernels = { beside, elementwise, sums, manySums, twoReductions, twoLengths, nested, symbolic }

describe("Postrange", () => {
  const legal: ReadonlyArray<readonly [keyof typeof kernels, ReadonlyArray<Opt.Opt>]> = [
    ["elementwise", []],
    ["elementwise", [local(1, 4)]],
    ["elementwise", [upcast(1, 4)]],
    ["elementwise", [loop(0, 6)]],
    ["elementwise", [outer(1, 8)]],
    ["elementwise", [local(1, 4), outer(1, 2)]],
    ["elementwise", [upcast(0, 6), upcast(1, 2)]],
    ["elementwise", [local(0, 3), local(1, 8), upcast(0, 2)]],
    ["elementwise", [local(1, 2), local(1, 2), upcast(1, 2)]],
    ["elementwise", [local(1, 1)]],
    ["elementwise", [spread(1, 4), local(1, 2)]],
    ["elementwise", [spread(0, 6), spread(1, 2), upcast(1, 2)]],
    ["sums", [spread(0, 2), unroll(1, 4)]],
    ["sums", [unroll(1, 4)]],
    ["sums", [unroll(1, 32)]],
    ["sums", [group(1, 8)]],
    ["sums", [group(1, 32)]],
    ["sums", [unroll(1, 4), group(1, 8), local(0, 6)]],
    ["sums", [upcast(0, 2), group(1, 16), unroll(1, 2)]],
    ["twoReductions", [group(1, 8), group(2, 8)]],
    ["twoReductions", [unroll(1, 2), unroll(2, 4), local(0, 2)]],
    ["nested", [unroll(2, 4), unroll(1, 2)]],
    ["nested", [group(1, 4), unroll(2, 8)]],
    ["nested", [group(1, 2), group(1, 2)]],
    ["sums", [group(1, 4), group(1, 2)]],
    ["twoReductions", [group(1, 8), group(2, 4)]],
    ["twoReductions", [group(2, 32), local(0, 2)]],
    ["twoLengths", [group(1, 3), local(0, 2), upcast(0, 2)]],
    ["twoLengths", [group(2, 2), group(1, 2), group(1, 3)]],
    ["symbolic", [group(1, 4)]],
    ["symbolic", [group(1, 2), group(1, 4)]],
    ["symbolic", [loop(0, 8), group(1, 8)]],
    ["symbolic", [unroll(1, 4)]],
    ["symbolic", [group(1, 2), unroll(1, 4)]],
    ["symbolic", [unroll(1, 2), group(1, 4)]],
    ["symbolic", [loop(0, 8)]]
  ]
  for (const [name, opts] of legal) {
    it(`keeps the values of ${name} under ${opts.map(Opt.print).join(", ") || "no opts"}`, () => {
      const kernel = kernels[name]()
      const result = applied(kernel, opts)
      assert.deepStrictEqual(Spec.check("opted", result), [])
      assert.deepStrictEqual(run(result), run(kernel))
    })
  }

  it("puts a loop outside of the others in the grid", () => {
    const ids = (opts: ReadonlyArray<Opt.Opt>) => Loops.outputs(applied(kernels.elementwise(), opts)).map((l) => l.id)
    assert.deepStrictEqual(ids([]), [0, 1])
    assert.deepStrictEqual(ids([outer(1, 8)]), [1, 0])
    assert.deepStrictEqual(ids([local(1, 4), outer(1, 2)]), [1, 0, 2])
  })

  const illegal: ReadonlyArray<readonly [keyof typeof kernels, ReadonlyArray<Opt.Opt>, string, typeof gpu?]> = [
    ["sums", [local(7, 2)], "the kernel has no loop r7; it has r0, r1"],
    ["sums", [unroll(0, 2)], "r0 is GLOBAL, UNROLL wants REDUCE"],
    ["sums", [group(0, 2)], "r0 is GLOBAL, GROUP wants REDUCE"],
    ["sums", [upcast(1, 2)], "r1 is REDUCE, UPCAST wants GLOBAL"],
    ["sums", [local(1, 2)], "r1 is REDUCE, LOCAL wants GLOBAL"],
    ["sums", [loop(1, 32)], "r1 is REDUCE, LOOP wants GLOBAL"],
    ["sums", [outer(1, 32)], "r1 is REDUCE, OUTER wants GLOBAL"],
    ["sums", [outer(0, 3)], "OUTER takes the whole of r0, 6"],
    ["sums", [loop(0, 3)], "LOOP takes the whole of r0, 6"],
    ["sums", [upcast(0, 4)], "4 does not divide the 6 iterations of r0"],
    ["sums", [unroll(1, 4), unroll(1, 16)], "16 does not divide the 8 iterations of r1"],
    ["sums", [upcast(0, 6), local(0, 2)], "r0 is UPCAST, LOCAL wants GLOBAL"],
    ["symbolic", [local(0, 2)], "the size of r0 is symbolic, so 2 may not divide it"],
    ["symbolic", [upcast(0, 2)], "the size of r0 is symbolic, so 2 may not divide it"],
    [
      "twoLengths",
      [group(1, 3), group(2, 4)],
      "another reduction is grouped by 3; of two groups in a kernel one divides the other"
    ],
    [
      "twoLengths",
      [group(2, 2), group(1, 2), group(1, 3), group(2, 2)],
      "another reduction is grouped by 6; of two groups in a kernel one divides the other"
    ],
    ["nested", [group(2, 4)], "the reduction over r2 runs inside another one"],
    ["sums", [local(0, 6)], "wasm has no workgroups", DeviceProfile.wasm],
    ["sums", [group(1, 4)], "wasm has no workgroups", DeviceProfile.wasm],
    ["sums", [local(0, 6), group(1, 32)], "192 threads, the device allows 128", { ...gpu, maxWorkgroupThreads: 128 }],
    ["sums", [group(1, 32), local(0, 6)], "192 threads, the device allows 128", { ...gpu, maxWorkgroupThreads: 128 }],
    // all groups of 4 are whole, also those that have three threads' work left
    ["beside", [local(0, 6), group(1, 4)], "8 threads, the device allows 7", { ...gpu, maxWorkgroupThreads: 7 }],
    ["sums", [group(1, 32)], "128 bytes of workgroup memory, the device has 64", { ...gpu, maxWorkgroupBytes: 64 }],
    [
      "sums",
      [upcast(0, 3), group(1, 8)],
      "96 bytes of workgroup memory, the device has 64",
      { ...gpu, maxWorkgroupBytes: 64 }
    ],
    [
      "sums",
      [group(1, 8), upcast(0, 3)],
      "96 bytes of workgroup memory, the device has 64",
      { ...gpu, maxWorkgroupBytes: 64 }
    ],
    [
      "twoReductions",
      [group(1, 16), group(2, 16)],
      "128 bytes of workgroup memory, the device has 64",
      { ...gpu, maxWorkgroupBytes: 64 }
    ],
    [
      "sums",
      [group(1, 8), local(0, 3)],
      "96 bytes of workgroup memory, the device has 64",
      { ...gpu, maxWorkgroupBytes: 64 }
    ],
    [
      "manySums",
      [upcast(0, 16), unroll(1, 32)],
      `512 copies of the body, at most ${maxCopies} are sensible`
    ],
    ["sums", [unroll(1, 32), upcast(0, 6), unroll(1, 2)], "r1 is UNROLL, UNROLL wants REDUCE"]
  ]
  for (const [name, opts, reason, profile = gpu] of illegal) {
    it(`refuses ${opts.map(Opt.print).join(", ")} on ${name}: ${reason}`, () => {
      const error = apply("rows_6", kernels[name](), opts, profile)
      assert.instanceOf(error, IllegalOpt)
      const at = Opt.print(opts.at(-1)!)
      assert.deepStrictEqual({ ...error as IllegalOpt, message: (error as IllegalOpt).message }, {
        _tag: "IllegalOpt",
        kernel: "rows_6",
        opt: at,
        message: `rows_6: ${at} is not legal: ${reason}`
      })
    })
  }

  it("splits the inside off: the outer part keeps the id, the inner one gets the next", () => {
    assert.deepStrictEqual(loops(applied(elementwise(), [local(1, 4)])), ["r0:GLOBAL 6", "r1:GLOBAL 2", "r2:LOCAL 4"])
    assert.deepStrictEqual(loops(applied(elementwise(), [local(1, 4), upcast(0, 3), upcast(1, 2)])), [
      "r0:GLOBAL 2",
      "r3:UPCAST 3",
      "r1:UPCAST 2",
      "r2:LOCAL 4"
    ])
    assert.deepStrictEqual(loops(applied(sums(), [unroll(1, 4), group(1, 2)])), [
      "r0:GLOBAL 6",
      "r1:REDUCE 4",
      "r3:GROUP 2",
      "r2:UNROLL 4"
    ])
  })

  it("spreads over the whole loop what it takes off the outside", () => {
    const kernel = applied(sums(), [spread(0, 2)])
    assert.deepStrictEqual(loops(kernel), ["r0:GLOBAL 3", "r2:UPCAST 2", "r1:REDUCE 32"])
    const at = kernel.src[0]!.src[0]!.src[0]!.src[1]!
    const ranges = toposort(at).filter((n) => n.op === "RANGE")
    const rows = (iteration: number): ReadonlyArray<number> =>
      [0, 1].map((taken) => {
        const number = (range: UOp): UOp => Expr.int(at.arena, rangeArg(range).id === 2 ? taken : iteration)
        return evaluateIndex(substitute(at, new Map(ranges.map((r) => [r, number(r)]))), {})
      })
    assert.deepStrictEqual([rows(0), rows(1), rows(2)], [[0, 3], [1, 4], [2, 5]])
  })

  it("gives a whole loop the axis and its id, and does nothing for an amount of 1", () => {
    assert.deepStrictEqual(loops(applied(sums(), [local(0, 6), group(1, 32)])), ["r0:LOCAL 6", "r1:GROUP 32"])
    const kernel = sums()
    assert.strictEqual(applied(kernel, [unroll(1, 1)]), kernel)
  })

  it("depends on the order of the list where the opts touch one loop", () => {
    const a = applied(sums(), [unroll(1, 4), group(1, 8)])
    const b = applied(sums(), [group(1, 8), unroll(1, 4)])
    assert.deepStrictEqual(loops(a), ["r0:GLOBAL 6", "r1:GROUP 8", "r2:UNROLL 4"])
    assert.deepStrictEqual(loops(b), ["r0:GLOBAL 6", "r1:UNROLL 4", "r2:GROUP 8"])
    assert.deepStrictEqual(run(a), run(b))
  })

  it("lists loops: outputs first, then the reductions, inner ones first", () => {
    assert.deepStrictEqual(Loops.all(nested()).map((l) => l.id), [0, 2, 1])
    const [n, m] = Loops.all(symbolic())
    assert.deepStrictEqual([n!.size, n!.isSymbolic, m!.size, m!.isSymbolic], [8, true, 8, true])
  })

  it.effect("opts are data: they survive JSON", () =>
    Effect.gen(function*() {
      const json = Schema.fromJsonString(Opt.Opt)
      const opt = group(3, 16)
      assert.deepStrictEqual(yield* Schema.decodeEffect(json)(yield* Schema.encodeEffect(json)(opt)), opt)
      assert.strictEqual(Opt.print(opt), "GROUP(r3, 16)")
      assert.throws(() => local(0, 0))
    }))

  describe("service", () => {
    it.effect("applies opts", () =>
      Effect.gen(function*() {
        const postrange = yield* Postrange
        const result = yield* postrange.apply("k", sums(), [unroll(1, 4)], gpu)
        assert.deepStrictEqual(loops(result), ["r0:GLOBAL 6", "r1:REDUCE 8", "r2:UNROLL 4"])
      }).pipe(Effect.provide(Postrange.layer)))

    it.effect("fails with the opt that is not legal", () =>
      Effect.gen(function*() {
        const postrange = yield* Postrange
        const error = yield* Effect.flip(postrange.apply("k", sums(), [unroll(1, 4), unroll(1, 3)], gpu))
        assert.strictEqual(error.opt, "UNROLL(r1, 3)")
      }).pipe(Effect.provide(Postrange.layer)))

    it.effect("refuses what is not a kernel, unless checking is off", () =>
      Effect.gen(function*() {
        const postrange = yield* Postrange
        const arena = new Arena()
        const broken = arena.make("SINK", DType.none, [arena.make("BARRIER", DType.none)])
        const error = yield* Effect.flip(postrange.apply("k", broken, [], gpu))
        assert.include(error.message, "spec kernel")
        const trusting = postrange.apply("k", broken, [], gpu).pipe(Effect.provideService(Spec.Checked, false))
        assert.strictEqual(yield* trusting, broken)
      }).pipe(Effect.provide(Postrange.layer)))
  })
})
