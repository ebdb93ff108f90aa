/** A persistent launch like a block's attention: a row of a cache is written, a query is computed, and each workgroup reads a head's query and the rows up to a position. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import * as Phases from "@tg/core-uop/Phases"
import type { Arena, UOp } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import { type Launch, phases } from "../../src/Phases.ts"
import { gpu, linear } from "./stages.ts"

/** Words of a row, positions of a cache, heads. */
export const [width, positions, heads] = [16, 8, 6]

const param = (arena: Arena, slot: number, words: number): UOp =>
  arena.make("PARAM", DType.f32, [Expr.int(arena, words)], { slot })

const read = (arena: Arena, slot: number, words: number, at: UOp): UOp =>
  Expr.load(Expr.element(param(arena, slot, words), at))

const end = (store: UOp, ...loops: ReadonlyArray<UOp>): UOp => store.arena.make("END", DType.none, [store, ...loops])

const position = (arena: Arena): UOp => Expr.variable(arena, "position", 0, positions - 1)

/** `cache[position, i] = 2 x[i]`: slot 0 is the cache, slot 1 is x. */
export const row = (arena: Arena): UOp => {
  const i = Expr.range(arena, width, 0, "GLOBAL")
  const at = Expr.add(Expr.mul(position(arena), width), i)
  const store = Expr.store(Expr.element(param(arena, 0, width * positions), at), Expr.mul(read(arena, 1, width, i), 2))
  return arena.make("SINK", DType.none, [end(store, i)])
}

/** `query[h, i] = x[i] + h`: slot 0 is the query, slot 1 is x. */
const query = (arena: Arena): UOp => {
  const h = Expr.range(arena, heads, 0, "GLOBAL")
  const i = Expr.range(arena, width, 1, "GLOBAL")
  const value = Expr.add(read(arena, 1, width, i), Expr.cast(h, DType.f32))
  const place = Expr.add(Expr.mul(h, width), i)
  return arena.make("SINK", DType.none, [
    end(Expr.store(Expr.element(param(arena, 0, heads * width), place), value), h, i)
  ])
}

/** `out[h, p] = scores[p] + the sum of all scores`, where `scores[p] = query[h] . cache[p]` up to the position: slots 0 to 2 are out, the query, the cache. */
export const scores = (arena: Arena): UOp => {
  const h = Expr.range(arena, heads, 0, "GLOBAL")
  const local = arena.make("LOCAL", DType.f32, [h], { id: 0, length: positions })
  const p = Expr.range(arena, positions, 1, "LOOP")
  const i = Expr.range(arena, width, 2, "REDUCE")
  const product = Expr.mul(
    read(arena, 1, heads * width, Expr.add(Expr.mul(h, width), i)),
    read(arena, 2, width * positions, Expr.add(Expr.mul(p, width), i))
  )
  const score = Expr.where(
    Expr.lt(p, Expr.add(position(arena), 1)),
    Expr.reduce("ADD", product, [i]),
    Expr.constant(arena, DType.f32, 0)
  )
  const o = Expr.range(arena, positions, 3, "GLOBAL")
  const k = Expr.range(arena, positions, 4, "REDUCE")
  const inLocal = (at: UOp): UOp => Expr.load(Expr.element(local, at))
  const value = Expr.add(inLocal(o), Expr.reduce("ADD", inLocal(k), [k]))
  const out = Expr.element(param(arena, 0, heads * positions), Expr.add(Expr.mul(h, positions), o))
  return arena.make("SINK", DType.none, [
    end(Expr.store(Expr.element(local, p), score), h, p),
    end(Expr.store(out, value), h, o)
  ])
}

/** Slots of the launch: x, the words that are awaited, the cache, the results, words of another launch, the counters of barriers. */
const [x, words, cache, out, cleared, meeting] = [0, 1, 2, 3, 4, 5]
const queryAt = 0
const rowAt = 128

/** The phases, of which the first one's row is forwarded to the last one. */
export const forwarding = (arena: Arena): ReadonlyArray<Phases.Phase> => [
  {
    kernel: row(arena),
    slots: [cache, x],
    offsets: [0, 0],
    forwards: Phases.numbersOf([{ slot: 0, reader: 2, to: words, offset: rowAt }])
  },
  { kernel: query(arena), slots: [words, x], offsets: [queryAt, 0] },
  { kernel: scores(arena), slots: [out, words, cache], offsets: [0, queryAt, 0] }
]

/** Opts with which a workgroup of the last phase has 8 threads, and meets twice. */
const opts = [[Opt.local(0, 4)], [Opt.local(1, 8)], [Opt.local(1, 8), Opt.local(3, 8)]]

/** The launch of these phases, in this order; of what crosses them no more is copied to workgroup memory than so many bytes. */
export const launchOf = (
  made: ReadonlyArray<Phases.Phase>,
  shape: Partial<Launch> = {},
  order: ReadonlyArray<number> = [...made.keys()]
): UOp =>
  phases(order.map((i) => ({ ...made[i]!, linear: linear(made[i]!.kernel, opts[i]!, gpu) })), {
    caps: gpu,
    workgroups: 3,
    threads: 16,
    spins: 1000,
    coherent: Phases.crossing(made),
    meeting,
    stagedBytes: 4 * width * 4,
    ahead: made.map(() => 0),
    awaited: [words, cleared, 64],
    ...shape
  })

/** Memory of the launch: rows up to a position, and room. */
export const argumentsOf = (position: number): Map<number, Float32Array> =>
  new Map([
    [x, Float32Array.from({ length: width }, (_, i) => i % 5 - 2)],
    [words, new Float32Array(256)],
    [cache, Float32Array.from({ length: width * positions }, (_, i) => i < width * position ? i % 7 - 3 : 99)],
    [out, new Float32Array(heads * positions)],
    [cleared, new Float32Array(64)],
    [meeting, new Float32Array(Phases.meetingWords.count)]
  ])

/** What the launch leaves for others. */
export const resultsIn = (args: ReadonlyMap<number, Float32Array>): ReadonlyArray<Float32Array> => [
  args.get(cache)!,
  args.get(out)!
]
