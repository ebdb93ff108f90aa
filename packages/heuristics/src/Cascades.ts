/**
 * Kernels that compute a piece of a cascade for several rows: scores of the rows and the piece's positions, their maxima and weights, the states
 * beside the mix, and the mix. Rows are heads and tokens that read the same positions.
 */
import * as Bounds from "@tg/core-uop/Bounds"
import { openRanges, toposort, type UOp } from "@tg/core-uop/UOp"
import { isStage, loopsBetween } from "@tg/core-uop/Workgroup"
import { accessOf } from "@tg/core-uop/View"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Loops from "@tg/postrange/Loops"
import * as Matrix from "@tg/postrange/Matrix"
import * as Opt from "@tg/postrange/Opt"
import { groupReductions, maxGroup } from "./Groups.ts"
import { choosePieces } from "./Matrix.ts"
import { residentWorkgroups } from "./Occupancy.ts"
import type { Plan } from "./Plan.ts"
import { iterations, largestDivisor, largestPower, largestPowerOfTwo } from "./Sizes.ts"
import { lanes, loadsOf, vectoriseOutputs, vectoriseReductions } from "./Vectors.ts"

/** Rows of a register tile of scores or of a mix: what they share is unpacked once, and each has registers for its sums. */
const rowsOfTile = 4
/** Vectors that a tile of scores sums up, and positions of the mix whose loads are under way at a time. */
const mostVectors = 16
/** Results of a thread's mix times positions that are unrolled. */
const mostCopies = 256

/** The loops of an END that its workgroup runs and that have no opt yet. */
const ownLoops = (plan: Plan, end: UOp): ReadonlyArray<Loops.Loop> => {
  const between = loopsBetween(plan.kernel)
  return Loops.ofEnd(end).filter((loop) =>
    !between.has(loop.node) && !loop.isSymbolic && (loop.axis === "LOOP" || loop.axis === "GLOBAL")
  )
}

/**
 * Whether all workgroups are usually resident at once, with so many threads: along the pieces of a range of positions a quarter of the way from the fewest to
 * the most, as costs have it (`egraph/SplitCost`). Then nothing else hides the latency of a workgroup's loads.
 */
const areResident = (plan: Plan, threads: number, profile: DeviceProfile): boolean => {
  const counts = [...loopsBetween(plan.kernel)].map((loop) => Bounds.of(loop.src[0]!))
  const workgroups = counts.reduce((n, { max, min }) => n * (min + (max - min) / 4), 1)
  return workgroups <= residentWorkgroups(profile, threads)
}

/** One END of a kernel under construction. */
interface Part {
  readonly plan: Plan
  readonly end: () => UOp
  readonly own: () => ReadonlyArray<Loops.Loop>
  readonly threads: number
  /** Positions of a tile of scores, at most. */
  readonly positions: number
}

/** Upcasts these loops, the first ones first, up to so many copies together. */
const upcast = ({ plan }: Part, loops: ReadonlyArray<Loops.Loop>, most: number): void => {
  loops.reduce((left, { id, size }) => {
    const amount = largestPower(size, left)
    return plan.try(Opt.upcast(id, amount)) ? left / amount : left
  }, most)
}

/** Threads for these loops, as far as they are left over, the first ones first: neighbouring threads differ in the first. */
const spread = ({ own, plan }: Part, ids: ReadonlyArray<number>, most: number): void => {
  ids.reduce((left, id) => {
    const loop = own().find((each) => each.id === id)
    const amount = loop === undefined ? 1 : largestDivisor(loop.size, left)
    return plan.try(Opt.local(id, amount)) ? Math.floor(left / amount) : left
  }, most)
}

const idsOf = (loops: ReadonlyArray<Loops.Loop>): ReadonlyArray<number> => loops.map(({ id }) => id)

const grouped = (end: UOp): number => Math.max(1, ...Loops.reductions(end).map(Loops.groupOf))

const upcasts = (end: UOp): number => iterations(Loops.ofEnd(end).filter(({ axis }) => axis === "UPCAST"))

