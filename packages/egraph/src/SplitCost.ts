/** What a cascade takes on a device, whole and in pieces: a model of few quantities, calibrated by attention on an H200. */
import { type DeviceProfile, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import * as Bounds from "@tg/core-uop/Bounds"
import * as Shape from "@tg/core-uop/Shape"
import { page, piecesOf } from "./Axis.ts"
import { type Cascade, isShared } from "./Cascade.ts"
import { countOf, type Plan, type Together } from "./Pieces.ts"

/** How much a cascade has to do. */
export interface Site {
  /** Sizes of pieces that the axis can be cut into. */
  readonly pieces: ReadonlyArray<number>
  /** Cascades side by side: of heads and tokens. */
  readonly rows: number
  /** The axes of these rows along which they read the same values, with their sizes. */
  readonly shared: Together
  /** Positions that each of them runs over: a quarter of the way from the least to the most, where that is symbolic, as a context is seldom full. */
  readonly positions: number
  /** Positions that it runs over at least. */
  readonly least: number
  /** Whether it is known at launch alone how many they are. */
  readonly isSymbolic: boolean
  /** Values of each result. */
  readonly width: number
  /** Reductions one after the other, the result included. */
  readonly steps: number
}

/**
 * Sizes of pieces that are tried: those whose positions share a workgroup. On an H200 smaller ones took up to 1.5 us less alone,
 * and what puts them together, wherever a launch needs them, as much longer (docs/decode-h200.md).
 */
const sizes: ReadonlyArray<number> = [64, 128, 256]
const most = (shape: Shape.Shape): number => shape.reduce<number>((n, d) => n * Shape.maxOf(d), 1)

/** Positions of a cascade of this size, as usual and at least. */
const rangeOf = (size: Shape.Dim): Pick<Site, "positions" | "least" | "isSymbolic"> => {
  if (typeof size === "number") return { positions: size, least: size, isSymbolic: false }
  const { max, min } = Bounds.of(size)
  // whole pages are looked at, in the beginning of a context, too
  const behind = Math.max(0, min - page)
  return { positions: behind + (max - behind) / 4, least: Math.max(page, min), isSymbolic: true }
}

/** The figures of a cascade. */
export const siteOf = (cascade: Cascade): Site => {
  const { root: { axis, reduce }, size, steps } = cascade
  const shape = Shape.of(reduce.src[0]!)
  const rows = shape.slice(0, axis)
  // pieces that may not be full have a condition in their loops
  const whole = sizes.filter((piece) => piecesOf(size, piece) !== undefined)
  return {
    pieces: whole.length > 0 ? whole : sizes.filter((piece) => countOf(cascade, piece).count !== undefined),
    rows: most(rows),
    shared: rows.flatMap((own, at) =>
      typeof own === "number" && own > 1 && isShared(cascade, at) ? [{ axis: at, size: own }] : []
    ),
    ...rangeOf(size),
    width: most(shape.slice(axis + 1)),
    steps: steps.length + 1
  }
}

/** Neighbours along an axis that are tried: what they read is unpacked once. */
const neighbours: ReadonlyArray<number> = [4, 2]
const mostTogether = 8

/** Operations for each value of a row that is read: unpacking it for the rows of a register tile, and its products with a query and with a weight. */
const unpacking = 4
const multiplying = 2
const rowsOfTile = 4
/** Bytes of a value, which each workgroup reads from the shared cache, for the scores and again for the mix, before it computes with it. */
const valueBytes = 2
/** Loads of a thread that are under way at a time. */
const loadsAtOnce = 6
/** Of a workgroup's fixed costs, what others beside it do not hide. */
const visible = 0.75
/** Threads of a workgroup: they share the terms of a result, or have a result each. */
const threads = 256

/**
 * Tokens of a step, at most, of whose attention each score and each weight is a workgroup: what positions there are is known at launch alone, so that none computes several, and
 * every weight finds again what its row has of each reduction. 16 tokens of GLM-4.7-Flash behind 600 in a context of 816 took an H100 20.0 ms so, in pieces in a context of 1024 10.6; 8 of Youtu-LLM-2B behind 400
 * in one of 512 4.6, and 3.1 in pieces. More tokens are tiles.
 */
const fewTokens = 32

/** All ways to take rows together, those of the first axes first. */
const togethers = (shared: Together): ReadonlyArray<Together> =>
  shared.toReversed().reduce<ReadonlyArray<Together>>(
    (ways, { axis, size }) =>
      ways.flatMap((way) => [
        way,
        ...neighbours.filter((n) => size % n === 0).map((n) => [...way, { axis, size: n }])
      ]),
    [[]]
  ).filter((together) => rowsTogether({ together }) <= mostTogether)

/** Rows that a workgroup computes. */
export const rowsTogether = ({ together = [] }: Pick<Plan, "together">): number =>
  together.reduce((n, { size }) => n * size, 1)

/** The axis of tokens; heads are behind it. */
export const tokenAxis = 0
const tokensOf = (shared: Together): number => shared.find(({ axis }) => axis === tokenAxis)?.size ?? 1
const tokensTogether = ({ together = [] }: Plan): number => tokensOf(together)

/** A plan, and what it takes. */
export interface Costed {
  /** Pieces; all positions together, if there is none. */
  readonly plan: Plan | undefined
  readonly micros: number
  readonly wholeMicros: number
  /** What the plan takes behind so many positions. */
  readonly behind?: ((positions: number) => number) | undefined
}

/** The pieces that take the least time, if any take less than all positions together. */
export const cheapest = (site: Site, profile: DeviceProfile): Costed => {
  const { isSymbolic, pieces, positions, rows, shared, steps, width } = site
  const known = quantitiesOf(profile)
  const { cachedLoadMicros, cachedPerByte, loadMicros, operationsPerByte, processors, stageMicros } = known
  const perMicro = operationsPerByte * profile.bytesPerMicro
  // scores take about as much as the mix
  const values = 2 * width
  const inLine = (terms: number): number => terms * cachedLoadMicros / loadsAtOnce
  const hasTokens = shared.some(({ axis }) => axis === tokenAxis)
  // what is read and unpacked serves the rows of a tile, as it does in pieces
  const term = (hasTokens ? multiplying + unpacking / rowsOfTile : multiplying) / perMicro +
    valueBytes / (hasTokens ? mostTogether : 1) / (cachedPerByte * profile.bytesPerMicro)
  const waiting = isSymbolic && tokensOf(shared) <= fewTokens
    ? rows * positions / (processors * known.residentWorkgroups) * (2 * loadMicros + steps * stageMicros)
    : 0
  const wholeMicros = steps * profile.dispatchMicros + inLine(positions * Math.min(1, width / threads)) +
    rows * positions * values * term + waiting
  const microsBehind = (plan: Plan, positions: number): number => {
    const together = rowsTogether(plan)
    // several rows are a tile, whose values are read from the shared cache
    const isTile = hasTokens || together > 1
    const workgroups = Math.max(1, rows / together * positions / plan.piece)
    const tiles = isTile ? Math.ceil(together / rowsOfTile) : 1
    const computing = (unpacking * tiles + multiplying * together) * processors / perMicro
    const reading = isTile ? valueBytes * processors / (cachedPerByte * profile.bytesPerMicro) : 0
    const busy = plan.piece * values * (computing + reading)
    // the first workgroup of each processor waits for its stages, one after the other; each is of all rows
    const first = profile.dispatchMicros + steps * stageMicros + busy
    return first + workgroups / processors * (visible * stageMicros + busy) + profile.dispatchMicros +
      inLine(positions / plan.piece)
  }
  // short prompts and drafts of several tokens come at the beginning of a conversation as often as deep in one
  const depthsOf = ({ piece }: Plan): ReadonlyArray<number> =>
    hasTokens ? [Math.min(Math.max(piece, site.least), positions), positions] : [positions]
  const usually = (plan: Plan): number => depthsOf(plan).reduce((sum, depth) => sum + microsBehind(plan, depth), 0)
  const plans = pieces.flatMap((piece) => togethers(shared).map((together): Plan => ({ piece, together })))
  const [plan] = plans.toSorted((a, b) => usually(a) - usually(b) || tokensTogether(a) - tokensTogether(b))
  const micros = plan === undefined ? Infinity : microsBehind(plan, positions)
  const behind = (positions: number): number => microsBehind(plan!, positions)
  return micros < wholeMicros
    ? { plan, micros, wholeMicros, behind }
    : { plan: undefined, micros: wholeMicros, wholeMicros }
}
