import { Schema } from "effect"

/**
 * One step of a kernel's schedule: strip-mines the loop `range` by `amount`, the inner part off (`SPREAD`: the outer part).
 *
 * - `LOCAL`: independent iterations become threads of a workgroup
 * - `GROUP`: a reduction is split over threads of a workgroup, which combine their partial results
 * - `UPCAST`: independent iterations are unrolled in one thread, as vector lanes or copies (register tiling)
 * - `SPREAD`: like `UPCAST`, of iterations that are size / amount apart
 * - `UNROLL`: iterations of a reduction are unrolled in one thread, as vector lanes or copies
 * - `LOOP`: independent iterations become a serial loop of one thread (the amount is the whole range)
 * - `OUTER`: workgroups that differ in this loop alone are far apart in the grid, those of one iteration neighbours (the amount is the whole range)
 * - `MATRIX`: iterations are done by matrix units: with other such loops, of outputs and of the reduction, they are a tile of a product of halves
 *
 * Data, so that it can be logged, cached, searched and replayed.
 */
export class Opt extends Schema.TaggedClass<Opt>()("Opt", {
  kind: Schema.Literals(["LOCAL", "GROUP", "UPCAST", "SPREAD", "UNROLL", "LOOP", "OUTER", "MATRIX"]),
  /** Id of the RANGE. After a split the outer part keeps the id. */
  range: Schema.Int,
  amount: Schema.Int.check(Schema.isGreaterThan(0))
}) {}

export type Kind = Opt["kind"]

/** `GROUP(r2, 16)` */
export const print = (opt: Opt): string => `${opt.kind}(r${opt.range}, ${opt.amount})`

export const local = (range: number, amount: number): Opt => new Opt({ kind: "LOCAL", range, amount })
export const group = (range: number, amount: number): Opt => new Opt({ kind: "GROUP", range, amount })
export const upcast = (range: number, amount: number): Opt => new Opt({ kind: "UPCAST", range, amount })
export const spread = (range: number, amount: number): Opt => new Opt({ kind: "SPREAD", range, amount })
export const unroll = (range: number, amount: number): Opt => new Opt({ kind: "UNROLL", range, amount })
export const loop = (range: number, amount: number): Opt => new Opt({ kind: "LOOP", range, amount })
export const matrix = (range: number, amount: number): Opt => new Opt({ kind: "MATRIX", range, amount })
export const outer = (range: number, amount: number): Opt => new Opt({ kind: "OUTER", range, amount })
