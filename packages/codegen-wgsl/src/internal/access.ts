/** Reading and writing memory. */
import type * as DType from "@tg/core-uop/DType"
import { argOf, isAccumulating, isCoherent, slotOf, type UOp } from "@tg/core-uop/UOp"
import { type Access, accessOf, storeOf } from "@tg/core-uop/View"
import { addition } from "./additions.ts"
import { checked } from "./branches.ts"
import { within } from "./clamps.ts"
import { exchange, gather } from "./exchanges.ts"
import { type Address, divide, type Lane, laneAt, leaves } from "./memory.ts"
import { atom, compound, operand, type Text, typeName } from "./text.ts"
import type { Writer } from "./writer.ts"

const letters = "xyzw"

/** The name of a buffer's variable. */
export const bufferName = (buffer: UOp): string =>
  buffer.op === "PARAM" ? `data${slotOf(buffer)}` : `local${argOf(buffer, "LOCAL").id}`

/** One access: its lanes, the lanes of the buffer's element, and the index in units of elements if its form allows. */
interface Vectors extends Access {
  readonly lanes: number
  readonly width: number
  readonly address: Address | undefined
  /** Of part of an element: where it begins, if that is constant by the index's form. */
  readonly part: Lane | undefined
}

const vectorsOf = (node: UOp, widths: ReadonlyMap<UOp, DType.Lanes>): Vectors => {
  const access = accessOf(node)
  const lanes = node.op === "LOAD" ? node.dtype.lanes : storeOf(node).value.dtype.lanes
  const width = widths.get(access.buffer)!
  if (lanes >= width) return { ...access, lanes, width, address: divide(access.at, width), part: undefined }
  const part = laneAt(access.at, width)
  const isInside = part !== undefined && part.lane + lanes <= width
  return { ...access, lanes, width, address: undefined, part: isInside ? part : undefined }
}

/** The operands of a LOAD or STORE, as often as its text contains them. */
export const inputs = (node: UOp, widths: ReadonlyMap<UOp, DType.Lanes>): ReadonlyArray<UOp> => {
  const { address, at, buffer, element, gate, lanes, part, width } = vectorsOf(node, widths)
  const form = part?.vector ?? address
  const used = form === undefined ? [at] : leaves(form)
  const repeats = lanes === width || part !== undefined && lanes === 1 ? [1] : [1, 2]
  const values = node.op === "STORE" ? repeats.map(() => storeOf(node).value) : []
  const places = isAccumulating(node) && !isCoherent(buffer) ? [...repeats, ...repeats] : repeats
  return [element, buffer, ...places.flatMap(() => used), ...gate === undefined ? [] : [gate], ...values]
}

/**
 * The text of a LOAD, behind the statements that it needs. A closed gate's read in a `select` goes to memory all the same. In persistent launches a branch keeps it from there: thousands of
 * threads would ask for one line of the shared cache, beside those that poll it (words of other phases alone are 1.4% of a step of GLM on an H200, 1.8% of Youtu's, 3% of DeepSeek's).
 */
export const load = (writer: Writer, node: UOp): Text => {
  const access = vectorsOf(node, writer.widths)
  const gate = gateOf(writer, access)
  const isBranch = gate !== undefined && writer.isPersistent && access.buffer.op === "PARAM" &&
    (isCoherent(access.buffer) || !writer.isInLoop())
  const places = elements(writer, access, isBranch ? access.gate : undefined)
  const parts = isCoherent(access.buffer) ? places.map((place) => ofWord(`atomicLoad(&${place})`, node.dtype)) : places
  const type = typeName(node.dtype)
  const value = parts.length === 1 ? parts[0]! : `${type}(${parts.join(", ")})`
  if (gate === undefined) return atom(value)
  // the read of a closed gate may be out of bounds: the device's clamps or those written here keep it inside the binding, and select drops it
  if (!isBranch) return atom(`select(${type}(), ${value}, ${gate.code})`)
  const name = writer.fresh("x")
  writer.line(`var ${name}: ${type};`)
  writer.branch(gate.code, { names: [name], statements: [`${name} = ${value};`] })
  return atom(name)
}

