/** Axes as pieces of equal size. */
import type * as Shape from "@tg/core-uop/Shape"
import { Tensor } from "@tg/tensor/Tensor"

/** Positions of a page of a cache: programs look at whole pages. */
export const page = 64

/** An axis of so many pieces of equal size: how many; none where the size does not say that it divides. */
export const piecesOf = (size: Shape.Dim, piece: number): Shape.Dim | undefined => {
  if (typeof size === "number") return size > piece && size % piece === 0 ? size / piece : undefined
  if (size.op !== "MUL") return undefined
  const factor = size.src.find((s) => s.op === "CONST")
  const other = size.src.find((s) => s.op !== "CONST")
  if (factor === undefined || other === undefined || Number(factor.arg) % piece !== 0) return undefined
  const rest = Number(factor.arg) / piece
  return rest === 1 ? other : new Tensor(other).mul(rest).node
}
