/**
 * Bodies of calls without their effects, for rematerialisation. The gradient of a body recomputes its values and must not write again
 * what the body wrote, so written storage becomes the value in it.
 */
import * as DType from "@tg/core-uop/DType"
import type { UOp } from "@tg/core-uop/UOp"
import { resultOf } from "@tg/core-uop/View"
import { Tensor } from "@tg/tensor/Tensor"
import { look, overlay, writtenOf } from "./storage.ts"

/** The sources of a node that are values of the same scope. */
export const sourcesOf = (node: UOp): ReadonlyArray<UOp> => node.op === "CALL" ? node.src.slice(1) : node.src

/** The nodes under the roots in this scope, sources first, without the bodies of calls and without what is under `leaves`. */
export const scope = (roots: ReadonlyArray<UOp>, leaves: ReadonlySet<UOp> = new Set()): ReadonlyArray<UOp> => {
  const done = new Set<UOp>()
  const order: Array<UOp> = []
  const stack = roots.map((node) => ({ node, next: 0 })).toReversed()
  while (stack.length > 0) {
    const top = stack.at(-1)!
    const sources = leaves.has(top.node) ? [] : sourcesOf(top.node)
    const child = done.has(top.node) ? undefined : sources[top.next++]
    if (child !== undefined) {
      if (!done.has(child)) stack.push({ node: child, next: 0 })
      continue
    }
    stack.pop()
    if (!done.has(top.node)) order.push(top.node)
    done.add(top.node)
  }
  return order
}

/** The same values by a graph without effects. Hand-written kernels stay as they are. */
export const pure = (roots: ReadonlyArray<UOp>): ReadonlyArray<UOp> => {
  const done = new Map<UOp, UOp>()
  const now = (node: UOp): UOp => done.get(node) ?? node
  for (const node of scope(roots)) done.set(node, pureNode(node, now))
  return roots.map(now)
}

const pureNode = (node: UOp, now: (node: UOp) => UOp): UOp => {
  if (node.op === "AFTER") return pureAfter(node, now)
  if (node.op === "GETTUPLE" && node.dtype !== DType.none) {
    const { call, value } = resultOf(node)
    return called(call, now, value)
  }
  if (node.op === "CALL") return node
  return node.with(node.src.map(now))
}

/** A call of the body for one of its values alone, without its effects. */
const called = (call: UOp, now: (node: UOp) => UOp, root: UOp): UOp => {
  const { arena } = call
  const body = arena.make("TUPLE", DType.none, pure([root]))
  const made = arena.make("CALL", DType.none, [body, ...call.src.slice(1).map(now)], call.arg)
  return arena.make("GETTUPLE", root.dtype, [made], 0)
}

const pureAfter = (node: UOp, now: (node: UOp) => UOp): UOp => {
  const { before, call, stores, view } = writtenOf(node)
  if (call !== undefined) {
    const { effect, slot } = call
    const { body, call: owner, value: inner } = resultOf(effect)
    if (inner.op === "CUSTOM") return node.with(node.src.map(now))
    const argument = parameterOf(body, slot, owner.src[1 + slot]!)
    const contents = node.arena.make("AFTER", argument.dtype, [argument, inner])
    return look(view, new Tensor(called(owner, now, contents))).node
  }
  const values = stores.map(({ value, view }) => ({ view, value: new Tensor(now(value)) }))
  return look(view, overlay(new Tensor(now(before)), values)).node
}

/** The PARAM of a body that stands for an argument. */
export const parameterOf = (body: UOp, slot: number, argument: UOp): UOp => {
  const found = scope(body.src).find((n) => n.is("PARAM") && n.arg.slot === slot)
  if (found !== undefined) return found
  throw new Error(`the body of ${argument.op} has no parameter ${slot}`)
}
