/** What a cascade takes whose scores are stored and whose sums are products on matrix units, calibrated by `bench/matrix-attention.mjs` on an H200. */
import { type DeviceProfile, quantitiesOf } from "@tg/core-uop/DeviceProfile"

/** How much such a cascade has to do. */
export interface Work {
  readonly rows: number
  readonly positions: number
  /** Values of each result. */
  readonly width: number
  /** Terms of a score. */
  readonly depth: number
  /** Reductions, the result included. */
  readonly steps: number
}

/** Positions of a chunk that are tried: enough for a product, and few enough for workgroups to fill the device. */
export const chunks: ReadonlyArray<number> = [640, 512, 384, 320, 256, 192, 128]
/** Positions whose maximum and sum a workgroup finds, at most, and chunks that share them: on an H200 those of 65 chunks of 320 rows took 15 us. */
const found = 1280
const mostParts = 4

/** Chunks of so many positions that share what is found of them. */
export const partsOf = (chunk: number): number => Math.max(1, Math.min(mostParts, Math.floor(found / chunk)))

/**
 * Multiply-adds of matrix units in the time of one as `operationsPerByte` counts them: 120 TFLOP/s on an H100, of whose floats 28.75 million multiply-adds a microsecond
 * are counted, and products of floats reach 10 to 12.
 */
const ofUnits = 2.1
/** Rows, and columns, of the part of a product that a workgroup computes; and the terms that it has in workgroup memory at a time. */
const tile = 64
const staged = 32
/** Columns of a mix that a workgroup computes, so that a weight is computed once for them. */
const widest = 512
/** Operations for each weight, which every column of workgroups computes again: a difference, an exponential, and rounding. */
const weighing = 8
const floatBytes = 4
const halfBytes = 2
/** Loads of a thread that are under way at a time. */
const loadsAtOnce = 6
/** Fragments of a subgroup, which leave by way of workgroup memory one after the other; half of what a stage takes, which is a write, a barrier, reads, and a barrier. */
const fragments = 16
const ofFragment = 0.5

/** Bytes of what is stored: the scores, and the sums of chunks. */
export const storedBytes = ({ positions, rows, width }: Work, chunk: number): readonly [number, number] => [
  floatBytes * rows * positions,
  floatBytes * rows * width * Math.ceil(positions / chunk)
]

/** Rows of a tile: a power of two that divides them. */
const tileRows = (rows: number): number => Math.min(tile, rows & -rows)

/**
 * The time of a tile, over that of one of all rows: what it multiplies with is staged all the same. On an H100 attention of 4, 8 and 16 tokens of GLM, in tiles of
 * 16, 32 and 64 rows, took 76, 90 and 114 us behind 16000.
 */
const shareOfTile = (rows: number): number => (tile + tileRows(rows)) / (2 * tile)

/** Microseconds behind so many positions. */
export const microsOf = (work: Work, chunk: number, profile: DeviceProfile): number => {
  const { depth, positions, rows, steps, width } = work
  const known = quantitiesOf(profile)
  const { barrierMicros, cacheBytes, cachedLoadMicros, cachedPerByte, operationsPerByte, processors } = known
  const perMicro = operationsPerByte * profile.bytesPerMicro
  const moving = (bytes: number, times: number): number =>
    times * bytes / (profile.bytesPerMicro * (bytes <= cacheBytes ? cachedPerByte : 1))
  const [scores, parts] = storedBytes(work, chunk)
  const columns = Math.ceil(width / widest)
  const tiles = rows / tileRows(rows)
  // workgroups of a mix have a processor for themselves, as they need its registers: the last wave of them takes as long as any other
  const share = partsOf(chunk)
  const waves = Math.ceil(tiles * share * Math.ceil(positions / (share * chunk)) / processors)
  const perTile = tile * shareOfTile(rows) / (ofUnits * perMicro)
  const products = perTile * (tiles * positions * depth + waves * processors * chunk * width)
  // workgroups of other rows read the same values of the cache
  const values = moving(halfBytes * positions * (depth + width), Math.ceil(rows / tile))
  // written, read by the reductions in front of the result, and by each column of its workgroups
  const ofScores = moving(scores, steps + columns)
  const weights = (steps - 2 + columns) * rows * positions * weighing / perMicro
  const stages = (depth + chunk) / staged * (cachedLoadMicros + barrierMicros)
  const inLine = positions / chunk * cachedLoadMicros / loadsAtOnce
  // scores, what is found of each chunk, products of chunks, and what puts them together
  const launches = 4 * profile.dispatchMicros
  // workgroups of one wave begin, and end, together
  const apart = waves * (known.loadMicros + fragments * ofFragment * known.stageMicros)
  // written and read once, through the cache that processors share, which is hardly faster than memory: 35 MB in 8.5 us on an H100
  const ofParts = 2 * parts / profile.bytesPerMicro
  return launches + apart + products + values + ofScores + weights + ofParts + stages + inLine
}
