import * as Bounds from "@tg/core-uop/Bounds"
import type { UOp } from "@tg/core-uop/UOp"

/** `scale` bytes times the value of a node. */
export interface Term {
  readonly node: UOp
  readonly scale: number
}

/**
 * A byte address: `base + sum(scale * node) + constant`. Made of the parts of an index that become known together, so a
 * chain of addresses computes each part in the outermost loop where it is known, and accesses share it.
 */
export class Address {
  readonly base: Address | UOp
  readonly terms: ReadonlyArray<Term>
  readonly constant: number

  constructor(base: Address | UOp, terms: ReadonlyArray<Term>, constant: number) {
    this.base = base
    this.terms = terms
    this.constant = constant
  }
}

/** An index as `sum(scale * node) + constant`, in bytes. */
export interface Affine {
  readonly terms: ReadonlyMap<UOp, number>
  readonly constant: number
}

/**
 * Splits an index into byte terms. Only `index` arithmetic is taken apart: it does not wrap, so the sum of the parts is
 * the whole.
 */
export const affine = (index: UOp): Affine => {
  const terms = new Map<UOp, number>()
  let constant = 0
  const visit = (node: UOp, scale: number): void => {
    const [a, b] = node.src
    if (node.op === "CONST") {
      constant += scale * Number(node.arg)
      return
    }
    if (node.dtype.scalar === "index" && node.dtype.lanes === 1) {
      switch (node.op) {
        case "ADD":
          visit(a!, scale)
          return visit(b!, scale)
        case "SUB":
          visit(a!, scale)
          return visit(b!, -scale)
        case "NEG":
          return visit(a!, -scale)
        case "MUL":
          if (b!.op === "CONST") return visit(a!, scale * Number(b!.arg))
          if (a!.op === "CONST") return visit(b!, scale * Number(a!.arg))
          break
        case "SHL":
          if (b!.op === "CONST") return visit(a!, scale * 2 ** Number(b!.arg))
          break
      }
    }
    terms.set(node, (terms.get(node) ?? 0) + scale)
  }
  visit(index, 4)
  for (const [node, scale] of terms) if (scale === 0) terms.delete(node)
  return { terms, constant }
}

/** Whether the sum without its constant is never negative: only then may the constant become an `offset=`. */
export const isNonNegative = ({ terms }: Affine): boolean => {
  let min = 0
  for (const [node, scale] of terms) {
    const bounds = Bounds.of(node)
    min += scale * (scale > 0 ? bounds.min : bounds.max)
  }
  return min >= 0
}
