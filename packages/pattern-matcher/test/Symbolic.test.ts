import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import * as Print from "@tg/core-uop/Print"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import { describe, expect, it } from "vitest"
import * as Symbolic from "../src/Symbolic.ts"
import { assignments, evaluate, freeNodes } from "./support/evaluate.ts"
import { parser } from "./support/parse.ts"

const arena = new Arena()
const { parse } = parser(arena)

/** The rule as text, and the same value for every assignment of the small variables. */
const check = (start: string, goal: string): void => {
  it(`${start} => ${goal}`, () => {
    const before = parse(start)
    const after = Symbolic.simplify(before)
    expect(Print.expression(after)).toBe(Print.expression(parse(goal)))
    if (toposort(before).some((node) => node.dtype.scalar === "f32")) return
    for (const at of assignments(freeNodes(before))) {
      const expected = evaluate(before, at)
      if (!Number.isNaN(expected)) expect(evaluate(after, at), JSON.stringify(at)).toBe(expected)
    }
  })
}

/** No rule applies. */
const keep = (text: string): void => {
  it(`${text} stays`, () => expect(Symbolic.simplify(parse(text))).toBe(parse(text)))
}

// a0..a15 loops of 16, b* of 8, c* of 4, d* of 1, v in -9..9, w in -3..20, n in 1..7, s* loops of n
describe("sums and products", () => {
  check("v + 0", "v")
  check("v * 1", "v")
  check("v * 0", "0")
  check("1 * v", "v")
  check("0 + v", "v")
  check("v - v", "0")
  check("v + v", "v * 2")
  check("v * 3 + v", "v * 4")
  check("v * 3 - v * 3", "0")
  check("v * 2 + w * 3 + v * 5", "v * 7 + w * 3")
  check("w + v", "v + w")
  check("(v + 1) + w", "v + w + 1")
  check("(v + 1) + 2", "v + 3")
  check("(v * 2) * 3", "v * 6")
  check("(v + 2) * 3", "v * 3 + 6")
  check("(v + w) * 2", "v * 2 + w * 2")
  check("(v + 1) * (w + 2)", "v * 2 + w + v * w + 2")
  check("-(v + w)", "v * -1 + w * -1")
  check("v - w", "v + w * -1")
  check("v - 3", "v + -3")
  check("-(-v)", "v")
  check("w * v", "v * w")
  check("v << 3", "v * 8")
  check("3 + 4", "7")
  check("3 * 4 - 20", "-8")
  check("d0", "0")
  check("d0 * 7 + a0", "a0")
})

describe("division", () => {
  check("v // 1", "v")
  check("v % 1", "0")
  check("v // -1", "v * -1")
  check("-7 // 2", "-4")
  check("-7 % 2", "1")
  check("a0 // 16", "0")
  check("a0 % 16", "a0")
  check("a0 % 20", "a0")
  check("(a0 + 16) // 16", "1")
  check("(a0 + 16) % 16", "a0")
  check("(v // 2) // 3", "v // 6")
  check("(v % 12) % 4", "v % 4")
  check("(v % 12) // 4", "v // 4 % 3")
  check("(v * 4) // 4", "v")
  check("(v * 4) % 4", "0")
  check("(v * 8 + w) // 4", "v * 2 + w // 4")
  check("(v * 8 + w) % 4", "w % 4")
  check("(v * 4 + 3) // 4", "v")
  check("(v * 4 + 7) // 8", "(v + 9) // 2 + -4")
  check("(v * 4 + 2) % 8", "v % 2 * 4 + 2")
  check("(v * 6) // 4", "v + v // 2")
  check("(a0 * 16 + a1) // 16", "a0")
  check("(a0 * 16 + a1) % 16", "a1")
  check("(a0 * 64 + b0 * 8 + c0) // 8", "a0 * 8 + b0")
  check("(a0 * 64 + b0 * 8 + c0) // 32 % 2", "b0 // 4")
  check("(a0 * 16 + a1) % 32", "a0 % 2 * 16 + a1")
  check("(v * 5) % 4", "v % 4")
  check("v // 4 + 5", "v // 4 + 5")
  check("(v + 5) // 4", "(v + 9) // 4 + -1") // numerators are not negative
  check("(3 - c0) // 4", "0")
  check("(7 - b0) % 8", "b0 * -1 + 7")
  check("(b0 * 7 + 7) % 8", "b0 * -1 + 7")
  check("(v // 4 + 1) // 2", "(v + 12) // 8 + -1")
  check("v // -4", "(v * -1 + 12) // 4 + -3")
  check("v >> 2", "v // 4")
  check("v & 7", "v % 8")
  check("a0 & 15", "a0")
  check("(v % 8 + w) % 4", "(v + w) % 4")
})

