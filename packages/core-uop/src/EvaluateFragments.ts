/** Matrix units, as the evaluator runs them: each subgroup has its fragments, row by row, and its first thread touches memory for all of them. */
import type { Instruction, Machine } from "./EvaluateInstructions.ts"
import type { Data } from "./EvaluateOps.ts"
import { halfToFloat } from "./EvaluateOps.ts"
import { type FragmentStoreArg, side } from "./MatrixTile.ts"
import { argOf } from "./UOp.ts"
import { accessOf } from "./View.ts"

const size = side * side

/** Elements from the address to an element of a fragment. */
const placeOf = ({ along, stride }: FragmentStoreArg, element: number): number => {
  const [row, column] = [Math.floor(element / side), element % side]
  return along === "row" ? row * stride + column : column * stride + row
}

/** Reads an operand: words of two halves. The races of a subgroup's threads with each other are those of two of them. */
export const load = (machine: Machine, { index, node, out }: Instruction): void => {
  const { threads, ...arg } = argOf(node, "FRAGMENT_LOAD")
  const { buffer } = accessOf(node)
  const data = machine.memory.buffer(buffer)
  const races = machine.races.get(buffer)
  const halves = { along: arg.along, stride: 2 * arg.stride }
  for (let subgroup = 0; subgroup * size < out!.length; subgroup++) {
    const first = index![subgroup * threads]!
    for (let element = 0; element < size; element++) {
      const half = 2 * first + placeOf(halves, element)
      const word = Math.floor(half / 2)
      if (!(word >= 0 && word < data.length)) throw new Error(`a fragment reads word ${word} of ${data.length}`)
      if (races?.isWritten(word) === false) throw new Error(`a fragment reads word ${word}, which nobody wrote`)
      for (const lane of [0, threads - 1]) races?.read(word, machine.first + subgroup * threads + lane)
      out![subgroup * size + element] = halfToFloat((data[word]! >>> (16 * (half % 2))) & 65535)
    }
  }
}

/** `sum += left right`, of each subgroup. */
export const multiply = (sum: Data, left: Data, right: Data): void => {
  for (let first = 0; first < sum.length; first += size) {
    for (let row = 0; row < side; row++) {
      for (let column = 0; column < side; column++) {
        let total = sum[first + row * side + column]!
        for (let term = 0; term < side; term++) {
          total += left[first + row * side + term]! * right[first + term * side + column]!
        }
        sum[first + row * side + column] = total
      }
    }
  }
}

/** The bits of floats, where they are stored in words. */
const asWords = (data: Data, floats: Data): Data =>
  data instanceof Uint32Array ? new Uint32Array(Float32Array.from(floats).buffer) : floats

/** Writes a fragment; to words its bits. */
export const store = (machine: Machine, { index, node, src: [, fragment] }: Instruction): void => {
  const arg = argOf(node, "FRAGMENT_STORE")
  const { threads } = argOf(node.src[1]!, "FRAGMENT")
  const { buffer } = accessOf(node)
  const data = machine.memory.buffer(buffer)
  const races = machine.races.get(buffer)
  const values = asWords(data, fragment!)
  for (let subgroup = 0; subgroup * size < fragment!.length; subgroup++) {
    const first = index![subgroup * threads]!
    for (let element = 0; element < size; element++) {
      const at = first + placeOf(arg, element)
      if (!(at >= 0 && at < data.length)) throw new Error(`a fragment writes element ${at} of ${data.length}`)
      data[at] = values[subgroup * size + element]!
      races?.write(at, machine.first + subgroup * threads, false)
    }
  }
}
