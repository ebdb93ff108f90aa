/** Tiles of a kernel, on matrix units, too: there a workgroup computes an operand once for a tile of rows and columns. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import { type Iterations, type Phase, type Tiled, tiledTokens } from "./Tiles.ts"

/** Rows, and columns, that a workgroup computes. */
const tile = 64

const isHalf = ({ op }: UOp): boolean => op === "HALF_TO_FLOAT"

/** Loops of constant size around a product of halves, the innermost first, as many as fill the tile of a workgroup; none where matrix units compute no such product. */
export const tiledProduct = (
  { end, nodes }: Phase,
  iterations: Iterations,
  { matrixUnits }: DeviceProfile
): Tiled | undefined => {
  if (matrixUnits !== true) return undefined
  const [sum, ...others] = nodes.filter(({ op }) => op === "REDUCE")
  const product = others.length > 0 ? undefined : sum?.src[0]
  if (product?.op !== "MUL" || !product.src.every(isHalf)) return undefined
  let left = tile ** 2
  return new Map(
    end.src.slice(1).toReversed().filter((loop) => loop.src[0]!.op === "CONST").map((loop) => {
      const own = Math.min(iterations([loop]), tile, left)
      left /= own
      return [loop, own]
    })
  )
}

/** The loops that are tiled of a kernel that stages nothing. */
export const tiledLoops = (phase: Phase, iterations: Iterations, profile: DeviceProfile): Tiled =>
  tiledProduct(phase, iterations, profile) ?? tiledTokens(phase, iterations)
