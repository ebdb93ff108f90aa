import { DType, Expr } from "@tg/core-uop"
import { openRanges, rangeArg, reduceArg, toposort, type UOp } from "@tg/core-uop/UOp"

const threads = 64
const maxGrid = 65535

/**
 * The plainest linear form of a kernel with one GLOBAL range: a thread per element, reductions as loops, everything under
 * the condition that the element exists. Enough to try a device without the compiler.
 */
export const lower = (kernel: UOp): UOp => {
  const { arena } = kernel
  const [store, global] = kernel.src[0]!.src as [UOp, UOp]
  const list: Array<UOp> = []
  const done = new Map<UOp, UOp>()
  let registers = 0

  const put = (node: UOp): UOp => {
    if (done.get(node) === node) return node
    for (const s of node.src) put(s)
    list.push(node)
    done.set(node, node)
    return node
  }

  const emit = (node: UOp): UOp => {
    const found = done.get(node)
    if (found !== undefined) return found
    const made = node.op === "REDUCE"
      ? reduce(node)
      : put(arena.make(node.op, node.dtype, node.src.map(emit), node.arg))
    done.set(node, made)
    return made
  }

  const reduce = (node: UOp): UOp => {
    const [value, ...ranges] = node.src as [UOp, ...Array<UOp>]
    const { op } = reduceArg(node)
    // what does not depend on the loops stands before them
    for (const inner of toposort(value)) if (!ranges.some((r) => openRanges(inner).has(r) || r === inner)) emit(inner)
    const register = put(arena.make("REG", node.dtype, [Expr.identity(arena, op, node.dtype)], { id: registers++ }))
    for (const range of ranges) put(range)
    put(arena.make("ACCUMULATE", DType.none, [register, emit(value)], { op }))
    for (const range of ranges.toReversed()) put(arena.make("END", DType.none, [range]))
    return register
  }

  const special = (name: string, size: UOp) => put(arena.make("SPECIAL", DType.index, [size], { name }))
  if (rangeArg(global).axis !== "GLOBAL") throw new Error("the first range is not GLOBAL")
  const size = global.src[0]!
  const isLarge = size.op === "CONST" && Number(size.arg) > threads * maxGrid
  const blocks = isLarge ? Expr.int(arena, maxGrid) : Expr.floordiv(Expr.add(size, threads - 1), threads)
  const count = size.op === "CONST" && !isLarge ? Expr.int(arena, Math.ceil(Number(size.arg) / threads)) : blocks
  let block = special("gidx0", count)
  if (isLarge) {
    const rows = Expr.int(arena, Math.ceil(Number(size.arg) / (threads * maxGrid)))
    block = Expr.add(Expr.mul(special("gidx1", rows), maxGrid), block)
  }
  const element = put(Expr.add(Expr.mul(block, threads), special("lidx0", Expr.int(arena, threads))))
  const start = put(arena.make("IF", DType.none, [Expr.lt(element, size)]))
  done.set(global, element)
  emit(store)
  put(arena.make("ENDIF", DType.none, [start]))
  return arena.make("LINEAR", DType.none, list)
}
