/** Slices and concatenations against contractions. */
import * as Contraction from "../Contraction.ts"
import { type Contract, contract, type Slice, type Term } from "../ENode.ts"
import { dtypeOf, shapeOf, type TensorGraph } from "../Facts.ts"
import { membersOf, reading, type Rewrite, rule, type Site } from "../Rule.ts"

/** An operand with an axis for each of its indices. */
const spread = (graph: TensorGraph, node: Contract, operand: number): Term => {
  const { operands, sizes } = node.contraction
  const shape = shapeOf(graph, node.args[operand]!)
  const axes = operands[operand]!.flat().map((i) => sizes[i]!)
  return contract(Contraction.reshape(shape, axes)!, node.dtype, [node.args[operand]!])
}

/** Which part of an axis' slowest index a slice is: of rows in groups, whole groups. */
const partOf = (
  { output, sizes }: Contraction.Contraction,
  { axis, size, start }: Slice
): { readonly index: Contraction.Index; readonly start: number; readonly size: number } | undefined => {
  const [index, ...inner] = output[axis]!
  const group = inner.reduce((n, i) => n * Number(sizes[i]!), 1)
  return index === undefined || start % group !== 0 || size % group !== 0
    ? undefined
    : { index, start: start / group, size: size / group }
}

/** Part of a product = the product of parts: only what is asked for is computed. */
export const sliceInto = rule(
  "slice-into",
  "slice",
  // the factors of a product of several may be multiplied in another order
  { equation: "(sum_k x[k] w[n, k])[n < m] = sum_k x[k] (w[n, k])[n < m]", bound: 2 ** -20 },
  (site) => slicedProducts(site, () => true)
)

/** The same of views: rows in groups, of which a part is whole groups. */
export const sliceView = rule(
  "slice-view",
  "slice",
  { equation: "(x[n / 8, n % 8])[n < 8 m] = (x[.. < m, ..])[n / 8, n % 8]", bound: 0 },
  (site) => slicedProducts(site, Contraction.isView)
)

const slicedProducts = function*(
  { graph, node }: Site<"slice">,
  isWanted: (c: Contraction.Contraction) => boolean
): Iterable<Rewrite> {
  for (const { id, node: product } of membersOf(graph, node.args[0], "contract")) {
    if (!isWanted(product.contraction)) continue
    const part = partOf(product.contraction, node)
    if (part === undefined) continue
    const { index, size, start } = part
    const readers = [...product.args.keys()].filter((i) =>
      Contraction.indicesOfOperand(product.contraction, i).has(index)
    )
    // a broadcast axis is sliced by making it shorter; what rules do not need, they leave alone
    if (readers.length === 0) continue
    const { operands, output, sizes } = product.contraction
    // an axis that runs over the index first of all is sliced as it is
    const axisOf = (operand: number): number => operands[operand]!.findIndex(([first]) => first === index)
    const sliced = (operand: number): Term => {
      const axis = axisOf(operand)
      if (axis < 0) {
        const own = operands[operand]!.flat().indexOf(index)
        return { kind: "slice", axis: own, start, size, args: [spread(graph, product, operand)] }
      }
      const group = operands[operand]![axis]!.slice(1).reduce((n, i) => n * Number(sizes[i]!), 1)
      return { kind: "slice", axis, start: start * group, size: size * group, args: [product.args[operand]!] }
    }
    const inner = Contraction.normalise({
      sizes: sizes.map((own, i) => i === index ? size : own),
      operands: operands.map((access, i) =>
        readers.includes(i) && axisOf(i) < 0 ? access.flat().map((k) => [k]) : access
      ),
      output
    })
    const args = product.args.map((arg, i) => readers.includes(i) ? sliced(i) : arg)
    yield { from: reading(node, 0, id), to: contract(inner, product.dtype, args) }
  }
}

/** A contraction of two operands, of which one is a slice along an axis that is summed. */
interface Piece {
  readonly product: Contract
  /** Which operand is the slice. */
  readonly at: number
  readonly slice: Slice
  /** The index of that axis. */
  readonly index: Contraction.Index
  /** The indices of the other operand, those of the result first. */
  readonly other: ReadonlyArray<Contraction.Index>
}

