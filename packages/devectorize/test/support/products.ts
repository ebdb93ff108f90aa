/** Products of halves as attention has them, for matrix units: small, and odd in how their loops are cut. */
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { floatToHalf } from "@tg/core-uop/EvaluateOps"
import * as Expr from "@tg/core-uop/Expr"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import { apply, IllegalOpt } from "@tg/postrange/Postrange"
import { devectorize, DevectorizeError } from "../../src/Devectorize.ts"
import { linearize } from "../../src/Linearize.ts"
import { gpu } from "./stages.ts"

export const profile: DeviceProfile.DeviceProfile = {
  ...DeviceProfile.webgpuDefault,
  matrixUnits: true,
  subgroupSize: 32,
  maxWorkgroupBytes: 49152
}
export const caps = { ...gpu, lanes: [1, 2, 4], subgroupSize: 32 } as const

const heads = 4
const tokens = 16
const words = 16 // 32 halves of a row: word w has v[w] and v[w + 4] of each group of eight
const pieces = 2
const page = 32

const param = (arena: Arena, slot: number, dtype: DType.DType, length: number): UOp =>
  arena.make("PARAM", dtype, [Expr.int(arena, length)], { slot })
const range = Expr.range
const rounded = (x: UOp): UOp => Expr.alu("HALF_TO_FLOAT", Expr.alu("FLOAT_TO_HALF", x))
const sum = (...terms: ReadonlyArray<UOp>): UOp => terms.reduce((a, b) => Expr.add(a, b))

/** A half of a word of the cache: 16 words to a row, in groups of four. */
const cached = (arena: Arena, { group, half, position, word }: Record<"group" | "half" | "position" | "word", UOp>) => {
  const at = sum(Expr.mul(position, words), Expr.mul(group, 4), word)
  const load = Expr.load(Expr.element(param(arena, 1, DType.u32, pieces * page * words), at))
  return Expr.alu("HALF_TO_FLOAT", Expr.and(Expr.shr(load, Expr.mul(Expr.cast(half, DType.u32), 16)), 65535))
}

/** `out[head, piece, position, token] = 0.25 sum q[head, feature, token] k[position, feature]`, as scores of latent attention are. */
const scores = (arena = new Arena()): UOp => {
  const [head, piece, position, token] = [
    range(arena, heads, 0, "GLOBAL"),
    range(arena, Expr.variable(arena, "pieces", 1, pieces), 1, "GLOBAL"),
    range(arena, page, 2, "GLOBAL"),
    range(arena, tokens, 3, "GLOBAL")
  ]
  const [group, half, word] = [range(arena, 4, 4, "REDUCE"), range(arena, 2, 5, "REDUCE"), range(arena, 4, 6, "REDUCE")]
  const feature = sum(Expr.mul(group, 8), Expr.mul(half, 4), word)
  const q = param(arena, 2, DType.f32, heads * 32 * tokens)
  const query = Expr.load(Expr.element(q, sum(Expr.mul(head, 32 * tokens), Expr.mul(feature, tokens), token)))
  const place = Expr.add(Expr.mul(piece, page), position)
  const k = cached(arena, { group, half, word, position: place })
  const value = Expr.mul(Expr.reduce("ADD", Expr.mul(k, rounded(query)), [group, half, word]), 0.25)
  const out = param(arena, 0, DType.f32, heads * pieces * page * tokens)
  const at = sum(Expr.mul(head, pieces * page * tokens), Expr.mul(place, tokens), token)
  const loops = [head, piece, position, token]
  return arena.make("SINK", DType.none, [
    arena.make("END", DType.none, [Expr.store(Expr.element(out, at), value), ...loops])
  ])
}

