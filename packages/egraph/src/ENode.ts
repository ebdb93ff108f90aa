/** The language of the e-graph: operations on classes of equal values. */
import type { DType } from "@tg/core-uop/DType"
import * as DTypes from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import type { UOp } from "@tg/core-uop/UOp"
import * as Contraction from "./Contraction.ts"

/** A class of equal values, or any node in it: `EGraph.find` gives the class's own number. */
export type ClassId = number

/** Where a node of the e-graph was read: the node of the tensor program, and which of its sources the arguments were. */
export interface Origin {
  readonly uop: UOp
  readonly holes: ReadonlyArray<UOp>
}

/** A contraction of its arguments. */
export interface Contract {
  readonly kind: "contract"
  readonly contraction: Contraction.Contraction
  readonly dtype: DType
  readonly args: ReadonlyArray<ClassId>
  readonly origin?: Origin | undefined
}

/**
 * The same of a value and weights whose rows are bytes, with a scale for some of them: the value is rounded to bytes, too, in blocks along
 * the axes that are summed. Both are views, written as they are multiplied.
 */
export interface Rounded {
  readonly kind: "rounded"
  readonly contraction: Contraction.Contraction
  readonly dtype: DType
  readonly args: readonly [value: ClassId, weights: ClassId]
  readonly origin?: undefined
}

/** A part of an axis. */
export interface Slice {
  readonly kind: "slice"
  readonly axis: number
  readonly start: number
  readonly size: number
  readonly args: readonly [ClassId]
  readonly origin?: Origin | undefined
}

/** Arguments one behind the other along an axis. */
export interface Concat {
  readonly kind: "concat"
  readonly axis: number
  readonly args: ReadonlyArray<ClassId>
  readonly origin?: Origin | undefined
}

/** A value that a launch stores, as all that reads it reads it often: with tokens of a tile side by side, or row by row as it is. */
export interface Stored {
  readonly kind: "stored"
  readonly layout: "tiles" | "rows"
  readonly args: readonly [ClassId]
  readonly origin?: undefined
}

/** The elementwise operations that rules make. */
export interface Pointwise {
  readonly kind: "pointwise"
  readonly op: "ADD" | "FDIV"
  readonly args: readonly [ClassId, ClassId]
  readonly origin?: Origin | undefined
}

/** A number, of no axes. */
export interface Constant {
  readonly kind: "constant"
  readonly value: number
  readonly dtype: DType
  readonly args: readonly []
  readonly origin?: undefined
}

/** Any other node of a tensor program, over those of its sources that are values; a leaf where there are none. */
export interface Other {
  readonly kind: "other"
  readonly args: ReadonlyArray<ClassId>
  readonly origin: Origin
}

/** A node of the e-graph. */
export type ENode = Contract | Rounded | Slice | Concat | Stored | Pointwise | Constant | Other

/** What a rule makes: a node whose arguments are classes or further terms, or a program of its own. */
export type Term = ClassId | TermNode | Program
/** What a node of a tensor program says, read as the program that was written. */
export interface Program {
  readonly kind: "program"
  readonly uop: UOp
}
/** A node of a term. */
export type TermNode =
  & (
    | Omit<Contract, "args" | "origin">
    | Omit<Rounded, "args" | "origin">
    | Omit<Slice, "args" | "origin">
    | Omit<Concat, "args" | "origin">
    | Omit<Stored, "args" | "origin">
    | Omit<Pointwise, "args" | "origin">
    | Omit<Constant, "args" | "origin">
  )
  & { readonly args: ReadonlyArray<Term> }

/** A contraction of terms. */
export const contract = (
  contraction: Contraction.Contraction,
  dtype: DType,
  args: ReadonlyArray<Term>
): Term => Contraction.isIdentity(contraction) ? args[0]! : { kind: "contract", contraction, dtype, args }

/** The node with these arguments. Those of a contraction commute: they are sorted. */
export const withArgs = (node: ENode, args: ReadonlyArray<ClassId>): ENode => {
  if (node.kind !== "contract" || isAscending(args)) return args === node.args ? node : { ...node, args } as ENode
  const { contraction } = node
  const shapes = contraction.operands.map((access) => access.map((axis) => axis.length).join())
  const order = [...args.keys()].sort((a, b) => args[a]! - args[b]! || compare(shapes[a]!, shapes[b]!) || a - b)
  const isSorted = order.every((from, to) => from === to)
  return {
    ...node,
    contraction: isSorted ? contraction : Contraction.reorder(contraction, order),
    args: isSorted ? args : order.map((i) => args[i]!),
    origin: node.origin === undefined || isSorted
      ? node.origin
      : { uop: node.origin.uop, holes: order.map((i) => node.origin!.holes[i]!) }
  }
}

