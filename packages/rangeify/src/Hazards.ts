import { movement } from "@tg/core-uop/Op"
import { argOf, type UOp } from "@tg/core-uop/UOp"
import { isStorage, nodesOf, storageOf, targetOf } from "./Values.ts"

// memoised: a body is immutable, and is asked about for each of its calls
const knownWrites = new WeakMap<UOp, ReadonlySet<number>>()

/** The slots of a function's parameters that its effects write, itself or through the calls in it. */
export const writtenParams = (body: UOp): ReadonlySet<number> => {
  const known = knownWrites.get(body)
  if (known !== undefined) return known
  const slots = new Set<number>()
  for (const node of nodesOf(body.src)) {
    for (const owner of writtenBy(node)) {
      if (owner.is("PARAM")) slots.add(owner.arg.slot)
    }
  }
  knownWrites.set(body, slots)
  return slots
}

/**
 * An order of the steps (stored values, STOREs and CALLs, given in data-flow order) without write-after-read hazards: readers of a
 * buffer's old state come before its writers. `undefined` if there is none.
 */
export const orderHazards = (
  steps: ReadonlyArray<UOp>
): ReadonlyArray<number> | undefined => {
  const number = new Map(steps.map((node, i) => [node, i]))
  const isStep = (node: UOp): boolean => number.has(node)
  const writes = steps.map(writtenBy)
  const written = new Set(writes.flat())
  const before: Array<Set<number>> = steps.map(() => new Set())
  const readers = new Map<UOp, Array<number>>()
  steps.forEach((node, i) => {
    for (const input of reached(node, isStep)) {
      const from = number.get(input)
      if (from !== undefined) before[i]!.add(from)
      else if (written.has(input)) {
        readers.set(input, [...readers.get(input) ?? [], i])
      }
    }
  })
  if (written.size === 0) return steps.map((_, i) => i)

  writes.forEach((buffers, w) => {
    for (const buffer of buffers) {
      for (const r of readers.get(buffer) ?? []) if (r !== w) before[w]!.add(r)
    }
  })

  const order: Array<number> = []
  const state: Array<"new" | "open" | "done"> = steps.map(() => "new")
  const visit = (i: number): boolean => {
    if (state[i] === "done") return true
    if (state[i] === "open") return false
    state[i] = "open"
    for (const b of [...before[i]!].sort((x, y) => x - y)) if (!visit(b)) return false
    state[i] = "done"
    order.push(i)
    return true
  }
  return steps.every((_, i) => visit(i)) ? order : undefined
}

/** The memory that one node's own effect writes. */
const writtenBy = (node: UOp): ReadonlyArray<UOp> => {
  if (node.op === "STORE") return [targetOf(node)]
  if (node.op === "CUSTOM") {
    return argOf(node, "CUSTOM").writes.map((i) => storageOf(node.src[i]!))
  }
  if (node.op !== "CALL") return []
  return [...writtenParams(node.src[0]!)].map((slot) => storageOf(node.src[1 + slot]!))
}

/** What a step uses directly: other steps, and the buffers it meets in their old state. */
const reached = (step: UOp, isStep: (node: UOp) => boolean): ReadonlyArray<UOp> => {
  const found: Array<UOp> = []
  const seen = new Set<UOp>([step])
  const visit = (node: UOp): void => {
    if (seen.has(node)) return
    seen.add(node)
    if (isStep(node)) return void found.push(node)
    if (node.op === "AFTER") {
      for (const effect of node.src.slice(1)) visit(effect)
      if (node.src[0]!.op === "AFTER") visit(node.src[0]!)
      return
    }
    if (isStorage(node) && node.op !== "GETTUPLE") return void found.push(node)
    for (const s of node.op === "CALL" ? node.src.slice(1) : node.src) visit(s)
  }
  // a store does not read its target: only where in it to write, and what must have happened to it before
  const visitTarget = (node: UOp): void => {
    if (!movement.has(node.op) && node.op !== "GATHER") return node.op === "AFTER" ? visit(node) : undefined
    visitTarget(node.src[0]!)
    for (const s of node.src.slice(1)) visit(s)
  }
  const [first, ...others] = step.op === "CALL" ? step.src.slice(1) : step.src
  if (step.op === "STORE") visitTarget(first!)
  else if (first !== undefined) visit(first)
  for (const s of others) visit(s)
  return found
}