/** Products with what is read at the positions: a register tile of rows and positions, and as many threads for a product as are left. */
const chooseScores = (part: Part): void => {
  const { end, own, plan, positions, threads } = part
  vectoriseReductions(plan, { part: end })
  const [position, ...rows] = own().toReversed()
  upcast(part, rows, rowsOfTile)
  upcast(part, [position!], Math.min(positions, mostVectors / upcasts(end())))
  const group = Math.max(1, Math.min(maxGroup, threads / iterations(own())))
  groupReductions(plan, largestPower(maxGroup, group), { part: end })
  // constant places in a word are unpacked by one instruction
  const serial = Loops.loopsOf(Loops.reductions(end()).at(-1)!)
  for (const { id, size } of serial.filter((loop) => loop.axis === "REDUCE" && loop.size <= 2)) {
    plan.try(Opt.unroll(id, size))
  }
  spread(part, idsOf([position!, ...rows]), threads / grouped(end()))
}

/** Loops that what an END loads depends on. */
const isRow = (end: UOp, loop: UOp): boolean =>
  toposort(end).some((load) => load.op === "LOAD" && openRanges(accessOf(load).at).has(loop))

/** What is computed from scores alone: few values, or one for each score. */
const chooseState = (part: Part): void => {
  const { end, own, plan, threads } = part
  const isSum = Loops.reductions(end()).length > 0
  if (!isSum) vectoriseOutputs(plan, end, own())
  // columns of a state differ in what they are: one thread stores them
  const columns = own().filter(({ node }) => !isRow(end(), node))
  for (const { id, size } of columns.toReversed()) plan.try(Opt.upcast(id, size))
  const all = own().toReversed()
  if (isSum) groupReductions(plan, largestPower(maxGroup, threads / iterations(all)), { part: end })
  spread(part, idsOf(all), threads / grouped(end()))
}

/** The mix: neighbouring threads read neighbouring columns, and unpack them for several rows. */
const chooseMix = (part: Part): void => {
  const { end, own, plan, threads } = part
  const all = own()
  // but for what says where the positions are, as a table of pages
  const read = Loops.reductions(end()).flatMap(loadsOf).map((load) => openRanges(load.src[0]!))
    .filter((open) => all.some(({ node }) => open.has(node)))
  const first = all.findIndex(({ node }) => read.some((open) => open.has(node)))
  const rows = all.slice(0, first).toReversed()
  const columns = all.slice(first).toReversed()
  const words = columns.filter(({ node }) => read.every((open) => open.has(node)))
  vectoriseOutputs(plan, end, words)
  // values of one word
  for (const { id, size } of columns.filter((loop) => !words.includes(loop))) plan.try(Opt.upcast(id, size))
  // several rows for each thread, as long as every thread has some
  upcast(part, rows, Math.min(rowsOfTile, largestPowerOfTwo(iterations(own()) / threads)))
  spread(part, idsOf([...words, ...rows]), threads)
  const positions = Loops.loopsOf(Loops.reductions(end()).at(-1)!).find(({ axis }) => axis === "REDUCE")!
  plan.try(Opt.unroll(positions.id, largestDivisor(positions.size, Math.min(mostVectors, mostCopies / upcasts(end())))))
}

/** Whether a kernel computes a piece of a cascade: what stands beside the mix has an END of its own. */
export const isCascade = (kernel: UOp): boolean => {
  const [state, mix] = kernel.src.slice(-2)
  return kernel.src.length > 2 && !isStage(state!) && mix!.src.slice(1).some((loop) => state!.src.includes(loop, 1))
}

/** Opts of such a kernel, whose workgroups have so many threads, unless matrix units decide that. */
export const chooseCascade = (plan: Plan, most: number, profile: DeviceProfile): void => {
  const last = plan.kernel.src.length - 1
  const ofUnits = choosePieces(plan, profile)
  // of few workgroups each thread does half as much
  const halved = areResident(plan, 2 * most, profile) ? 2 : 1
  const threads = ofUnits ?? Math.min(halved * most, profile.maxWorkgroupThreads)
  for (let number = 0; number <= last; number++) {
    const end = (): UOp => plan.kernel.src[number]!
    if (ofUnits !== undefined && Matrix.productIn(end()) !== undefined) continue
    const part: Part = { plan, end, own: () => ownLoops(plan, end()), threads, positions: lanes / halved }
    const isProduct = Loops.reductions(end()).some((reduction) => loadsOf(reduction).length > 0)
    const choosePart = !isProduct ? chooseState : number < last ? chooseScores : chooseMix
    choosePart(part)
  }
}
