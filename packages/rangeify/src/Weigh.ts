/** The costs of a body's kernels under a placement, memoised. */
import { accessOf } from "@tg/core-uop/View"
import * as Shape from "@tg/core-uop/Shape"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { inOrder } from "./Additions.ts"
import { cheapest, Cost } from "./Cost.ts"
import { labelOf, type Verdict } from "./Explain.ts"
import { finish, unnumbered } from "./Finish.ts"
import { fit } from "./Fit.ts"
import { type FusionCost, type KernelMicros, launchOf } from "./Fusion.ts"
import { isOverBinding, type Limits } from "./Limits.ts"
import { type Homes, lower, lowerAll, type Lowered } from "./Lower.ts"
import type { Ref } from "./Schedule.ts"
import { isMadeInMemory, kernelAt } from "./Values.ts"

/** A kernel as it would be. */
export interface Weighed {
  readonly verdict: Verdict
  readonly micros: KernelMicros
  /** Whether it stages anything. */
  readonly stages: boolean
  /** The axis of its output that one workgroup computes as a whole, if that is cheaper. */
  readonly axis?: number
}

/** Longest output axis that one workgroup computes as a whole: each thread has registers for so many results. */
const mostTogether = 4

/** The axis that a workgroup computes as a whole by what the program says (`Tensor.contiguous`). */
const wantedAxis = ({ arg, op }: UOp): number | undefined =>
  op === "CONTIGUOUS" && typeof arg === "object" && "together" in arg ? Number(arg.together) : undefined

/** Output axes of a kernel that stages values which one workgroup could compute as a whole, the innermost first. */
const shortAxes = (root: UOp): ReadonlyArray<number> =>
  [...Shape.of(root.op === "STORE" ? root.src[1]! : root).entries()].flatMap(([axis, size]) =>
    typeof size === "number" && size > 1 && size <= mostTogether ? [axis] : []
  ).reverse()

/** Whether a kernel reads the buffer it writes. */
const readsTarget = (kernel: UOp): boolean =>
  toposort(kernel).some((n) => n.op === "LOAD" && isOutput(accessOf(n).buffer))

/** The first slot of a kernel is what it stores. */
const isOutput = (buffer: UOp): boolean => buffer.is("PARAM") && buffer.arg.slot === 0

const microsOf = ({ verdict }: Weighed): number => verdict._tag === "Cost" ? verdict.micros : Cost.zero

/** A temporary for a kernel that is only weighed. */
const noMemory = (): Ref => ({ kind: "temporary", id: -1 })

/** What a kernel costs as it is lowered, or why the device cannot run it. */
const weighLowered = (
  root: UOp,
  { ast, storage, workgroupBytes }: Lowered,
  { fusion, limits }: { readonly fusion: FusionCost; readonly limits: Limits },
  isTogether = false
): Weighed => {
  // a kernel that is cut into several has no stages
  const isCut = storage.some((owner) => isOverBinding(owner, limits))
  const room = isCut ? 0 : fusion.maxWorkgroupBytes
  const made = finish(ast, undefined, { list: unnumbered })
  const parts = fusion.kernelMicros(made, undefined, isTogether)
  const micros = launchOf([parts])
  const forbidden = (limit: "workgroupBytes" | "bindings", needs: number, has: number): Verdict => ({
    _tag: "Forbidden",
    limit,
    ...needs === Infinity ? {} : { needs },
    has,
    kernel: labelOf(root),
    micros
  })
  const verdict: Verdict = workgroupBytes > room
    ? forbidden("workgroupBytes", workgroupBytes, room)
    : storage.length > limits.maxStorageBuffers
    ? forbidden("bindings", storage.length, limits.maxStorageBuffers)
    : isCut &&
        fit({ ast: made, args: storage.map((_, id) => ({ kind: "temporary", id })) }, limits, noMemory) === undefined
    ? forbidden("bindings", Infinity, limits.maxStorageBuffers)
    : root.op === "STORE" && readsTarget(ast)
    ? { _tag: "Overwrites", kernel: labelOf(root) }
    : { _tag: "Cost", micros }
  return { verdict, micros: parts, stages: ast.src.length > 1 }
}