describe("division by a symbol", () => {
  check("(b0 * n) // n", "b0")
  check("(b0 * n) % n", "0")
  check("(b0 * n + s0) // n", "b0")
  check("(b0 * n + s0) % n", "s0")
  check("s0 // n", "0")
  check("(b0 * (n + 1) + s0) // (n + 1)", "b0")
  check("v // n * n + v % n", "v")
  keep("v // n")
})

describe("recombination", () => {
  check("v // 4 * 4 + v % 4", "v")
  check("v // 4 * 12 + v % 4 * 3", "v * 3")
  check("v // 4 * 4 + w + v % 4", "v + w")
  check("v % 4 + v // 4 % 2 * 4", "v % 8")
  check("v % 4 + v // 4 % 2 * 4 + v // 8 * 8", "v")
  check("(v % 12) // 3 * 3 + v % 3", "v % 12")
  check("(v + 5) // 4 * 4 + (v + 5) % 4", "v + 5")
  check("(a0 * 8 + w) // 4 * 4 + (a0 * 8 + w) % 4", "w + a0 * 8")
  check("v - v // 4 * 4", "v % 4")
})

describe("comparison", () => {
  check("a0 < 16", "true")
  check("a0 < 0", "false")
  check("v < v", "false")
  check("v < v + 1", "true")
  check("v == v", "true")
  check("v != v", "false")
  check("v == v + 1", "false")
  check("a0 == 16", "false")
  check("3 < v", "!(v < 4)")
  check("v + 2 < 5", "v < 3")
  check("v * 3 < 7", "v < 3")
  check("v * -3 < 7", "!(v < -2)")
  check("v // 3 < 2", "v < 6")
  check("v // 3 + w < 2", "v + w * 3 < 6")
  check("a0 * 4 + c0 < 16", "a0 < 4")
  check("a0 * 4 + c0 < 17", "a0 * 4 + c0 < 17")
  check("a0 * 4 + d0 + 1 < 17", "a0 < 4")
  check("v * 2 == 5", "false")
  check("v * 2 == 6", "v == 3")
  check("v != 3", "!(v == 3)")
  check("s0 < n", "true")
  check("s0 == n", "false")
  check("v < w + 2", "!(w < v + -1)")
  check("w < v", "w < v")
})

describe("max and min", () => {
  check("max(v, v)", "v")
  check("max(v, v + 1)", "v + 1")
  check("min(v, v + 1)", "v")
  check("max(a0, 15)", "15")
  check("min(a0, 15)", "a0")
  check("max(a0, 0)", "a0")
  check("max(max(v, 2), 3)", "max(v, 3)")
  check("min(min(v, 2), 3)", "min(v, 2)")
  check("max(2, v)", "max(v, 2)")
  check("max(w, v)", "max(v, w)")
  check("min(s0, n)", "s0")
})

describe("conditions", () => {
  check("p & true", "p")
  check("p & false", "false")
  check("p | true", "true")
  check("p | false", "p")
  check("p & p", "p")
  check("p | p", "p")
  check("!!p", "p")
  check("p & !p", "false")
  check("p | !p", "true")
  check("p & (p | q)", "p")
  check("p | (p & q)", "p")
  check("p == true", "p")
  check("p == false", "!p")
  check("p != false", "p")
  check("v < 3 & v < 5", "v < 3")
  check("v < 3 & !(v < 5)", "false")
  check("v < 3 | v < 5", "v < 5")
  check("v < 5 | !(v < 3)", "true")
  check("v < 3 & v + w < 100", "v < 3")
  check("v == 3 & v < 5", "v == 3")
  check("v == 3 & v < 3", "false")
  check("v + w < 3 & v + w < 5", "v + w < 3")
})

describe("choices", () => {
  check("true ? v : w", "v")
  check("false ? v : w", "w")
  check("p ? v : v", "v")
  check("!p ? v : w", "p ? w : v")
  check("p ? true : false", "p")
  check("p ? false : true", "!p")
  check("p ? q : false", "p & q")
  check("p ? true : q", "p | q")
  check("p ? (p ? v : 1) : w", "p ? v : w")
  check("p ? v : (p ? 1 : w)", "p ? v : w")
  check("p ? (q ? v : w) : w", "p & q ? v : w")
  check("p ? v : (q ? v : w)", "p | q ? v : w")
  check("b0 < 4 ? b0 // 4 : b0", "b0 < 4 ? 0 : b0")
  check("b0 < 4 ? b0 : b0 // 4", "b0 < 4 ? b0 : 1")
  check("a0 * 8 + b0 < 16 ? (a0 * 8 + b0) // 16 : 7", "a0 < 2 ? 0 : 7")
})

