/** What the nodes of a tensor program cost on a device, in microseconds: operations, bytes, launches, folding. */
import { type DeviceProfile, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { elementwise, movement } from "@tg/core-uop/Op"
import { evaluateIndex } from "@tg/core-uop/Program"
import * as Shape from "@tg/core-uop/Shape"
import type { UOp } from "@tg/core-uop/UOp"
import * as Analysis from "./Analysis.ts"
import * as Contraction from "./Contraction.ts"
import type { ClassId, Contract, ENode } from "./ENode.ts"
import { shapeOf, type TensorGraph } from "./Facts.ts"
import type { ValueOf } from "./Extract.ts"
import { isBeside, waitsOf } from "./Rounded.ts"
import { halvesOfTiles } from "./rules/halves.ts"

/** The situation that costs are counted in. */
export interface Situation {
  readonly profile:
    & Pick<DeviceProfile, "bytesPerMicro" | "dispatchMicros">
    & Partial<Pick<DeviceProfile, "processors" | "saturatingThreads" | "halfOperations" | "stageMicros">>
  /** Values of the symbolic variables. */
  readonly vars: Readonly<Record<string, number>>
  /** Whether what is computed from weights alone is computed when they are loaded; each step does it if it is not said. */
  readonly folds?: boolean | undefined
  /**
   * Whether operations other than sums are hidden behind the loads of the launch that computes them, and a sum takes a product and
   * an addition of each term: then programs differ by their launches, bytes and loops alone. All count if it is not said.
   */
  readonly hides?: boolean | undefined
  /** Nodes that may not be chosen; all may be if it is not said. */
  readonly without?: ((node: ENode) => boolean) | undefined
}

/** Operations that a device does in the time in which its memory gives one byte (an H200, `rangeify/Fusion`). */
const operationsPerByte = 6.25
const transcendental = new Set(["EXP2", "LOG2", "SIN", "SQRT", "FDIV"])
const transcendentalOperations = 8
/** What was not read costs this more, so that of equal choices the one that was written stays. */
const unwritten = 1e-6
/** A sum or product of another view of a value, or a part of it, costs this more: over the axes as they are stored, indices are simpler. */
const viewed = 4 * unwritten
/** A product that adds up nothing costs as much as several of them: hidden or not, it is work, and its value may be one that is stored. */
const product = 4 * viewed
const bytesPerElement = 4
/** Operations for each term of a product of bytes: an instruction multiplies and adds four. */
const roundedOperations = 0.5
/** Operations for each term of a product of floats that a packed weight takes to unpack, more than for one of bytes. */
export const unpacking = 5.5

/** Tokens of a register tile whose rows lie side by side, as halves do: they share what is converted. */
const sharing = 8

/** Bytes of storage that a graph of unpacking reads: each load once, of slices their part. */
type Loads = (node: UOp) => number

/** The same for all weights, by the number of elements of a shape. */
export const loading = (countOf: (shape: Shape.Shape) => number): Loads => {
  const known = new Map<UOp, ReadonlyMap<UOp, number>>()
  const none: ReadonlyMap<UOp, number> = new Map()
  const of = (x: UOp): ReadonlyMap<UOp, number> => {
    const before = known.get(x)
    if (before !== undefined) return before
    const found = find(x)
    known.set(x, found)
    return found
  }
  const scaled = (x: UOp): ReadonlyMap<UOp, number> => {
    const inner = of(x.src[0]!)
    const part = Math.min(1, countOf(Shape.of(x)) / Math.max(1, countOf(Shape.of(x.src[0]!))))
    const [only] = inner.values()
    // another part of the same storage is another load
    return inner.size === 1 ? new Map([[x, only! * part]]) : new Map([...inner].map(([at, n]) => [at, n * part]))
  }
  const find = (x: UOp): ReadonlyMap<UOp, number> => {
    if (x.dtype === DType.index) return none
    if (x.op === "PARAM" || x.op === "BUFFER") return new Map([[x, bytesPerElement * countOf(Shape.of(x))]])
    if (x.op === "SHRINK" || x.op === "GATHER") return scaled(x)
    if (movement.has(x.op)) return of(x.src[0]!)
    return new Map(x.src.flatMap((s) => [...of(s)]))
  }
  return (node) => [...of(node).values()].reduce((a, b) => a + b, 0)
}

/** Sums of blocks that are made where the blocks are rounded. */
const areBlocks = ({ origin }: ENode): boolean => origin !== undefined && isBeside(origin.uop)

const isView = (node: ENode): boolean => node.kind === "contract" && Contraction.isView(node.contraction)

/**
 * A sum over an axis of unknown length, as positions of a context, and over others at once. What reads it and is read by it is no longer a
 * sum over that axis alone, so that it cannot be cut into pieces, which is worth more than the launch that is saved.
 */
const isMixed = (node: ENode): boolean => {
  if (node.kind !== "contract") return false
  const { sizes } = node.contraction
  const summed = Contraction.summed(node.contraction)
  return summed.length > 1 && summed.some((axis) => typeof sizes[axis] !== "number")
}

/** What a launch stores at most: as much as the scores of a prompt may take. */
const mostStored = 256 * 2 ** 20
/** What a larger value costs more: a second, so that it is taken where there is no other way. */
const tooLargeMicros = 1e6

/** What a node does: its loops, and whether it is a launch. */
interface Work {
  readonly operations: number
  readonly isLaunch: boolean
}

const nothing: Work = { operations: 0, isLaunch: false }

/** The costs of a graph's nodes, and the bytes that reading a value takes. */
export interface TensorCost {
  readonly costOf: ValueOf<number>
  /** From memory: of values that no launch stores, what they are computed from. */
  readonly bytesOf: (id: ClassId) => number
}

/** Operations for each term of a sum that its operands take to unpack: weights, and halves of a cache. */
const unpackingOf = (graph: TensorGraph, node: Contract, { halfOperations = 0 }: Situation["profile"]): number => {
  const isPacked = (arg: ClassId): boolean =>
    Analysis.isStatic(graph.facts(arg).residency) &&
    graph.members(arg).some(({ node }) =>
      node.kind === "other" && node.args.length === 0 && elementwise.has(node.origin.uop.op)
    )
  const halves = halfOperations === 0 ? 0 : halvesOfTiles(graph, node).size * halfOperations / sharing
  return halves + (node.args.some(isPacked) ? unpacking : 0)
}

/** Whether a launch stores what all tokens of a step read. */
const isStage = (node: ENode): boolean => node.kind === "stored" && node.layout === "rows"

/**
 * Whether a sum is more than memory should be set apart for: at its largest. Partial sums of a product of bytes, which no launch stores,
 * are no contractions.
 */
const isTooLarge = (graph: TensorGraph, node: ENode, id: ClassId): boolean =>
  (node.kind === "rounded" || isStage(node) || node.kind === "contract" && Contraction.isSum(node.contraction)) &&
  shapeOf(graph, id).reduce<number>((n, d) => n * Shape.maxOf(d), bytesPerElement) > mostStored

/** How many elements a shape has, and what reading weights takes, for values of variables. */
interface Sizes {
  readonly countOf: (shape: Shape.Shape) => number
  readonly loads: Loads
}

const known = new WeakMap<Situation["vars"], Sizes>()

/** The same for all graphs of a situation: weights are looked at once. */
const sizesIn = (vars: Situation["vars"]): Sizes => {
  const before = known.get(vars)
  if (before !== undefined) return before
  const symbols = new Map<UOp, number>()
  const size = (d: Shape.Dim): number => {
    if (typeof d === "number") return d
    const value = symbols.get(d) ?? evaluateIndex(d, vars)
    symbols.set(d, value)
    return value
  }
  const countOf = (shape: Shape.Shape): number => shape.reduce<number>((n, d) => n * size(d), 1)
  const sizes = { countOf, loads: loading(countOf) }
  known.set(vars, sizes)
  return sizes
}

/** What forms that take the same are told apart by, of what was not read: operands that are views of others (parts, too, as of what they are parts of there may be less), and products of elements. */
const tieOf = (graph: TensorGraph, node: ENode): number => {
  if (node.origin !== undefined || isView(node)) return 0
  if (node.kind === "slice") return viewed / 2
  if (node.kind !== "contract") return 0
  const own = Contraction.isSum(node.contraction) ? 0 : product
  return own + viewed * node.args.filter((arg) => graph.members(arg).some((member) => isView(member.node))).length
}

/** Costs of this graph, as it is: ask for new ones when it has grown. */
export const make = (
  graph: TensorGraph,
  { folds = false, hides = false, profile, vars, without = () => false }: Situation
): TensorCost => {
  const { processors, stageMicros } = quantitiesOf({ saturatingThreads: 1, ...profile })
  const { countOf, loads } = sizesIn(vars)
  const elements = (id: ClassId): number => countOf(shapeOf(graph, id))
  const isFolded = (node: ENode, id: ClassId): boolean =>
    folds && node.args.length > 0 && Analysis.isStatic(graph.facts(id).residency)

  const workOf = (node: ENode, id: ClassId): Work => {
    switch (node.kind) {
      case "contract": {
        const { contraction } = node
        if (Contraction.isView(contraction) || areBlocks(node)) return nothing
        const isLaunch = Contraction.isSum(contraction)
        const each = isLaunch ? hides ? 2 + unpackingOf(graph, node, profile) : node.args.length : node.args.length - 1
        return { operations: countOf(contraction.sizes) * each, isLaunch }
      }
      case "rounded":
        return { operations: countOf(node.contraction.sizes) * roundedOperations, isLaunch: true }
      case "pointwise":
      case "concat":
        return { operations: elements(id), isLaunch: false }
      case "stored": // by the launch of a sum that it is made of, but for what is converted
        return { operations: elements(id) * (isStage(node) ? profile.halfOperations ?? 0 : 1), isLaunch: isStage(node) }
      case "slice":
      case "constant":
        return nothing
      case "other": {
        const { op, src } = node.origin.uop
        if (node.args.length === 0) return nothing
        if (op === "REDUCE") return { operations: countOf(Shape.of(src[0]!)), isLaunch: true }
        const each = transcendental.has(op) ? transcendentalOperations : elementwise.has(op) ? 1 : 0
        return { operations: each * elements(id), isLaunch: op === "CONTIGUOUS" }
      }
    }
  }

  const bytes = new Map<ClassId, number>()
  /** The least that some node of the class says: values are read where that is cheapest. */
  const bytesOf = (id: ClassId): number => {
    const cls = graph.find(id)
    const known = bytes.get(cls)
    if (known !== undefined) return known
    bytes.set(cls, bytesPerElement * elements(cls)) // what stores it; circles end here
    const least = Math.min(bytes.get(cls)!, ...graph.members(cls).map(({ node }) => bytesThrough(node, cls)))
    bytes.set(cls, least)
    return least
  }
  const bytesThrough = (node: ENode, id: ClassId): number => {
    if (node.kind === "constant") return 0
    if (node.kind === "other" && node.args.length === 0) return loads(node.origin.uop)
    if (node.kind === "stored" || areBlocks(node)) return Infinity
    if (isFolded(node, id) || workOf(node, id).isLaunch) return Infinity
    if (node.kind === "slice") {
      return bytesOf(node.args[0]) * elements(id) / Math.max(1, elements(node.args[0]))
    }
    if (node.kind === "other" && node.origin.uop.op === "GATHER") return loads(node.origin.uop)
    return [...new Set(node.args)].reduce((sum, arg) => sum + bytesOf(arg), 0)
  }

  const costOf = (node: ENode, id: ClassId): number => {
    if (without(node) || node.origin === undefined && isMixed(node)) return Infinity
    const made = node.origin === undefined && node.args.length > 0 ? unwritten : 0
    const penalty = made + (hides && isTooLarge(graph, node, id) ? tooLargeMicros : 0)
    if (isFolded(node, id)) return penalty
    const { isLaunch, operations } = workOf(node, id)
    // a sum is the work of one workgroup at most, so of one processor
    const busy = Math.min(1, elements(id) / processors)
    const compute = operations / operationsPerByte / profile.bytesPerMicro / busy
    const own = penalty + tieOf(graph, node)
    if (!isLaunch) return own + (hides ? 0 : compute)
    const read = [...new Set(node.args)].reduce((sum, arg) => sum + bytesOf(arg), 0)
    const written = bytesPerElement * elements(id)
    // behind each reduction that it waits for, a workgroup has a stage more
    const waits = node.origin === undefined ? 0 : waitsOf(node.origin.uop) * stageMicros
    return own + profile.dispatchMicros + waits + Math.max(compute, (read + written) / profile.bytesPerMicro)
  }
  return { costOf, bytesOf }
}