/** Kernels by what they compute and read. */
type Kernels = Map<string, Weighed>

/**
 * What kernels of a program cost, by all else that costs depend on: the device and the rules. Forms of a body share most of their
 * kernels.
 */
const kernelsOf = new WeakMap<Arena, Map<string, Kernels>>()

const sharedBy = (program: Arena, { fusion, limits, rules }: Device): Kernels => {
  const costs = `${fusion.key} ${fusion.maxWorkgroupBytes}`
  const text = JSON.stringify(Object.entries({ ...limits, fusion: costs, rules: numberOf(rules) }).sort())
  const own = kernelsOf.get(program) ?? new Map<string, Kernels>()
  kernelsOf.set(program, own)
  const known = own.get(text) ?? new Map<string, Weighed>()
  own.set(text, known)
  return known
}

/** Rules that are not the same object are different ones. */
const numbers = new WeakMap<Symbolic.Rules, number>()
let nextNumber = 0
const numberOf = (rules: Symbolic.Rules): number => {
  const number = numbers.get(rules) ?? nextNumber++
  numbers.set(rules, number)
  return number
}

/** What a kernel is: its root, what it reads, and what it stages of what it computes. */
const kernelKey = (root: UOp, { staged, stored }: Homes): string => {
  const { computes, reads } = kernelAt(root, stored)
  const ids = (nodes: Iterable<UOp>): string => Array.from(nodes, ({ id }) => id).sort((a, b) => a - b).join()
  return `${root.id}:${ids(reads)}:${staged.size === 0 ? "" : ids([...staged].filter((node) => computes.has(node)))}`
}

/** What a kernel is weighed for. */
interface Device {
  readonly fusion: FusionCost
  readonly limits: Limits
  readonly rules: Symbolic.Rules
}

/**
 * Costs of kernels by their roots, for the homes of the values under them. All are lowered in one arena, so common
 * subexpressions are simplified once.
 */
export const weigher = (
  fusion: FusionCost,
  limits: Limits,
  { insideOf, rules }: {
    /** The values that a kernel computes itself, which could be elsewhere. */
    readonly insideOf: (root: UOp, stored: ReadonlySet<UOp>) => ReadonlyArray<UOp>
    readonly rules: Symbolic.Rules
  }
): (root: UOp, homes: Homes) => Weighed => {
  const known = new Map<string, Weighed>()
  const device = { fusion, limits, rules }
  const arena = new Arena()
  Symbolic.use(arena, rules)
  let shared: Kernels | undefined
  const weighed = (root: UOp, { staged, stored }: Homes): Weighed => {
    shared ??= sharedBy(root.arena, device)
    const text = kernelKey(root, { staged, stored })
    const before = shared.get(text)
    if (before !== undefined) return before
    if (isMadeInMemory(root)) {
      const parts = lowerAll(arena, root, { staged, stored }, limits)
      const made = inOrder(parts.map((lowered) => weighLowered(root, lowered, device)))
      shared.set(text, made)
      return made
    }
    const apart = weighLowered(root, lower(arena, root, { staged, stored }), device)
    const wanted = wantedAxis(root)
    const axes = wanted === undefined ? shortAxes(root) : [wanted]
    const all = (apart.stages ? axes : []).map((axis): Weighed => {
      const together = new Map([[root, axis]])
      const lowered = lower(arena, root, { staged, stored, together })
      return { ...weighLowered(root, lowered, device, wanted !== undefined), axis }
    })
    const isWanted = wanted !== undefined && all.some(({ verdict }) => verdict._tag === "Cost")
    const [best] = isWanted ? all : cheapest([apart, ...all], microsOf)
    shared.set(text, best!)
    return best!
  }
  return (root, homes) => {
    const text = [root, ...insideOf(root, homes.stored)]
      .map((node) => `${node.id}${homes.staged.has(node) ? "s" : ""}`).join()
    const before = known.get(text)
    if (before !== undefined) return before
    const made = weighed(root, homes)
    known.set(text, made)
    return made
  }
}
