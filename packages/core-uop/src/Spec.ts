import { accessOf, endOf } from "./View.ts"
import { Context, Effect } from "effect"
import * as DType from "./DType.ts"
import { comparison, elementwise, movement, type Op, unary } from "./Op.ts"
import * as Print from "./Print.ts"
import * as Shape from "./Shape.ts"
import {
  argOf,
  type Axis,
  isAccumulating,
  isCoherent,
  openRanges,
  rangeArg,
  slotOf,
  toposort,
  type UOp
} from "./UOp.ts"

/**
 * The stage boundaries of the compiler. `unrolled` is one inside devectorize: UPCAST and UNROLL axes are expanded, LOCAL and GROUP
 * axes are still loops.
 */
export type Stage = "tensor" | "kernel" | "opted" | "unrolled" | "expanded" | "linear"

/** A node that may not occur at a boundary, with the reason. */
export interface Violation {
  readonly stage: Stage
  readonly node: string
  readonly reason: string
}

const structure = ["SINK", "CONST", "VAR"] as const
const kernelOps: ReadonlyArray<Op> = [
  ...structure,
  "PARAM",
  "LOCAL",
  "RANGE",
  "REDUCE",
  "INDEX",
  "LOAD",
  "STORE",
  "END",
  ...elementwise
]
/** Of a persistent launch, whose phases are kernels of the stage. */
const launchOps: ReadonlyArray<Op> = ["PERSISTENT", "PHASE"]

const allowed: Readonly<Record<Stage, ReadonlySet<Op>>> = {
  tensor: new Set<Op>([
    ...structure,
    "BUFFER",
    "PARAM",
    "IOTA",
    ...movement,
    "GATHER",
    "SCATTER_ADD",
    "CONTIGUOUS",
    "REDUCE",
    "STORE",
    "AFTER",
    "TUPLE",
    "CALL",
    "GETTUPLE",
    "CUSTOM",
    ...elementwise
  ]),
  kernel: new Set([...kernelOps, ...launchOps]),
  opted: new Set([...kernelOps, ...launchOps]),
  unrolled: new Set<Op>([...kernelOps, "TUPLE", "GROUP_REDUCE", "STACK", "LANE"]),
  expanded: new Set<Op>([...kernelOps, ...launchOps, "TUPLE", "SPECIAL", "GROUP_REDUCE", "STACK", "LANE"]),
  linear: new Set<Op>([
    "LINEAR",
    "CONST",
    "VAR",
    "PARAM",
    "RANGE",
    "SPECIAL",
    "LOCAL",
    "REG",
    "INDEX",
    "LOAD",
    "STORE",
    "ACCUMULATE",
    "END",
    "BARRIER",
    "GRID_BARRIER",
    "AWAIT",
    "IF",
    "ENDIF",
    "SUBGROUP_REDUCE",
    "FRAGMENT",
    "FRAGMENT_LOAD",
    "FRAGMENT_MULACC",
    "FRAGMENT_STORE",
    "STACK",
    "LANE",
    ...elementwise
  ])
}

const axes: Readonly<Record<Stage, ReadonlySet<Axis>>> = {
  tensor: new Set(),
  kernel: new Set(["GLOBAL", "LOOP", "REDUCE"]),
  opted: new Set(["GLOBAL", "LOOP", "LOCAL", "UPCAST", "REDUCE", "GROUP", "UNROLL", "MATRIX"]),
  unrolled: new Set(["GLOBAL", "LOOP", "LOCAL", "REDUCE", "GROUP", "MATRIX"]),
  expanded: new Set(["GLOBAL", "LOOP", "REDUCE", "MATRIX"]),
  linear: new Set(["GLOBAL", "LOOP", "REDUCE"])
}

const bitwise: ReadonlySet<Op> = new Set<Op>(["AND", "OR", "XOR"])
const floatOnly: ReadonlySet<Op> = new Set<Op>(["FDIV", "SQRT", "EXP2", "LOG2", "SIN", "TRUNC"])
const integerOnly: ReadonlySet<Op> = new Set<Op>(["FLOORDIV", "FLOORMOD", "SHL", "SHR"])

