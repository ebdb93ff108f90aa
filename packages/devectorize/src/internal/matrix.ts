/**
 * A product by matrix units as instructions: operands staged for each step of the reduction, fragments multiplied, results stored by way
 * of the memory that operands were in. What the next step needs is loaded before this one multiplies, so that its latency is hidden (software pipelining).
 */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { decode, type MatrixTile, placeTogether, type Side, side, type Staged } from "@tg/core-uop/MatrixTile"
import { argOf, isThread, rangeArg, reduceArg, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf, endOf, fixedSize } from "@tg/core-uop/View"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import type { Code, Scope } from "./code.ts"
import { stack } from "./lanes.ts"

/** The reduction of an END that matrix units compute, if it has one. */
const tiledIn = (end: UOp): UOp | undefined =>
  toposort(end).find((node) => node.op === "REDUCE" && reduceArg(node).tile !== undefined)

/** Code under construction. */
interface Writing {
  readonly code: Code
  readonly emit: (node: UOp) => UOp
  /** Waits for workgroup memory that an END reads, if it was written since the last barrier. */
  readonly meet: (end: UOp) => void
}

/** The ENDs of a product: two that stage its operands, and the one that stores results. */
type Product = readonly [left: UOp, right: UOp, results: UOp]

/** Emits an END of a kernel that belongs to a product, and says whether it does; that of the results emits all three. */
export const inProducts = (kernel: UOp, writing: Writing): (end: UOp) => boolean => {
  const { code, meet } = writing
  const products = kernel.src.flatMap((end, i): ReadonlyArray<Product> =>
    tiledIn(end) === undefined ? [] : [[kernel.src[i - 2]!, kernel.src[i - 1]!, end]]
  )
  const written = new Set(kernel.src.flatMap((end) => endOf(end).stores.map((store) => accessOf(store).buffer)))
  return (end) => {
    const at = products.findIndex((product) => product.includes(end))
    const product = products[at]
    if (product === undefined) return false
    if (end !== product[2]) return true
    product.slice(0, 2).forEach(meet)
    // results of the product before have left the memory that they share
    if (at > 0) code.barrier(code.root)
    byMatrixUnits(product, writing)
    const next = products[at + 1]
    if (next !== undefined) loadAhead(next, (buffer) => written.has(buffer), writing)
    return true
  }
}

const numbers = (n: number): ReadonlyArray<number> => Array.from({ length: n }, (_, i) => i)

/** Emits a product. */
const byMatrixUnits = (ends: Product, writing: Writing): void => {
  const [left, right, results] = ends
  const { code } = writing
  // every thread stages its share
  const lane = toposort(left).find(isThread)!
  const { arena } = results
  const reduce = tiledIn(results)!
  const tile = decode(reduceArg(reduce).tile!)
  const step = stepOf(results)
  const subgroup = Expr.shr(lane, Math.log2(tile.threads))
  const [rows, columns] = tile.fragments
  const sums = numbers(rows * columns).map(() =>
    code.push(code.root, arena.make("FRAGMENT", DType.f32, [], { id: code.freshId(), threads: tile.threads }))
  )
  const operands = [left, right].flatMap((end) => storesOf(end, step))
  const product = { tile, sums, subgroup, left: memoryOf(left), right: memoryOf(right) }
  inSteps({ operands, step, multiply: (scope) => multiply(product, scope, writing) }, writing)
  store(ends, { lane, reduce, subgroup, sums, tile }, writing)
}

/** A product as its steps. */
interface Steps {
  /** Stores of what is staged for a step. */
  readonly operands: ReadonlyArray<UOp>
  /** The loop of all steps; one step has none. */
  readonly step: UOp | undefined
  readonly multiply: (scope: Scope) => void
}

/** Stages and multiplies step after step: a loop over all but the last, each of which loads what the next one needs. */
const inSteps = ({ multiply, operands, step }: Steps, writing: Writing): void => {
  const { code, emit } = writing
  const { arena } = operands[0]!
  const first = atStep(operands, step, Expr.int(arena, 0))
  load(first, emit)
  put(first, code.root, writing)
  code.barrier(code.root)
  if (step !== undefined && fixedSize(step) !== 1) {
    const turn = Expr.range(arena, Symbolic.simplify(Expr.sub(step.src[0]!, 1)), code.freshRange(), "LOOP")
    const scope = code.open(code.root, [turn], emit)
    const next = atStep(operands, step, Expr.add(turn, 1))
    load(next, emit)
    multiply(scope)
    // all fragments of this step have been read
    code.barrier(scope)
    put(next, scope, writing)
    code.barrier(scope)
    code.close(code.root, [turn])
  }
  multiply(code.root)
}

