/**
 * Cascades: reductions over one axis, of which the later ones read the earlier ones. Softmax and what it weighs are one: the
 * largest score, the sum of exponentials below it, and the mix of values are reductions over the same positions.
 */
import * as DType from "@tg/core-uop/DType"
import { elementwise } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { reduceArg, type UOp } from "@tg/core-uop/UOp"
import { behind } from "./Axis.ts"

/** A reduction over the axis. */
export interface Step {
  readonly reduce: UOp
  readonly op: "ADD" | "MAX" | "MIN"
  /** The axis of its source. */
  readonly axis: number
}

/** Reductions over axes of one size, those that others read first. The last one is the result. */
export interface Cascade {
  readonly size: Shape.Dim
  readonly steps: ReadonlyArray<Step>
  readonly root: Step
  /** Whether a value is computed from one of the steps, in ways that a cascade is followed through. */
  readonly depends: (node: UOp) => boolean
}

const movement = new Set(["RESHAPE", "EXPAND", "PERMUTE"])

/** The values that a node is computed from, where a cascade is followed through it. */
const through = (node: UOp): ReadonlyArray<UOp> =>
  elementwise.has(node.op) ? node.src : movement.has(node.op) ? node.src.slice(0, 1) : []

/** A reduction over one axis. */
export const stepOf = (node: UOp): Step | undefined => {
  if (node.op !== "REDUCE") return undefined
  const { axes, op } = reduceArg(node)
  return axes.length === 1 && (op === "ADD" || op === "MAX" || op === "MIN")
    ? { reduce: node, op, axis: axes[0]! }
    : undefined
}

const sizeOf = ({ axis, reduce }: Step): Shape.Dim => Shape.of(reduce.src[0]!)[axis]!

/** The cascade that ends in a reduction; none where it reads no other one over such an axis, or in a way that hides the axis. */
export const cascadeAt = (node: UOp): Cascade | undefined => {
  const root = stepOf(node)
  if (root === undefined || !DType.isFloat(node.dtype)) return undefined
  const size = sizeOf(root)
  const steps = new Map<UOp, Step>()
  const seen = new Set<string>()
  const hidden: Array<UOp> = []
  /** A value with the axis. */
  const along = (value: UOp, axis: number): void => {
    const name = `${value.id} ${axis}`
    if (seen.has(name)) return
    seen.add(name)
    if (elementwise.has(value.op)) return value.src.forEach((s) => along(s, axis))
    const moved = behind(value, axis)
    if (moved === undefined) hidden.push(value)
    else if (Shape.of(moved.source)[moved.axis] === size) along(moved.source, moved.axis)
    else without(moved.source)
  }
  /** A value without it. */
  const without = (value: UOp): void => {
    if (steps.has(value) || seen.has(`${value.id}`)) return
    seen.add(`${value.id}`)
    const step = stepOf(value)
    if (step !== undefined && sizeOf(step) === size && value.dtype === node.dtype) {
      along(value.src[0]!, step.axis)
      steps.set(value, step)
      return
    }
    through(value).forEach(without)
  }
  along(node.src[0]!, root.axis)
  if (steps.size === 0) return undefined
  const depends = dependsOn((value) => steps.has(value))
  return hidden.some(depends) ? undefined : { size, steps: [...steps.values()], root, depends }
}

const dependsOn = (isStep: (node: UOp) => boolean): (node: UOp) => boolean => {
  const known = new Map<UOp, boolean>()
  const depends = (node: UOp): boolean => {
    const before = known.get(node)
    if (before !== undefined) return before
    const found = isStep(node) || through(node).some(depends)
    known.set(node, found)
    return found
  }
  return depends
}

/** Whether the terms of the root read the same values all along an axis in front of the cascade's, as heads do that share keys. */
export const isShared = ({ depends, root }: Cascade, axis: number): boolean => {
  const isSame = (node: UOp, at: number): boolean => {
    if (node.op === "CONST") return true
    if (depends(node) && elementwise.has(node.op)) {
      // scores are each one's own
      return node.op === "EXP2" || node.src.every((source) => isSame(source, at))
    }
    const moved = behind(node, at)
    if (moved === undefined) return depends(node)
    if (Shape.of(moved.source)[moved.axis] !== Shape.of(node)[at]) return true
    return isSame(moved.source, moved.axis)
  }
  return isSame(root.reduce.src[0]!, axis)
}
