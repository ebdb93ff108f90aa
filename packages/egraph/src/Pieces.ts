/**
 * An associative reduction over an axis is a reduction of the reductions over its pieces. Of a cascade, each piece computes all
 * reductions as if it were everything: against its own maximum instead of that of all. What a step's terms are multiplied with
 * (of a sum) or moved by (of a maximum) when the steps before it change from those of a piece to those of all is found from
 * its expression. Together the steps are then the state of a monoid: of softmax and mix it is (maximum, sum, mix), and pieces
 * are put together as the online softmax does it.
 */
import { elementwise } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import type { UOp } from "@tg/core-uop/UOp"
import { iota, scalar, Tensor, zeros } from "@tg/tensor/Tensor"
import { begunPieces, behind, type Cutter, cutter, goesOn, type Moved, piecesOf, record, replaced } from "./Axis.ts"
import { type Cascade, cascadeAt, type Step } from "./Cascade.ts"

/** The rule as people write it, and its bound (see `Rule`). */
export const law = {
  equation: "(m, l, o) = (max_s x[s], sum_s exp(x[s] - m), sum_s exp(x[s] - m) v[s]) = sum over pieces p of " +
    "(m[p], l[p] exp(m[p] - m), o[p] exp(m[p] - m))",
  bound: 2 ** -18
}

/** Neighbours along an axis of the result that are computed together, by a workgroup: they read the same values. */
export type Together = ReadonlyArray<{ readonly axis: number; readonly size: number }>

/** How a cascade is cut. */
export interface Plan {
  /** Positions of a piece. */
  readonly piece: number
  /** A workgroup computes them as a whole; none if it is not said. */
  readonly together?: Together | undefined
  /** What the states of pieces are called in the program. */
  readonly label?: string | undefined
}

/** Of what changes from a piece to the whole: nothing, a tensor, or something that this rule does not know (undefined). */
export type Change = "none" | Tensor | undefined

/** A factor of a sum that all its terms share: it multiplies or divides the sum. */
export interface Factor {
  readonly op: "MUL" | "FDIV"
  /** With size 1 where the axis was. */
  readonly value: Tensor
}

/** A cascade and what is known of its pieces. */
export interface Pieces {
  readonly cascade: Cascade
  readonly count: Shape.Dim
  readonly piece: number
  readonly cut: Cutter
  /** Whether the last piece may go on behind the axis: what is there counts as nothing. */
  readonly isOpen: boolean
}

/** A value of a step: of a piece, with an axis of pieces, or of everything. */
export type ValueOf = (step: UOp) => Tensor

const tensor = (node: UOp): Tensor => new Tensor(node)

/** A value of shape `[n, ..]` with its first axis at another place. */
const moveFirst = (x: Tensor, to: number): Tensor =>
  x.permute([...Array.from({ length: to }, (_, i) => i + 1), 0, ...[...x.shape.keys()].slice(to + 1)])

/** And back. */
const moveToFirst = (x: Tensor, from: number): Tensor =>
  x.permute([from, ...[...x.shape.keys()].filter((axis) => axis !== from)])

/** A value that has no such axis, for each piece: `[n, ..]`. */
const forEachPiece = (pieces: Pieces, node: UOp, valueOf: ValueOf): Tensor => {
  const { cascade, count } = pieces
  const shape = Shape.of(node)
  const again = (x: UOp): Tensor => forEachPiece(pieces, x, valueOf)
  const step = cascade.steps.find(({ reduce }) => reduce === node)
  if (step !== undefined) return moveToFirst(valueOf(node), step.axis)
  if (!cascade.depends(node)) return tensor(node).reshape([1, ...shape]).expand([count, ...shape])
  if (elementwise.has(node.op)) return tensor(node.with(node.src.map((s) => again(s).node)))
  const source = again(node.src[0]!)
  if (node.op === "RESHAPE") return source.reshape([count, ...shape])
  if (node.op === "EXPAND") return source.expand([count, ...shape])
  const order = node.arg as ReadonlyArray<number> // what is left is a PERMUTE
  return source.permute([0, ...order.map((axis) => axis + 1)])
}

