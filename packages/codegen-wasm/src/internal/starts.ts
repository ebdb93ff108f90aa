/**
 * What is taken from a sum in the end, it starts with: `0 + a + b - y` is `-y + a + b`. Integers wrap, so nothing changes. The offset of
 * 4-bit weights times the sum of the activations is one for all rows: it is negated once, and no row subtracts it.
 */
import * as Expr from "@tg/core-uop/Expr"
import { argOf, type UOp } from "@tg/core-uop/UOp"
import { endsStraightCode } from "./nest.ts"
import { constantOf } from "./value.ts"

/** Registers of sums of words in straight code, and the differences that are made of them. */
interface Start {
  readonly register: UOp
  readonly difference: UOp
}

const isSum = (node: UOp): boolean =>
  node.op === "REG" && node.dtype.scalar === "i32" && node.dtype.lanes === 4 && constantOf(node.src[0]!) === 0

/** In one piece of straight code: sums that end in it with a difference. `users` are of the whole kernel. */
const startsIn = (piece: ReadonlyArray<UOp>, users: ReadonlyMap<UOp, ReadonlyArray<UOp>>): ReadonlyArray<Start> => {
  const place = new Map(piece.map((node, i) => [node, i]))
  return piece.flatMap((register) => {
    if (!isSum(register)) return []
    const all = users.get(register) ?? []
    const sums = all.filter((n) => n.op === "ACCUMULATE" && n.src[0] === register && n.src[1] !== register)
    const [difference, ...others] = all.filter((n) => !sums.includes(n))
    const isLast = difference?.op === "SUB" && difference.src[0] === register && others.length === 0 &&
      sums.every((n) => argOf(n, "ACCUMULATE").op === "ADD" && place.get(n)! < place.get(difference)!)
    return isLast ? [{ register, difference }] : []
  })
}

/** What a value needs that stands behind a place, in order; nothing if a register is among it. */
const needed = (value: UOp, piece: ReadonlyArray<UOp>, from: number): ReadonlyArray<UOp> | undefined => {
  const wanted = new Set<UOp>([value])
  const found: Array<UOp> = []
  for (let i = piece.length - 1; i > from; i--) {
    const node = piece[i]!
    if (!wanted.has(node)) continue
    if (node.op === "REG") return undefined
    found.push(node)
    for (const s of node.src) wanted.add(s)
  }
  return [...wanted].some((node) => node.op === "REG") ? undefined : found.reverse()
}

/** A linear kernel whose sums start with what is taken from them. */
export const startSums = (linear: UOp): UOp => {
  const users = new Map<UOp, Array<UOp>>()
  for (const node of linear.src) for (const s of new Set(node.src)) users.set(s, [...users.get(s) ?? [], node])
  const now = new Map<UOp, UOp>()
  const nodes = new Set<UOp>()
  const emit = (node: UOp): UOp => {
    const made = node.with(node.src.map((s) => now.get(s) ?? s))
    now.set(node, made)
    nodes.add(made)
    return made
  }
  const write = (piece: ReadonlyArray<UOp>): void => {
    const starts = startsIn(piece, users)
    const differences = new Set<UOp>()
    for (const [at, node] of piece.entries()) {
      const start = starts.find(({ register }) => register === node)
      const [, taken] = start?.difference.src ?? []
      const before = taken === undefined ? undefined : needed(taken, piece, at)
      if (start === undefined || taken === undefined || before === undefined) {
        if (!differences.has(node) && !(now.has(node) && nodes.has(now.get(node)!))) emit(node)
        continue
      }
      for (const n of before) if (!now.has(n)) emit(n)
      const negated = Expr.neg(now.get(taken) ?? taken)
      nodes.add(negated)
      const register = node.with([negated])
      nodes.add(register)
      now.set(node, register)
      now.set(start.difference, register)
      differences.add(start.difference)
    }
  }
  let piece: Array<UOp> = []
  for (const node of linear.src) {
    if (!endsStraightCode.has(node.op)) {
      piece.push(node)
      continue
    }
    write(piece)
    piece = []
    emit(node)
  }
  write(piece)
  return linear.with([...nodes])
}
