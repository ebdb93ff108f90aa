/** The chosen nodes as a tensor program. */
import { type Arena, substitute, type UOp } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import { full, Tensor } from "@tg/tensor/Tensor"
import * as Contraction from "./Contraction.ts"
import type { ClassId, ENode, Term, TermNode } from "./ENode.ts"
import type { TensorGraph } from "./Facts.ts"

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
  const write = (id: ClassId): UOp => {
    const cls = graph.find(id)
    const known = written.get(cls)
    if (known !== undefined) return known
    const node = choice.get(cls)
    if (node === undefined) throw new Error(`nothing was chosen for class ${cls}`)
    const uop = ofNode(node)
    // what is equal to something with a name is another way to compute it
    for (const { node: { origin } } of graph.members(cls)) if (origin !== undefined) arena.inherit(uop, origin.uop)
    written.set(cls, uop)
    return uop
  }
  const ofNode = (node: ENode): UOp => build(arena, node, node.args.map(write))
  const term = (given: Term): UOp =>
    typeof given === "number" ? write(given) : build(arena, given, given.args.map(term))
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
    case "slice":
      return args[0]!.slice(node.axis, node.start, node.size)
    case "concat":
      return Nn.cat(args, node.axis)
    case "pointwise":
      return node.op === "ADD" ? args[0]!.add(args[1]!) : args[0]!.div(args[1]!)
    case "constant":
      return full(arena, [], node.value, node.dtype)
    case "other":
      throw new Error(`${node.origin.uop.op} is written as it was read`)
  }
}

/** Operands side by side over all indices, those of the result first; multiplied, and summed over the others. */
const contraction = (c: Contraction.Contraction, args: ReadonlyArray<Tensor>): Tensor => {
  const order = [...c.output.flat(), ...Contraction.summed(c)]
  const side = args.map((arg, i) => alongside(c, c.operands[i]!, arg, order))
  const all = side.reduce((a, b) => a.mul(b)).expand(order.map((i) => c.sizes[i]!))
  const kept = c.output.flat().length
  const axes = order.slice(kept).map((_, i) => kept + i)
  const result = axes.length === 0 ? all : all.sum({ axis: axes })
  return result.reshape(Contraction.shapeOf(c.sizes, c.output))
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
