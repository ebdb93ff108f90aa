/** What a workgroup computes of a product by matrix units: a tile of fragments, `left [rows, depth]` times `right [depth, columns]`. */
import * as Expr from "./Expr.ts"
import type { UOp } from "./UOp.ts"

/** Rows, columns and depth of a fragment. */
export const side = 16

/** Which operand of a product of matrices, `[rows, depth]` times `[depth, columns]`. */
export type Side = "left" | "right"
/** Whether neighbours in memory are of one row or of one column of a fragment. */
export type Along = "row" | "column"
/** A fragment of a subgroup of so many threads. */
export type FragmentArg = { readonly id: number; readonly threads: number }
/** An operand of the product of this number; elements of the buffer from one row (column) to the next. */
export type FragmentLoadArg = {
  readonly id: number
  readonly side: Side
  readonly along: Along
  readonly stride: number
  readonly threads: number
}
export type FragmentStoreArg = { readonly along: Along; readonly stride: number }

/** An operand in workgroup memory: words of two halves. */
export interface Staged {
  /** Whether neighbouring halves are of one row, or of one column. */
  readonly along: Along
  /** Words from one row (column) to the next. */
  readonly stride: number
}

/**
 * Which results of a row (column) of a fragment a thread stores together: four neighbours; every other one of eight, as words of a cache have halves that are
 * four apart; or one.
 */
export type Together = "adjacent" | "alternate" | "one"
const togethers = ["one", "adjacent", "alternate"] as const

/** The place in a row of number `i` of four results that the thread `at` of a row stores together. */
export const placeTogether = (together: Together, at: UOp, i: UOp | number): UOp =>
  together === "adjacent"
    ? Expr.add(Expr.mul(at, 4), i)
    : together === "alternate"
    ? Expr.add(
      Expr.add(Expr.mul(Expr.shr(at, 1), 8), Expr.and(at, 1)),
      Expr.mul(typeof i === "number" ? Expr.int(at.arena, i) : i, 2)
    )
    : at

/** A tile. Subgroups are a grid over it, of which each has a block of fragments. */
export interface MatrixTile {
  /** Threads of a subgroup. */
  readonly threads: number
  /** Subgroups along rows and along columns. */
  readonly subgroups: readonly [number, number]
  /** Fragments of a subgroup along rows and along columns. */
  readonly fragments: readonly [number, number]
  /** Terms of the reduction that are staged at a time: a step. */
  readonly depth: number
  readonly left: Staged
  readonly right: Staged
  /** Whether neighbouring threads store neighbours of a row or of a column of the result. */
  readonly result: Along
  readonly together: Together
}

const numberOf = (along: Along): number => along === "row" ? 0 : 1
const alongOf = (number: number): Along => number === 0 ? "row" : "column"

/** As the arg of a reduction has it. */
export const encode = (tile: MatrixTile): ReadonlyArray<number> => [
  tile.threads,
  ...tile.subgroups,
  ...tile.fragments,
  tile.depth,
  numberOf(tile.left.along),
  tile.left.stride,
  numberOf(tile.right.along),
  tile.right.stride,
  numberOf(tile.result),
  togethers.indexOf(tile.together)
]

/** The tile that an arg says. */
export const decode = (numbers: ReadonlyArray<number>): MatrixTile => {
  let at = 0
  const next = (): number => numbers[at++]!
  const along = (): Along => alongOf(next())
  return {
    threads: next(),
    subgroups: [next(), next()],
    fragments: [next(), next()],
    depth: next(),
    left: { along: along(), stride: next() },
    right: { along: along(), stride: next() },
    result: along(),
    together: togethers[next()]!
  }
}