describe("machine integers", () => {
  check("i32(v) + i32(0)", "i32(v)")
  check("i32(v) * i32(1)", "i32(v)")
  check("i32(v) * i32(0)", "i32(0)")
  check("i32(v) - i32(v)", "i32(0)")
  check("i32(2147483647) + i32(1)", "i32(-2147483648)")
  check("i32(65536) * i32(65536)", "i32(0)")
  check("u32(1) - u32(2)", "u32(4294967295)")
  check("(i32(v) + i32(3)) + i32(4)", "i32(v) + i32(7)")
  check("(i32(v) - i32(3)) - i32(4)", "i32(v) - i32(7)")
  check("(i32(v) + i32(3)) + i32(w)", "(i32(v) + i32(w)) + i32(3)")
  check("i32(3) + i32(v)", "i32(v) + i32(3)")
  check("(u32(v) & u32(255)) & u32(15)", "u32(v) & u32(15)")
  check("(u32(v) >> u32(4)) >> u32(8)", "u32(v) >> u32(12)")
  check("(u32(v) >> u32(20)) >> u32(12)", "u32(0)")
  check("(i32(v) >> i32(20)) >> i32(12)", "i32(v) >> i32(31)")
  check("(u32(v) >> u32(28)) & u32(15)", "u32(v) >> u32(28)")
  check("(u32(v) & u32(240)) >> u32(4)", "(u32(v) >> u32(4)) & u32(15)")
  check("(u32(v) & u32(4294967280)) >> u32(4)", "u32(v) >> u32(4)")
  check("(u32(v) << u32(24)) >> u32(24)", "u32(v) & u32(255)")
  check("(u32(v) >> u32(8)) << u32(8)", "u32(v) & u32(4294967040)")
  check("u32(v) ^ u32(v)", "u32(0)")
  check("i32(v) & i32(-1)", "i32(v)")
  check("max(i32(a0), i32(20))", "i32(20)")
  check("i32(a0) % i32(16)", "i32(a0)")
  check("i32(a0) < i32(16)", "true")
  check("i32(u32(i32(v)))", "i32(v)")
})

describe("floats, exact for every value", () => {
  check("x * 1.0", "x")
  check("x / 1.0", "x")
  check("x - 0.0", "x")
  check("x + -0.0", "x")
  check("-(-x)", "x")
  check("x + (-y)", "x - y")
  check("x - (-y)", "x + y")
  check("x / 4.0", "x * 0.25")
  check("2.0 * x", "x * 2.0")
  check("max(x, x)", "x")
  check("x < x", "false")
  check("!(x == y)", "x != y")
  check("1.5 * 2.0", "3.0")
  check("16777216.0 + 1.0", "16777216.0")
  keep("x + 0.0") // -0 + 0 is 0
  keep("x * 0.0") // NaN and infinities
  keep("x / 3.0")
  keep("(x + 1.5) + 2.5")
  keep("x == x") // NaN
  keep("x - x")
  keep("!(x < y)") // NaN
})

const f32Param = (slot: number): UOp => arena.make("PARAM", DType.f32, [Expr.int(arena, 256)], { slot })
const simplified = (node: UOp): string => Print.expression(Symbolic.simplify(node))