/** A value with the axis, its axis cut into pieces: `[.., n, piece, ..]`. */
export const inPiecesAt = (pieces: Pieces, { axis, node }: Site, valueOf: ValueOf): Tensor => {
  const { cascade, count, cut, piece } = pieces
  if (!cascade.depends(node)) return cut(node, axis, [count, piece])
  if (elementwise.has(node.op)) {
    return tensor(node.with(node.src.map((source) => inPiecesAt(pieces, { axis, node: source }, valueOf).node)))
  }
  const moved = behind(node, axis)!
  const inner = hasAxis(cascade, moved)
    ? inPiecesAt(pieces, { axis: moved.axis, node: moved.source }, valueOf)
    : moveFirst(forEachPiece(pieces, moved.source, valueOf), moved.axis)
  return moved.again(inner, [count, piece])
}

/** A value and its axis. */
export interface Site {
  readonly node: UOp
  readonly axis: number
}

const hasAxis = ({ size }: Cascade, { axis, source }: Moved): boolean => Shape.of(source)[axis] === size

/** What the terms of a sum share: `terms` without it. */
export const hoisted = (
  cascade: Cascade,
  { axis, node }: Site
): { readonly terms: UOp; readonly factors: ReadonlyArray<Factor> } => {
  const whole = { terms: node, factors: [] }
  if (!cascade.depends(node)) return whole
  if (node.op === "MUL" || node.op === "FDIV") {
    const [a, b] = [node.src[0]!, node.src[1]!]
    const shared = sharedBy(cascade, { axis, node: b })
    const left = hoisted(cascade, { axis, node: a })
    if (shared !== undefined) return { ...left, factors: [...left.factors, { op: node.op, value: shared }] }
    const first = node.op === "MUL" ? sharedBy(cascade, { axis, node: a }) : undefined
    const right = node.op === "MUL" ? hoisted(cascade, { axis, node: b }) : { terms: b, factors: [] }
    if (first !== undefined) return { ...right, factors: [...right.factors, { op: "MUL", value: first }] }
    const factors = [...left.factors, ...right.factors]
    return factors.length === 0 ? whole : { terms: node.with([left.terms, right.terms]), factors }
  }
  const moved = behind(node, axis)
  if (moved === undefined || !hasAxis(cascade, moved)) return whole
  const inner = hoisted(cascade, { axis: moved.axis, node: moved.source })
  if (inner.factors.length === 0) return whole
  return {
    terms: moved.again(tensor(inner.terms), [cascade.size]).node,
    factors: inner.factors.map(({ op, value }) => ({ op, value: moved.again(value, [1]) }))
  }
}

/** A value of the steps that is the same along the axis, with size 1 there. */
const sharedBy = (cascade: Cascade, { axis, node }: Site): Tensor | undefined => {
  const moved = cascade.depends(node) ? behind(node, axis) : undefined
  if (moved === undefined) return undefined
  if (!hasAxis(cascade, moved)) return moved.again(tensor(moved.source), [1])
  const inner = sharedBy(cascade, { axis: moved.axis, node: moved.source })
  return inner === undefined ? undefined : moved.again(inner, [1])
}

/** The steps of a piece and of everything. */
export interface Values {
  readonly ofPiece: ValueOf
  readonly ofAll: ValueOf
}

/** A value with everything's steps in place of those that it was written with. */
export const ofAll = (cascade: Cascade, node: UOp, valueOf: ValueOf): UOp => {
  if (!cascade.depends(node)) return node
  if (cascade.steps.some(({ reduce }) => reduce === node)) return valueOf(node).node
  return node.with(node.src.map((s) => ofAll(cascade, s, valueOf)))
}

