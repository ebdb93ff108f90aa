/** The chosen nodes as a tensor program. */
import { movement } from "@tg/core-uop/Op"
import { type Arena, substitute, type UOp } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import { full, Tensor } from "@tg/tensor/Tensor"
import * as Bytes from "./Bytes.ts"
import * as Contraction from "./Contraction.ts"
import type { ClassId, ENode, Term, TermNode } from "./ENode.ts"
import type { TensorGraph } from "./Facts.ts"
import { isTiled, stored } from "./Layout.ts"

/** A node for each class. */
export type Choice = ReadonlyMap<ClassId, ENode>

/** Writes classes, and terms over them. */
export interface Writer {
  readonly write: (id: ClassId) => UOp
  readonly node: (node: ENode) => UOp
  readonly term: (term: Term) => UOp
}

/** Writes classes as chosen. What was read and is chosen as it was stays the node it was. */
export const writer = (graph: TensorGraph, choice: Choice, arena: Arena): Writer => {
  const written = new Map<ClassId, UOp>()
  const since = arena.size
  const write = (id: ClassId): UOp => {
    const cls = graph.find(id)
    const known = written.get(cls)
    if (known !== undefined) return known
    const node = choice.get(cls)
    if (node === undefined) throw new Error(`nothing was chosen for class ${cls}`)
    const uop = ofNode(node)
    // what is equal to something with a name is another way to compute it
    for (const { node: { origin } } of graph.members(cls)) {
      if (origin !== undefined) arena.inherit(uop, origin.uop, since)
    }
    written.set(cls, uop)
    nameParts(node, uop)
    return uop
  }
  /** What nobody wrote is named after what it is a part of. */
  const nameParts = (node: ENode, whole: UOp): void => {
    for (const arg of node.args) {
      const part = choice.get(graph.find(arg))
      const uop = written.get(graph.find(arg))
      if (part === undefined || part.origin !== undefined || uop === undefined) continue
      if (part.args.length === 0 || arena.labelOf(uop) !== undefined) continue
      // whoever reads it may see it in another shape
      for (let at = uop;; at = at.src[0]!) {
        arena.inherit(at, whole, since)
        if (!movement.has(at.op)) break
      }
      nameParts(part, whole)
    }
  }
  /** Whether a rule made it a sum, or another view of one. */
  const isMadeSum = (id: ClassId): boolean => {
    const node = choice.get(graph.find(id))
    if (node === undefined || node.origin !== undefined) return false
    if (node.kind === "rounded") return true
    if (node.kind !== "contract") return false
    return Contraction.isView(node.contraction)
      ? isMadeSum(node.args[0]!)
      : Contraction.isSum(node.contraction)
  }
  /** What is read again and again, of tiles of tokens, is stored as tiles. */
  const read = (id: ClassId): UOp => {
    const uop = write(id)
    return isMadeSum(id) && isTiled(new Tensor(uop)) ? stored(new Tensor(uop)).node : uop
  }
  const readsAgain = (node: ENode): boolean =>
    node.kind === "concat" || node.kind === "contract" && Contraction.isSum(node.contraction)
  const ofNode = (node: ENode): UOp => build(arena, node, node.args.map(readsAgain(node) ? read : write))
  const term = (given: Term): UOp => {
    if (typeof given === "number") return write(given)
    return given.kind === "program" ? given.uop : build(arena, given, given.args.map(term))
  }
  return { write, node: ofNode, term }
}

const build = (arena: Arena, node: ENode | TermNode, args: ReadonlyArray<UOp>): UOp => {
  const origin = "origin" in node ? node.origin : undefined
  if (origin !== undefined) {
    const isSame = origin.holes.every((hole, i) => hole === args[i])
    return isSame ? origin.uop : substitute(origin.uop, new Map(origin.holes.map((hole, i) => [hole, args[i]!])))
  }
  return make(arena, node, args.map((arg) => new Tensor(arg))).node
}

const make = (arena: Arena, node: ENode | TermNode, args: ReadonlyArray<Tensor>): Tensor => {
  switch (node.kind) {
    case "contract":
      return contraction(node.contraction, args)
    case "rounded":
      return Bytes.product(node.contraction, args[0]!, args[1]!)
    case "slice":
      return args[0]!.slice(node.axis, node.start, node.size)
    case "concat":
      return Nn.cat(args, node.axis)
    case "stored":
      return node.layout === "tiles" ? stored(args[0]!) : args[0]!.contiguous()
    case "pointwise":
      return node.op === "ADD" ? args[0]!.add(args[1]!) : args[0]!.div(args[1]!)
    case "constant":
      return full(arena, [], node.value, node.dtype)
    case "other":
      throw new Error(`${node.origin.uop.op} is written as it was read`)
  }
}

/** Operands side by side over all indices, multiplied, and summed over those that are not the result's. */
export const contraction = (c: Contraction.Contraction, args: ReadonlyArray<Tensor>): Tensor => {
  // in the order of what is read, so that sums lie where they lie in memory
  const order = Contraction.inOrder(c.sizes, [c.output, ...c.operands]) ??
    [...c.output.flat(), ...Contraction.summed(c)]
  const sums = new Set(Contraction.summed(c))
  const side = factorsFirst(c).map((i) => alongside(c, c.operands[i]!, args[i]!, order))
  const all = side.reduce((a, b) => a.mul(b)).expand(order.map((i) => c.sizes[i]!))
  const axes = order.flatMap((i, axis) => sums.has(i) ? [axis] : [])
  // one token has an axis, too: those who look at sums know tokens by their place
  const front = axes.length > 0 && c.operands.some(([first]) => first?.length === 0) ? 1 : 0
  const led = front === 0 ? all : all.unsqueeze(0)
  const result = axes.length === 0 ? led : led.sum({ axis: axes.map((axis) => axis + front) })
  return result.reshape(Contraction.shapeOf(c.sizes, c.output))
}

/**
 * Operands in the order in which they are multiplied: as they are, but a factor in front of the first one that it scales and that is not
 * as large as all of it, so that both are multiplied once and not for each term.
 */
const factorsFirst = ({ operands, sizes }: Contraction.Contraction): ReadonlyArray<number> => {
  const reads = operands.map((access) => new Set(access.flat()))
  const isFactorOf = (a: number, b: number): boolean =>
    reads[a]!.size > 0 && reads[a]!.size < reads[b]!.size && reads[b]!.size < sizes.length &&
    [...reads[a]!].every((i) => reads[b]!.has(i))
  const order: Array<number> = []
  for (const i of operands.keys()) {
    const at = order.findIndex((other) => isFactorOf(i, other))
    order.splice(at < 0 ? order.length : at, 0, i)
  }
  return order
}

/** An operand with an axis for each index in this order, of size 1 where it does not read the index. */
const alongside = (
  { sizes }: Contraction.Contraction,
  access: Contraction.Access,
  arg: Tensor,
  order: ReadonlyArray<Contraction.Index>
): Tensor => {
  const own = access.flat()
  const sorted = order.filter((i) => own.includes(i))
  return arg.reshape(own.map((i) => sizes[i]!)).permute(sorted.map((i) => own.indexOf(i)))
    .reshape(order.map((i) => own.includes(i) ? sizes[i]! : 1))
}