/** `out[head, token, feature] = sum p[head, position, token] v[position, feature]`, over pieces of positions. */
const mix = (arena = new Arena()): UOp => {
  const [head, token] = [range(arena, heads, 0, "GLOBAL"), range(arena, tokens, 1, "GLOBAL")]
  const [group, half, word] = [range(arena, 4, 2, "GLOBAL"), range(arena, 2, 3, "GLOBAL"), range(arena, 4, 4, "GLOBAL")]
  const piece = range(arena, Expr.variable(arena, "pieces", 1, pieces), 5, "REDUCE")
  const position = range(arena, page, 6, "REDUCE")
  const place = Expr.add(Expr.mul(piece, page), position)
  const weights = param(arena, 2, DType.f32, heads * pieces * page * tokens)
  const most = param(arena, 3, DType.f32, heads * tokens)
  const at = sum(Expr.mul(head, pieces * page * tokens), Expr.mul(place, tokens), token)
  const largest = Expr.load(Expr.element(most, Expr.add(Expr.mul(head, tokens), token)))
  const weight = Expr.alu("EXP2", Expr.sub(Expr.load(Expr.element(weights, at)), largest))
  const v = cached(arena, { group, half, word, position: place })
  const value = Expr.reduce("ADD", Expr.mul(rounded(weight), v), [piece, position])
  const feature = sum(Expr.mul(group, 8), Expr.mul(half, 4), word)
  const out = param(arena, 0, DType.f32, heads * tokens * 32)
  const target = sum(Expr.mul(head, tokens * 32), Expr.mul(token, 32), feature)
  const loops = [head, token, group, half, word]
  return arena.make("SINK", DType.none, [
    arena.make("END", DType.none, [Expr.store(Expr.element(out, target), value), ...loops])
  ])
}

const blocks = 4
const weightRows = 16

/** `out[token, head, row] = sum x[token, head, term] w[head, row, term]`, with weights of four bits in blocks of 32 that share a scale. */
const weighted = (arena = new Arena()): UOp => {
  const [token, head, row] = [
    range(arena, tokens, 0, "GLOBAL"),
    range(arena, heads, 1, "GLOBAL"),
    range(arena, weightRows, 2, "GLOBAL")
  ]
  const [block, half, byte, word] = [
    range(arena, blocks, 3, "REDUCE"),
    range(arena, 2, 4, "REDUCE"),
    range(arena, 4, 5, "REDUCE"),
    range(arena, 4, 6, "REDUCE")
  ]
  const of = Expr.add(Expr.mul(Expr.add(Expr.mul(head, weightRows), row), blocks), block)
  const packed = param(arena, 1, DType.u32, pieces * page * words)
  const quants = Expr.load(Expr.element(packed, Expr.add(Expr.mul(of, 4), word)))
  const shift = Expr.add(Expr.mul(Expr.cast(half, DType.u32), 4), Expr.mul(Expr.cast(byte, DType.u32), 8))
  const quant = Expr.cast(Expr.sub(Expr.cast(Expr.and(Expr.shr(quants, shift), 15), DType.i32), 8), DType.f32)
  const scales = param(arena, 2, DType.f32, heads * weightRows * blocks)
  const weight = Expr.mul(quant, Expr.load(Expr.element(scales, of)))
  const term = sum(Expr.mul(block, 32), Expr.mul(half, 16), Expr.mul(byte, 4), word)
  const x = param(arena, 3, DType.f32, tokens * heads * blocks * 32)
  const at = Expr.add(Expr.mul(Expr.add(Expr.mul(token, heads), head), blocks * 32), term)
  const products = Expr.mul(rounded(Expr.load(Expr.element(x, at))), rounded(weight))
  const out = param(arena, 0, DType.f32, tokens * heads * weightRows)
  const target = sum(Expr.mul(token, heads * weightRows), Expr.mul(head, weightRows), row)
  const value = Expr.reduce("ADD", products, [block, half, byte, word])
  const loops = [token, head, row]
  return arena.make("SINK", DType.none, [
    arena.make("END", DType.none, [Expr.store(Expr.element(out, target), value), ...loops])
  ])
}

const rows = 20
const columns = 40 // of a record: the mix, the maximum, the sum of weights, and nothing

