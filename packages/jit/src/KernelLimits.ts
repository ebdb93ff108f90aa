/** Resources of a compiled kernel against the device's limits. */
import * as DType from "@tg/core-uop/DType"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { argOf, slotOf, specialName, type UOp } from "@tg/core-uop/UOp"
import { fixedSize } from "@tg/core-uop/View"
import { Schema } from "effect"

/** A kernel that asks for more than the device allows. */
export class KernelLimit extends Schema.TaggedError<KernelLimit>()("KernelLimit", {
  kernel: Schema.String,
  /** WebGPU's name of the limit. */
  limit: Schema.String,
  needed: Schema.Finite,
  allowed: Schema.Finite,
  advice: Schema.String
}) {
  override get message(): string {
    return `${this.kernel} needs ${this.needed} of ${this.limit}, the device allows ${this.allowed}; ${this.advice}`
  }
}

interface Demand {
  readonly limit: string
  readonly needed: number
  readonly allowed: number
  readonly advice: string
}

const sizeOf = (node: UOp): number => fixedSize(node) ?? 0

const largest = (values: ReadonlyArray<number>): number => values.reduce((a, b) => Math.max(a, b), 0)

const demandsOf = (linear: UOp, profile: DeviceProfile): ReadonlyArray<Demand> => {
  const of = (op: UOp["op"]): ReadonlyArray<UOp> => linear.src.filter((node) => node.op === op)
  const params = of("PARAM")
  const bindings: ReadonlyArray<Demand> = [
    {
      limit: "maxStorageBuffersPerShaderStage",
      needed: new Set(params.map(slotOf)).size,
      allowed: profile.maxStorageBuffers,
      advice: "materialise a part of what it computes with contiguous()"
    },
    {
      limit: "maxStorageBufferBindingSize",
      needed: largest(params.map((param) => DType.bytes(param.dtype) * sizeOf(param))),
      allowed: profile.maxBindingBytes,
      advice: "schedule it with this limit, so that it is cut into windows"
    }
  ]
  if (profile.kind === "cpu") return bindings
  const specials = of("SPECIAL").map((node) => ({ name: specialName(node), node }))
  const sizes = (kind: string): ReadonlyArray<number> =>
    specials.filter(({ name }) => name.startsWith(kind)).map(({ node }) => sizeOf(node))
  const shared = of("LOCAL").map((node) => DType.bytes(node.dtype) * argOf(node, "LOCAL").length)
  return [
    ...bindings,
    {
      limit: "maxComputeInvocationsPerWorkgroup",
      needed: sizes("lidx").reduce((a, b) => a * b, 1),
      allowed: profile.maxWorkgroupThreads,
      advice: "lower its LOCAL and GROUP"
    },
    {
      limit: "maxComputeWorkgroupStorageSize",
      needed: shared.reduce((a, b) => a + b, 0),
      allowed: profile.maxWorkgroupBytes,
      advice: "lower its GROUP, LOCAL or UPCAST"
    },
    {
      limit: "maxComputeWorkgroupsPerDimension",
      needed: largest(sizes("gidx")),
      allowed: profile.maxGrid,
      advice: "give it a loop with LOOP, or more threads with LOCAL"
    }
  ]
}

/** The first limit that a kernel (spec `linear`) exceeds on a device, if there is one. */
export const check = (kernel: string, linear: UOp, profile: DeviceProfile): KernelLimit | undefined => {
  const exceeded = demandsOf(linear, profile).find(({ allowed, needed }) => needed > allowed)
  return exceeded === undefined ? undefined : new KernelLimit({ kernel, ...exceeded })
}
