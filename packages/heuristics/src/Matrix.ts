/** Tiles for matrix units: products of halves, where enough rows and columns meet. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { side } from "@tg/core-uop/MatrixTile"
import { type Op } from "@tg/core-uop/Op"
import { openRanges, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import * as Matrix from "@tg/postrange/Matrix"
import * as Opt from "@tg/postrange/Opt"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { loopsBetween } from "@tg/core-uop/Workgroup"
import { Plan } from "./Plan.ts"

/** Rows and columns of a tile, and the terms that are staged at a time. */
interface Tile {
  readonly rows: number
  readonly columns: number
  readonly depth: number
}

/**
 * The latency of staging is hidden by other workgroups, so small tiles win: scores of 16 tokens of 20 heads and 16000 positions on an H200 at 103 TFLOP/s
 * with 64 x 64, at 43 with 64 x 128.
 */
const usual: Tile = { rows: 64, columns: 64, depth: 64 }
/** The most columns beside 64 rows that 8 subgroups have accumulators for. */
const widest = 512
const shallow = 32

const costly: ReadonlySet<Op> = new Set<Op>(["EXP2", "LOG2", "SIN", "SQRT", "FDIV"])
/** Whether elements of an operand take longer to compute than to copy: then each is computed for as many results as possible. */
const isCostly = (operand: UOp): boolean => toposort(operand).some(({ op }) => costly.has(op))

const tileFor = ({ left, right }: Matrix.Product): Tile =>
  isCostly(left)
    ? { rows: usual.rows, columns: widest, depth: shallow }
    : isCostly(right)
    ? { rows: widest, columns: usual.columns, depth: shallow }
    : usual

/** The largest power of two that divides the iterations of a loop, symbolic ones included. */
const whole = ({ node }: Loops.Loop): number => {
  const divisor = Symbolic.divisor(node.src[0]!)
  return divisor & -divisor
}

/** Opts that take so many iterations of these loops, the last loops first; none where they have no such factors. */
const taken = (loops: ReadonlyArray<Loops.Loop>, wanted: number): ReadonlyArray<Opt.Opt> | undefined => {
  const opts: Array<Opt.Opt> = []
  let left = wanted
  for (const loop of loops.toReversed()) {
    const amount = Math.min(left, whole(loop))
    if (amount === 1) continue
    opts.push(Opt.matrix(loop.id, amount))
    left /= amount
  }
  return left === 1 ? opts : undefined
}

/** The most iterations, up to those wanted, that these loops have whole. */
const most = (loops: ReadonlyArray<Loops.Loop>, wanted: number): number => {
  return Math.min(wanted, loops.reduce((n, loop) => n * whole(loop), 1))
}

/** Takes all of these opts, if they are tiles that the device has room for; none otherwise. */
const takes = (plan: Plan, profile: DeviceProfile, opts: ReadonlyArray<Opt.Opt>): boolean => {
  const trial = new Plan(plan.kernel, profile, plan.legal)
  if (!opts.every((opt) => trial.try(opt)) || Matrix.whyNot(trial.kernel, profile) !== undefined) return false
  return opts.every((opt) => plan.try(opt))
}

/**
 * Terms of a score, and positions of a mix, that a workgroup stages at a time where it computes both of a piece: the most that it has memory for, since it waits for each
 * step. Pieces of 64 positions of 20 rows take an H100 15.6 us behind 4096, and 17.2 with 16 positions at a time; with 144 terms, of which a thread
 * holds more on their way than there are registers for, 19.3.
 */
const ofPieces: ReadonlyArray<readonly [terms: number, positions: number]> = [[64, 32], [64, 16], [32, 16]]

/** Opts for both products of a piece, each of all rows and columns that a workgroup has of it. */
const optsOfPieces = (
  products: ReadonlyArray<Matrix.Product>,
  between: ReadonlySet<UOp>,
  depths: readonly [terms: number, positions: number]
): ReadonlyArray<Opt.Opt> =>
  products.flatMap(({ end, reduce }, i) => {
    const own = Loops.ofEnd(end).filter(({ isSymbolic, node }) => !between.has(node) && !isSymbolic)
    const terms = Loops.loopsOf(reduce)
    return [...own.map(({ id, size }) => Opt.matrix(id, size)), ...taken(terms, most(terms, depths[i]!)) ?? []]
  })

/** Tiles for scores and mix of a piece. Returns the threads of the workgroup; none where one of the two is no product for matrix units. */
export const choosePieces = (plan: Plan, profile: DeviceProfile): number | undefined => {
  const { kernel } = plan
  if (Matrix.whyNone(kernel, profile) !== undefined) return undefined
  const found = kernel.src.map(Matrix.productIn)
  const products = found.filter((product) => product !== undefined)
  if (products.length !== 2 || found.at(-1) === undefined) return undefined
  const between = loopsBetween(kernel)
  for (const depths of ofPieces) {
    if (takes(plan, profile, optsOfPieces(products, between, depths))) return Matrix.threadsOf(plan.kernel, profile)
  }
  return undefined
}

/** Chooses a tile for matrix units, if the device has them and the kernel is a product for them. */
export const chooseMatrix = (plan: Plan, profile: DeviceProfile): boolean => {
  const { kernel } = plan
  const product = Matrix.productOf(kernel)
  if (product === undefined || Matrix.whyNone(kernel, profile) !== undefined) return false
  const outputs = Loops.ofEnd(kernel.src[0]!)
  const of = (operand: UOp, other: UOp) =>
    outputs.filter(({ node }) => openRanges(operand).has(node) && !openRanges(other).has(node))
  const [rows, columns] = [of(product.left, product.right), of(product.right, product.left)]
  const terms = Loops.loopsOf(product.reduce)
  const wanted = tileFor(product)
  const [height, width] = [most(rows, wanted.rows), most(columns, wanted.columns)]
  for (let depth = most(terms, wanted.depth); depth >= side; depth /= 2) {
    const opts = [taken(rows, height), taken(columns, width), taken(terms, depth)]
    if (height < side || width < side || opts.includes(undefined)) return false
    if (takes(plan, profile, opts.flatMap((list) => list ?? []))) return true
  }
  return false
}