/** What a term of everything is, of the same term of a piece: a factor of shape `[.., n, 1, ..]`. */
const ratio = (pieces: Pieces, { axis, node }: Site, values: Values): Change => {
  const { cascade, count } = pieces
  if (!cascade.depends(node)) return "none"
  const [a, b, c] = node.src
  const at = (source: UOp): Site => ({ axis, node: source })
  switch (node.op) {
    case "EXP2": {
      const moved = difference(pieces, at(a!), values)
      return moved instanceof Tensor ? moved.exp2() : moved
    }
    case "NEG":
      return ratio(pieces, at(a!), values)
    case "MUL":
      return both(ratio(pieces, at(a!), values), ratio(pieces, at(b!), values), (x, y) => x.mul(y))
    case "FDIV":
      return cascade.depends(b!) ? undefined : ratio(pieces, at(a!), values)
    case "WHERE":
      // where there is a zero, there is one in both
      return cascade.depends(a!) || c!.op !== "CONST" || c!.arg !== 0 ? undefined : ratio(pieces, at(b!), values)
    default:
      return through(pieces, { axis, node }, (inner) => ratio(pieces, inner, values), count)
  }
}

/** What a term of everything is more than the same term of a piece. */
const difference = (pieces: Pieces, { axis, node }: Site, values: Values, sign: 1 | -1 = 1): Change => {
  const { cascade, count } = pieces
  if (!cascade.depends(node)) return "none"
  const [a, b] = node.src
  const of = (source: UOp, way: 1 | -1): Change => difference(pieces, { axis, node: source }, values, way)
  const back = sign === 1 ? -1 : 1
  switch (node.op) {
    case "NEG":
      return of(a!, back)
    case "ADD":
      return both(of(a!, sign), of(b!, sign), (x, y) => x.add(y))
    case "SUB":
      return both(of(a!, sign), of(b!, back), (x, y) => x.add(y))
    case "MUL": {
      const [factor, other] = cascade.depends(a!) ? [b!, a!] : [a!, b!]
      const inner = factor.op === "CONST" ? of(other, sign) : undefined
      return inner instanceof Tensor ? inner.mul(Number(factor.arg)) : inner
    }
    default: {
      const moved = behind(node, axis)
      if (moved === undefined || hasAxis(cascade, moved)) {
        return through(pieces, { axis, node }, (inner) => difference(pieces, inner, values, sign), count)
      }
      const shape = Shape.of(moved.source)
      const all = tensor(ofAll(cascade, moved.source, values.ofAll)).reshape(replaced(shape, moved.axis, [1, 1]))
      const own = moveFirst(forEachPiece(pieces, moved.source, values.ofPiece), moved.axis)
      return moved.again(sign === 1 ? all.sub(own) : own.sub(all), [count, 1])
    }
  }
}

const both = (x: Change, y: Change, join: (x: Tensor, y: Tensor) => Tensor): Change =>
  x === undefined || y === undefined ? undefined : x === "none" ? y : y === "none" ? x : join(x, y)

/** A movement that keeps the axis moves what is found behind it. */
const through = ({ cascade }: Pieces, { axis, node }: Site, of: (inner: Site) => Change, count: Shape.Dim): Change => {
  const moved = behind(node, axis)
  if (moved === undefined || !hasAxis(cascade, moved)) return undefined
  const inner = of({ axis: moved.axis, node: moved.source })
  return inner instanceof Tensor ? moved.again(inner, [count, 1]) : inner
}

/** A value reduced over an axis. */
export const reduced = (x: Tensor, op: Step["op"], axis: number): Tensor =>
  op === "ADD" ? x.sum(axis) : op === "MAX" ? x.max(axis) : x.min(axis)

/** A step of everything, from that of each piece, `[.., n, ..]`. */
export const combined = (pieces: Pieces, { axis, op, reduce, terms }: Terms, values: Values): Tensor | undefined => {
  const site = { axis, node: terms }
  const own = values.ofPiece(reduce)
  const change = op === "ADD" ? ratio(pieces, site, values) : difference(pieces, site, values)
  if (change === undefined) return undefined
  if (change === "none") return reduced(own, op, axis)
  const now = change.squeeze(axis + 1)
  return reduced(op === "ADD" ? own.mul(now) : own.add(now), op, axis)
}

