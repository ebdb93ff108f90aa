/** Rows that are added to memory: by a thread for each column, in order, or by a thread for each element, atomically. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import * as Shape from "@tg/core-uop/Shape"
import { argOf, type UOp } from "@tg/core-uop/UOp"
import { chain } from "./Cost.ts"
import { type KernelMicros, launchOf } from "./Fusion.ts"
import { endAt, extent, flatten } from "./Indexing.ts"
import type { Reader } from "./Lower.ts"
import type { Weighed } from "./Weigh.ts"

/** What the choice asks of a device. */
export interface AddLimits {
  /** Threads that saturate a device whose threads can add atomically; without it none do. */
  readonly atomicThreads?: number | undefined
}

/** The time of an atomic addition over that of a load, an addition and a store: a guess. On software Vulkan 2.3 to 4.3 were measured. */
const atomicTimes = 4

/**
 * Atomic additions where their order is free and they take less time: with fewer columns than threads, all but `columns` of them would wait
 * while each row is added behind the one before.
 */
export const addsAtomically = (scatter: UOp, { atomicThreads }: AddLimits): boolean => {
  if (atomicThreads === undefined || argOf(scatter, "SCATTER_ADD").order === "rows") return false
  const [rows, ...columns] = Shape.of(scatter.src[2]!).map(Shape.maxOf)
  const waves = (threads: number): number => Math.max(1, threads / atomicThreads)
  const width = columns.reduce((n, d) => n * d, 1)
  return atomicTimes * waves(rows! * width) < rows! * waves(width)
}

/** The END of a kernel, the loops in which workgroups differ, its sizes, and what it is computed from. */
export interface Additions {
  readonly end: UOp
  readonly apart: ReadonlyArray<UOp>
  readonly shape: Shape.Shape
  readonly sources: ReadonlyArray<UOp>
}

/**
 * Adds the rows of a SCATTER_ADD to its memory, which has the initial value: a thread owns a column and adds to it row by row, or
 * each addition is atomic. A row that does not exist adds nothing.
 */
export const additionsOf = (reader: Reader, root: UOp, limits: AddLimits): Additions => {
  const { arena } = reader
  const [, index, values] = root.src
  const isAtomic = addsAtomically(root, limits)
  const out = reader.slot(root, isAtomic ? { coherent: true } : {})
  const shape = Shape.of(values!)
  const [count, ...own] = shape
  const columns = own.map((dim) => reader.newRange(dim, "GLOBAL"))
  const row = reader.newRange(count!, isAtomic ? "GLOBAL" : "REDUCE")
  const named = reader.value(index!, [row], undefined)
  const number = Expr.cast(named.dtype === DType.u32 ? Expr.bitcast(named, DType.i32) : named, DType.index)
  const [rows] = Shape.of(root)
  const exists = Expr.and(Expr.not(Expr.lt(number, 0)), Expr.lt(number, extent(arena, rows!)))
  // a number that is no row may be too large to compute with
  const at = flatten(arena, Shape.of(root), [Expr.where(exists, number, Expr.int(arena, 0)), ...columns])
  const value = Expr.cast(reader.value(values!, [row, ...columns], undefined), out.dtype)
  const add = arena.make("STORE", DType.none, [Expr.element(out, at, exists), value], { op: "ADD" })
  const end = endAt(add, isAtomic ? [row, ...columns] : [...columns, row])
  return { end, apart: isAtomic ? [row, ...columns] : columns, shape, sources: [index!, values!] }
}

/** Kernels that run one after the other. */
export const inOrder = (kernels: ReadonlyArray<Weighed>): Weighed => {
  const sum = (part: (micros: KernelMicros) => number): number => chain(kernels.map(({ micros }) => part(micros)))
  return {
    verdict: kernels.find(({ verdict }) => verdict._tag !== "Cost")?.verdict ??
      { _tag: "Cost", micros: chain(kernels.map(({ micros }) => launchOf([micros]))) },
    micros: {
      wait: sum(({ wait }) => wait),
      work: sum(({ work }) => work),
      transfer: sum(({ transfer = 0 }) => transfer),
      waves: Math.max(...kernels.map(({ micros: { waves = 1 } }) => waves))
    },
    stages: false
  }
}
