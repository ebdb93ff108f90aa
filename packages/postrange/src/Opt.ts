import { Schema } from "effect"

/**
 * One step of a kernel's schedule: splits `amount` iterations off the inside of the loop `range`, `SPREAD` off its outside.
 *
 * - `LOCAL`: independent iterations become threads of a workgroup
 * - `GROUP`: iterations of a reduction become threads of a workgroup, combined at its end
 * - `UPCAST`: independent iterations are done at once by one thread (vector lanes or copies)
 * - `SPREAD`: like `UPCAST`, of iterations that are far apart: each is the first of an `amount`-th of the loop
 * - `UNROLL`: iterations of a reduction are done at once by one thread
 * - `LOOP`: independent iterations become a loop inside one thread (the amount is the whole range)
 *
 * Data, so that it can be logged, cached, searched and replayed.
 */
export class Opt extends Schema.TaggedClass<Opt>()("Opt", {
  kind: Schema.Literals(["LOCAL", "GROUP", "UPCAST", "SPREAD", "UNROLL", "LOOP"]),
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
