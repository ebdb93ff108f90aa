/** Random products of halves: how loops are cut, in which order memory has them, and whether operands are words of halves or floats. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"

/** Numbers below a bound, from a seed: the generator of "Numerical Recipes". */
export const generator = (seed: number) => {
  let state = seed >>> 0
  return (bound: number): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor(state / 2 ** 32 * bound)
  }
}

type Random = ReturnType<typeof generator>

const shuffled = <A>(items: ReadonlyArray<A>, random: Random): ReadonlyArray<A> =>
  items.map((item) => [random(2 ** 20), item] as const).toSorted(([a], [b]) => a - b).map(([, item]) => item)

const product = (sizes: ReadonlyArray<number>): number => sizes.reduce((a, b) => a * b, 1)

/**
 * A product kernel, opts that make one tile of what is a multiple of it, and elements of its arguments: result, left, right. The result begins behind so many
 * elements.
 */
export const randomProduct = (seed: number, begin = 0) => {
  const random = generator(seed)
  const arena = new Arena()
  let id = 0
  /** Loops whose sizes are a tile and perhaps some tiles, cut at random; and how many iterations of each the tile takes. */
  const loopsOf = (axis: "GLOBAL" | "REDUCE") => {
    const tile = 16 << random(3)
    const cuts = shuffled([2, 2, 4, tile / 16], random).filter((n) => n > 1)
    const loops = cuts.map((taken) => ({ range: Expr.range(arena, taken, id++, axis), taken }))
    const outer = random(3) + 1
    if (outer > 1) loops.unshift({ range: Expr.range(arena, outer, id++, axis), taken: 1 })
    return loops
  }
  const [rows, columns, terms] = [loopsOf("GLOBAL"), loopsOf("GLOBAL"), loopsOf("REDUCE")]
  const sizeOf = (range: UOp): number => Number(range.src[0]!.arg)
  const at = (ranges: ReadonlyArray<UOp>): UOp =>
    ranges.reduce<UOp>((sum, range) => Expr.add(Expr.mul(sum, sizeOf(range)), range), Expr.int(arena, 0))
  /** An operand over these loops, which memory has in a random order; words have the two halves of some loop of two. */
  const operand = (slot: number, own: ReadonlyArray<UOp>): { readonly value: UOp; readonly length: number } => {
    const ranges = shuffled(own, random)
    const half = random(2) === 0 ? ranges.find((range) => sizeOf(range) === 2) : undefined
    const others = ranges.filter((range) => range !== half)
    const length = product(others.map(sizeOf))
    const dtype = half === undefined ? DType.f32 : DType.u32
    const memory = arena.make("PARAM", dtype, [Expr.int(arena, length)], { slot })
    const load = Expr.load(Expr.element(memory, at(others)))
    const bits = half === undefined
      ? Expr.alu("FLOAT_TO_HALF", load)
      : Expr.and(Expr.shr(load, Expr.mul(Expr.cast(half, DType.u32), 16)), 65535)
    return { value: Expr.alu("HALF_TO_FLOAT", bits), length }
  }
  const rangesOf = (loops: ReadonlyArray<{ readonly range: UOp }>) => loops.map(({ range }) => range)
  const left = operand(1, [...rangesOf(rows), ...rangesOf(terms)])
  const right = operand(2, [...rangesOf(columns), ...rangesOf(terms)])
  const sum = Expr.reduce("ADD", Expr.mul(left.value, right.value), rangesOf(terms))
  const outputs = shuffled([...rangesOf(rows), ...rangesOf(columns)], random)
  const count = begin + product(outputs.map(sizeOf))
  const out = arena.make("PARAM", DType.f32, [Expr.int(arena, count)], { slot: 0 })
  const store = Expr.store(Expr.element(out, Expr.add(at(outputs), begin)), Expr.add(Expr.mul(sum, 0.5), 1))
  const loops = shuffled([...rangesOf(rows), ...rangesOf(columns)], random)
  const kernel = arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, ...loops])])
  const opts = [...rows, ...columns, ...terms].filter(({ taken }) => taken > 1)
    .map(({ range, taken }) => Opt.matrix((range.arg as { readonly id: number }).id, taken))
  return { kernel, opts, lengths: [count, left.length, right.length], depth: product(rangesOf(terms).map(sizeOf)) }
}

/** Both operands of a random product: halves in each word, or a float that is no half; all of them are in (0, 4). */
export const operandsOf = (seed: number, lengths: ReadonlyArray<number>): readonly [Uint32Array, Uint32Array] => {
  const random = generator(1000 + seed)
  const words = (n: number): Uint32Array =>
    Uint32Array.from({ length: n }, () => (0x3000 + random(0x1400) + (0x3000 + random(0x1400)) * 65536) >>> 0)
  const [, left, right] = lengths
  return [words(left!), words(right!)]
}
