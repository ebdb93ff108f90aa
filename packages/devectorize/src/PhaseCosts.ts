/** What a phase of a persistent launch takes, counted in its instructions: words that it reads one by one, registers, code. */
import * as Bounds from "@tg/core-uop/Bounds"
import { elementwise } from "@tg/core-uop/Op"
import { rangeArg, slotOf, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"

/** Instructions that a device has for a node of one lane. */
const isInstruction = ({ op }: UOp): boolean =>
  elementwise.has(op) || op === "LOAD" || op === "STORE" || op === "ACCUMULATE" || op === "SUBGROUP_REDUCE"

/** Bytes of an instruction of a GPU. */
const instructionBytes = 16

/** Bytes of a kernel's machine code, as far as its instructions tell: each once for each of its lanes, loops as they are written. */
export const codeBytes = (linear: UOp): number =>
  linear.src.reduce((sum, node) => {
    const lanes = node.op === "STORE" ? node.src[1]!.dtype.lanes : node.dtype.lanes
    return isInstruction(node) ? sum + instructionBytes * lanes : sum
  }, 0)

/** Words that a thread reads of each argument for one workgroup of the kernel: of loads in loops, as often as they run. */
export const wordsOfSlots = (linear: UOp): ReadonlyMap<number, number> => {
  const times = [1]
  const words = new Map<number, number>()
  for (const node of linear.src) {
    if (node.op === "RANGE") times.push(times.at(-1)! * Bounds.of(node.src[0]!).max)
    if (node.op === "IF") times.push(times.at(-1)!)
    if (node.op === "END" || node.op === "ENDIF") times.pop()
    if (node.op !== "LOAD") continue
    const { buffer } = accessOf(node)
    if (buffer.op !== "PARAM") continue
    words.set(slotOf(buffer), (words.get(slotOf(buffer)) ?? 0) + times.at(-1)! * node.dtype.lanes)
  }
  return words
}

/** Words of values that are in use at a time, at the most: what a thread needs registers for at least. */
export const wordsInUse = (linear: UOp): number => {
  const last = new Map<UOp, number>()
  const end = new Map<UOp, number>()
  const around: Array<ReadonlyArray<UOp>> = []
  const open: Array<UOp> = []
  linear.src.forEach((node, place) => {
    if (node.op === "END") {
      open.pop()
      end.set(node.src[0]!, place)
    }
    around.push([...open])
    if (node.op === "RANGE" && rangeArg(node).axis !== "GLOBAL") open.push(node)
  })
  const born = new Map(linear.src.map((node, place) => [node, place]))
  linear.src.forEach((node, place) => {
    for (const s of node.src) {
      // a value from outside of a loop is used until the loop ends
      const loop = around[place]!.find((range) => (born.get(range) ?? 0) > (born.get(s) ?? 0))
      last.set(s, Math.max(last.get(s) ?? 0, (loop === undefined ? undefined : end.get(loop)) ?? place))
    }
  })
  const change = new Int32Array(linear.src.length + 1)
  for (const [node, place] of born) {
    const until = last.get(node)
    if (until === undefined || !(isInstruction(node) || node.op === "REG") || until <= place) continue
    change[place]! += node.dtype.lanes
    change[until]! -= node.dtype.lanes
  }
  let words = 0
  return change.reduce((most, step) => Math.max(most, words += step), 0)
}
