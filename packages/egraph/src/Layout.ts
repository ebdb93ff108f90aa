/** Where values that are read again are stored: feature by feature, if they are of whole tiles of tokens. */
import type { Tensor } from "@tg/tensor/Tensor"
import { piecesOf } from "./Axis.ts"

/** Tokens of a tile. */
const tile = 16

/** The axis of which there are whole tiles, as many as a step has. */
const tiledAxis = (x: Tensor): number =>
  x.shape.findIndex((size) => typeof size !== "number" && piecesOf(size, tile) !== undefined)

/** Whether a value is one of whole tiles of tokens. */
export const isTiled = (x: Tensor): boolean => tiledAxis(x) >= 0

/** The value, stored: with tokens that share a tile side by side. */
export const stored = (x: Tensor): Tensor => {
  const axis = tiledAxis(x)
  if (axis < 0) return x.contiguous()
  const order = [...x.shape.keys()].filter((i) => i !== axis).concat(axis)
  return x.permute(order).contiguous().permute([...x.shape.keys()].map((i) => order.indexOf(i)))
}
