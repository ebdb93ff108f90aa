/** What it takes to read the operand of products as floats, as stored bytes, or as bytes that each workgroup rounds for itself. */
import { type DeviceProfile, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import { unpacking } from "./TensorCost.ts"

/** Lanes that share a row of a matrix. */
const lanes = 32

/** Launches that reading a matrix has to take at least for rounding to hide behind it. */
const hidingLaunches = 3

/** A packed matrix. */
export interface Matrix {
  readonly rows: number
  readonly columns: number
  readonly bytes: number
}

/** How products read a value. */
export type Form = "floats" | "stored bytes" | "bytes in place"

/** The profile as far as costs ask for it. */
export type Profile =
  & Pick<DeviceProfile, "bytesPerMicro" | "dispatchMicros">
  & Partial<
    Pick<
      DeviceProfile,
      "loadMicros" | "operationsPerByte" | "processors" | "residentThreads" | "saturatingThreads" | "stageMicros"
    >
  >

/**
 * Microseconds that each form of a value of one row takes more than products of bytes that are there. Floats take operations, all over the device; stored bytes a
 * launch, and a load behind it. In place, the workgroups of each product have a stage more. Those that are there at once share it; a row
 * that comes later is rounded again while its processor loads nothing, unless the bytes of the matrix keep memory busy for several launches.
 *
 * On an H200 1344 rows of 2048 values take as long with floats, 2112 take 5.1 us in place instead of 5.4. Of products that store otherwise,
 * gate and up of 12288 rows of 4096 values gain 2.4 us in place, of 14336 rows 0.6 us; of 6144 rows of 2048 values they lose 1 us.
 */
export const costsOf = (
  matrices: ReadonlyArray<Matrix>,
  profile: Profile
): Readonly<Record<Form, number>> => {
  const { bytesPerMicro, dispatchMicros } = profile
  const quantities = quantitiesOf({ saturatingThreads: 1, ...profile })
  const { loadMicros, operationsPerByte, processors, residentThreads, stageMicros } = quantities
  const sum = (of: (matrix: Matrix) => number): number => matrices.reduce((n, matrix) => n + of(matrix), 0)
  const later = Math.max(0, sum(({ rows }) => rows) / (processors * residentThreads / lanes) - 1)
  const hiding = hidingLaunches * dispatchMicros
  const isHidden = Math.max(...matrices.map(({ bytes }) => bytes)) / bytesPerMicro >= hiding
  return {
    floats: sum(({ columns, rows }) => rows * columns) * unpacking / (operationsPerByte * bytesPerMicro),
    "stored bytes": dispatchMicros + loadMicros,
    "bytes in place": matrices.length * stageMicros + (isHidden ? 0 : later * hiding)
  }
}

/** The form that takes the least time. */
export const cheapest = (costs: ReturnType<typeof costsOf>): Form =>
  (["stored bytes", "bytes in place", "floats"] as const).reduce((best, form) =>
    costs[form] < costs[best] ? form : best
  )
