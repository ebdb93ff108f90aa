import { groupArg, type UOp } from "@tg/core-uop/UOp"
import { combine } from "./elementwise.ts"
import { atom, isName, operand, Refusal, type Text } from "./text.ts"
import type { Writer } from "./writer.ts"

/**
 * The text of a SUBGROUP_REDUCE: a butterfly of shuffles. WGSL's operations over a whole subgroup are one instruction for integers on some GPUs, but a decoding step takes an H100 2.7%
 * longer with them, and its driver compiles them wrong where a workgroup has 1024 threads and many are live (`docs/persistent.md`, "What was wrong before").
 */
const subgroupReduce = (writer: Writer, node: UOp): Text => {
  const { op, threads } = groupArg(node)
  const size = writer.options.subgroupSize
  if (size === undefined) throw new Refusal("SUBGROUP_REDUCE, but the device has no subgroups of one known size")
  if (threads > size || !Number.isInteger(Math.log2(threads))) {
    throw new Refusal(`SUBGROUP_REDUCE over ${threads} threads; subgroups have ${size}, and groups are powers of two`)
  }
  if (node.dtype.scalar === "bool") throw new Refusal("SUBGROUP_REDUCE of bools; cast to u32 first")
  writer.use("subgroups")
  const value = writer.text(node.src[0]!)
  let total = value.constant ? writer.bind("v", value) : value
  for (let step = 1; step < threads; step *= 2) {
    total = writer.bind("v", combine(op, node.dtype, total, atom(`subgroupShuffleXor(${total.code}, ${step}u)`)))
  }
  return total
}

/** How many sums are halved at once: the largest power of two, as far as each thread has one. */
const sumsAtOnce = (sums: number, threads: number): number => 2 ** Math.floor(Math.log2(Math.min(sums, threads)))

/**
 * Instructions of so many sums together: each step of the butterfly exchanges half of them, two selections, a shuffle and an addition for each
 * that is left; when each thread has one, a shuffle and an addition for each step; and a shuffle for each sum that goes back to all.
 */
const instructionsTogether = (sums: number, threads: number): number =>
  4 * (sums - 1) + 2 * Math.log2(threads / sums) + sums
const instructionsApart = (sums: number, threads: number): number => 2 * sums * Math.log2(threads)

/** How many of these are added up together, from the first on: one if that takes fewer instructions. */
const together = (writer: Writer, nodes: ReadonlyArray<UOp>): number => {
  const { op, threads } = groupArg(nodes[0]!)
  const { subgroupSize = 0 } = writer.options
  if (op !== "ADD" || nodes[0]!.dtype.scalar === "bool") return 1
  if (threads > subgroupSize || !Number.isInteger(Math.log2(threads))) return 1
  const sums = sumsAtOnce(nodes.length, threads)
  return sums > 1 && instructionsTogether(sums, threads) < instructionsApart(sums, threads) ? sums : 1
}

/** The texts of SUBGROUP_REDUCEs that stand side by side, of one operation over as many threads. */
export const subgroupReductions = (writer: Writer, nodes: ReadonlyArray<UOp>): ReadonlyArray<Text> => {
  const found: Array<Text> = []
  while (found.length < nodes.length) {
    const rest = nodes.slice(found.length)
    const sums = together(writer, rest)
    if (sums > 1) found.push(...transposed(writer, rest.slice(0, sums)))
    else {
      const value = subgroupReduce(writer, rest[0]!)
      found.push(isName(value) ? value : writer.bind("v", value))
    }
  }
  return found
}

/**
 * Sums over threads, a power of two of them: each step of a butterfly leaves a thread half of the sums, those of its half of the threads. A
 * sum is added up in the order of shuffles for it alone.
 */
const transposed = (writer: Writer, nodes: ReadonlyArray<UOp>): ReadonlyArray<Text> => {
  const { op, threads } = groupArg(nodes[0]!)
  const { dtype } = nodes[0]!
  writer.use("subgroups")
  const thread = "subgroup_invocation_id"
  writer.builtins.add(thread)
  let left = nodes.map((node) => {
    const value = writer.text(node.src[0]!)
    return value.constant ? writer.bind("v", value) : value
  })
  for (let step = 1; step < threads; step *= 2) {
    const shuffled = ({ code }: Text) => atom(`subgroupShuffleXor(${code}, ${step}u)`)
    const half = left.length / 2
    if (half < 1) {
      left = [writer.bind("v", combine(op, dtype, left[0]!, shuffled(left[0]!)))]
      continue
    }
    const isUpper = writer.bind("v", atom(`(${thread} & ${step}u) != 0u`))
    left = left.slice(0, half).map((lower, i) => {
      const select = (a: Text, b: Text): Text => atom(`select(${a.code}, ${b.code}, ${isUpper.code})`)
      const upper = left[half + i]!
      return writer.bind("v", combine(op, dtype, select(lower, upper), shuffled(select(upper, lower))))
    })
  }
  const first = threads === writer.options.subgroupSize
    ? undefined
    : writer.bind("v", atom(`${thread} & ${writer.options.subgroupSize! - threads}u`))
  return nodes.map((_, number) => {
    const place = placeOf(number, nodes.length)
    const from = first === undefined
      ? `subgroupBroadcast(${left[0]!.code}, ${place}u)`
      : `subgroupShuffle(${left[0]!.code}, ${operand(first)} + ${place}u)`
    return writer.bind("v", atom(from))
  })
}

/** The thread that a sum is left to: the digits of its number, reversed. */
const placeOf = (number: number, sums: number): number => {
  let place = 0
  for (let [bit, rest] = [sums / 2, number]; bit >= 1; bit /= 2, rest >>= 1) place += bit * (rest & 1)
  return place
}
