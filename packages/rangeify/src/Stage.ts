/** Which stored values move into the memory of the workgroups that read them, by what that costs. */
import { accessOf } from "@tg/core-uop/View"
import * as Shape from "@tg/core-uop/Shape"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { chain, cheapest, Cost } from "./Cost.ts"
import { type Considered, type Home, labelOf, type Verdict } from "./Explain.ts"
import type { FusionCost } from "./Fusion.ts"
import { finish } from "./Finish.ts"
import { type Homes, lower, type Lowered } from "./Lower.ts"
import { nodesOf, type Placement } from "./Placement.ts"
import { type BindingLimits, wordBytes } from "./Windows.ts"

/** What the schedule must respect. */
export interface Limits extends BindingLimits {
  /** Decides what workgroups stage in their own memory. Without it nothing is. */
  readonly fusion?: FusionCost | undefined
  /** Whether kernels that do not depend on each other are joined, for a device that runs workgroups side by side. */
  readonly joinsKernels?: boolean | undefined
}

/** Bytes of a stored value. */
export const bytesOf = (node: UOp): number => wordBytes * Math.max(1, Shape.maxElements(Shape.of(node)))

/** Bytes of the largest buffer that is bound as a whole. */
export const mostBytes = ({ maxBindingBytes = Infinity, maxBufferBytes = Infinity }: Limits): number =>
  Math.min(maxBindingBytes, maxBufferBytes)

/** Whether a buffer takes several windows. */
export const isOverBinding = (owner: UOp, limits: Limits): boolean => bytesOf(owner) > mostBytes(limits)

/** Where values live, and what spoke for it. */
export interface Staged extends Homes {
  /** The placements of each value that could be moved, the chosen one first. */
  readonly considered: ReadonlyMap<UOp, ReadonlyArray<Considered>>
}

/** Homes as placement found them. */
export const unstaged = ({ stored }: Placement): Staged => ({ stored, staged: new Set(), considered: new Map() })

/** A kernel as it would be. */
interface Weighed {
  readonly verdict: Verdict
  /** The part of its cost that it shares with kernels of the same launch. */
  readonly wait: number
  /** Whether it stages anything. */
  readonly stages: boolean
  /** The axis of its output that one workgroup computes as a whole, if that is cheaper. */
  readonly axis?: number
}

/** Longer output axes are no part of one workgroup: its threads have registers for so many results each. */
const mostTogether = 4

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

const microsOf = (verdict: Verdict): number => verdict._tag === "Cost" ? verdict.micros : Cost.zero

/** What a kernel costs as it is lowered, or why the device cannot run it. */
const weighLowered = (
  root: UOp,
  { ast, storage, workgroupBytes }: Lowered,
  { fusion, limits }: { readonly fusion: FusionCost; readonly limits: Limits }
): Weighed => {
  // a kernel that is cut into several has no stages
  const room = storage.some((owner) => isOverBinding(owner, limits)) ? 0 : fusion.maxWorkgroupBytes
  const { wait, work } = fusion.kernelMicros(finish(ast))
  const micros = wait + work
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
    : root.op === "STORE" && readsTarget(ast)
    ? { _tag: "Overwrites", kernel: labelOf(root) }
    : { _tag: "Cost", micros }
  return { verdict, wait, stages: ast.src.length > 1 }
}

/**
 * Moves stored values into the memory of the workgroups that read them, where that is cheaper than a kernel of their own:
 * a launch and a trip through memory less, against the same work in every workgroup.
 */
export const stage = (placement: Placement, limits: Limits, rules = Symbolic.usual): Staged => {
  const { kernelsOf, movable, nodes, workOf } = placement
  const { fusion } = limits
  if (fusion === undefined) return unstaged(placement)
  const device = { fusion, limits }
  const verdicts = new Map<string, Weighed>()
  // one for all of them: what two kernels have in common is simplified once
  const arena = new Arena()
  Symbolic.use(arena, rules)
  /** What one kernel costs, or why the device cannot run it; and what one workgroup of it best computes together. */
  const weigh = (root: UOp, { staged, stored }: Homes): Weighed => {
    const reached = [...movable].filter((node) => !stored.has(node) && kernelsOf(node, stored).has(root))
    const text = [root, ...reached].map((node) => `${node.id}${staged.has(node) ? "s" : ""}`).join()
    const known = verdicts.get(text)
    if (known !== undefined) return known
    const apart = weighLowered(root, lower(arena, root, { staged, stored }), device)
    const axes = apart.stages ? shortAxes(root) : []
    const all = axes.map((axis) => {
      const together = new Map([[root, axis]])
      return { ...weighLowered(root, lower(arena, root, { staged, stored, together }), device), axis }
    })
    const [best] = cheapest([apart, ...all], ({ verdict }) => microsOf(verdict))
    verdicts.set(text, best!)
    return best!
  }
  /** Kernels that become one launch, because none needs another. */
  const joined = (roots: ReadonlySet<UOp>): ReadonlyArray<UOp> =>
    limits.joinsKernels === true && roots.size > 1 &&
      [...roots].every((root) => nodesOf(root.src).every((node) => !roots.has(node)))
      ? [...roots]
      : []
  /** All of these kernels, of which some wait together: the first one that cannot be run speaks for them. */
  const total = (roots: Iterable<UOp>, together: ReadonlyArray<UOp>, at: Homes): Verdict => {
    const each = [...roots].map((root) => weigh(root, at).verdict)
    const impossible = each.find((verdict) => verdict._tag !== "Cost")
    if (impossible?._tag === "Overwrites") return impossible
    const waits = together.map((root) => weigh(root, at).wait)
    const saved = chain(waits) - Math.max(0, ...waits)
    const micros = chain(each.map((verdict) => "micros" in verdict ? verdict.micros : 0)) - saved
    return impossible?._tag === "Forbidden" ? { ...impossible, micros } : { _tag: "Cost", micros }
  }

  let homes: Homes = { stored: placement.stored, staged: new Set() }
  const considered = new Map<UOp, ReadonlyArray<Considered>>()
  // users first: what two kernels read is staged once if these two have become one
  for (const node of [...nodes].reverse()) {
    if (!movable.has(node)) continue
    const users = kernelsOf(node, homes.stored)
    const together = joined(users)
    const stored = new Set([...homes.stored].filter((n) => n !== node))
    const candidate = (home: Home, at: Homes) => ({ home, at, verdict: total(users, together, at) })
    const { iterations } = workOf(node)
    const inline = iterations > 0 ? [] : [candidate("inline", { stored, staged: homes.staged })]
    const workgroup = candidate("workgroup", { stored, staged: new Set([...homes.staged, node]) })
    const global = { home: "global" as const, at: homes, verdict: total([node, ...users], together, homes) }
    // of equally cheap ones the first: what is stored stays so, and what need not be staged is not
    const [best] = cheapest([global, ...inline, workgroup], ({ verdict }) => microsOf(verdict))
    const repeats: ReadonlyArray<Considered> = iterations > 0
      ? [{ home: "inline", verdict: { _tag: "Repeats", iterations } }]
      : []
    const others = [global, workgroup, ...inline].filter((c) => c !== best)
    considered.set(node, [best!, ...others, ...repeats].map(({ home, verdict }) => ({ home, verdict })))
    homes = best!.at
  }
  const { staged, stored } = homes
  const roots = new Set([...staged].flatMap((node) => [...kernelsOf(node, stored)]))
  const together = new Map(
    [...roots].flatMap((root) => {
      const { axis } = weigh(root, homes)
      return axis === undefined ? [] : [[root, axis] as const]
    })
  )
  return { ...homes, together, considered }
}
