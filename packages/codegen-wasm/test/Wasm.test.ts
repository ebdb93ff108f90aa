/** The renderer: what it takes, and what it refuses. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Renderer } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Wasm from "../src/Wasm.ts"
import { matvec } from "./support/elements.ts"
import { execute } from "./support/execute.ts"
import { kernel } from "./support/linear.ts"

describe("constants", () => {
  it("keeps every float", () => {
    const values = [0, -0, 1, NaN, Infinity, -Infinity, 1e-45, 3.4028234663852886e38, 0.1, 2 ** -126, -1e21, 16777217]
    const linear = kernel((b) => {
      const out = b.param(0)
      values.forEach((v, i) => b.store(out, i, Expr.constant(b.arena, DType.f32, v)))
    })
    assert.deepStrictEqual(execute(linear, [new Float32Array(values.length)])[0], Float32Array.from(values))
  })

  it("keeps a long chain of single uses within the assembler's depth", () => {
    const linear = kernel((b) => {
      const out = b.param(0)
      let sum = b.load(out, 0)
      for (let i = 0; i < 3000; i++) sum = Expr.add(sum, i % 3)
      b.store(out, 0, sum)
    })
    assert.deepStrictEqual([...execute(linear, [new Float32Array(1)])[0]], [3000])
  })
})

describe("errors", () => {
  const refusal = (linear: UOp): string => {
    const result = Wasm.text("k", linear)
    return typeof result === "string" ? "accepted" : result.message
  }
  it("names what has no WebAssembly form", () => {
    assert.match(
      refusal(kernel((b) => b.add(b.arena.make("SPECIAL", DType.index, [b.int(4)], { name: "gidx0" })))),
      /k: SPECIAL needs a grid/
    )
    assert.match(refusal(kernel((b) => b.add(b.arena.make("BARRIER", DType.none)))), /BARRIER/)
    assert.match(
      refusal(kernel((b) => b.add(Expr.alu("SIN", Expr.constant(b.arena, DType.f32, 1))))),
      /SIN is not native/
    )
    assert.match(refusal(kernel((b) => b.load(b.param(0), 0, { lanes: 2 }))), /f32x2/)
  })

  it("names a value used outside of its loop", () => {
    const linear = kernel((b) => b.loop(2, "LOOP", (r) => b.store(b.param(0), r, Expr.cast(r, DType.f32))))
    const find = (op: string): UOp => linear.src.find((n) => n.op === op)!
    const element = Expr.element(find("PARAM"), find("CONST"))
    const late = linear.with([...linear.src, element, Expr.store(element, find("CAST"))])
    assert.match(refusal(late), /STORE uses CAST outside of the loop/)
  })
})

describe("Renderer", () => {
  it.effect("renders through the service", () =>
    Effect.gen(function*() {
      const renderer = yield* Renderer
      const program = yield* renderer.render("axpy", matvec(2, 4))
      assert.deepStrictEqual(program.bindings, [
        { slot: 0, access: "write", bytes: 4096 },
        { slot: 1, access: "read", bytes: 4096 },
        { slot: 2, access: "read", bytes: 4096 }
      ])
      assert.isTrue(WebAssembly.validate(program.code as Uint8Array<ArrayBuffer>))
      assert.isTrue(renderer.caps.ops.has("FLOORDIV"))
    }).pipe(Effect.provide(Wasm.layer)))

  it.effect("fails with the kernel's name", () =>
    Effect.gen(function*() {
      const renderer = yield* Renderer
      const linear = kernel((b) => b.add(b.arena.make("BARRIER", DType.none)))
      const error = yield* Effect.flip(renderer.render("softmax", linear))
      assert.strictEqual(error.kernel, "softmax")
    }).pipe(Effect.provide(Wasm.layer)))

  it("renders for a memory that only one thread has", () => {
    const module = Wasm.text("test", matvec(2, 4), { memory: "own" })
    assert.match(String(module), /\(import "env" "memory" \(memory 1\)\)/)
  })
})