describe("memory", () => {
  const b = f32Param(0)
  it("opens and closes gates that are known", () => {
    const at = parse("a0 * 8 + b0")
    expect(simplified(Expr.load(Expr.element(b, at, parse("a0 < 16"))))).toBe("p0[((r0 * 8) + r20)]")
    expect(simplified(Expr.load(Expr.element(b, at, parse("a0 < 0"))))).toBe("0")
  })
  it("simplifies an index where its gate holds", () => {
    const element = Expr.element(b, parse("(a0 * 8 + b0) % 32"), parse("a0 < 4"))
    expect(simplified(element)).toBe("p0[((r0 * 8) + r20) if (r0 < 4)]")
  })
  it("keeps the gate of a load inside an index", () => {
    const gate = parse("a0 < 4")
    const inner = Expr.cast(
      Expr.load(Expr.element(arena.make("PARAM", DType.i32, [], { slot: 1 }), parse("a0"), gate)),
      DType.index
    )
    const outer = Expr.element(b, inner, gate)
    expect(simplified(outer)).toBe("p0[index(p1[r0 if (r0 < 4)]) if (r0 < 4)]")
  })
  it("drops loops that run once, but not loops that may not run", () => {
    const once = Expr.range(arena, 1, 90, "REDUCE")
    const none = Expr.range(arena, Expr.variable(arena, "z", 0, 1), 91, "REDUCE")
    const value = Expr.load(Expr.element(b, Expr.add(once, none)))
    const after = Symbolic.simplify(Expr.reduce("ADD", value, [once, none]))
    expect(after.op).toBe("REDUCE")
    expect(after.src.slice(1)).toEqual([none])
    expect(simplified(Expr.reduce("ADD", Expr.load(Expr.element(b, once)), [once]))).toBe("p0[0]")
  })
  it("keeps a kernel well formed, with its stores in order", () => {
    const [i, one] = [Expr.range(arena, 8, 92, "GLOBAL"), Expr.range(arena, 1, 93, "GLOBAL")]
    const end = (slot: number): UOp =>
      arena.make("END", DType.none, [
        Expr.store(Expr.element(f32Param(slot), Expr.add(i, one)), Expr.load(Expr.element(b, i))),
        i,
        one
      ])
    const after = Symbolic.simplify(arena.make("SINK", DType.none, [end(3), end(2)], { name: "two" }))
    expect(Spec.check("kernel", after)).toEqual([])
    expect(after.src.map((e) => (e.src[0]!.src[0]!.src[0]!.arg as { slot: number }).slot)).toEqual([3, 2])
    expect(toposort(after)).not.toContain(one)
  })
  it("takes lanes out of stacks and puts them together", () => {
    const v = arena.make("LOAD", DType.make("f32", 4), [Expr.element(b, parse("a0 * 4"))])
    const lanes = [0, 1, 2, 3].map((i) => arena.make("LANE", DType.f32, [v], i))
    expect(Symbolic.simplify(arena.make("STACK", v.dtype, lanes))).toBe(v)
    const stack = arena.make("STACK", DType.make("f32", 2), lanes.slice(0, 2))
    expect(Symbolic.simplify(arena.make("LANE", DType.f32, [stack], 1))).toBe(lanes[1])
  })
  it("works on vectors of constants", () => {
    const v = arena.make("LOAD", DType.make("f32", 4), [Expr.element(b, parse("a0 * 4"))])
    expect(Symbolic.simplify(Expr.mul(v, 1))).toBe(v)
    expect(Print.expression(Symbolic.simplify(Expr.mul(Expr.like(v, 3), 2)))).toBe("stack(6, 6, 6, 6)")
  })
})

describe("tensor constants keep their shape", () => {
  it("folds", () => {
    const two = arena.make("CONST", DType.f32, [Expr.int(arena, 3)], 2)
    expect(Symbolic.simplify(Expr.alu("MUL", two, two))).toBe(arena.make("CONST", DType.f32, [Expr.int(arena, 3)], 4))
  })
  it("leaves index tensors to the tensor stage", () => {
    const iota = arena.make("IOTA", DType.index, [Expr.int(arena, 3)])
    const sum = Expr.add(iota, arena.make("CONST", DType.index, [Expr.int(arena, 3)], 0))
    expect(Symbolic.simplify(sum)).toBe(sum)
  })
})

describe("helpers", () => {
  it("divisor", () => {
    expect(Symbolic.divisor(parse("a0 * 12 + b0 * 8 + 4"))).toBe(4)
    expect(Symbolic.divisor(parse("(a0 * 8 + b0) // 8 * 16"))).toBe(16)
    expect(Symbolic.divisor(parse("v * 8 % 64"))).toBe(8)
    expect(Symbolic.divisor(parse("p ? v * 8 : w * 12"))).toBe(4)
    expect(Symbolic.divisor(parse("v - v"))).toBe(0)
  })
  it("difference", () => {
    expect(Symbolic.difference(parse("(v + 3) * 2"), parse("v * 2 + 1"))).toBe(5)
    expect(Symbolic.difference(parse("v"), parse("w"))).toBeUndefined()
  })
  it("simplifyUnder", () => {
    const under = (condition: string, x: string): string =>
      Print.expression(Symbolic.simplifyUnder(parse(condition), parse(x)))
    expect(under("a0 < 4", "a0 // 4")).toBe("0")
    expect(under("!(a0 < 8)", "a0 // 8")).toBe("1")
    expect(under("a0 == 3", "a0 * 2 + b0")).toBe("(r20 + 6)")
    expect(under("a0 * 8 + b0 < 12", "(a0 * 8 + b0) // 12")).toBe("0")
    expect(under("!(v < 0) & v < 8", "v % 8")).toBe("v")
    expect(under("v + w < 4 & !(v + w < 0)", "(v + w) % 4")).toBe("(v + w)")
    expect(under("p", "p ? v : w")).toBe("v")
  })
  it("is deterministic: the order of construction does not matter", () => {
    const first = parser(new Arena()).parse("(a0 * 16 + a1) % 32 + w * v")
    const other = parser(new Arena())
    other.parse("v + w + a1")
    const second = other.parse("(a1 + a0 * 16) % 32 + v * w")
    expect(Print.graph(Symbolic.simplify(first))).toBe(Print.graph(Symbolic.simplify(second)))
  })
  it("traces rules by name", () => {
    const names: Array<string> = []
    Symbolic.simplify(parse("(v + 0) // 1"), { trace: (rule) => names.push(rule) })
    expect(names).toEqual(["index/sum", "index/divide"])
  })
})
