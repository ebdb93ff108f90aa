import { rangeArg, toposort, type UOp, varArg } from "@tg/core-uop/UOp"

/** Values of the free nodes: VARs by name, RANGEs by `r` and id. */
export type Assignment = Readonly<Record<string, number>>

const name = (node: UOp): string => node.op === "VAR" ? varArg(node).name : `r${rangeArg(node).id}`
const wrap = (value: number, node: UOp): number =>
  node.dtype.scalar === "i32" ? value | 0 : node.dtype.scalar === "u32" ? value >>> 0 : value + 0

/** The value of an integer or boolean expression: an independent reading of the semantics, with bools as 0 and 1. */
export const evaluate = (root: UOp, at: Assignment): number => evaluator(root)(at)

/** The same, for many assignments. */
export const evaluator = (root: UOp): (at: Assignment) => number => {
  const nodes = toposort(root)
  const places = new Map(nodes.map((node, i) => [node, i]))
  const steps = nodes.map((node) => ({
    node,
    sources: node.src.map((source) => places.get(source)!),
    free: isFree(node) ? name(node) : ""
  }))
  const values = nodes.map(() => 0)
  return (at) => {
    for (const [i, { free, node, sources }] of steps.entries()) {
      values[i] = wrap(step(node, (source) => values[sources[source]!]!, at[free]), node)
    }
    return values[nodes.length - 1]!
  }
}

const isFree = (node: UOp): boolean => node.op === "VAR" || node.op === "RANGE"

const step = (node: UOp, v: (i: number) => number, free: number | undefined): number => {
  const unsigned = node.dtype.scalar === "u32"
  const machine = unsigned || node.dtype.scalar === "i32"
  switch (node.op) {
    case "CONST":
      return Number(node.arg)
    case "VAR":
    case "RANGE":
      return free!
    case "ADD":
      return v(0) + v(1)
    case "SUB":
      return v(0) - v(1)
    case "NEG":
      return -v(0)
    case "MUL":
      return machine ? Math.imul(v(0), v(1)) : v(0) * v(1)
    case "FLOORDIV":
      return Math.floor(v(0) / v(1))
    case "FLOORMOD":
      return v(0) - Math.floor(v(0) / v(1)) * v(1)
    case "MAX":
      return Math.max(v(0), v(1))
    case "MIN":
      return Math.min(v(0), v(1))
    case "AND":
      return v(0) & v(1)
    case "OR":
      return v(0) | v(1)
    case "XOR":
      return v(0) ^ v(1)
    case "SHL":
      return machine ? v(0) << v(1) : v(0) * 2 ** v(1)
    case "SHR":
      return unsigned ? v(0) >>> v(1) : machine ? v(0) >> v(1) : Math.floor(v(0) / 2 ** v(1))
    case "CMPLT":
      return v(0) < v(1) ? 1 : 0
    case "CMPEQ":
      return v(0) === v(1) ? 1 : 0
    case "CMPNE":
      return v(0) !== v(1) ? 1 : 0
    case "WHERE":
      return v(0) !== 0 ? v(1) : v(2)
    case "CAST":
      return node.dtype.scalar === "bool" ? (v(0) !== 0 ? 1 : 0) : node.dtype.scalar === "index" ? v(0) | 0 : v(0)
    default:
      throw new Error(`the test evaluator has no ${node.op}`)
  }
}

/** The free nodes of an expression, in order. */
export const freeNodes = (root: UOp): ReadonlyArray<UOp> => toposort(root).filter(isFree)

/** Every assignment of the free nodes (loops may depend on outer values for their size), up to `limit` of them. */
export const assignments = (nodes: ReadonlyArray<UOp>, limit = 20_000): ReadonlyArray<Assignment> => {
  let all: Array<Assignment> = [{}]
  for (const node of nodes) {
    const next: Array<Assignment> = []
    const sizeOf = node.op === "VAR" ? undefined : evaluator(node.src[0]!)
    for (const at of all) {
      const [min, max] = sizeOf === undefined ? [varArg(node).min, varArg(node).max] : [0, sizeOf(at) - 1]
      for (let value = min; value <= max && next.length < limit; value++) next.push({ ...at, [name(node)]: value })
    }
    all = next
  }
  return all
}
