import { accessOf } from "@tg/core-uop/View"
import type * as DType from "@tg/core-uop/DType"
import { isCoherent, type UOp } from "@tg/core-uop/UOp"

/**
 * Lanes of the declared element type of each buffer. Loads may take part of an element, or several. A store must write whole
 * elements: WGSL lets a write to one component of a vector touch the others, a data race when other threads own them. So a stored
 * buffer has the lanes of its narrowest store, and a read-only one those of its widest load. Atomics are single words.
 */
export const widths = (linear: UOp, isEmulated: boolean): ReadonlyMap<UOp, DType.Lanes> => {
  const loads = new Map<UOp, number>()
  const stores = new Map<UOp, number>()
  for (const node of linear.src) {
    // threads that stand in for matrix units store their elements one by one
    if (isEmulated && node.op === "FRAGMENT_STORE") stores.set(accessOf(node).buffer, 1)
    if (node.op !== "LOAD" && node.op !== "STORE") continue
    const { buffer } = accessOf(node)
    if (isCoherent(buffer)) stores.set(buffer, 1)
    else if (node.op === "LOAD") loads.set(buffer, Math.max(loads.get(buffer) ?? 1, node.dtype.lanes))
    else stores.set(buffer, Math.min(stores.get(buffer) ?? 4, node.src[1]!.dtype.lanes))
  }
  return new Map([...loads, ...stores]) as ReadonlyMap<UOp, DType.Lanes>
}

/** An index in units of vectors, in terms of nodes that have a name: `a*16 + b` in vectors of 4 is `a*4 + b/4`. */
export type Address =
  | { readonly kind: "constant"; readonly value: number }
  | { readonly kind: "scaled"; readonly node: UOp; readonly factor: number }
  | { readonly kind: "sum"; readonly parts: readonly [Address, Address] }

const readsRegister = (node: UOp): boolean => node.src.some((s) => s.op === "REG")

/** The index divided by `by`, where that is exact by its form. */
export const divide = (node: UOp, by: number): Address | undefined => {
  if (by === 1) return { kind: "scaled", node, factor: 1 }
  if (node.op === "CONST") {
    const value = Number(node.arg) / by
    return Number.isInteger(value) ? { kind: "constant", value } : undefined
  }
  if (readsRegister(node)) return undefined
  if (node.op === "ADD") {
    const a = divide(node.src[0]!, by)
    const b = a === undefined ? undefined : divide(node.src[1]!, by)
    return a === undefined || b === undefined ? undefined : { kind: "sum", parts: [a, b] }
  }
  const [x, c] = node.src
  if ((node.op !== "MUL" && node.op !== "SHL") || c!.op !== "CONST") return undefined
  const factor = (node.op === "MUL" ? Number(c!.arg) : 2 ** Number(c!.arg)) / by
  if (Number.isInteger(factor)) return { kind: "scaled", node: x!, factor }
  const rest = node.op === "MUL" ? divideProduct(x!, by, Number(c!.arg)) : undefined
  return rest
}

/** `(x * k) / by` where k and x share the divisor. */
const divideProduct = (x: UOp, by: number, k: number): Address | undefined => {
  const shared = k % 2 === 0 && by === 4 ? 2 : 1
  const part = divide(x, by / shared)
  return part === undefined ? undefined : scale(part, k / shared)
}

const scale = (address: Address, factor: number): Address => {
  switch (address.kind) {
    case "constant":
      return { kind: "constant", value: address.value * factor }
    case "scaled":
      return { kind: "scaled", node: address.node, factor: address.factor * factor }
    case "sum":
      return { kind: "sum", parts: [scale(address.parts[0], factor), scale(address.parts[1], factor)] }
  }
}

/** A place in a vector: the vector's index, and the lane. */
export interface Lane {
  readonly vector: Address
  readonly lane: number
}

/**
 * The vector of an index and the lane in it, where the lane is constant by the index's form: `a*16 + 9` in vectors of 4 is lane 1 of vector `a*4 + 2`. A driver
 * that knows lanes joins loads of neighbours.
 */
export const laneAt = (node: UOp, by: number): Lane | undefined => {
  if (node.op === "CONST") {
    const value = Number(node.arg)
    const vector = Math.floor(value / by)
    return { vector: { kind: "constant", value: vector }, lane: value - by * vector }
  }
  if (node.op !== "ADD" || readsRegister(node)) {
    const vector = divide(node, by)
    return vector === undefined ? undefined : { vector, lane: 0 }
  }
  const a = laneAt(node.src[0]!, by)
  const b = a === undefined ? undefined : laneAt(node.src[1]!, by)
  if (a === undefined || b === undefined) return undefined
  const lane = a.lane + b.lane
  const vector: Address = { kind: "sum", parts: [a.vector, b.vector] }
  if (lane < by) return { vector, lane }
  return { vector: { kind: "sum", parts: [vector, { kind: "constant", value: 1 }] }, lane: lane - by }
}

/** The nodes in an address. */
export const leaves = (address: Address): ReadonlyArray<UOp> => {
  switch (address.kind) {
    case "constant":
      return []
    case "scaled":
      return [address.node]
    case "sum":
      return address.parts.flatMap(leaves)
  }
}
