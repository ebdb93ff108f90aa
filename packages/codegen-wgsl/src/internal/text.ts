import type { DType } from "@tg/core-uop/DType"
import type { UOp } from "@tg/core-uop/UOp"

/** WGSL text of a value. */
export interface Text {
  readonly code: string
  /** True when the text can be an operand, or be followed by `.x`, without parentheses. */
  readonly atom: boolean
  /** True for a constant expression: WGSL evaluates those when it compiles, and rejects overflow in them. */
  readonly constant: boolean
}

/** A name, a call or a literal. */
export const atom = (code: string): Text => ({ code, atom: true, constant: false })
/** An expression with an operator at the top. */
export const compound = (code: string): Text => ({ code, atom: false, constant: false })
export const literalText = (code: string): Text => ({ code, atom: !code.startsWith("-"), constant: true })

/** Whether the text is a name, or a number: nothing is gained by another name. */
export const isName = ({ code }: Text): boolean => /^\w+$/.test(code)

/** The text as an operand. */
export const operand = (text: Text): string => text.atom ? text.code : `(${text.code})`

const letters = "xyzw"
/** One lane of a value. */
export const laneOf = (text: Text, lanes: number, i: number): string =>
  lanes === 1 ? text.code : `${operand(text)}.${letters[i]}`

/** The WGSL name of a type. */
export const typeName = (dtype: DType): string => {
  const scalar = dtype.scalar === "index" ? "i32" : dtype.scalar
  return dtype.lanes === 1 ? scalar : `vec${dtype.lanes}<${scalar}>`
}

/** The value of a constant, or of a vector with the same constant in every lane. */
export const splatValue = (node: UOp): number | undefined => {
  if (node.op === "CONST") return Number(node.arg)
  if (node.op !== "STACK" || node.src.some((s) => s !== node.src[0])) return undefined
  return splatValue(node.src[0]!)
}

/** A kernel that WGSL cannot express. Thrown deep inside of it, caught by `render`, which returns a `RenderError`. */
export class Refusal extends Error {}

/** A line in so many blocks. */
export const indented = (depth: number, line: string): string => `${"  ".repeat(depth)}${line}`
