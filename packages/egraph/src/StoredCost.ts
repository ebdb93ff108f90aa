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
export const chunks: ReadonlyArray<number> = [512, 384, 320, 256, 192, 128]

/**
 * Multiply-adds of matrix units in the time of one as `operationsPerByte` counts them: on an H200 100 TFLOP/s, 50 of them a picosecond, where its
 * 6.25 are 28.75, of which products of floats reach 10 to 12 with clamped indices.
 */
const ofUnits = 1.75
/** Rows, and columns, of the part of a product that a workgroup computes; and the terms that it has in workgroup memory at a time. */
const tile = 64
const staged = 32
/** Operations for each weight, which every column of workgroups computes again: a difference, an exponential, and rounding. */
const weighing = 8
const floatBytes = 4
const halfBytes = 2
/** Loads of a thread that are under way at a time. */
const loadsAtOnce = 6

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
  const { barrierMicros, cacheBytes, cachedLoadMicros, cachedPerByte, operationsPerByte, processors } = quantitiesOf(
    profile
  )
  const perMicro = operationsPerByte * profile.bytesPerMicro
  const moving = (bytes: number, times: number): number =>
    times * bytes / (profile.bytesPerMicro * (bytes <= cacheBytes ? cachedPerByte : 1))
  const [scores, parts] = storedBytes(work, chunk)
  const columns = Math.ceil(width / tile)
  const tiles = rows / tileRows(rows)
  // workgroups of a mix have a processor for themselves, as they need its registers: the last wave of them takes as long as any other
  const waves = Math.ceil(tiles * Math.ceil(positions / chunk) / processors)
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
  return launches + products + values + ofScores + weights + moving(parts, 2) + stages + inLine
}
