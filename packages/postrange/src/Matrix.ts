/**
 * Products by matrix units. An END whose reduction has MATRIX loops becomes three: two stage tiles of the operands in workgroup
 * memory, as words of two halves, for each step of the reduction; the last one reads them. Values stay; the order of the sum does not.
 * Several products of a kernel, as scores and mix of a piece of attention, stage theirs in the same memory.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { encode, type MatrixTile, placeTogether, side, type Staged, type Together } from "@tg/core-uop/MatrixTile"
import type * as Pass from "@tg/core-uop/Pass"
import { type Axis, openRanges, rangeArg, reduceArg, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { endOf, storeOf } from "@tg/core-uop/View"
import * as Workgroup from "@tg/core-uop/Workgroup"
import { areNeighbours, stepOf } from "@tg/pattern-matcher/Affine"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { IllegalOpt } from "./IllegalOpt.ts"
import * as Loops from "./Loops.ts"
import {
  digits,
  group,
  isRounded,
  type Memory,
  type Operand,
  operandOf,
  orderOf,
  sizesOf,
  spread,
  stage,
  strideOf,
  usually,
  vector,
  within,
  wordsOf
} from "./MatrixOperand.ts"

/** A product of halves: what an END stores is computed from its sum. */
export interface Product {
  readonly end: UOp
  readonly reduce: UOp
  /** Operands, as words that have a half in their low 16 bits. */
  readonly left: UOp
  readonly right: UOp
}

/** The one product of halves of an END; none where there is another reduction, or an operand is no half. */
export const productIn = (end: UOp): Product | undefined => {
  const reductions = toposort(end).filter(({ op }) => op === "REDUCE")
  const [reduce] = reductions
  if (reductions.length !== 1 || reduceArg(reduce!).op !== "ADD") return undefined
  const product = reduce!.src[0]!
  const [left, right] = product.src
  if (product.op !== "MUL" || left!.op !== "HALF_TO_FLOAT" || right!.op !== "HALF_TO_FLOAT") return undefined
  const { stores } = endOf(end)
  return stores.length === 1 ? { end, reduce: reduce!, left: left!.src[0]!, right: right!.src[0]! } : undefined
}

/** The one product of halves that is all of a kernel. */
export const productOf = (kernel: UOp): Product | undefined =>
  kernel.src.length === 1 ? productIn(kernel.src[0]!) : undefined

/** The products of halves of a kernel, of different ENDs. */
const productsOf = (kernel: UOp): ReadonlyArray<Product> => kernel.src.flatMap((end) => productIn(end) ?? [])

const isMatrix = (range: UOp): boolean => rangeArg(range).axis === "MATRIX"
/** Numbers for new loops. */
const freshIds = (kernel: UOp): () => number => {
  let next = 1 + Math.max(0, ...toposort(kernel).map((n) => n.is("RANGE") ? n.arg.id : 0))
  return () => next++
}

/** Whether the iterations of a loop are a vector in memory. */
const isVector = (at: UOp, lane: UOp): boolean =>
  areNeighbours(
    Array.from(
      { length: vector },
      (_, i) => Symbolic.simplify(substitute(at, new Map([[lane, Expr.int(at.arena, i)]])))
    )
  )

/** Fragments of a subgroup at least and at most: fewer load operands more often than they use them, more have no registers. */
const fewFragments = 4
const manyFragments = 16
const mostSubgroups = 8

/** Subgroups of a tile: small ones have as many as those of 64 x 64, whose threads share the work of staging. */
const subgroupsOf = (fragments: number): number => {
  const each = fragments <= fewFragments ** 2 ? Math.max(1, fragments / fewFragments) : manyFragments
  return Math.max(1, Math.min(mostSubgroups, fragments / each))
}

/** How so many subgroups share a tile: as square as it goes, since a block of fragments loads its rows and its columns. */
const shared = (
  { columns, rows }: Pick<Tile, "rows" | "columns">,
  count: number
): Pick<MatrixTile, "subgroups" | "fragments"> => {
  const [down, across] = [rows / side, columns / side]
  let best: readonly [number, number] = [1, count]
  for (let i = 1; i <= count; i *= 2) {
    const next: readonly [number, number] = [i, count / i]
    if (down % i !== 0 || across % (count / i) !== 0) continue
    const around = ([a, b]: readonly [number, number]): number => down / a + across / b
    if (down % best[0] !== 0 || across % best[1] !== 0 || around(next) < around(best)) best = next
  }
  return { subgroups: best, fragments: [down / best[0], across / best[1]] }
}

