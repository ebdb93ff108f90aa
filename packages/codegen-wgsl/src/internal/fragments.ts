/** Matrix units in WGSL: `chromium_experimental_subgroup_matrix`, or the same by what every device has. */
import * as DType from "@tg/core-uop/DType"
import { type Along, side } from "@tg/core-uop/MatrixTile"
import { argOf, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { bufferName } from "./access.ts"
import { within } from "./clamps.ts"
import { atom, compound, operand, type Text } from "./text.ts"
import type { Writer } from "./writer.ts"

/** How kernels reach matrix units. `emulated`: each thread computes its elements of a fragment, for devices without them. */
export type Units = "native" | "emulated"

/** What stands at the beginning of a module. */
export const enables: ReadonlyArray<string> = [
  "enable f16;",
  "enable subgroup_size_control;",
  "enable chromium_experimental_subgroup_matrix;",
  // all threads of a workgroup come to each of these operations, by the contract of spec `linear`
  "diagnostic(off, chromium.subgroup_matrix_uniformity);"
]

const types = {
  left: `subgroup_matrix_left<f16, ${side}, ${side}>`,
  right: `subgroup_matrix_right<f16, ${side}, ${side}>`,
  result: `subgroup_matrix_result<f32, ${side}, ${side}>`
} as const

const major = (along: Along): string => along === "row" ? "row_major" : "col_major"

/** Elements of a fragment that a thread has where it is emulated: those whose number is the thread's, modulo the subgroup. */
const elementsOf = (threads: number): number => side * side / threads

const functions = (threads: number): string =>
  `fn fragment_half(word: u32, at: u32) -> f32 {
  return unpack2x16float(word)[at & 1u];
}
fn fragment_row(lane: u32, i: u32) -> u32 { return (i * ${threads}u + lane) / ${side}u; }
fn fragment_column(lane: u32, i: u32) -> u32 { return (i * ${threads}u + lane) % ${side}u; }`

/** Functions that emulated fragments need. */
export const emulation = (linear: UOp): ReadonlyArray<string> => {
  const fragment = linear.src.find((node) => node.op === "FRAGMENT")
  return fragment === undefined ? [] : [functions(argOf(fragment, "FRAGMENT").threads)]
}

/** The address of a fragment, and its stride, in elements that the buffer is declared with; `across` words of each row or column are touched. */
const addressOf = (
  writer: Writer,
  node: UOp,
  { across, stride }: { readonly stride: number; readonly across: number }
) => {
  const { at, buffer } = accessOf(node)
  const width = writer.widths.get(buffer) ?? 1
  const name = bufferName(buffer)
  const text = writer.text(at)
  const lanes = (side - 1) * stride + across
  const index = width === 1 ? text : compound(`${operand(text)} >> ${Math.log2(width)}u`)
  const place = within(writer, { buffer, name, at, lanes }, {
    index,
    width,
    count: Math.ceil(lanes / width)
  })
  return { name, place: `u32(${place.code})`, stride: stride / width, width }
}

/** Words of two halves. */
const acrossOperand = side / 2

/** Writes the definition of a fragment. */
export const define = (writer: Writer, node: UOp): void => {
  const name = writer.fresh("sum")
  const { threads } = argOf(node, "FRAGMENT")
  const type = writer.options.matrixUnits === "emulated" ? `array<f32, ${elementsOf(threads)}>` : types.result
  writer.line(`var ${name} = ${type}();`)
  writer.set(node, atom(name))
}

/** Writes the load of an operand; an emulated one is read where it is multiplied. */
export const load = (writer: Writer, node: UOp): void => {
  const { along, side: of, stride } = argOf(node, "FRAGMENT_LOAD")
  const address = addressOf(writer, node, { stride, across: acrossOperand })
  if (writer.options.matrixUnits === "emulated") {
    const name = writer.fresh("tile")
    writer.line(`let ${name} = ${address.place} * ${address.width}u;`)
    return writer.set(node, atom(name))
  }
  const call = `subgroupMatrixLoad<${types[of]}, ${
    major(along)
  }>(&${address.name}, ${address.place}, ${address.stride}u)`
  writer.set(node, writer.bind("tile", atom(call)))
}

/** The text of an element of an emulated operand. */
const element = (writer: Writer, node: UOp, row: string, column: string): string => {
  const { along, stride } = argOf(node, "FRAGMENT_LOAD")
  const { name, width } = addressOf(writer, node, { stride, across: acrossOperand })
  const [far, near] = along === "row" ? [row, column] : [column, row]
  const word = `${writer.text(node).code} + ${far} * ${stride}u + ${near} / 2u`
  const at = width === 1 ? `${name}[${word}]` : `${name}[(${word}) / ${width}u][(${word}) % ${width}u]`
  return `fragment_half(${at}, ${near})`
}

/** Writes a product that is added to a fragment. */
export const multiply = (writer: Writer, node: UOp): void => {
  const [sum, left, right] = node.src as [UOp, UOp, UOp]
  const [s, l, r] = node.src.map((source) => writer.text(source).code)
  if (writer.options.matrixUnits !== "emulated") {
    return writer.line(`${s} = subgroupMatrixMultiplyAccumulate(${l}, ${r}, ${s});`)
  }
  const { threads } = argOf(sum, "FRAGMENT")
  writer.line(`for (var e = 0u; e < ${elementsOf(threads)}u; e++) {`)
  writer.line(
    `  let row = fragment_row(${lane(writer, threads)}, e); let column = fragment_column(${lane(writer, threads)}, e);`
  )
  writer.line(`  for (var t = 0u; t < ${side}u; t++) {`)
  writer.line(`    ${s}[e] += ${element(writer, left, "row", "t")} * ${element(writer, right, "t", "column")};`)
  writer.line("  }")
  writer.line("}")
}

const lane = (writer: Writer, threads: number): string => {
  writer.builtins.add("local_invocation_id")
  return `local_invocation_id.x % ${threads}u`
}

/** Writes a fragment to memory, to words its bits. */
export const store = (writer: Writer, node: UOp): void => {
  const { along, stride } = argOf(node, "FRAGMENT_STORE")
  const address = addressOf(writer, node, { stride, across: side })
  const fragment: Text = writer.text(node.src[1]!)
  if (writer.options.matrixUnits !== "emulated") {
    return writer.line(
      `subgroupMatrixStore<${major(along)}>(&${address.name}, ${address.place}, ${fragment.code}, ${address.stride}u);`
    )
  }
  const { threads } = argOf(node.src[1]!, "FRAGMENT")
  const [far, near] = along === "row" ? ["fragment_row", "fragment_column"] : ["fragment_column", "fragment_row"]
  const own = lane(writer, threads)
  const value = accessOf(node).buffer.dtype === DType.u32 ? `bitcast<u32>(${fragment.code}[e])` : `${fragment.code}[e]`
  writer.line(`for (var e = 0u; e < ${elementsOf(threads)}u; e++) {`)
  writer.line(`  ${address.name}[${address.place} + ${far}(${own}, e) * ${stride}u + ${near}(${own}, e)] = ${value};`)
  writer.line("}")
}
