/** The inputs on which a kernel is timed and checked: buffers of the right sizes, with random values that are valid for it. */
import { accessOf } from "@tg/core-uop/View"
import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { slotOf, substitute, toposort, type UOp, varArg } from "@tg/core-uop/UOp"

/** Values of the symbolic variables. */
export type Vars = Readonly<Record<string, number>>

/**
 * The meaning of a buffer's words: results; floats from -1 to 1; random bits whose halves are such floats too, as packed weights are;
 * indices from 0 to `most` into another buffer.
 */
export type Role =
  | { readonly kind: "output" }
  | { readonly kind: "float" }
  | { readonly kind: "bits" }
  | { readonly kind: "places"; readonly most: number }

/** The buffer of one PARAM. */
export interface Argument {
  readonly slot: number
  readonly scalar: "f32" | "i32" | "u32"
  /** Words of 32 bits. */
  readonly words: number
  readonly role: Role
}

/** The arguments of a kernel (spec `kernel`), by slot. */
export const argumentsOf = (kernel: UOp): ReadonlyArray<Argument> => {
  const nodes = toposort(kernel)
  const indices = nodes.filter((n) => n.op === "INDEX" && n.src[0]!.op === "PARAM")
  const stored = new Set(nodes.filter((n) => n.op === "STORE").map((n) => accessOf(n).buffer))
  const asFloat = new Set(
    nodes.filter((n) => n.op === "BITCAST" && n.dtype === DType.f32 && n.src[0]!.op === "LOAD").map((n) =>
      accessOf(n.src[0]!).buffer
    )
  )
  const roleOf = (param: UOp): Role => {
    if (stored.has(param)) return { kind: "output" }
    if (param.dtype === DType.f32 || asFloat.has(param)) return { kind: "float" }
    const most = mostPlace(param, indices)
    return most === undefined ? { kind: "bits" } : { kind: "places", most }
  }
  return nodes.filter((n) => n.op === "PARAM").map((param): Argument => ({
    slot: slotOf(param),
    scalar: param.dtype.scalar as Argument["scalar"],
    words: Bounds.of(param.src[0]!).max,
    role: roleOf(param)
  })).toSorted((a, b) => a.slot - b.slot)
}

/** The largest value of an index buffer that keeps every indirect access in bounds; `undefined` for other data. */
const mostPlace = (param: UOp, indices: ReadonlyArray<UOp>): number | undefined => {
  const using = indices.map((index) => ({
    index,
    loads: toposort(...index.src.slice(1)).filter((n) => n.op === "LOAD" && accessOf(n).buffer === param)
  })).filter(({ loads }) => loads.length > 0)
  if (using.length === 0) return undefined
  const fits = (value: number): boolean =>
    using.every(({ index, loads }) => {
      const known = new Map(loads.map((load) => [load, Expr.constant(load.arena, load.dtype, value)]))
      const { at, buffer } = accessOf(index)
      return Bounds.of(substitute(at, known)).max < Bounds.of(buffer.src[0]!).max
    })
  let [low, high] = [0, 2 ** 30]
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if (fits(middle)) low = middle
    else high = middle - 1
  }
  return low
}

/** Whether a kernel computes the indices of its own loads, as a router does in front of the experts' product. */
export const picks = (kernel: UOp): boolean =>
  toposort(kernel).some((index) =>
    index.op === "INDEX" && index.src[0]!.op === "PARAM" &&
    toposort(...index.src.slice(1)).some((n) =>
      n.op === "REDUCE" || (n.op === "LOAD" && accessOf(n).buffer.op === "LOCAL")
    )
  )

/** The kernel's variables: those given, held to their bounds, and the largest values of the others. */
export const varsOf = (kernel: UOp, given: Vars): Vars =>
  Object.fromEntries(
    toposort(kernel).filter((n) => n.op === "VAR").map(varArg).map(({ max, min, name }) => [
      name,
      Math.min(max, Math.max(min, given[name] ?? max))
    ])
  )

// halves from 2^-3 to 2: a block's scale is such a half, so no block dominates the others
const halvesKept = 0x8fff_8fff
const halvesSet = 0x3000_3000

/** Random words for a buffer, or for the beginning of one that repeats them. */
export const words = ({ role }: Pick<Argument, "role">, seed: number, length: number): Uint32Array<ArrayBuffer> => {
  let state = seed >>> 0
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0
    let x = Math.imul(state ^ (state >>> 15), state | 1)
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61)
    return (x ^ (x >>> 14)) >>> 0
  }
  const made = new Uint32Array(length)
  switch (role.kind) {
    case "output":
      return made
    case "float": {
      const floats = new Float32Array(made.buffer)
      for (let i = 0; i < length; i++) floats[i] = next() / 2 ** 31 - 1
      return made
    }
    case "bits":
      for (let i = 0; i < length; i++) made[i] = next() & halvesKept | halvesSet
      return made
    case "places":
      // consecutive from a random start: distinct indices
      for (let i = 0, first = next(); i < length; i++) made[i] = (first + i) % (role.most + 1)
      return made
  }
}