/** The loops of a product by what depends on them. */
const loopsOf = ({ end, left, reduce, right }: Product) => {
  const matrix = endOf(end).loops.filter(isMatrix)
  return {
    rows: matrix.filter((range) => openRanges(left).has(range)),
    columns: matrix.filter((range) => openRanges(right).has(range)),
    terms: reduce.src.slice(1).filter(isMatrix),
    steps: reduce.src.slice(1).filter((range) => !isMatrix(range))
  }
}

/** A tile of a product: its operands, and their rows, columns and terms at a time as whole fragments. */
interface Tile {
  readonly product: Product
  readonly left: Operand
  readonly right: Operand
  readonly rows: number
  readonly columns: number
  readonly depth: number
}

const tileOf = (product: Product): Tile => {
  const { columns, rows, terms } = loopsOf(product)
  const [left, right] = [operandOf(product.left, rows, terms), operandOf(product.right, columns, terms)]
  return { product, left, right, rows: left.padded, columns: right.padded, depth: sizesOf(terms) }
}

const hasMatrix = (node: UOp): boolean => toposort(node).some((range) => range.op === "RANGE" && isMatrix(range))

/** The tiles of a kernel. */
const tilesOf = (kernel: UOp): ReadonlyArray<Tile> => productsOf(kernel).filter(({ end }) => hasMatrix(end)).map(tileOf)

/** Subgroups that compute a kernel: of several tiles those that all of them have fragments for. */
const countOf = (tiles: ReadonlyArray<Tile>): number => {
  const fragments = tiles.map(({ columns, rows }) => columns * rows / side ** 2)
  return tiles.length === 1 ? subgroupsOf(fragments[0]!) : Math.min(mostSubgroups, ...fragments)
}

/** Threads of the workgroups of a kernel with MATRIX loops. */
export const threadsOf = (kernel: UOp, { subgroupSize = 0 }: DeviceProfile): number =>
  countOf(tilesOf(kernel)) * subgroupSize

const noProduct = "matrix units compute one sum of products of halves"

/** Why matrix units compute no part of a kernel like this, whatever its tiles. */
export const whyNone = (kernel: UOp, { matrixUnits, name, subgroupSize = 0 }: DeviceProfile): string | undefined =>
  matrixUnits !== true || !(subgroupSize >= side)
    ? `${name} has no matrix units`
    : productsOf(kernel).length === 0
    ? noProduct
    : undefined

/** Why so many iterations of a loop are no part of a tile: of symbolic size it has a multiple of them if it runs over whole pages of a cache. */
export const whyNoPart = (
  kernel: UOp,
  { id, node }: Loops.Loop,
  amount: number,
  profile: DeviceProfile
): string | undefined =>
  whyNone(kernel, profile) ??
    (Symbolic.divisor(node.src[0]!) % amount === 0 ? undefined : `r${id} has no multiple of ${amount} iterations`)

/** Why matrix units cannot compute tiles of these MATRIX loops, or `undefined` if they can. */
export const whyNot = (kernel: UOp, profile: DeviceProfile): string | undefined => {
  const none = whyNone(kernel, profile)
  if (none !== undefined) return none
  const { maxWorkgroupBytes, maxWorkgroupThreads, subgroupSize } = profile
  const tiles = tilesOf(kernel)
  if (kernel.src.filter(hasMatrix).length !== tiles.length) return noProduct
  const count = countOf(tiles)
  const reason = tiles.map((tile) => whyNoTile(tile, count)).find((why) => why !== undefined)
  if (reason !== undefined) return reason
  const threads = count * subgroupSize!
  if (threads > maxWorkgroupThreads) return `${threads} threads, the device allows ${maxWorkgroupThreads}`
  if (Loops.threads(kernel) > threads) return `${Loops.threads(kernel)} threads beside tiles of ${threads}`
  const bytes = 4 * memoryOf(tiles).reduce((a, b) => a + b) + Workgroup.bytesOf(kernel)
  return bytes > maxWorkgroupBytes
    ? `${bytes} bytes of workgroup memory, the device has ${maxWorkgroupBytes}`
    : undefined
}

