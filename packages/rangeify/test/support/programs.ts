import * as DType from "@tg/core-uop/DType"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import type { Data } from "@tg/core-uop/EvaluateOps"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as Shape from "@tg/core-uop/Shape"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Program from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import { planMemory } from "../../src/Memory.ts"
import { type Limits, RangeifyError, schedule } from "../../src/Rangeify.ts"
import type { ScheduleCache } from "../../src/ScheduleCache.ts"
import type { Ref, Schedule } from "../../src/Schedule.ts"

/** Makes buffers with running ids in a fresh arena. */
export class Build {
  readonly arena = new Arena()
  private next = 0

  f32(...shape: Shape.Shape): Tensor.Tensor {
    return this.buffer(shape, DType.f32)
  }
  u32(...shape: Shape.Shape): Tensor.Tensor {
    return this.buffer(shape, DType.u32)
  }
  buffer(shape: Shape.Shape, dtype: DType.DType): Tensor.Tensor {
    return Tensor.buffer(this.arena, this.next++, { shape, dtype })
  }
  /** Stores the value in a buffer of its own. */
  out(value: Tensor.Tensor): Tensor.Tensor {
    const stored = value.dtype === DType.bool ? value.cast(DType.u32) : value
    return Program.assign(this.buffer(stored.shape, stored.dtype), stored)
  }
}

export const scheduled = (
  sink: UOp,
  limits: number | Limits = 8,
  cache?: ScheduleCache
): Schedule => {
  const result = schedule(sink, typeof limits === "number" ? { maxStorageBuffers: limits } : limits, cache)
  if (result instanceof RangeifyError) throw result
  return result
}

/** The schedule for a device that runs independent kernels side by side. */
export const joined = (sink: UOp, maxStorageBuffers = 8, cache?: ScheduleCache): Schedule => {
  const result = schedule(sink, { maxStorageBuffers, joinsKernels: true }, cache)
  if (result instanceof RangeifyError) throw result
  return result
}

const idOf = (buffer: UOp): number => (buffer.arg as { readonly id: number }).id

/** Buffers with numbers that differ everywhere and are exact in sums. */
const contents = (sink: UOp): Map<number, Data> => {
  const data = new Map<number, Data>()
  for (const node of toposort(sink)) {
    if (node.op !== "BUFFER") continue
    const length = Math.max(1, Shape.maxElements(Shape.of(node)))
    const at = (i: number): number => (i * 7 + idOf(node) * 3) % 11
    data.set(
      idOf(node),
      node.dtype === DType.f32
        ? Float32Array.from({ length }, (_, i) => at(i) - 5)
        : node.dtype === DType.i32
        ? Int32Array.from({ length }, (_, i) => at(i) - 5)
        : Uint32Array.from({ length }, (_, i) => at(i))
    )
  }
  return data
}

/** The buffers after the tensor graph itself has been evaluated. */
export const runTensor = (sink: UOp, vars: Readonly<Record<string, number>> = {}): ReadonlyMap<number, Data> => {
  const data = contents(sink)
  const buffers = new Map(toposort(sink).filter((n) => n.op === "BUFFER").map((n) => [n, data.get(idOf(n))!]))
  evaluate([sink], { buffers, vars })
  return data
}

/** The buffers after the schedule has run in the memory that the plan gives it, and every kernel passed its spec. */
export const runSchedule = (
  sink: UOp,
  made: Schedule = scheduled(sink),
  vars: Readonly<Record<string, number>> = {}
): ReadonlyMap<number, Data> => {
  const data = contents(sink)
  const memory = planMemory(made)
  const blocks = memory.blocks.map((bytes) => new Uint32Array(bytes / 4).fill(0x7fc00001))
  const resolve = (ref: Ref): Data => {
    const data = memoryOf(ref)
    return ref.window === undefined
      ? data
      : data.subarray(ref.window.offset / 4, (ref.window.offset + ref.window.bytes) / 4)
  }
  const memoryOf = (ref: Ref): Data => {
    if (ref.kind === "buffer") return data.get(idOf(ref.node))!
    if (ref.kind === "temporary") return blocks[memory.blockOf[ref.id]!]!
    throw new Error("an unbound parameter")
  }
  for (const step of made.steps) {
    if (step.kind !== "kernel") throw new Error("a hand-written kernel")
    const [violation] = Spec.check("kernel", step.ast)
    if (violation !== undefined) throw new Error(`${violation.node}: ${violation.reason}`)
    evaluateKernel(step.ast, step.args.map(resolve), vars)
  }
  return data
}