const piecesOf = function*(graph: TensorGraph, id: number): Iterable<Piece & { readonly id: number }> {
  for (const { id: member, node: product } of membersOf(graph, id, "contract")) {
    if (product.args.length !== 2) continue
    const sums = new Set(Contraction.summed(product.contraction))
    for (const at of [0, 1]) {
      for (const { node: slice } of membersOf(graph, product.args[at]!, "slice")) {
        const [index, ...more] = product.contraction.operands[at]![slice.axis]!
        if (index === undefined || more.length > 0 || !sums.has(index)) continue
        const other = [...Contraction.indicesOfOperand(product.contraction, 1 - at)].sort((a, b) => a - b)
        if (other.includes(index)) yield { id: member, product, at, slice, index, other }
      }
    }
  }
}

/** A product as if its slice were everything: equal for pieces that differ in nothing but the part of the sum. */
const formOf = ({ at, index, other, product }: Piece, size: number): Contraction.Contraction => {
  const { operands, output, sizes } = product.contraction
  return Contraction.normalise({
    sizes: sizes.map((own, i) => i === index ? size : own),
    operands: [operands[at]!, other.map((i) => [i])],
    output
  })
}

/** The other operand with an axis for each of its indices. */
const otherOf = ({ at, other, product }: Piece): Term => {
  const { operands, sizes } = product.contraction
  const access = operands[1 - at]!
  const turned = Contraction.normalise({ sizes, operands: [access], output: other.map((i) => [i]) }, new Set(other))
  return contract(turned, product.dtype, [product.args[1 - at]!])
}

/**
 * a x[..m] + b x[m..] = [a | b] x: products with neighbouring parts of one value are one product. Queries against a cache
 * whose rows are a latent and a position.
 */
export const joinSlices = rule(
  "join-slices",
  "pointwise",
  { equation: "sum_k a[k] x[k] + sum_l b[l] x[m + l] = sum_k [a | b][k] x[k]", bound: 2 ** -18 },
  function*({ graph, node }) {
    if (node.op !== "ADD") return
    const pieces = node.args.map((arg) => [...piecesOf(graph, arg)])
    for (const x of pieces[0]!) {
      for (const y of pieces[1]!) {
        const [first, second] = x.slice.start < y.slice.start ? [x, y] : [y, x]
        const source = graph.find(first.slice.args[0])
        const isOne = graph.find(second.slice.args[0]) === source && first.slice.axis === second.slice.axis &&
          first.slice.start + first.slice.size === second.slice.start
        const total = first.slice.size + second.slice.size
        const form = formOf(first, total)
        if (!isOne || Contraction.key(form) !== Contraction.key(formOf(second, total))) continue
        const whole: Term = {
          kind: "slice",
          axis: first.slice.axis,
          start: first.slice.start,
          size: total,
          args: [source]
        }
        const isAll = shapeOf(graph, source)[first.slice.axis] === total
        const joined: Term = {
          kind: "concat",
          axis: first.other.indexOf(first.index),
          args: [otherOf(first), otherOf(second)]
        }
        // every position of the other operand reads all of it
        const stored: Term = { kind: "stored", layout: "tiles", args: [joined] }
        yield {
          from: { ...node, args: [x.id, y.id] },
          to: contract(form, dtypeOf(graph, node.args[0]), [isAll ? source : whole, stored])
        }
      }
    }
  }
)

/** [a | b] along an axis that is summed: the sum of two products. */
export const splitConcat = rule(
  "split-concat",
  "contract",
  { equation: "sum_k [a | b][k] x[k] = sum_k a[k] x[k] + sum_l b[l] x[m + l]", bound: 2 ** -18 },
  function*({ graph, node }) {
    if (node.args.length !== 2) return
    for (const at of [0, 1]) {
      for (const { id, node: joined } of membersOf(graph, node.args[at]!, "concat")) {
        const [index, ...more] = node.contraction.operands[at]![joined.axis]!
        const other = node.contraction.operands[1 - at]!
        const axis = other.findIndex((own) => own.length === 1 && own[0] === index)
        const isSummed = index !== undefined && Contraction.summed(node.contraction).includes(index)
        if (!isSummed || more.length > 0 || axis < 0 || joined.args.length !== 2) continue
        let start = 0
        const terms = joined.args.map((part): Term => {
          const size = Number(shapeOf(graph, part)[joined.axis]!)
          const slice: Term = { kind: "slice", axis, start, size, args: [node.args[1 - at]!] }
          start += size
          const { operands, output, sizes } = node.contraction
          const form = Contraction.normalise({
            sizes: sizes.map((own, i) => i === index ? size : own),
            operands,
            output
          })
          return contract(form, node.dtype, at === 0 ? [part, slice] : [slice, part])
        })
        yield { from: reading(node, at, id), to: { kind: "pointwise", op: "ADD", args: [terms[0]!, terms[1]!] } }
      }
    }
  }
)