const whyNoTile = ({ columns, depth, left, product, right, rows }: Tile, count: number): string | undefined => {
  const both = endOf(product.end).loops.filter(isMatrix).length - left.own.length - right.own.length
  if (both !== 0) return "a loop belongs to both operands, or to none"
  if (depth % side !== 0 || left.size === 1 || right.size === 1) {
    return `a tile of ${left.size} and ${right.size} with ${depth} terms at a time has no whole fragments of ${side}`
  }
  const { fragments } = shared({ rows, columns }, count)
  return fragments.some((each) => !Number.isInteger(each)) ? "the tile cannot be shared among subgroups" : undefined
}

/** Words of the longer and of the shorter operand in workgroup memory, which all tiles share. A fragment of each subgroup is in the former on its way to the result. */
const memoryOf = (tiles: ReadonlyArray<Tile>): readonly [number, number] => {
  const words = tiles.map(({ left, right }) => [wordsOf(left), wordsOf(right)].toSorted((a, b) => b - a))
  const fragment = countOf(tiles) * side * side
  return [Math.max(fragment, ...words.map(([longer]) => longer!)), Math.max(...words.map(([, shorter]) => shorter!))]
}

/** The device that a kernel is for, and the kernel's name in errors. */
export interface Where {
  readonly kernel: string
  readonly profile: DeviceProfile
}

/** Stages the operands of a product for matrix units, where opts gave it MATRIX loops. */
export const passes: ReadonlyArray<Pass.Pass<Where, IllegalOpt>> = [{
  name: "matrix",
  from: "opted",
  to: "opted",
  run: (kernel, { kernel: name, profile }) => {
    if (!hasMatrix(kernel)) return kernel
    const reason = whyNot(kernel, profile)
    if (reason === undefined) return withTiles(kernel, profile.subgroupSize!)
    const message = `${name}: its MATRIX loops are no tile for matrix units: ${reason}`
    return new IllegalOpt({ kernel: name, opt: "MATRIX", message })
  }
}]

/** The END that stores results, as each thread has so many of them together; none where these are no vector in memory. */
const resultsOf = (
  { fresh, halves: [leftAt, rightAt], left, product, right, step, tile }: {
    readonly fresh: () => number
    /** The staged half of each operand, by its own iteration and the term. */
    readonly halves: readonly [(own: UOp, term: UOp) => UOp, (own: UOp, term: UOp) => UOp]
    readonly left: Operand
    readonly right: Operand
    readonly product: Product
    /** The loop of all steps of the reduction. */
    readonly step: UOp
    readonly tile: Omit<MatrixTile, "together">
  },
  together: Together
): UOp | undefined => {
  const { end } = product
  const { arena } = end
  const { depth, fragments, subgroups, threads } = tile
  // what runs once is no loop
  const range = (size: number, axis: Axis): UOp =>
    size === 1 ? Expr.int(arena, 0) : Expr.range(arena, size, fresh(), axis)
  const [block, blockAcross] = [range(subgroups[0], "LOCAL"), range(subgroups[1], "LOCAL")]
  const [fragment, fragmentAcross] = [range(fragments[0], "MATRIX"), range(fragments[1], "MATRIX")]
  const neighbours = together === "one" ? side : side / vector
  const [far, near] = [range(threads / neighbours, "LOCAL"), range(neighbours, "LOCAL")]
  const turn = range(side * neighbours / threads, "LOOP")
  const lane = together === "one" ? undefined : range(vector, "UPCAST")
  const slow = Expr.add(Expr.mul(turn, threads / neighbours), far)
  const fast = lane === undefined ? near : placeTogether(together, near, lane)
  const [row, column] = tile.result === "column" ? [fast, slow] : [slow, fast]
  const place = (block: UOp, fragments: number, fragment: UOp, at: UOp): UOp =>
    Expr.add(Expr.mul(Expr.add(Expr.mul(block, fragments), fragment), side), at)
  const [m, n] = [place(block, fragments[0], fragment, row), place(blockAcross, fragments[1], fragmentAcross, column)]
  const term = Expr.range(arena, depth, fresh(), "MATRIX")
  const sum = arena.make(
    "REDUCE",
    product.reduce.dtype,
    [Expr.mul(leftAt(m, term), rightAt(n, term)), step, term],
    { op: "ADD", axes: [], tile: encode({ ...tile, together }) }
  )
  const sides = [[left, orderOf(left)(m)], [right, orderOf(right)(n)]] as const
  const places = new Map([
    ...sides.flatMap(([operand, at]) => digits(operand.own, within(operand, at))),
    [product.reduce, sum] as const
  ])
  const store = sides.reduce(
    (store, [{ padded, size }, at]) => padded === size ? store : Expr.storeIf(store, Expr.lt(at, size)),
    substitute(endOf(end).stores[0]!, places)
  )
  const { gate } = storeOf(store)
  if (lane !== undefined && gate !== undefined && openRanges(gate).has(lane)) return undefined
  if (lane !== undefined && !isVector(storeOf(store).at, lane)) return undefined
  arena.inherit(sum, product.reduce)
  const globals = endOf(end).loops.filter((loop) => !isMatrix(loop))
  const own = [block, blockAcross, far, near, fragment, fragmentAcross, turn, lane]
    .filter((loop) => loop !== undefined).filter(({ op }) => op === "RANGE")
  return arena.make("END", DType.none, [store, ...globals, ...own])
}