/**
 * A piece of attention of 20 rows, which are no whole fragments: scores, their maxima, weights, maximum and sum of weights beside the mix, and the mix. All but the last two
 * are staged in workgroup memory.
 */
const piece = (arena = new Arena()): UOp => {
  const own = range(arena, Expr.variable(arena, "pieces", 1, pieces), 0, "GLOBAL")
  const local = (id: number, length: number): UOp => arena.make("LOCAL", DType.f32, [own], { id, length })
  const end = (effect: UOp, ...loops: ReadonlyArray<UOp>): UOp => arena.make("END", DType.none, [effect, own, ...loops])
  const loop = (size: number, id: number, axis: "LOOP" | "GLOBAL" | "REDUCE" = "LOOP"): UOp =>
    range(arena, size, id, axis)
  const at = (row: UOp, position: UOp): UOp => Expr.add(Expr.mul(row, page), position)
  const place = (position: UOp): UOp => Expr.add(Expr.mul(own, page), position)
  const [scores, most, weights] = [local(0, rows * page), local(1, rows), local(2, rows * page)]

  const [a, b, group, half, word] = [
    loop(rows, 1),
    loop(page, 2),
    loop(4, 3, "REDUCE"),
    loop(2, 4, "REDUCE"),
    loop(4, 5, "REDUCE")
  ]
  const feature = sum(Expr.mul(group, 8), Expr.mul(half, 4), word)
  const query = Expr.load(Expr.element(param(arena, 2, DType.f32, rows * 32), Expr.add(Expr.mul(a, 32), feature)))
  const k = cached(arena, { group, half, word, position: place(b) })
  const score = Expr.reduce("ADD", Expr.mul(k, rounded(query)), [group, half, word])
  const first = end(Expr.store(Expr.element(scores, at(a, b)), score), a, b)

  const [c, d] = [loop(rows, 6), loop(page, 7, "REDUCE")]
  const largest = Expr.reduce("MAX", Expr.load(Expr.element(scores, at(c, d))), [d])
  const second = end(Expr.store(Expr.element(most, c), largest), c)

  const [e, f] = [loop(rows, 8), loop(page, 9)]
  const below = Expr.sub(Expr.load(Expr.element(scores, at(e, f))), Expr.load(Expr.element(most, e)))
  const third = end(Expr.store(Expr.element(weights, at(e, f)), Expr.alu("EXP2", below)), e, f)

  const out = param(arena, 0, DType.f32, pieces * rows * columns)
  const record = (row: UOp, column: UOp): UOp =>
    Expr.element(out, sum(Expr.mul(own, rows * columns), Expr.mul(row, columns), column))
  const [g, h, i] = [loop(rows, 10), loop(2, 11), loop(page, 12, "REDUCE")]
  const all = Expr.reduce("ADD", Expr.load(Expr.element(weights, at(g, i))), [i])
  const state = Expr.where(Expr.lt(h, 1), Expr.load(Expr.element(most, g)), all)
  const fourth = end(Expr.store(record(g, Expr.add(h, 32)), state), g, h)

  const [m, n, o, p, q] = [
    loop(rows, 13, "GLOBAL"),
    loop(4, 14, "GLOBAL"),
    loop(2, 15, "GLOBAL"),
    loop(4, 16, "GLOBAL"),
    loop(page, 17, "REDUCE")
  ]
  const v = cached(arena, { group: n, half: o, word: p, position: place(q) })
  const weight = Expr.load(Expr.element(weights, at(m, q)))
  const mixed = Expr.reduce("ADD", Expr.mul(rounded(weight), v), [q])
  const fifth = end(Expr.store(record(m, sum(Expr.mul(n, 8), Expr.mul(o, 4), p)), mixed), m, n, o, p)
  return arena.make("SINK", DType.none, [first, second, third, fourth, fifth])
}

