import { assert, describe, it } from "@effect/vitest"
import { h200, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Arena } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import { choose } from "../src/Heuristics.ts"

const [rows, terms] = [2048, 1024]

/** out[t, r] = sum over k of w[r, k] * x[t, k], or of a matrix for each token. */
const product = (tokens: number, matrices: "one" | "own") => {
  const arena = new Arena()
  const param = (slot: number, length: number) => arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot })
  const [t, r, k] = [
    Expr.range(arena, tokens, 0, "GLOBAL"),
    Expr.range(arena, rows, 1, "GLOBAL"),
    Expr.range(arena, terms, 2, "REDUCE")
  ]
  const row = matrices === "one" ? r : Expr.add(Expr.mul(t, rows), r)
  const w = Expr.load(Expr.element(param(1, tokens * rows * terms), Expr.add(Expr.mul(row, terms), k)))
  const x = Expr.load(Expr.element(param(2, tokens * terms), Expr.add(Expr.mul(t, terms), k)))
  const sum = Expr.reduce("ADD", Expr.mul(w, x), [k])
  const store = Expr.store(Expr.element(param(0, tokens * rows), Expr.add(Expr.mul(t, rows), r)), sum)
  return arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, t, r])])
}

const optsOf = (...[tokens, matrices, profile]: [number, "one" | "own", typeof h200]) =>
  choose(product(tokens, matrices), profile).map(Opt.print)

describe("a product of a few tokens with one matrix", () => {
  it("gives a thread all of them, so that a weight is read once", () => {
    for (const tokens of [2, 4, 8, 16]) assert.include(optsOf(tokens, "one", h200), `UPCAST(r0, ${tokens})`)
  })
  it("gives it four where registers are few", () => {
    assert.include(optsOf(16, "one", webgpuDefault), "UPCAST(r0, 4)")
  })
  it("leaves tokens that have a matrix each, and more than a few", () => {
    for (const opts of [optsOf(4, "own", h200), optsOf(32, "one", h200)]) {
      assert.isFalse(opts.some((opt) => opt.startsWith("UPCAST(r0")))
    }
  })
})
