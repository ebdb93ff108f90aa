/** Tiles of a kernel, on matrix units, too: there a workgroup computes an operand once for a tile of rows and columns. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import { type Iterations, type Phase, type Tiled, tiledTokens } from "./Tiles.ts"

/** Rows, and columns, that a workgroup computes. */
const tile = 64

const isHalf = ({ op }: UOp): boolean => op === "HALF_TO_FLOAT"

const isSum = ({ op }: UOp): boolean => op === "REDUCE"

const isProduct = ({ src: [product] }: UOp): boolean => product!.op === "MUL" && product!.src.every(isHalf)

/** Loops of constant size around a product of halves, the innermost first, as many as fill the tile of a workgroup; none where matrix units compute no such product. */
export const tiledProduct = (
  { end, nodes }: Phase,
  iterations: Iterations,
  { matrixUnits }: DeviceProfile
): Tiled | undefined => {
  if (matrixUnits !== true || !nodes.some((node) => isSum(node) && isProduct(node))) return undefined
  let left = tile ** 2
  return new Map(
    end.src.slice(1).toReversed().filter((loop) => loop.src[0]!.op === "CONST").map((loop) => {
      const own = Math.min(iterations([loop]), tile, left)
      left /= own
      return [loop, own]
    })
  )
}

/**
 * Products of halves in the time of an operation: fragments alone reach 370 TFLOP/s on an H100, of whose other units 61 are counted. What stages them is counted
 * besides.
 */
const ofUnits = 6

/** Operations of a multiplication: of one that matrix units compute, a part. */
export const productsIn = ({ nodes }: Phase, { matrixUnits }: DeviceProfile): ReadonlyMap<UOp, number> =>
  new Map(
    matrixUnits === true
      ? nodes.filter((node) => isSum(node) && isProduct(node)).map(({ src }) => [src[0]!, 1 / ofUnits] as const)
      : []
  )

/** The loops that are tiled of a kernel that stages nothing: matrix units compute one product, and nothing beside it. */
export const tiledLoops = (phase: Phase, iterations: Iterations, profile: DeviceProfile): Tiled =>
  (phase.nodes.filter(isSum).length === 1 ? tiledProduct(phase, iterations, profile) : undefined) ??
    tiledTokens(phase, iterations)