const isAscending = (args: ReadonlyArray<ClassId>): boolean => {
  for (let i = 1; i < args.length; i++) if (args[i - 1]! >= args[i]!) return false
  return true
}

const compare = (a: string, b: string): number => a < b ? -1 : a > b ? 1 : 0

/** Equal for equal nodes over the same arguments; `head` is that of the node. */
export const keyOf = (node: ENode, head: string): string => `${head}(${node.args.join()})`

/** What a node is, without its arguments. */
export const headOf = (node: ENode): string => {
  switch (node.kind) {
    case "contract":
      return `contract ${node.dtype.ordinal} ${Contraction.key(node.contraction)}`
    case "rounded":
      return `rounded ${node.dtype.ordinal} ${Contraction.key(node.contraction)}`
    case "slice":
      return `slice ${node.axis} ${node.start} ${node.size}`
    case "concat":
      return `concat ${node.axis}`
    case "stored":
      return `stored ${node.layout}`
    case "pointwise":
      return node.op
    case "constant":
      return `constant ${node.dtype.ordinal} ${Object.is(node.value, -0) ? "-0" : node.value}`
    case "other": {
      const { holes, uop } = node.origin
      if (holes.length === 0 || holes.some((hole) => !uop.src.includes(hole))) return `#${uop.id}`
      const own = uop.src.map((s) => holes.includes(s) ? "_" : s.id)
      return `${uop.op} ${uop.dtype.ordinal} ${uop.argKey === "" ? String(uop.arg) : uop.argKey} ${own.join()}`
    }
  }
}

/** A node as text; `arg` prints its arguments. */
export const print = (node: ENode, arg: (id: ClassId) => string): string => {
  const args = node.args.map(arg)
  switch (node.kind) {
    case "contract":
      return `[${Contraction.print(node.contraction)}](${args.join(", ")})`
    case "rounded":
      return `bytes[${Contraction.print(node.contraction)}](${args.join(", ")})`
    case "slice":
      return `${args[0]}[${node.start}:${node.start + node.size} of axis ${node.axis}]`
    case "concat":
      return `cat${node.axis}(${args.join(", ")})`
    case "stored":
      return `stored(${args[0]})`
    case "pointwise":
      return `(${args.join(node.op === "ADD" ? " + " : " / ")})`
    case "constant":
      return String(node.value)
    case "other": {
      const { uop } = node.origin
      const name = uop.arena.labelOf(uop) ?? (uop.is("PARAM") ? `param${uop.arg.slot}` : uop.op.toLowerCase())
      return args.length === 0 ? name : `${uop.op.toLowerCase()}(${args.join(", ")})`
    }
  }
}

/** The dtype of a node, of which `arg` knows those of the arguments. */
export const dtypeOf = (node: ENode, arg: (i: number) => DType): DType => {
  switch (node.kind) {
    case "contract":
    case "rounded":
    case "constant":
      return node.dtype
    case "other":
      return node.origin.uop.dtype
    case "slice":
    case "concat":
    case "stored":
    case "pointwise":
      return arg(0)
  }
}

/** The shape of a node, of which `arg` knows those of the arguments. */
export const shapeOf = (node: ENode, arg: (i: number) => Shape.Shape): Shape.Shape => {
  switch (node.kind) {
    case "contract":
    case "rounded":
      return Contraction.shapeOf(node.contraction.sizes, node.contraction.output)
    case "constant":
      return []
    case "other":
      return node.origin.uop.dtype === DTypes.none ? [] : Shape.of(node.origin.uop)
    case "stored":
    case "pointwise":
      return arg(0)
    case "slice":
      return arg(0).map((d, axis) => axis === node.axis ? node.size : d)
    case "concat":
      return arg(0).map((d, axis) =>
        axis === node.axis ? node.args.reduce((n, _, i) => n + Number(arg(i)[axis]!), 0) : d
      )
  }
}