/** What a step reduces; of the root, without the factors that its terms share. */
export interface Terms extends Step {
  readonly terms: UOp
}

/** Columns of a record: as many as a group of values, so that what stands beside a row of values keeps its place. */
const group = 8

/** The axes in their order, `inner` ones last; `count` come before what stays behind all of them. */
const orderOf = (rank: number, count: number, inner: ReadonlyArray<number>): ReadonlyArray<number> => {
  const axes = Array.from({ length: rank }, (_, i) => i)
  return [
    ...axes.slice(0, count).filter((axis) => !inner.includes(axis)),
    ...inner,
    ...axes.slice(count)
  ]
}

const notOne = (shape: Shape.Shape): Shape.Shape => shape.filter((d) => d !== 1)

/** The value with one axis for some that follow one another. */
const withOneAxis = (x: Tensor, { at, count }: { readonly at: number; readonly count: number }): Tensor => {
  const rows = x.shape.slice(at, at + count).reduce<number>((n, d) => n * Number(d), 1)
  return count < 2 ? x : x.reshape([...x.shape.slice(0, at), rows, ...x.shape.slice(at + count)])
}

/** The states of pieces as one record each, which is stored: all of them come from one launch. */
const stored = (
  states: ReadonlyArray<{ readonly of: Tensor; readonly axis: number }>,
  { inner, label }: Pick<Plan, "label"> & { readonly inner: ReadonlyArray<number> }
): ReadonlyArray<Tensor> => {
  // of the root, which is the last; others may have axes of size 1 besides
  const last = states.at(-1)!
  const lead = last.of.shape.slice(0, last.axis + 1)
  const isOne = states.every(({ axis, of }) => Shape.equal(notOne(of.shape.slice(0, axis + 1)), notOne(lead)))
  const named = (x: Tensor): Tensor => label === undefined ? x : x.label(label)
  if (!isOne) return states.map(({ of }) => named(of.contiguous()))
  const keep = (x: Tensor): Tensor => {
    const order = orderOf(x.rank, lead.length - 1, inner)
    const permuted = x.permute(order)
    const made = withOneAxis(permuted, { at: lead.length - 1 - inner.length, count: inner.length }).contiguous(
      inner.length === 0 ? {} : { together: lead.length - 1 - inner.length }
    )
    return named(made).reshape(permuted.shape).permute(order.map((_, axis) => order.indexOf(axis)))
  }
  const sorted = states.map(({ axis, of }, i) => {
    const width = of.shape.slice(axis + 1).reduce<number>((n, d) => n * Number(d), 1)
    return { i, flat: of.reshape([...lead, width]) }
  })
    .toSorted((a, b) => Number(b.flat.dim(-1)) - Number(a.flat.dim(-1)))
  const flat = sorted.map((each) => each.flat)
  const missing = -flat.reduce((n, x) => n + Number(x.dim(-1)), 0) & (group - 1)
  const parts = record(missing === 0 ? flat : [...flat, zeros(flat[0]!.arena, [...lead, missing])], keep)
  return states.map(({ of }, i) => parts[sorted.findIndex((each) => each.i === i)]!.reshape(of.shape))
}

/** The cascade with axes of its rows cut in two, and where the second parts are. */
const cutRows = (cascade: Cascade, together: Together) => {
  const cut = cutter()
  const sorted = together.toSorted((a, b) => b.axis - a.axis)
  const root = sorted.reduce((node, { axis, size }) => {
    const whole = Number(Shape.of(node)[axis])
    return cut(node, axis, [whole / size, size]).node
  }, cascade.root.reduce)
  const inner = sorted.map(({ axis }, i) => axis + sorted.length - i).toReversed()
  return { cascade: together.length === 0 ? cascade : cascadeAt(root), inner }
}

