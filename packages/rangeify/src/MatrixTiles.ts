/** Tiles of a kernel, on matrix units, too: there a workgroup computes an operand once for a tile of rows and columns. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import { type Iterations, type Phase, type Tiled, tiledTokens } from "./Tiles.ts"

/** Rows, and columns, that a workgroup computes. */
const tile = 64

const isHalf = ({ op }: UOp): boolean => op === "HALF_TO_FLOAT"

const isReduction = ({ op }: UOp): boolean => op === "REDUCE"

/** What matrix units multiply: the terms of sums of products of halves. */
const productsOf = ({ nodes }: Phase, { matrixUnits }: DeviceProfile): ReadonlyArray<UOp> =>
  matrixUnits === true
    ? nodes.filter(isReduction).map(({ src }) => src[0]!).filter(({ op, src }) => op === "MUL" && src.every(isHalf))
    : []

/** Loops of constant size around a product of halves, the innermost first, as many as fill the tile of a workgroup; none where matrix units compute no such product. */
export const tiledProduct = (
  phase: Phase,
  iterations: Iterations,
  profile: DeviceProfile
): Tiled | undefined => {
  if (productsOf(phase, profile).length === 0) return undefined
  let left = tile ** 2
  return new Map(
    phase.end.src.slice(1).toReversed().filter((loop) => loop.src[0]!.op === "CONST").map((loop) => {
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
export const productsIn = (phase: Phase, profile: DeviceProfile): ReadonlyMap<UOp, number> =>
  new Map(productsOf(phase, profile).map((product) => [product, 1 / ofUnits]))

/** The loops that are tiled of a kernel that stages nothing: matrix units compute one product, and nothing beside it. */
export const tiledLoops = (phase: Phase, iterations: Iterations, profile: DeviceProfile): Tiled =>
  (phase.nodes.filter(isReduction).length === 1 ? tiledProduct(phase, iterations, profile) : undefined) ??
    tiledTokens(phase, iterations)
