/** Reductions over the threads of a workgroup: by subgroup operations where they suffice, else through workgroup memory. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { groupArg, type UOp } from "@tg/core-uop/UOp"
import type { Code, Scope } from "./code.ts"

/** The place of a group of reductions over threads. */
export interface Crossing {
  readonly code: Code
  readonly scope: Scope
  /** The number of a thread in its workgroup. */
  readonly thread: UOp | undefined
  /** Threads of a subgroup, where that is one known number. */
  readonly subgroupSize: number | undefined
  readonly emit: (node: UOp) => UOp
}

/** Emits a group of reductions over threads, which share their barriers. */
export const acrossThreads = (group: ReadonlyArray<UOp>, at: Crossing): void => {
  const { code, emit, scope, subgroupSize: lanes } = at
  const { threads } = groupArg(group[0]!)
  const values = group.map((n) => emit(n.src[0]!))
  if (lanes !== undefined && lanes % threads === 0) {
    group.forEach((n, i) => code.done.set(n, bySubgroup(n, values[i]!, threads, at)))
    return
  }
  const width = lanes !== undefined && threads % lanes === 0 ? lanes : 1
  const memories = writePartials(group, values, width, at)
  code.barrier(scope)
  readPartials(group, memories, width, at)
  // write after read: the next iteration of an enclosing loop overwrites the memory
  if (scope.range !== undefined) code.barrier(scope)
}

const bySubgroup = (node: UOp, value: UOp, threads: number, { code, scope }: Crossing): UOp =>
  code.push(scope, code.arena.make("SUBGROUP_REDUCE", node.dtype, [value], { op: groupArg(node).op, threads }))

/** Writes partial results, one for every `width` threads, to an array of workgroup memory for each reduction. */
const writePartials = (
  group: ReadonlyArray<UOp>,
  values: ReadonlyArray<UOp>,
  width: number,
  at: Crossing
): ReadonlyArray<UOp> => {
  const { code, emit, scope } = at
  const thread = at.thread!
  const length = Number(thread.src[0]!.arg) / width
  const slot = width === 1 ? thread : Expr.floordiv(thread, width)
  const gate = width === 1 ? undefined : Expr.lt(Expr.floormod(thread, width), 1)
  return group.map((n, i) => {
    const value = width === 1 ? values[i]! : bySubgroup(n, values[i]!, width, at)
    const memory = code.define(code.root, code.memory(n.dtype, length))
    code.push(scope, Expr.store(emit(Expr.element(memory, slot, gate)), value))
    return memory
  })
}

/** Each thread combines the partial results of its group. */
const readPartials = (
  group: ReadonlyArray<UOp>,
  memories: ReadonlyArray<UOp>,
  width: number,
  { code, emit, scope, thread }: Crossing
): void => {
  const { arena } = code
  const { threads } = groupArg(group[0]!)
  const partials = threads / width
  const registers = group.map((n) => {
    const initial = emit(Expr.identity(arena, groupArg(n).op, n.dtype))
    return code.push(scope, arena.make("REG", n.dtype, [initial], { id: code.freshId() }))
  })
  const range = Expr.range(arena, partials, code.freshRange(), "REDUCE")
  emit(range.src[0]!)
  const first = emit(Expr.mul(Expr.floordiv(thread!, threads), partials))
  const place = Expr.add(first, range)
  const body: Scope = { range, depth: scope.depth + 1, items: [place] }
  group.forEach((n, i) => {
    const element = Expr.element(memories[i]!, place)
    const value = Expr.load(element)
    const accumulate = arena.make("ACCUMULATE", DType.none, [registers[i]!, value], { op: groupArg(n).op })
    body.items.push(element, value, accumulate)
    code.done.set(n, registers[i]!)
  })
  scope.items.push(body)
}