/** A slice of a slice. */
export const sliceSlice = rule(
  "slice-slice",
  "slice",
  { equation: "(x[a..])[b..] = x[a + b..]", bound: 0 },
  function*({ graph, node }) {
    for (const { id, node: inner } of membersOf(graph, node.args[0], "slice")) {
      if (inner.axis !== node.axis) continue
      const { axis, size } = node
      const part: Term = { kind: "slice", axis, start: inner.start + node.start, size, args: inner.args }
      yield { from: reading(node, 0, id), to: part }
    }
  }
)

/** A part of a concatenation that lies in one of its parts. */
export const sliceConcat = rule(
  "slice-concat",
  "slice",
  { equation: "[a | b][k < m] = a[k < m] where a has m or more", bound: 0 },
  function*({ graph, node }) {
    const { axis, size } = node
    for (const { id, node: joined } of membersOf(graph, node.args[0], "concat")) {
      if (joined.axis !== axis) continue
      let from = 0
      for (const part of joined.args) {
        const width = Number(shapeOf(graph, part)[axis]!)
        const start = node.start - from
        from += width
        if (start < 0 || start + size > width) continue
        yield {
          from: reading(node, 0, id),
          to: size === width ? part : { kind: "slice", axis, start, size, args: [part] }
        }
      }
    }
  }
)

/** A part of a value that was to be stored: who reads a part alone does not ask for the whole. */
export const sliceStored = rule(
  "slice-stored",
  "slice",
  { equation: "(stored x)[k < m] = x[k < m]", bound: 0 },
  function*({ graph, node }) {
    for (const { id, node: { args: [source], origin } } of membersOf(graph, node.args[0], "other")) {
      if (origin.uop.op !== "CONTIGUOUS" || source === undefined) continue
      yield { from: reading(node, 0, id), to: { ...node, origin: undefined, args: [source] } }
    }
  }
)

/** Products of one value with several weights are a part of one product with all of them. */
export const siblings = rule(
  "siblings",
  "contract",
  { equation: "(W x, V x) = ([W | V] x)[..n], ([W | V] x)[n..]", bound: 2 ** -20 },
  function*({ graph, node }) {
    const own = asRows(graph, node)
    if (own === undefined) return
    for (const parent of graph.parents(node.args[own.x]!)) {
      const found = graph.members(parent).find((m) =>
        m.node.kind === "contract" && m.node.args.includes(node.args[own.x]!)
      )
      if (found === undefined || found.node.kind !== "contract") continue
      const other = asRows(graph, found.node)
      if (other === undefined || found.node.args[other.x] !== node.args[own.x]) continue
      if (found.node.args[other.w]! <= node.args[own.w]! || own.form !== other.form) continue
      const { contraction } = node
      const joined: Term = { kind: "concat", axis: own.axis, args: [node.args[own.w]!, found.node.args[other.w]!] }
      const form = Contraction.normalise({
        ...contraction,
        sizes: contraction.sizes.map((size, i) => i === own.row ? own.rows + other.rows : size)
      })
      const both = contract(form, node.dtype, node.args.map((arg, i) => i === own.w ? joined : arg))
      const part = (start: number, size: number): Term => ({ kind: "slice", axis: own.out, start, size, args: [both] })
      yield { from: node, to: part(0, own.rows) }
      yield { from: found.node, to: part(own.rows, other.rows) }
    }
  }
)

/** A product of a value with the rows of a weight: which is which, and its form without the number of rows. */
const asRows = (graph: TensorGraph, node: Contract) => {
  if (node.args.length !== 2) return undefined
  const w = node.args.findIndex((arg) => graph.facts(arg).residency === 1)
  const x = 1 - w
  if (w < 0 || graph.facts(node.args[x]!).residency === 1) return undefined
  const { operands, output, sizes } = node.contraction
  const read = Contraction.indicesOfOperand(node.contraction, x)
  const axis = operands[w]!.findIndex((own) => own.length === 1 && !read.has(own[0]!))
  if (axis < 0) return undefined
  const row = operands[w]![axis]![0]!
  const out = output.findIndex((own) => own.length === 1 && own[0] === row)
  if (out < 0) return undefined
  const form = Contraction.key(Contraction.normalise({
    sizes: sizes.map((size, i) => i === row ? 7919 : size),
    operands: [operands[x]!, operands[w]!],
    output
  }))
  return { w, x, axis, row, rows: Number(sizes[row]!), out, form }
}