const instancesOf = (end: UOp): UOp => accessOf(endOf(end).stores[0]!).buffer

/** The memory of an operand: one for all steps. */
const memoryOf = (end: UOp): UOp => {
  const { arena, arg, dtype } = instancesOf(end)
  return arena.make("LOCAL", dtype, [], arg)
}

/** The stores that stage an operand, with copies for the turns of a thread. */
const storesOf = (end: UOp, step: UOp | undefined): ReadonlyArray<UOp> => {
  const { loops, stores } = endOf(end)
  return loops.filter((range) => range !== step).reduce<ReadonlyArray<UOp>>(
    (copies, range) =>
      numbers(fixedSize(range)!).flatMap((i) =>
        copies.map((store) => substitute(store, new Map([[range, Expr.int(end.arena, i)]])))
      ),
    stores.map((store) => substitute(store, new Map([[instancesOf(end), memoryOf(end)]])))
  )
}

/** Loads what a product stages first, as far as it is in memory that the kernel only reads: what stands in front of the product hides their latency. */
const loadAhead = (
  [left, right, results]: Product,
  isWritten: (buffer: UOp) => boolean,
  { emit }: Writing
): void => {
  const step = stepOf(results)
  const operands = [left, right].flatMap((end) => storesOf(end, step))
  for (const node of toposort(...atStep(operands, step, Expr.int(results.arena, 0)))) {
    if (node.op !== "LOAD") continue
    const { buffer, gate } = accessOf(node)
    if (buffer.op === "PARAM" && gate === undefined && !isWritten(buffer)) emit(node)
  }
}

/** The loop of a product's steps; a product of one step has none. */
const stepOf = (results: UOp): UOp | undefined =>
  tiledIn(results)!.src.slice(1).find((range) => rangeArg(range).axis !== "MATRIX")

/** Stores of a step. */
const atStep = (stores: ReadonlyArray<UOp>, step: UOp | undefined, value: UOp): ReadonlyArray<UOp> =>
  step === undefined ? stores : stores.map((store) => substitute(store, new Map([[step, value]])))

/** Loads what stores need. */
const load = (stores: ReadonlyArray<UOp>, emit: (node: UOp) => UOp): void => {
  for (const node of toposort(...stores)) if (node.op === "LOAD") emit(node)
}

const put = (stores: ReadonlyArray<UOp>, scope: Scope, { code, emit }: Writing): void => {
  for (const store of stores) code.push(scope, emitted(store, emit))
}

/** Adds the products of what is staged to a subgroup's fragments. */
const multiply = (
  { left, right, subgroup, sums, tile }: {
    readonly tile: MatrixTile
    readonly sums: ReadonlyArray<UOp>
    readonly subgroup: UOp
    readonly left: UOp
    readonly right: UOp
  },
  scope: Scope,
  { code, emit }: Writing
): void => {
  const { arena } = left
  const id = code.freshId()
  const [, across] = tile.subgroups
  const [rows, columns] = tile.fragments
  const block = Expr.shr(subgroup, Math.log2(across))
  const blockAcross = Expr.and(subgroup, across - 1)
  /** Words from the beginning of the memory to a fragment: the i-th of the subgroup, at a place of the sum. */
  const fragment = (
    of: Side,
    memory: UOp,
    { along, stride }: Staged,
    base: (words: number) => UOp,
    term: number
  ): UOp => {
    const own = of === "left" ? "row" : "column"
    const at = along === own ? Expr.add(base(stride), term / 2) : Expr.add(base(1 / 2), term * stride)
    const arg = { id, side: of, along, stride, threads: tile.threads }
    return code.push(scope, arena.make("FRAGMENT_LOAD", DType.f32, [element(memory, at, { emit })], arg))
  }
  const base = (block: UOp, fragments: number, i: number) => (words: number): UOp =>
    Expr.add(Expr.mul(block, fragments * side * words), i * side * words)
  for (let term = 0; term < tile.depth; term += side) {
    const a = numbers(rows).map((i) => fragment("left", left, tile.left, base(block, rows, i), term))
    const b = numbers(columns).map((j) => fragment("right", right, tile.right, base(blockAcross, columns, j), term))
    for (const [i, x] of a.entries()) {
      for (const [j, y] of b.entries()) {
        const sum = sums[i * columns + j]!
        code.push(scope, arena.make("FRAGMENT_MULACC", DType.none, [sum, x, y], code.freshId()))
      }
    }
  }
}

