/** Where values that are read again are stored: feature by feature, if they are of whole tiles of tokens. */
import type { Tensor } from "@tg/tensor/Tensor"
import type * as Shape from "@tg/core-uop/Shape"
import type { UOp } from "@tg/core-uop/UOp"
import { piecesOf } from "./AxisPieces.ts"

/** Tokens of a tile. */
const tile = 16

/** Whether there are whole tiles of it, as many as a step has. */
export const isTiles = (size: Shape.Dim): boolean => typeof size !== "number" && piecesOf(size, tile) !== undefined

/** The variables that say how many tiles of tokens there are. */
export const tileCounts = (nodes: ReadonlyArray<UOp>): ReadonlySet<UOp> =>
  new Set(
    nodes.flatMap(({ op, src }) =>
      op === "MUL" && src.some((s) => s.op === "CONST" && Number(s.arg) === tile)
        ? src.filter((s) => s.op === "VAR")
        : []
    )
  )

/** The axis of which there are whole tiles. */
const tiledAxis = (x: Tensor): number => x.shape.findIndex(isTiles)

/** Whether a value is one of whole tiles of tokens. */
export const isTiled = (x: Tensor): boolean => tiledAxis(x) >= 0

/** The value, stored: with tokens that share a tile side by side. */
export const stored = (x: Tensor): Tensor => {
  const axis = tiledAxis(x)
  if (axis < 0) return x.contiguous()
  const order = [...x.shape.keys()].filter((i) => i !== axis).concat(axis)
  return x.permute(order).contiguous().permute([...x.shape.keys()].map((i) => order.indexOf(i)))
}
