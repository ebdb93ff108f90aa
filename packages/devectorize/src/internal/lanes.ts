/** Expanded loops as copies and vector lanes. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { RendererCaps } from "@tg/core-uop/Program"
import { openRanges, rangeArg, type UOp } from "@tg/core-uop/UOp"
import { fixedSize } from "@tg/core-uop/View"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"

/** Lanes of a vector. */
export const width = 4

/** The value of an expanded loop variable: one of its values, or all of them as vector lanes. */
export type Lane = number | "lanes"

/** The values of expanded loop variables at a place. */
export type Env = ReadonlyMap<UOp, Lane>

/** The pass, as its parts see it. */
export interface Expansion {
  readonly caps: Pick<RendererCaps, "hasGrid">
  /** Whether the device has vectors of `width` lanes. */
  readonly vectors: boolean
  /** A node at a place. */
  readonly expanded: (node: UOp, env: Env) => UOp
}

export const axisOf = (range: UOp): string => rangeArg(range).axis
export const isExpanded = (range: UOp): boolean => axisOf(range) === "UPCAST" || axisOf(range) === "UNROLL"
export const sizeOf = (range: UOp): number => Number(range.src[0]!.arg)
/** Whether a loop can become the lanes of a vector. */
export const isWide = (range: UOp): boolean => isExpanded(range) && fixedSize(range) === width

/** All assignments of values to the ranges, the last one fastest. */
export const assignments = (ranges: ReadonlyArray<UOp>): ReadonlyArray<ReadonlyArray<readonly [UOp, number]>> =>
  ranges.reduce<ReadonlyArray<ReadonlyArray<readonly [UOp, number]>>>(
    (list, range) =>
      list.flatMap((head) => Array.from({ length: sizeOf(range) }, (_, i) => [...head, [range, i] as const])),
    [[]]
  )

export const bind = (env: Env, entries: Iterable<readonly [UOp, Lane]>): Env => new Map([...env, ...entries])

/** Whether all elements are the same. */
export const same = <A>(list: ReadonlyArray<A>): boolean => list.every((x) => x === list[0])

/** The open range that stands for lanes at this node. */
export const lanesRange = (node: UOp, env: Env): UOp | undefined => {
  for (const range of openRanges(node)) if (env.get(range) === "lanes") return range
  return undefined
}

/** A result for each lane. */
export const perLane = <A>(range: UOp, env: Env, f: (env: Env) => A): ReadonlyArray<A> =>
  Array.from({ length: width }, (_, i) => f(bind(env, [[range, i]])))

/** A vector of these lanes; a scalar if all are the same. */
export const stack = (lanes: ReadonlyArray<UOp>): UOp => {
  const first = lanes[0]!
  return same(lanes) ? first : first.arena.make("STACK", DType.withLanes(first.dtype, width), lanes)
}

/** The node with this many lanes: itself, or broadcast. */
export const widened = (x: UOp, lanes: DType.Lanes): UOp => x.dtype.lanes === lanes ? x : Expr.splat(x, lanes)

/** An index at a place, simplified. */
export const indexAt = ({ expanded }: Expansion, node: UOp, env: Env): UOp => Symbolic.simplify(expanded(node, env))

/** An element of memory at a place, whose index and gate are simplified. */
export const elementAt = (
  x: Expansion,
  { at, buffer, gate }: { readonly buffer: UOp; readonly at: UOp; readonly gate: UOp | undefined },
  env: Env
): UOp => Expr.element(buffer, indexAt(x, at, env), gate === undefined ? undefined : indexAt(x, gate, env))