/** Writes a STORE. */
export const store = (writer: Writer, node: UOp): void => {
  const access = vectorsOf(node, writer.widths)
  const value = writer.text(storeOf(node).value)
  const isExchanged = isCoherent(access.buffer) && !isAccumulating(node) && writer.isBeforeBarrier && !writer.awaits
  // what clears memory stores 0 itself
  const isAwaited = writer.awaits && isCoherent(access.buffer) && storeOf(node).value.op !== "CONST"
  const awaited: Array<string> = []
  const words = elements(writer, access, access.gate).map((target, i) => {
    const part = access.lanes === access.width
      ? value.code
      : `${operand(value)}.${letters.slice(i * access.width, (i + 1) * access.width)}`
    if (isAccumulating(node)) return addition(target, part, storeOf(node))
    if (!isCoherent(access.buffer)) return `${target} = ${part};`
    const word = wordOf(part, storeOf(node).value.dtype)
    if (isAwaited) awaited.push(word)
    return isExchanged ? exchange(target, word, i) : `atomicStore(&${target}, ${word});`
  })
  const statements = isExchanged ? [gather, ...words] : words
  const gate = gateOf(writer, access)
  if (gate !== undefined) return writer.branch(gate.code, { awaited, statements })
  for (const statement of [...checked(awaited), ...statements]) writer.line(statement)
}

/** A word of a coherent buffer, which holds nothing but words, as a value of the dtype. */
const ofWord = (word: string, { scalar }: DType.DType): string =>
  scalar === "u32" ? word : `bitcast<${scalar}>(${word})`

const wordOf = (value: string, { scalar }: DType.DType): string => scalar === "u32" ? value : `bitcast<u32>(${value})`

const gateOf = (writer: Writer, { element, gate }: Access): Text | undefined =>
  gate === undefined ? undefined : writer.snapshots.get(element)?.[1] ?? writer.text(gate)

/** The places of an access, one per element that it touches, where nothing is touched unless the gate is open. */
const elements = (
  writer: Writer,
  { address, at, buffer, element, lanes, part, width }: Vectors,
  gate?: UOp
): ReadonlyArray<string> => {
  const name = bufferName(buffer)
  const snapshot = writer.snapshots.get(element)
  const count = Math.max(1, lanes / width)
  const kept = (index: Text): Text => within(writer, { buffer, name, at, lanes, gate }, { index, width, count })
  if (address !== undefined && snapshot === undefined) {
    return neighbours(name, kept(addressText(writer, address)), count)
  }
  if (part !== undefined && snapshot === undefined) {
    const vector = `${name}[${kept(addressText(writer, part.vector)).code}]`
    return Array.from({ length: lanes }, (_, i) => `${vector}.${letters[part.lane + i]}`)
  }
  const whole = snapshot?.[0] ?? writer.text(at)
  if (lanes < width) {
    const vector = `${name}[${kept(compound(`${operand(whole)} >> ${Math.log2(width)}u`)).code}]`
    const first = whole.constant ? String(Number(whole.code) % width) : `${operand(whole)} & ${width - 1}`
    return Array.from({ length: lanes }, (_, i) => `${vector}[${i === 0 ? first : `(${first}) + ${i}`}]`)
  }
  return neighbours(name, kept(width === 1 ? whole : compound(`${operand(whole)} >> ${Math.log2(width)}u`)), count)
}

/** Elements that follow each other in a buffer. */
const neighbours = (name: string, at: Text, count: number): ReadonlyArray<string> =>
  Array.from({ length: count }, (_, i) => `${name}[${i === 0 ? at.code : `${operand(at)} + ${i}`}]`)

const addressText = (writer: Writer, address: Address): Text => {
  switch (address.kind) {
    case "constant":
      return atom(String(address.value))
    case "scaled": {
      const node = writer.text(address.node)
      return address.factor === 1 ? node : compound(`${operand(node)} * ${address.factor}`)
    }
    case "sum": {
      const [a, b] = address.parts.map((part) => addressText(writer, part)) as [Text, Text]
      return b.code === "0" ? a : a.code === "0" ? b : compound(`${operand(a)} + ${operand(b)}`)
    }
  }
}