/** The address of an instruction; its parts are computed where they can be. */
const element = (memory: UOp, at: UOp, { emit }: Pick<Writing, "emit">): UOp => emit(Expr.element(memory, at))

/** The workgroup memory by way of which results leave, where operands were. */
const patchOf = ([left, right]: Product): UOp =>
  [left, right].map(memoryOf).toSorted((a, b) => argOf(b, "LOCAL").length - argOf(a, "LOCAL").length)[0]!

/** Stores what is computed from a subgroup's fragments by way of workgroup memory: elements of a fragment cannot be reached. As many at a time as there is room for. */
const store = (
  product: Product,
  { lane, reduce, subgroup, sums, tile }: {
    readonly lane: UOp
    readonly reduce: UOp
    readonly subgroup: UOp
    readonly sums: ReadonlyArray<UOp>
    readonly tile: MatrixTile
  },
  writing: Writing
): void => {
  const { code, emit } = writing
  const [, , end] = product
  const { arena } = end
  const { loops, stores } = endOf(end)
  const [rows, columns] = tile.fragments
  const fragments = loops.filter((range) => rangeArg(range).axis === "MATRIX")
  // what is one fragment has no loop
  const fragment = rows > 1 ? fragments[0] : undefined
  const fragmentAcross = columns > 1 ? fragments.at(-1) : undefined
  const turn = loops.find((range) => rangeArg(range).axis === "LOOP")
  const patch = patchOf(product)
  const each = tile.subgroups[0] * tile.subgroups[1] * side * side
  const atOnce = Math.min(rows * columns, Math.floor(argOf(patch, "LOCAL").length / each))
  const { lanes } = reduce.dtype
  const within = Expr.and(lane, tile.threads - 1)
  const across = Math.log2(side / lanes)
  /** The place of a fragment of the subgroup. */
  const placeOf = (number: number): UOp =>
    Expr.add(Expr.mul(subgroup, atOnce * side * side), (number % atOnce) * side * side)
  /** The places of what a thread has of a fragment in one turn. */
  const own = (number: number): ReadonlyArray<UOp> =>
    numbers(lanes).map((i) => {
      const far = Expr.add(placeOf(number), Expr.mul(Expr.shr(within, across), side))
      return Expr.add(far, placeTogether(tile.together, Expr.and(within, side / lanes - 1), i))
    })
  const put = (number: number): void => {
    const arg = { along: tile.result, stride: side }
    const place = element(patch, placeOf(number), writing)
    code.push(code.root, arena.make("FRAGMENT_STORE", DType.none, [place, sums[number]!], arg))
  }
  const take = (number: number): void => {
    const places = new Map<UOp, UOp>()
    if (fragment !== undefined) places.set(fragment, Expr.int(arena, Math.floor(number / columns)))
    if (fragmentAcross !== undefined) places.set(fragmentAcross, Expr.int(arena, number % columns))
    // a loop for each fragment, even of one turn: what is loaded in it is another fragment's elsewhere
    const now = Expr.range(arena, turn?.src[0] ?? 1, code.freshRange(), "LOOP")
    if (turn !== undefined) places.set(turn, now)
    const load = (place: UOp, lanes: DType.Lanes): UOp =>
      Expr.bitcast(
        Expr.load(Expr.element(patch, Expr.add(place, Expr.mul(now, tile.threads * reduce.dtype.lanes))), lanes),
        DType.f32
      )
    const [first, ...others] = own(number)
    const isVector = tile.together === "adjacent"
    places.set(reduce, isVector ? load(first!, lanes) : stack([first!, ...others].map((place) => load(place, 1))))
    const body = code.open(code.root, [now], emit)
    for (const store of stores) code.push(body, emitted(substitute(store, places), emit))
    code.close(code.root, [now])
  }
  for (let first = 0; first < rows * columns; first += atOnce) {
    const some = numbers(Math.min(atOnce, rows * columns - first)).map((i) => first + i)
    // operands, or the fragments before, have been read
    code.barrier(code.root)
    some.forEach(put)
    code.barrier(code.root)
    some.forEach(take)
  }
}

const emitted = (store: UOp, emit: (node: UOp) => UOp): UOp => store.with(store.src.map(emit))