const checkElementwise = (node: UOp): string | undefined => {
  const [a, b] = node.src
  const lanes = node.dtype.lanes
  if (node.src.some((s) => s.dtype.lanes !== lanes)) return "sources with other lane counts"
  if (node.op === "CAST") return a!.dtype.scalar === "void" ? "cast of an effect" : undefined
  if (node.op === "BITCAST") {
    if (a!.dtype.scalar === "bool" || node.dtype.scalar === "bool") return "a bool has no bits"
    return DType.bytes(a!.dtype) === DType.bytes(node.dtype) ? undefined : "bitcast changes size"
  }
  if (node.op === "NEG" && node.dtype.scalar === "bool") return "arithmetic on bools"
  if (node.op === "HALF_TO_FLOAT") {
    return a!.dtype.scalar === "u32" && DType.isFloat(node.dtype)
      ? undefined
      : "wants u32 -> f32"
  }
  if (node.op === "FLOAT_TO_HALF") {
    return DType.isFloat(a!.dtype) && node.dtype.scalar === "u32"
      ? undefined
      : "wants f32 -> u32"
  }
  if (node.op === "DOT4I8") {
    return a!.dtype.scalar === "u32" && b!.dtype.scalar === "u32" && node.dtype.scalar === "i32"
      ? undefined
      : "wants u32 and u32 -> i32"
  }
  if (node.op === "WHERE") {
    if (a!.dtype.scalar !== "bool") return "the condition is not a bool"
    return b!.dtype === node.dtype && node.src[2]!.dtype === node.dtype ? undefined : "branches of another dtype"
  }
  if (comparison.has(node.op)) {
    if (node.dtype.scalar !== "bool") return "a comparison that is not a bool"
    return a!.dtype === b!.dtype ? undefined : "operands of different dtypes"
  }
  if (node.src.some((s) => s.dtype !== node.dtype)) return "operands of another dtype"
  if (floatOnly.has(node.op) && !DType.isFloat(node.dtype)) return "wants floats"
  if (integerOnly.has(node.op) && !DType.isInteger(node.dtype)) return "wants integers"
  if (bitwise.has(node.op) && DType.isFloat(node.dtype)) return "wants integers or bools"
  if (!bitwise.has(node.op) && !unary.has(node.op) && node.dtype.scalar === "bool" && node.op !== "MULACC") {
    return "arithmetic on bools"
  }
  return undefined
}

const checkNode = (stage: Stage, node: UOp): string | undefined => {
  if (!allowed[stage].has(node.op)) return `${node.op} is not allowed`
  if (elementwise.has(node.op)) {
    const reason = checkElementwise(node)
    if (reason !== undefined) return reason
    if (stage === "tensor") {
      const shape = Shape.of(node)
      if (node.src.some((s) => !Shape.equal(Shape.of(s), shape))) {
        return `shapes ${node.src.map((s) => Shape.print(Shape.of(s))).join(" and ")} differ`
      }
    }
    return undefined
  }
  switch (node.op) {
    case "RANGE": {
      const { axis } = rangeArg(node)
      return axes[stage].has(axis) ? undefined : `axis ${axis} is not allowed`
    }
    case "PARAM":
    case "BUFFER":
      return DType.isStorable(node.dtype) ? undefined : `${DType.print(node.dtype)} cannot be stored`
    case "INDEX":
      if (stage === "tensor") return "INDEX is not allowed"
      if (node.src[1]!.dtype !== DType.index && node.src[1]!.dtype !== DType.i32) return "the index is not an index"
      return node.src[2] === undefined || node.src[2].dtype === DType.bool ? undefined : "the gate is not a bool"
    case "LOAD":
      return node.src[0]!.op === "INDEX" && node.dtype.scalar === node.src[0]!.dtype.scalar
        ? undefined
        : "wants an INDEX of its dtype"
    case "STORE":
      if (stage === "tensor") {
        return node.src[0]!.dtype === node.src[1]!.dtype && Shape.equal(Shape.of(node.src[0]!), Shape.of(node.src[1]!))
          ? undefined
          : "value and target differ in dtype or shape"
      }
      if (node.src[0]!.op !== "INDEX" || node.src[0]!.dtype.scalar !== node.src[1]!.dtype.scalar) {
        return "wants an INDEX of the value's dtype"
      }
      return isAccumulating(node) ? checkAccumulating(stage, node) : undefined
    case "SCATTER_ADD": {
      const [initial, index, value] = node.src.map(Shape.of)
      return DType.isInteger(node.src[1]!.dtype) && index!.length === 1 && node.src[0]!.dtype === node.dtype &&
          node.src[2]!.dtype === node.dtype && Shape.equal(value!, [...index!, ...initial!.slice(1)])
        ? undefined
        : "wants an integer for each row of values, and rows and dtype of the initial value"
    }
    case "REDUCE":
      return node.dtype === node.src[0]!.dtype ? undefined : "dtype changes"
    case "LINEAR":
      return stage === "linear" ? checkOrder(node) : "LINEAR is not allowed"
    default:
      return undefined
  }
}

