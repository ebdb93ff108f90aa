import type { UOp } from "@tg/core-uop/UOp"
import { type Helper } from "./helpers.ts"
import { atom, compound, literalText, Refusal, type Text } from "./text.ts"

const largest = 3.4028234663852886e38

/** The shortest decimal that reads back as the same 32-bit float. WGSL rejects one above the largest float, however close. */
const decimal = (value: number): string => {
  const text = String(
    [1, 2, 3, 4, 5, 6, 7, 8, 9].map((digits) => Number(value.toPrecision(digits)))
      .find((short) => Math.fround(short) === value && Math.abs(short) <= largest) ?? value
  )
  return /[.e]/.test(text) ? text : `${text}.0`
}

const float = (value: number, use: (helper: Helper) => void): Text => {
  const x = Math.fround(value)
  if (Number.isNaN(x)) {
    use("nan")
    return atom("f32_nan")
  }
  if (!Number.isFinite(x)) {
    use("inf")
    return x > 0 ? atom("f32_inf") : compound("-f32_inf")
  }
  if (Object.is(x, -0)) {
    use("negative_zero")
    return atom("f32_negative_zero")
  }
  return literalText(decimal(x))
}

/** The text of a scalar constant. */
export const literal = (node: UOp, use: (helper: Helper) => void): Text => {
  const value = Number(node.arg)
  switch (node.dtype.scalar) {
    case "bool":
      return literalText(value !== 0 ? "true" : "false")
    case "f32":
      return float(value, use)
    case "u32":
      if (!Number.isInteger(value) || value < -(2 ** 31) || value >= 2 ** 32) throw new Refusal(`${value} is not a u32`)
      return literalText(`${value >>> 0}u`)
    default:
      // -2147483648i is not WGSL (the minus applies to a number that is no i32), so i32 literals carry no suffix
      if (!Number.isInteger(value) || value < -(2 ** 31) || value >= 2 ** 31) {
        throw new Refusal(`${value} does not fit the 32 bits of an ${node.dtype.scalar}`)
      }
      return literalText(String(value + 0))
  }
}
