import * as DType from "./DType.ts"
import { elementwise } from "./Op.ts"
import * as Bounds from "./Bounds.ts"
import { type Arena, argOf, reduceArg, unseen, type UOp } from "./UOp.ts"

/** The extent of an axis: a number, or a symbolic index. */
export type Dim = number | UOp
export type Shape = ReadonlyArray<Dim>

/** A dimension from its UOp: constants become numbers. */
export const fromUOp = (node: UOp): Dim => node.op === "CONST" ? Number(node.arg) : node

export const toUOp = (arena: Arena, dim: Dim): UOp =>
  typeof dim === "number" ? arena.make("CONST", DType.index, [], dim) : dim

/** The largest value a dimension takes. Buffers are allocated, and laid out, for it. */
export const maxOf = (dim: Dim): number => typeof dim === "number" ? dim : Bounds.of(dim).max

/** Elements to allocate for a shape. */
export const maxElements = (shape: Shape): number => shape.reduce<number>((n, d) => n * maxOf(d), 1)

export const print = (shape: Shape): string =>
  `[${shape.map((d) => typeof d === "number" ? d : d.is("VAR") ? d.arg.name : "?").join(", ")}]`

export const equal = (a: Shape, b: Shape): boolean => a.length === b.length && a.every((d, i) => d === b[i])

const derive = (node: UOp, of: (x: UOp) => Shape): Shape => {
  const dims = (from: number): Shape => node.src.slice(from).map(fromUOp)
  switch (node.op) {
    case "CONST":
    case "BUFFER":
    case "PARAM":
    case "IOTA":
      return dims(0)
    case "RESHAPE":
    case "EXPAND":
      return dims(1)
    case "PERMUTE": {
      const shape = of(node.src[0]!)
      return argOf(node, "PERMUTE").map((axis) => shape[axis]!)
    }
    case "PAD": {
      const x = node.src[0]!
      return of(x).map((d, axis) => {
        const lo = fromUOp(node.src[1 + 2 * axis]!)
        const hi = fromUOp(node.src[2 + 2 * axis]!)
        if (lo === 0 && hi === 0) return d
        if (typeof d !== "number" || typeof lo !== "number" || typeof hi !== "number") {
          throw new Error("PAD of a symbolic axis")
        }
        return d + lo + hi
      })
    }
    case "SHRINK":
      return of(node.src[0]!).map((_, axis) => fromUOp(node.src[2 + 2 * axis]!))
    case "GATHER":
      return [...of(node.src[1]!), ...of(node.src[0]!).slice(1)]
    case "REDUCE": {
      const { axes } = reduceArg(node)
      return of(node.src[0]!).filter((_, axis) => !axes.includes(axis))
    }
    case "FLIP":
    case "CONTIGUOUS":
    case "AFTER":
    case "STORE":
    case "SCATTER_ADD":
      return of(node.src[0]!)
    case "GETTUPLE": {
      // symbolic dims are variables, the same inside and outside of a body; only storage is a parameter
      const call = node.src[0]!
      return of(call.src[0]!.src[argOf(node, "GETTUPLE")]!)
    }
    default:
      return elementwise.has(node.op) ? of(node.src[node.src.length - 1]!) : []
  }
}

const hasShape = (node: UOp): boolean => node.cache.shape !== undefined

/** The shape of a tensor-stage node (kernel-stage values are scalars or lanes: `[]`). */
export const of = (root: UOp): Shape => {
  if (root.cache.shape !== undefined) return root.cache.shape
  for (const node of unseen(root, hasShape)) node.cache.shape = derive(node, (x) => x.cache.shape!)
  return root.cache.shape!
}
