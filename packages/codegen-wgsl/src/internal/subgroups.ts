import * as DType from "@tg/core-uop/DType"
import { groupArg, type UOp } from "@tg/core-uop/UOp"
import { combine } from "./elementwise.ts"
import { atom, Refusal, type Text } from "./text.ts"
import type { Writer } from "./writer.ts"

const names = { ADD: "subgroupAdd", MUL: "subgroupMul", MAX: "subgroupMax", MIN: "subgroupMin" } as const

/** The text of a SUBGROUP_REDUCE: one operation for a whole subgroup, a butterfly of shuffles for a part of one. */
export const subgroupReduce = (writer: Writer, node: UOp): Text => {
  const { op, threads } = groupArg(node)
  const size = writer.options.subgroupSize
  if (size === undefined) throw new Refusal("SUBGROUP_REDUCE, but the device has no subgroups of one known size")
  if (threads > size || !Number.isInteger(Math.log2(threads))) {
    throw new Refusal(`SUBGROUP_REDUCE over ${threads} threads; subgroups have ${size}, and groups are powers of two`)
  }
  if (node.dtype.scalar === "bool") throw new Refusal("SUBGROUP_REDUCE of bools; cast to u32 first")
  writer.use("subgroups")
  const value = writer.text(node.src[0]!)
  if (threads === size) {
    if (node.dtype !== DType.f32 || (op !== "MAX" && op !== "MIN")) return atom(`${names[op]}(${value.code})`)
    writer.use("ordered")
    const nan = op === "MAX" ? "-2147483647 - 1" : "2147483647"
    return atom(`from_ordered(${names[op]}(ordered(${value.code}, ${nan})))`)
  }
  let total = value.constant ? writer.bind("v", value) : value
  for (let step = 1; step < threads; step *= 2) {
    total = writer.bind("v", combine(op, node.dtype, total, atom(`subgroupShuffleXor(${total.code}, ${step}u)`)))
  }
  return total
}