/** The kernel with the operands of its products staged for matrix units, whose subgroups have so many threads. Spec `opted` to `opted`. */
const withTiles = (kernel: UOp, subgroup: number): UOp => {
  const tiles = tilesOf(kernel)
  const ids = toposort(kernel).map((node) => node.is("LOCAL") ? node.arg.id : -1)
  const shape = {
    count: countOf(tiles),
    fresh: freshIds(kernel),
    memory: memoryOf(tiles),
    firstId: 1 + Math.max(-1, ...ids),
    subgroup
  }
  return kernel.with(kernel.src.flatMap((end) => {
    const tile = tiles.find(({ product }) => product.end === end)
    return tile === undefined ? [end] : staged(tile, shape)
  }))
}

/** The two ENDs that stage the operands of a tile, and the one that stores its results. */
const staged = (
  { columns, depth, left, product, right, rows }: Tile,
  { count, firstId, fresh, memory, subgroup }: {
    readonly count: number
    readonly fresh: () => number
    readonly memory: readonly [number, number]
    /** The number of the first LOCAL that the kernel has not. */
    readonly firstId: number
    readonly subgroup: number
  }
): ReadonlyArray<UOp> => {
  const { end } = product
  const { arena } = end
  const { fragments, subgroups } = shared({ rows, columns }, count)
  const globals = endOf(end).loops.filter((range) => !isMatrix(range))
  const { steps } = loopsOf(product)
  // one loop of all steps, so that the next one is known in each
  const turns = steps.reduce((n, range) => Expr.mul(n, range.src[0]!), Expr.int(arena, 1))
  const step = Expr.range(arena, Symbolic.simplify(turns), fresh(), "REDUCE")
  const loops = [...globals, step]
  // whole words are copied in the order they have in memory
  const along = [left, right].filter(({ isAlongTerms }) => isAlongTerms)
  const copied = along.find((operand) => !isRounded(operand))
  const ordered = (copied ?? along[0] ?? left).terms
  const shape = {
    ofStep: new Map(digits(steps, step)),
    orderOfTerms: copied === undefined && along.length > 0 && depth % group === 0 ? spread : usually,
    fresh,
    instances: loops,
    loops,
    terms: ordered,
    threads: subgroup * subgroups[0] * subgroups[1]
  }
  const isLonger = wordsOf(left) >= wordsOf(right)
  const [longer, shorter] = memory.map((length, i) => ({ id: firstId + i, length })) as [Memory, Memory]
  const a = stage(left, { ...shape, memory: isLonger ? longer : shorter })
  const b = stage(right, { ...shape, memory: isLonger ? shorter : longer })
  const alongOf = ({ isAlongTerms }: Operand, [terms, own]: readonly [Staged["along"], Staged["along"]]) =>
    isAlongTerms ? terms : own
  const target = storeOf(endOf(end).stores[0]!)
  // neighbouring threads store neighbours
  const isAlongRows = Math.abs(stepOf(target.at, left.own.at(-1)!) ?? Infinity) === 1
  const tile: Omit<MatrixTile, "together"> = {
    threads: subgroup,
    subgroups,
    fragments,
    depth,
    left: { along: alongOf(left, ["row", "column"]), stride: strideOf(left) },
    right: { along: alongOf(right, ["column", "row"]), stride: strideOf(right) },
    result: isAlongRows ? "column" : "row"
  }
  const made = { fresh, halves: [a.halfAt, b.halfAt], left, product, right, step, tile } as const
  // a vector of neighbours in memory, if a thread can have one
  const results = resultsOf(made, "adjacent") ?? resultsOf(made, "alternate") ?? resultsOf(made, "one")!
  return [a.end, b.end, results]
}