/** Additions are to arguments; an instruction adds no vector atomically. */
const checkAccumulating = (stage: Stage, store: UOp): string | undefined => {
  const { buffer } = accessOf(store)
  if (buffer.op !== "PARAM") return "adds to memory that is no argument"
  const isVector = store.src[1]!.dtype.lanes > 1
  return stage === "linear" && isVector && isCoherent(buffer) ? "adds a vector atomically" : undefined
}

/** The loops that an index depends on by arithmetic, not by what is loaded. */
const computedFrom = (node: UOp, seen: Set<UOp> = new Set()): ReadonlySet<UOp> => {
  if (seen.has(node)) return seen
  seen.add(node)
  if (node.op !== "LOAD") { for (const s of node.src) computedFrom(s, seen) }
  return seen
}

const independent: ReadonlySet<Axis> = new Set(["GLOBAL", "LOCAL", "LOOP", "MATRIX"])

/** Iterations that are not independent belong to stores that accumulate; of the others two may not add to one element, unless atomically. */
const checkLoops = (end: UOp): string | undefined => {
  const { loops, stores } = endOf(end)
  const [plain] = stores.filter((store) => !isAccumulating(store))
  // each iteration may have workgroup memory of its own
  const isCombined = (r: UOp): boolean => rangeArg(r).axis === "REDUCE" && !openRanges(accessOf(plain!).buffer).has(r)
  if (plain !== undefined && loops.some(isCombined)) {
    return "a store that does not accumulate, in a loop whose iterations are combined"
  }
  const adding = stores.filter((store) => isAccumulating(store) && !isCoherent(accessOf(store).buffer))
  const told = loops.find((r) =>
    independent.has(rangeArg(r).axis) && adding.some((store) => !computedFrom(accessOf(store).at).has(r))
  )
  return told === undefined
    ? undefined
    : `iterations of r${rangeArg(told).id} are independent, and may add to one element; combine them, or add atomically`
}

/** Definitions come before uses, and every loop and branch that opens closes, in order. */
const checkOrder = (linear: UOp): string | undefined => {
  const seen = new Set<UOp>()
  const open: Array<UOp> = []
  for (const node of linear.src) {
    for (const s of node.src) if (!seen.has(s)) return `${Print.line(node)} uses ${s.op} before its definition`
    if (node.op === "RANGE" || node.op === "IF") open.push(node)
    if (node.op === "END" || node.op === "ENDIF") {
      if (open.pop() !== node.src[0]) return `${node.op} closes what is not innermost`
    }
    if (node.op === "GRID_BARRIER" && open.length > 0) return `GRID_BARRIER inside of ${open[0]!.op}`
    if (node.op === "BARRIER" && open.some((n) => n.op === "IF" && !isUniform(n.src[0]!))) {
      return "BARRIER inside an IF that threads of a workgroup may disagree about"
    }
    seen.add(node)
  }
  return open.length === 0
    ? checkCoherence(linear) ?? checkAwaited(linear) ?? checkPassed(linear)
    : `${open[0]!.op} is never closed`
}

/** Where words may come later than the barrier behind them, nothing but AWAIT uses what was loaded. */
const checkAwaited = (linear: UOp): string | undefined => {
  const barrier = linear.src.find((node) => node.is("GRID_BARRIER"))
  const slot = barrier === undefined ? undefined : argOf(barrier, "GRID_BARRIER").awaits
  if (slot === undefined) return undefined
  const isWord = (node: UOp): boolean => {
    const buffer = node.op === "LOAD" ? accessOf(node).buffer : undefined
    return buffer?.op === "PARAM" && slotOf(buffer) === slot
  }
  const early = linear.src.find((node) => node.op !== "AWAIT" && node.src.some(isWord))
  return early === undefined ? undefined : `${Print.line(early)} uses a word that may not be there yet`
}

/** What crosses GRID_BARRIERs that workgroups pass is awaited: of coherent memory the words alone are touched on more than one side of those that follow each other. */
const checkPassed = (linear: UOp): string | undefined => {
  // slots that were touched since all waited for all, and those of the phase that is looked at
  let since: ReadonlySet<number> = new Set()
  let own = new Set<number>()
  for (const node of linear.src) {
    if (node.is("GRID_BARRIER")) {
      const { awaits, passes, workgroups } = node.arg
      if (passes !== undefined && awaits === undefined) {
        return "workgroups pass a GRID_BARRIER, and do not wait where words are read, either"
      }
      if (passes !== undefined && !(passes >= 0 && passes <= workgroups)) {
        return `${passes} of ${workgroups} workgroups pass a GRID_BARRIER`
      }
      since = passes === undefined ? new Set() : new Set([...since, ...own].filter((slot) => slot !== awaits))
      own = new Set()
    }
    if (node.op !== "LOAD" && node.op !== "STORE") continue
    const { buffer } = accessOf(node)
    if (buffer.op !== "PARAM" || !isCoherent(buffer)) continue
    own.add(slotOf(buffer))
    if (since.has(slotOf(buffer))) return `slot ${slotOf(buffer)} crosses a GRID_BARRIER that workgroups pass`
  }
  return undefined
}

