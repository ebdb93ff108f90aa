/** Scalar types of values. `index` is the mathematical integer of index arithmetic; it becomes `i32` when rendered. */
export type ScalarName = "bool" | "i32" | "u32" | "f32" | "index" | "void"

/** Lanes of a value: 1 is a scalar, 2 and 4 are short vectors. */
export type Lanes = 1 | 2 | 4

/**
 * The type of a value. Instances are unique, so equality is `===`. Storage holds only 4-byte scalars (`i32`, `u32`,
 * `f32`): narrower data is packed into `u32` words by tensor code, because WGSL has no narrower storage.
 */
export interface DType {
  readonly scalar: ScalarName
  readonly lanes: Lanes
  /** Position in the table of all types, for hashing. */
  readonly ordinal: number
}

const scalars: ReadonlyArray<ScalarName> = ["bool", "i32", "u32", "f32", "index", "void"]
const laneCounts: ReadonlyArray<Lanes> = [1, 2, 4]
const table = new Map<string, DType>()
for (const scalar of scalars) {
  for (const lanes of laneCounts) table.set(`${scalar}x${lanes}`, { scalar, lanes, ordinal: table.size })
}

/** The unique type with this scalar and lane count. */
export const make = (scalar: ScalarName, lanes: Lanes = 1): DType => table.get(`${scalar}x${lanes}`)!

export const bool = make("bool")
export const i32 = make("i32")
export const u32 = make("u32")
export const f32 = make("f32")
export const index = make("index")
/** The type of effects. */
export const none = make("void")

/** The same scalar with another lane count. */
export const withLanes = (dtype: DType, lanes: Lanes): DType => make(dtype.scalar, lanes)

/** One lane of a vector type. */
export const scalarOf = (dtype: DType): DType => make(dtype.scalar)

export const isFloat = (dtype: DType): boolean => dtype.scalar === "f32"
export const isInteger = (dtype: DType): boolean =>
  dtype.scalar === "i32" || dtype.scalar === "u32" || dtype.scalar === "index"
export const isStorable = (dtype: DType): boolean =>
  dtype.scalar === "i32" || dtype.scalar === "u32" || dtype.scalar === "f32"

/** `f32`, `u32x4`. */
export const print = (dtype: DType): string => dtype.lanes === 1 ? dtype.scalar : `${dtype.scalar}x${dtype.lanes}`

/** Bytes of one value of a storable type. */
export const bytes = (dtype: DType): number => 4 * dtype.lanes
