/**
 * Short loops are repeated in straight code, in the order of their instructions: what the iterations have in common is then known, such
 * as which byte of a word it is, and offsets are immediates.
 */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { Op } from "@tg/core-uop/Op"
import { argOf, rangeArg, type UOp } from "@tg/core-uop/UOp"
import { type Block, blockOf, costOf } from "./nest.ts"
import { constantOf, isConstant } from "./value.ts"

/** Longer loops stay loops, and those whose straight code would be longer than this. */
const mostIterations = 4
const mostInstructions = 1000

/** What a loop that is repeated does not contain: it neither writes memory nor branches. */
const refused: ReadonlySet<Op> = new Set<Op>(["STORE", "IF", "ENDIF", "BARRIER", "LOCAL"])

const isShort = (block: Block): boolean => {
  const size = block.range!.src[0]!
  if (rangeArg(block.range!).axis === "GLOBAL" || size.op !== "CONST" || Number(size.arg) > mostIterations) return false
  const cost = costOf(block.items)
  return typeof cost === "number" && Number(size.arg) * cost <= mostInstructions && isRepeatable(block)
}

/**
 * Whether the iterations are different instructions: each accumulates what depends on the loop, or in registers of its own, and
 * registers from outside are not read.
 */
const isRepeatable = (block: Block): boolean => {
  const varying = new Set<UOp>([block.range!])
  const visit = (items: Block["items"]): boolean =>
    items.every((item) => {
      if ("items" in item) return isShort(item) && visit(item.items)
      const read = item.op === "ACCUMULATE" ? item.src.slice(1) : item.src
      if (refused.has(item.op) || read.some((s) => s.op === "REG" && !varying.has(s))) return false
      if (item.op === "REG" || item.src.some((s) => varying.has(s))) varying.add(item)
      return item.op !== "ACCUMULATE" || varying.has(item)
    })
  return visit(block.items)
}

const integers: ReadonlySet<string> = new Set(["i32", "u32", "index"])
const isInteger = ({ lanes, scalar }: DType.DType): boolean => lanes === 1 && integers.has(scalar)

/** Integer arithmetic before it wraps; indices are exact. */
const arithmetic: Partial<Record<Op, (a: number, b: number, scalar: DType.DType["scalar"]) => number>> = {
  ADD: (a, b) => a + b,
  SUB: (a, b) => a - b,
  MUL: (a, b, scalar) => (scalar === "index" ? a * b : Math.imul(a, b)),
  AND: (a, b) => a & b,
  OR: (a, b) => a | b,
  SHL: (a, b) => a << b,
  SHR: (a, b, scalar) => (scalar === "u32" ? a >>> b : a >> b),
  CAST: (a) => a
}

/** A node of constants as the constant that it is, and what a shift by nothing shifts. */
const folded = (node: UOp): UOp => {
  const [a, b] = node.src
  if ((node.op === "SHL" || node.op === "SHR") && constantOf(b!) === 0) return a!
  const compute = arithmetic[node.op]
  if (compute === undefined || ![node, ...node.src].every(({ dtype }) => isInteger(dtype))) return node
  const values = node.src.map(constantOf)
  if (values.some((x) => x === undefined)) return node
  const { scalar } = node.dtype
  const value = compute(values[0]!, values[1] ?? 0, scalar)
  return Expr.constant(node.arena, node.dtype, scalar === "u32" ? value >>> 0 : scalar === "i32" ? value | 0 : value)
}

/**
 * Instructions in their order, each once. What is equal in several iterations, or in several loops once they are straight code, stands where all of them
 * see it, or there is no such order.
 */
class Sequence {
  private readonly constants = new Set<UOp>()
  private readonly nodes: Array<UOp> = []
  private readonly open: Array<Set<UOp>> = [new Set()]
  private readonly closed = new Set<UOp>()
  private isBroken = false

  emit(node: UOp): void {
    if (node.op === "ENDIF") this.leave()
    if (isConstant(node)) this.constants.add(node)
    else if (!this.open.some((seen) => seen.has(node))) {
      this.isBroken ||= this.closed.has(node)
      this.open.at(-1)!.add(node)
      this.nodes.push(node)
    }
    if (node.op === "IF") this.enter()
  }

  /** Begins a loop or a branch. */
  enter(): void {
    this.open.push(new Set())
  }

  /** Ends it: nothing behind it sees what is in it. */
  leave(): void {
    for (const node of this.open.pop()!) this.closed.add(node)
  }

  /** All of them, constants first; nothing if one is wanted where it is not seen. */
  all(): ReadonlyArray<UOp> | undefined {
    return this.isBroken ? undefined : [...this.constants, ...this.nodes]
  }
}

/** A linear kernel with its short loops as straight code. */
export const repeatShortLoops = (linear: UOp): UOp => {
  const sequence = new Sequence()
  const now = new Map<UOp, UOp>()
  const registers = linear.src.flatMap((n) => n.op === "REG" ? [argOf(n, "REG").id] : [])
  let fresh = Math.max(-1, ...registers) + 1
  let isRepeated = false
  const copy = (node: UOp, inside: boolean): void => {
    const same = node.with(node.src.map((s) => now.get(s) ?? s))
    const made = node.op === "REG" && inside
      ? node.arena.make("REG", node.dtype, same.src, { id: fresh++ })
      : folded(same)
    now.set(node, made)
    sequence.emit(made)
  }
  const visit = (block: Block, inside: boolean): void => {
    for (const item of block.items) {
      if (!("items" in item)) copy(item, inside)
      else if (isShort(item)) {
        isRepeated = true
        for (let i = 0; i < Number(item.range!.src[0]!.arg); i++) {
          const at = Expr.int(linear.arena, i)
          now.set(item.range!, at)
          sequence.emit(at)
          visit(item, true)
        }
      } else {
        copy(item.range!, inside)
        sequence.enter()
        visit(item, inside)
        sequence.leave()
        sequence.emit(linear.arena.make("END", DType.none, [now.get(item.range!)!]))
      }
    }
  }
  visit(blockOf(linear), false)
  const nodes = sequence.all()
  return !isRepeated || nodes === undefined ? linear : linear.with(nodes)
}
