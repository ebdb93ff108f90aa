/** Loops of a kernel of which a thread, or a workgroup, computes several iterations at once. */
import { openRanges, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"

/** Loops that are tiled, with the iterations of a tile. */
export type Tiled = ReadonlyMap<UOp, number>

/** None. */
export const untiled: Tiled = new Map()

/** Whether a node loads from an argument of the kernel. */
export const loadsBuffer = (node: UOp): boolean => node.op === "LOAD" && accessOf(node).buffer.op === "PARAM"

/** Iterations of nested loops, but for some of them. */
export type Iterations = (ranges: Iterable<UOp>, without?: ReadonlySet<UOp>) => number

/** An END of a kernel, and its nodes, sources first. */
export interface Phase {
  readonly end: UOp
  readonly nodes: ReadonlyArray<UOp>
}

/** The most tokens of a register tile. */
export const tileTokens = 16
/** The most tiles, and the fewest rows beside them. */
const mostTiles = 2
const fewestRows = 128

/** What fits a tile, or fills several. */
const areFew = (tokens: number): boolean =>
  tokens <= tileTokens || tokens <= mostTiles * tileTokens && tokens % tileTokens === 0

/**
 * The loop over a few tokens of a product that stages nothing, with those of a register tile, which is a row for as many of them
 * (`@tg/heuristics/Few`): what depends on the row alone is loaded and computed once. Weights are invariant in it, activations are not.
 */
export const tiledTokens = ({ end, nodes }: Phase, iterations: Iterations): Tiled => {
  if (!nodes.some((node) => node.op === "REDUCE")) return untiled
  const read = nodes.filter(loadsBuffer).map((load) => openRanges(accessOf(load).at))
  const loops = end.src.slice(1)
  // tiles of prompts, of which there is a symbolic number, are counted as their threads were measured
  if (loops.some((loop) => loop.src[0]!.op !== "CONST")) return untiled
  const isRow = (row: UOp, tokens: UOp): boolean => {
    const both = read.filter((open) => open.has(row))
    return row !== tokens && both.length > 0 && both.every((open) => !open.has(tokens))
  }
  const tokens = loops.find((loop) =>
    areFew(iterations([loop])) && read.some((open) => open.has(loop)) &&
    iterations(loops.filter((row) => isRow(row, loop))) >= fewestRows
  )
  return tokens === undefined ? untiled : new Map([[tokens, Math.min(tileTokens, iterations([tokens]))]])
}