/** Numbers in [-1, 1). */
const random = (count: number, seed: number): Float32Array => {
  let state = seed
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 31 - 1
  })
}
const cacheOf = (): Uint32Array => {
  const values = random(2 * pieces * page * words, 7)
  return Uint32Array.from(
    { length: pieces * page * words },
    (_, i) => (floatToHalf(values[2 * i]!) | floatToHalf(values[2 * i + 1]!) << 16) >>> 0
  )
}

const checked = (stage: Spec.Stage, node: UOp | IllegalOpt | DevectorizeError): UOp => {
  if (node instanceof IllegalOpt || node instanceof DevectorizeError) throw node
  const [violation] = Spec.check(stage, node)
  if (violation !== undefined) throw new Error(`spec ${stage}: ${violation.node}: ${violation.reason}`)
  return node
}

/** A kernel with opts at every stage, for subgroups of so many threads. */
export const stagesOf = (kernel: UOp, opts: ReadonlyArray<Opt.Opt>, subgroupSize = 32) => {
  const device = { ...profile, subgroupSize, maxWorkgroupThreads: 1024 }
  const opted = checked("opted", apply("k", kernel, opts, device))
  const expanded = checked("expanded", devectorize("k", opted, { ...caps, subgroupSize }, device))
  return { opted, expanded, linear: checked("linear", linearize(expanded, { ...caps, subgroupSize })) }
}

const scoresTile = [
  Opt.matrix(0, 2),
  Opt.matrix(3, 16),
  Opt.matrix(2, 32),
  Opt.matrix(4, 2),
  Opt.matrix(5, 2),
  Opt.matrix(6, 4)
]
const mixTile = [
  Opt.matrix(0, 4),
  Opt.matrix(1, 16),
  Opt.matrix(2, 4),
  Opt.matrix(3, 2),
  Opt.matrix(4, 4),
  Opt.matrix(6, 16)
]

const weightedTile = [
  Opt.matrix(0, tokens),
  Opt.matrix(2, weightRows),
  Opt.matrix(6, 4),
  Opt.matrix(5, 4),
  Opt.matrix(4, 2)
]

const pieceTiles = [
  Opt.matrix(1, rows),
  Opt.matrix(2, page),
  Opt.matrix(5, 4),
  Opt.matrix(4, 2),
  Opt.matrix(3, 2),
  Opt.matrix(13, rows),
  Opt.matrix(14, 4),
  Opt.matrix(15, 2),
  Opt.matrix(16, 4),
  Opt.matrix(17, 16),
  Opt.group(7, 4),
  Opt.local(6, rows),
  Opt.upcast(9, 4),
  Opt.local(9, 8),
  Opt.local(8, 10),
  Opt.upcast(11, 2),
  Opt.local(10, rows)
]

/** Elements of the larger result. */
export const outputs = heads * pieces * page * tokens

/** Fragments add up floats, 16 terms at a time: below 2^-24 of the largest partial sum for each of at most 64 terms. */
const ofSums = 64 * 2 ** -24 * 16
/** Besides, a weight whose score is off by that may be rounded to another half: 2^-11 of it, as often as there are positions. */
const ofWeights = page * 2 ** -11

/** A product, a tile of it, its arguments: the result, the cache, and what else it reads; and how far results are off in another order of sums. */
export const products = [
  {
    name: "scores",
    kernel: scores,
    opts: scoresTile,
    inputs: [cacheOf(), random(heads * 32 * tokens, 1)],
    bound: ofSums
  },
  {
    name: "mix",
    kernel: mix,
    opts: mixTile,
    inputs: [cacheOf(), random(heads * pieces * page * tokens, 2), random(heads * tokens, 3)],
    bound: ofSums
  },
  {
    name: "weighted",
    kernel: weighted,
    opts: weightedTile,
    inputs: [cacheOf(), random(heads * weightRows * blocks, 5), random(tokens * heads * blocks * 32, 6)],
    // 128 terms of up to 8
    bound: 2 * 8 * ofSums
  },
  { name: "piece", kernel: piece, opts: pieceTiles, inputs: [cacheOf(), random(rows * 32, 4)], bound: ofWeights }
] as const
