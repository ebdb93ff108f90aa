import * as DType from "./DType.ts"
import { rangeArg, slotOf, specialName, toposort, type UOp, varArg } from "./UOp.ts"

const arg = (node: UOp): string =>
  node.arg === undefined ? "" : typeof node.arg === "object" ? JSON.stringify(node.arg) : String(node.arg)

/** One node with the operations of its sources: `ADD f32 (LOAD, CONST)`. */
export const line = (node: UOp): string =>
  `${node.op} ${DType.print(node.dtype)}${node.arg === undefined ? "" : ` ${arg(node)}`} (${
    node.src.map((s) => s.op).join(", ")
  })`

const infix: Readonly<Record<string, string>> = {
  ADD: "+",
  SUB: "-",
  MUL: "*",
  FDIV: "/",
  FLOORDIV: "//",
  FLOORMOD: "%",
  AND: "&",
  OR: "|",
  XOR: "^",
  SHL: "<<",
  SHR: ">>",
  CMPLT: "<",
  CMPEQ: "==",
  CMPNE: "!="
}

/** A small expression as algebra: `(r0 * 4 + 3) % 8`. For tests and messages. */
export const expression = (node: UOp): string => {
  const e = (i: number): string => expression(node.src[i]!)
  const operator = infix[node.op]
  if (operator !== undefined) return `(${e(0)} ${operator} ${e(1)})`
  switch (node.op) {
    case "CONST":
      return String(node.arg)
    case "VAR":
      return varArg(node).name
    case "RANGE":
      return `r${rangeArg(node).id}`
    case "SPECIAL":
      return specialName(node)
    case "PARAM":
      return `p${slotOf(node)}`
    case "INDEX":
      return node.src.length === 2 ? `${e(0)}[${e(1)}]` : `${e(0)}[${e(1)} if ${e(2)}]`
    case "LOAD":
      return node.dtype.lanes === 1 ? e(0) : `${e(0)}:${node.dtype.lanes}`
    case "WHERE":
      return `(${e(0)} ? ${e(1)} : ${e(2)})`
    case "CAST":
      return `${DType.print(node.dtype)}(${e(0)})`
    default:
      return `${node.op.toLowerCase()}${node.arg === undefined ? "" : `{${arg(node)}}`}(${
        node.src.map(expression).join(", ")
      })`
  }
}

/** The whole graph, one numbered node a line, sources first. Equal for equal structure. */
export const graph = (...roots: ReadonlyArray<UOp>): string => {
  const order = toposort(...roots)
  const number = new Map(order.map((node, i) => [node, i]))
  return order.map((node, i) => {
    const label = node.arena.labelOf(node)
    const text = arg(node)
    return `${String(i).padStart(4)} ${node.op.padEnd(10)} ${DType.print(node.dtype).padEnd(6)} ${
      node.src.map((s) => number.get(s)).join(",").padEnd(12)
    } ${text}${label === undefined ? "" : `  # ${label}`}`.trimEnd()
  }).join("\n")
}