/** What is written on one side of a GRID_BARRIER and touched on another one lies in a coherent PARAM, wherever it is named. */
const checkCoherence = (linear: UOp): string | undefined => {
  const first = new Map<number, { phase: number; isWritten: boolean; isPlain: boolean }>()
  let phase = 0
  for (const node of linear.src) {
    if (node.op === "GRID_BARRIER") phase++
    if (node.op !== "LOAD" && node.op !== "STORE") continue
    const { buffer } = accessOf(node)
    if (buffer.op !== "PARAM") continue
    const isPlain = !isCoherent(buffer)
    const isWritten = node.op === "STORE"
    const known = first.get(slotOf(buffer)) ?? { phase, isWritten, isPlain }
    first.set(slotOf(buffer), known)
    known.isWritten ||= isWritten
    if (known.isPlain !== isPlain) return `slot ${slotOf(buffer)} is coherent in one place and plain in another`
    // a slot that is touched in two phases: any write to it crosses a barrier
    if (known.phase !== phase) known.phase = crossed
    if (known.phase === crossed && known.isWritten && isPlain) {
      return `slot ${slotOf(buffer)} is written in one phase and touched in another, and is not coherent`
    }
  }
  return undefined
}
const crossed = -1

/** Whether a value is uniform across a workgroup, by its syntax. Loop variables are: threads run loops in lock step. */
const isUniform = (value: UOp): boolean =>
  toposort(value).every((node) =>
    elementwise.has(node.op) || node.op === "CONST" || node.op === "VAR" || node.op === "RANGE" ||
    (node.is("SPECIAL") && node.arg.name.startsWith("gidx"))
  )

const checkRoot = (stage: Stage, root: UOp): string | undefined => {
  if (root.op === "PERSISTENT" && stage !== "tensor" && stage !== "linear") {
    const kernels = root.src.map((phase) =>
      phase.op === "PHASE" ? checkRoot(stage, phase.src[0]!) : "a launch has PHASEs"
    )
    return kernels.find((reason) => reason !== undefined)
  }
  if (stage === "linear") return root.op === "LINEAR" ? undefined : "the root is not LINEAR"
  if (root.op !== "SINK") return "the root is not SINK"
  if (stage === "tensor") return undefined
  const filled = new Set<UOp>()
  for (const end of root.src) {
    if (end.op !== "END") return "a kernel's roots are END nodes"
    const open = [...openRanges(end)].filter((r) => stage !== "unrolled" || rangeArg(r).axis !== "GROUP")
    if (open.length > 0) return "a loop variable is used outside its loop"
    const loops = checkLoops(end)
    if (loops !== undefined) return loops
    const reads = toposort(end).filter((n) => n.op === "LOAD" && accessOf(n).buffer.op === "LOCAL")
    if (reads.some((load) => !filled.has(accessOf(load).buffer))) return "workgroup memory is read before it is written"
    for (const store of endOf(end).stores) {
      if (store.src[0]?.src[0]?.op === "LOCAL") filled.add(store.src[0].src[0])
    }
  }
  return undefined
}

/** Every violation of a stage's grammar under `root`; empty when the graph is well formed. */
export const check = (stage: Stage, root: UOp): ReadonlyArray<Violation> => {
  const violations: Array<Violation> = []
  const reason = checkRoot(stage, root)
  if (reason !== undefined) violations.push({ stage, node: root.op, reason })
  for (const node of toposort(root)) {
    const problem = checkNode(stage, node)
    if (problem !== undefined) violations.push({ stage, node: Print.line(node), reason: problem })
  }
  return violations
}

/** Whether stages check the graphs they are given. On by default; a program that trusts its stages turns it off. */
export const Checked = Context.Reference<boolean>("@tg/core-uop/Checked", { defaultValue: () => true })

/** The first violation at a stage's input, when checking is on. */
export const firstViolation = (stage: Stage, root: UOp): Effect.Effect<string | undefined> =>
  Effect.map(Checked, (checked) => {
    const violation = checked ? check(stage, root)[0] : undefined
    return violation === undefined ? undefined : `spec ${stage}: ${violation.node}: ${violation.reason}`
  })