/** How many pieces there are, if they are whole, or if all that the cascade reads goes on up to the end of the last one. */
export const countOf = (
  { root, size, steps }: Cascade,
  piece: number
): { readonly count: Shape.Dim | undefined; readonly isOpen: boolean } => {
  const count = piecesOf(size, piece)
  if (count !== undefined || typeof size === "number") return { count, isOpen: false }
  const isOpen = [...steps, root].every(({ axis, reduce }) => goesOn(reduce.src[0]!, axis, piece))
  return { count: isOpen ? begunPieces(size, piece) : undefined, isOpen }
}

/** No value is less. */
const lowest = -3.4028234663852886e38

/** Terms of pieces, with what counts as nothing behind the axis. */
export const within = (
  { cascade: { size }, count, piece }: Pieces,
  { axis, op }: Pick<Step, "axis" | "op">,
  terms: Tensor
): Tensor => {
  const { arena } = terms
  const behindIt = Array.from({ length: terms.rank - axis - 2 }, () => 1)
  const position = iota(arena, count).mul(piece).unsqueeze(1).add(iota(arena, piece))
  return position.lt(scalar(arena, size)).reshape([count, piece, ...behindIt])
    .where(terms, op === "ADD" ? 0 : op === "MAX" ? lowest : -lowest)
}

/** How many pieces there are, whether the last one may go on behind the axis, and how what the cascade reads is cut. */
export interface Cuts {
  readonly count: Shape.Dim | undefined
  readonly isOpen: boolean
  readonly cut: Cutter
}

/**
 * A value equal to the root of a cascade, computed in pieces of so many positions, whose states are stored; none where the axis
 * is no whole pieces and what is read does not go on behind it, or the rule does not know how a step changes with those before it.
 */
export const inPieces = (
  whole: Cascade,
  { label, piece, together = [] }: Plan,
  { count, cut, isOpen }: Cuts = { ...countOf(whole, piece), cut: cutter() }
): UOp | undefined => {
  const { cascade, inner } = cutRows(whole, together)
  if (count === undefined || cascade === undefined) return undefined
  const pieces: Pieces = { cascade, count, piece, cut, isOpen }
  const { root, steps } = cascade
  const { factors, terms } = root.op === "ADD"
    ? hoisted(cascade, { axis: root.axis, node: root.reduce.src[0]! })
    : { terms: root.reduce.src[0]!, factors: [] }
  const all: ReadonlyArray<Terms> = [
    ...steps.map((step) => ({ ...step, terms: step.reduce.src[0]! })),
    { ...root, terms }
  ]
  const raw = new Map<UOp, Tensor>()
  const rawOf: ValueOf = (step) => raw.get(step)!
  for (const { axis, op, reduce, terms: own } of all) {
    const terms = inPiecesAt(pieces, { axis, node: own }, rawOf)
    raw.set(reduce, reduced(isOpen ? within(pieces, { axis, op }, terms) : terms, op, axis + 1))
  }
  const states = stored(all.map(({ axis, reduce }) => ({ of: rawOf(reduce), axis })), { inner, label })
  const ofPieces = new Map(all.map(({ reduce }, i) => [reduce, states[i]!]))
  const ofEverything = new Map<UOp, Tensor>()
  const values: Values = { ofPiece: (step) => ofPieces.get(step)!, ofAll: (step) => ofEverything.get(step)! }
  for (const step of all) {
    const value = combined(pieces, step, values)
    if (value === undefined) return undefined
    ofEverything.set(step.reduce, value)
  }
  return factors.reduce((x, { op, value }) => {
    const own = tensor(ofAll(cascade, value.node, values.ofAll)).squeeze(root.axis)
    return op === "MUL" ? x.mul(own) : x.div(own)
  }, ofEverything.get(root.reduce)!).reshape(Shape.of(whole.root.reduce)).node
}
