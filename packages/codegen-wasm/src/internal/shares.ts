/**
 * The order of sums in straight code. What is loaded once and added to several sums is loaded in front of the first of them, and all of them follow:
 * it is alive for as few instructions as can be. WebAssembly's engines keep this order, and there are 16 vector registers.
 */
import type { UOp } from "@tg/core-uop/UOp"
import { endsStraightCode } from "./nest.ts"

/** Whether a node reads a sum, or begins one. What adds to a sum may add another one. */
const touchesSums = (node: UOp): boolean =>
  node.op === "REG" || (node.op === "ACCUMULATE" ? node.src.slice(1) : node.src).some((s) => s.op === "REG")

/** The vectors in memory that a sum takes a product of. */
const loadsOf = (sum: UOp): ReadonlyArray<UOp> => sum.src[1]!.src.filter((s) => s.op === "LOAD" && s.dtype.lanes === 4)

/** A piece of straight code in which nobody reads sums, in the better order. */
const ordered = (piece: ReadonlyArray<UOp>): ReadonlyArray<UOp> => {
  const place = new Map(piece.map((node, i) => [node, i]))
  const sums = piece.filter((node) => node.op === "ACCUMULATE")
  // the last of its loads, behind which it can be added
  const wanted = new Map(sums.map((sum) => [sum, Math.max(-1, ...loadsOf(sum).map((load) => place.get(load) ?? -1))]))
  const better = sums.toSorted((a, b) => wanted.get(a)! - wanted.get(b)! || place.get(a)! - place.get(b)!)
  // floats of one sum are added in the order that is written
  const last = new Map<UOp, number>()
  for (const sum of better) {
    const [register] = sum.src
    if (place.get(sum)! < (last.get(register!) ?? -1)) return piece
    last.set(register!, place.get(sum)!)
  }
  const made = new Set<UOp>()
  const emit = (node: UOp): void => {
    if (made.has(node)) return
    for (const s of node.src) if (place.has(s)) emit(s)
    made.add(node)
  }
  for (const sum of better) emit(sum)
  for (const node of piece) emit(node)
  return [...made]
}

/** A linear kernel whose sums stand with what they share. */
export const sumsWithShares = (linear: UOp): UOp => {
  const nodes: Array<UOp> = []
  let piece: Array<UOp> = []
  const close = (): void => {
    nodes.push(...ordered(piece))
    piece = []
  }
  for (const node of linear.src) {
    if (!endsStraightCode.has(node.op) && !touchesSums(node)) {
      piece.push(node)
      continue
    }
    close()
    nodes.push(node)
  }
  close()
  return nodes.every((node, i) => node === linear.src[i]) ? linear : linear.with(nodes)
}
