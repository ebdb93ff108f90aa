import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { Op } from "@tg/core-uop/Op"
import type { Arena, UOp } from "@tg/core-uop/UOp"

const binary: ReadonlyArray<Readonly<Record<string, Op>>> = [
  { "|": "OR" },
  { "^": "XOR" },
  { "&": "AND" },
  { "==": "CMPEQ", "!=": "CMPNE", "<": "CMPLT" },
  { "<<": "SHL", ">>": "SHR" },
  { "+": "ADD", "-": "SUB" },
  { "*": "MUL", "//": "FLOORDIV", "/": "FDIV", "%": "FLOORMOD" }
]

const loops: Readonly<Record<string, readonly [size: number, firstId: number]>> = {
  a: [16, 0],
  b: [8, 20],
  c: [4, 40],
  d: [1, 60]
}

/**
 * Reads expressions for tests. `a0` is a loop of 16, `b0` of 8, `c0` of 4, `d0` of 1, `s0` of `n`; `v`, `w` and `n` are
 * small variables, `p` and `q` conditions, `x` and `y` floats. `!` binds tightly, `? :` loosely.
 */
export const parser = (arena: Arena): { readonly parse: (text: string) => UOp } => {
  const flag = (name: string): UOp => Expr.lt(Expr.variable(arena, name, 0, 1), 1)
  const named = (name: string): UOp => {
    const loop = loops[name[0]!]
    if (loop !== undefined && name.length > 1) {
      return Expr.range(arena, loop[0], loop[1] + Number(name.slice(1)), "GLOBAL")
    }
    const n = Expr.variable(arena, "n", 1, 7)
    switch (name) {
      case "v":
        return Expr.variable(arena, "v", -9, 9)
      case "w":
        return Expr.variable(arena, "w", -3, 20)
      case "n":
        return n
      case "s0":
        return Expr.range(arena, n, 80, "REDUCE")
      case "p":
      case "q":
        return flag(name)
      case "true":
      case "false":
        return Expr.constant(arena, DType.bool, name === "true")
      case "x":
      case "y": {
        const buffer = arena.make("PARAM", DType.f32, [Expr.int(arena, 1)], { slot: name === "x" ? 8 : 9 })
        return Expr.load(Expr.element(buffer, Expr.int(arena, 0)))
      }
      default:
        throw new Error(`no variable ${name}`)
    }
  }

  const parse = (text: string): UOp => {
    const tokens = text.match(/[a-z]+\d*|\d+(?:\.\d+)?|\/\/|==|!=|<<|>>|./g)!.filter((t) => t.trim() !== "")
    let at = 0
    const take = (token: string): boolean => tokens[at] === token && ++at > 0
    const expect = (token: string): void => {
      if (!take(token)) throw new Error(`${text}: wanted ${token} at ${tokens.slice(at).join(" ")}`)
    }
    const atom = (): UOp => {
      const token = tokens[at++]!
      if (token === "(") {
        const x = choice()
        expect(")")
        return x
      }
      if (token === "!") return Expr.not(atom())
      if (token === "-") {
        if (/^\d/.test(tokens[at] ?? "")) return number(`-${tokens[at++]}`)
        return Expr.neg(atom())
      }
      if (/^\d/.test(token)) return number(token)
      if (token === "i32" || token === "u32") {
        expect("(")
        const x = choice()
        expect(")")
        const dtype = DType.make(token)
        return x.op === "CONST" ? Expr.constant(arena, dtype, Number(x.arg)) : Expr.cast(x, dtype)
      }
      if (token === "max" || token === "min") {
        expect("(")
        const a = choice()
        expect(",")
        const b = choice()
        expect(")")
        return Expr.alu(token === "max" ? "MAX" : "MIN", a, b)
      }
      return named(token)
    }
    const number = (token: string): UOp =>
      token.includes(".") ? Expr.constant(arena, DType.f32, Number(token)) : Expr.int(arena, Number(token))
    const level = (i: number): UOp => {
      if (i === binary.length) return atom()
      let left = level(i + 1)
      for (;;) {
        const op = binary[i]![tokens[at] ?? ""]
        if (op === undefined) return left
        at++
        left = Expr.alu(op, left, level(i + 1))
      }
    }
    const choice = (): UOp => {
      const condition = level(0)
      if (!take("?")) return condition
      const a = choice()
      expect(":")
      return Expr.where(condition, a, choice())
    }
    const result = choice()
    if (at < tokens.length) throw new Error(`${text}: ${tokens[at]} is left over`)
    return result
  }
  return { parse }
}
