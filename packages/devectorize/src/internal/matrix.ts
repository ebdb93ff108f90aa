/** A product by matrix units as instructions: operands staged for each step of the reduction, fragments multiplied, results stored one fragment at a time. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { decode, type MatrixTile, side, type Staged } from "@tg/core-uop/MatrixTile"
import { isThread, rangeArg, reduceArg, type Side, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf, endOf } from "@tg/core-uop/View"
import type { Code, Scope } from "./code.ts"

/** The reduction that matrix units compute, if a kernel has one. */
export const tiledIn = (kernel: UOp): UOp | undefined =>
  toposort(kernel).find((node) => node.op === "REDUCE" && reduceArg(node).tile !== undefined)

/** Code under construction. */
interface Writing {
  readonly code: Code
  readonly emit: (node: UOp) => UOp
}

const numbers = (n: number): ReadonlyArray<number> => Array.from({ length: n }, (_, i) => i)

/** Emits the kernel of a product: two ENDs that stage its operands, and the one that stores results. */
export const byMatrixUnits = (kernel: UOp, reduce: UOp, writing: Writing): void => {
  const { code, emit } = writing
  const tile = decode(reduceArg(reduce).tile!)
  const steps = reduce.src.slice(1).filter((range) => rangeArg(range).axis !== "MATRIX")
  const [left, right, last] = kernel.src as [UOp, UOp, UOp]
  const lane = toposort(kernel).find(isThread)!
  const subgroup = Expr.shr(lane, Math.log2(tile.threads))
  const [rows, columns] = tile.fragments
  const sums = numbers(rows * columns).map((id) =>
    code.push(code.root, kernel.arena.make("FRAGMENT", DType.f32, [], { id, threads: tile.threads }))
  )
  const scope = code.open(code.root, steps, emit)
  // the fragments of the step before have been read
  code.barrier(scope)
  for (const end of [left, right]) fill(end, scope, { steps, writing })
  code.barrier(scope)
  multiply({ tile, sums, subgroup, left: memoryOf(left), right: memoryOf(right) }, scope, writing)
  code.close(code.root, steps)
  results(last, { lane, reduce, subgroup, sums, tile }, writing)
}

const memoryOf = (end: UOp): UOp => accessOf(endOf(end).stores[0]!).buffer

/** Stages an operand. */
const fill = (
  end: UOp,
  scope: Scope,
  { steps, writing: { code, emit } }: { readonly steps: ReadonlyArray<UOp>; readonly writing: Writing }
): void => {
  const { loops, stores } = endOf(end)
  const own = loops.filter((range) => !steps.includes(range))
  const body = code.open(scope, own, emit)
  for (const store of stores) code.push(body, store.with(store.src.map(emit)))
  code.close(scope, own)
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
  const [, across] = tile.subgroups
  const [rows, columns] = tile.fragments
  const block = Expr.shr(subgroup, Math.log2(across))
  const blockAcross = Expr.and(subgroup, across - 1)
  /** Words from the beginning of the memory to a fragment: the i-th of the subgroup, at a place of the sum. */
  const load = (of: Side, memory: UOp, { along, stride }: Staged, base: (words: number) => UOp, term: number): UOp => {
    const own = of === "left" ? "row" : "column"
    const at = along === own ? Expr.add(base(stride), term / 2) : Expr.add(base(1 / 2), term * stride)
    const arg = { side: of, along, stride, threads: tile.threads }
    return code.push(scope, arena.make("FRAGMENT_LOAD", DType.f32, [element(memory, at, { code, emit })], arg))
  }
  const base = (block: UOp, fragments: number, i: number) => (words: number): UOp =>
    Expr.add(Expr.mul(block, fragments * side * words), i * side * words)
  for (let term = 0; term < tile.depth; term += side) {
    const a = numbers(rows).map((i) => load("left", left, tile.left, base(block, rows, i), term))
    const b = numbers(columns).map((j) => load("right", right, tile.right, base(blockAcross, columns, j), term))
    for (const [i, x] of a.entries()) {
      for (const [j, y] of b.entries()) {
        const sum = sums[i * columns + j]!
        code.push(scope, arena.make("FRAGMENT_MULACC", DType.none, [sum, x, y], code.freshId()))
      }
    }
  }
}

/** The address of an instruction; its parts are computed where they can be. */
const element = (memory: UOp, at: UOp, { emit }: Writing): UOp => emit(Expr.element(memory, at))

/** Stores what is computed from a subgroup's fragments, one after the other, each by way of workgroup memory. */
const results = (
  end: UOp,
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
  const { arena } = end
  const { loops, stores } = endOf(end)
  const [fragment, fragmentAcross] = loops.filter((range) => rangeArg(range).axis === "MATRIX")
  const turn = loops.find((range) => rangeArg(range).axis === "LOOP")
  const [rows, columns] = tile.fragments
  const patch = code.memory(DType.f32, tile.subgroups[0] * tile.subgroups[1] * side * side)
  const first = Expr.mul(subgroup, side * side)
  const own = Expr.add(first, Expr.and(lane, tile.threads - 1))
  for (const i of numbers(rows)) {
    for (const j of numbers(columns)) {
      // what the fragment before left has been read
      code.barrier(code.root)
      const place = element(patch, first, writing)
      const arg = { along: tile.result, stride: side }
      code.push(code.root, arena.make("FRAGMENT_STORE", DType.none, [place, sums[i * columns + j]!], arg))
      code.barrier(code.root)
      const places = new Map<UOp, UOp>()
      if (fragment !== undefined) places.set(fragment, Expr.int(arena, i))
      if (fragmentAcross !== undefined) places.set(fragmentAcross, Expr.int(arena, j))
      const now = Expr.range(arena, turn!.src[0]!, code.freshRange(), "LOOP")
      places.set(turn!, now)
      places.set(reduce, Expr.load(Expr.element(patch, Expr.add(own, Expr.mul(now, tile.threads)))))
      const body = code.open(code.root, [now], emit)
      for (const store of stores) code.push(body, emitted(substitute(store, places), emit))
      code.close(code.root, [now])
    }
  }
}

const emitted = (store: UOp, emit: (node: UOp) => UOp): UOp => store.with(store.src.map(emit))
