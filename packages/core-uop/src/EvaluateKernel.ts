import { copyOut, dense, type Operand, product, reduce, stridesOf, zip } from "./EvaluateArray.ts"
import * as KernelPlan from "./EvaluateKernelPlan.ts"
import { argumentOf, type Arguments, Memory } from "./EvaluateMemory.ts"
import { allocate, type Data, variable, type Vars } from "./EvaluateOps.ts"
import { elementwise } from "./Op.ts"
import * as Phases from "./Phases.ts"
import * as Print from "./Print.ts"
import { argOf, groupArg, isAccumulating, isCoherent, isThread, reduceArg, toposort, type UOp } from "./UOp.ts"

export interface Options {
  /** Floats between load and store are not rounded to 32 bits. */
  readonly float64?: boolean
  /** Fail when two iterations write different values to one element. */
  readonly checkWrites?: boolean
  /** Largest number of elements of one intermediate array, where tiling can achieve it. */
  readonly blockElements?: number
}

/** A value in the making: an array over `axes`, then over lanes. */
interface Value {
  readonly data: Data
  readonly axes: ReadonlyArray<number>
}

interface Run {
  readonly plan: KernelPlan.Plan
  readonly memory: Memory
  readonly vars: Vars
  readonly float64: boolean
  /** First iteration and length of the block of each axis that is being evaluated. */
  readonly start: Array<number>
  readonly length: Array<number>
  readonly values: Map<UOp, Value>
  readonly scratch: Map<UOp, Data>
}

const fail = (node: UOp, problem: string): never => {
  throw new Error(`${Print.line(node)}: ${problem}`)
}

const valueOf = (run: Run, node: UOp): Value => run.values.get(node) ?? fail(node, "has no value")
const shapeOf = (run: Run, axes: ReadonlyArray<number>): ReadonlyArray<number> => axes.map((axis) => run.length[axis]!)

/** The array a node's value goes into: the same memory for every block. */
const output = (run: Run, node: UOp, length: number): Data => {
  const old = run.scratch.get(node)
  if (old !== undefined && old.length === length) return old
  if (old !== undefined && old.length > length) return old.subarray(0, length)
  const made = allocate(node.dtype, length, run.float64)
  run.scratch.set(node, made)
  return made
}

/** The value broadcast to `axes`. */
const broadcast = (run: Run, value: Value, axes: ReadonlyArray<number>, lanes: number): Data => {
  const shape = [...shapeOf(run, axes), lanes]
  if (value.data.length === product(shape) && value.axes.every((axis) => axes.includes(axis))) return value.data
  const own = stridesOf([...shapeOf(run, value.axes), lanes])
  const strides = axes.map((axis) => {
    const at = value.axes.indexOf(axis)
    return at < 0 ? 0 : own[at]!
  })
  const data = new (value.data.constructor as new(n: number) => Data)(product(shape))
  copyOut(data, value.data, { shape, strides: [...strides, 1], offset: 0 })
  return data
}

/** Axes, merged where they are neighbours and the same operands vary along them: `[elements, which operands]`. */
const groupsOf = (
  run: Run,
  axes: ReadonlyArray<number>,
  sources: ReadonlyArray<Value>,
  lanes: number
): Array<[number, ReadonlyArray<boolean>]> => {
  const groups: Array<[number, ReadonlyArray<boolean>]> = []
  const add = (size: number, has: ReadonlyArray<boolean>): void => {
    if (size === 1) return
    const last = groups[groups.length - 1]
    if (last !== undefined && last[1].every((h, i) => h === has[i])) last[0] *= size
    else groups.push([size, has])
  }
  for (const axis of axes) add(run.length[axis]!, sources.map((s) => s.axes.includes(axis)))
  add(lanes, sources.map(() => true))
  return groups
}

const evaluateElementwise = (run: Run, node: UOp, axes: ReadonlyArray<number>): Data => {
  const sources = node.src.map((s) => valueOf(run, s))
  const lanes = node.dtype.lanes
  const out = output(run, node, product(shapeOf(run, axes)) * lanes)
  const groups = groupsOf(run, axes, sources, lanes)
  const from = node.src[node.src.length - 1]!.dtype
  if (groups.length > 3 || out.length === 0) {
    const operands = sources.map((s) => dense(broadcast(run, s, axes, lanes)))
    zip(node.op, from, node.dtype, out, { outer: 1, middle: 1, inner: out.length }, operands)
    return out
  }
  const levels = [...Array.from({ length: 3 - groups.length }, () => undefined), ...groups]
  const [outer, middle, inner] = levels.map((group) => group?.[0] ?? 1)
  const operands = sources.map((s, i): Operand => {
    let stride = 1
    const strides = levels.map((group) => group?.[1][i] === true ? group[0] : 0)
    const at = (level: number): number => {
      const own = strides[level] === 0 ? 0 : stride
      stride *= strides[level] || 1
      return own
    }
    return { data: s.data, inner: at(2), middle: at(1), outer: at(0) }
  })
  zip(node.op, from, node.dtype, out, { outer: outer!, middle: middle!, inner: inner! }, operands)
  return out
}

/** Reduces over the `closed` axes, which are transposed behind the kept ones first. */
const combine = (
  run: Run,
  node: UOp,
  source: Value,
  closed: ReadonlyArray<number>,
  kept: ReadonlyArray<number>
): Data => {
  const lanes = node.dtype.lanes
  const order = [...kept, ...closed]
  const all = order.toSorted((a, b) => a - b)
  const whole = broadcast(run, source, all, lanes)
  const own = stridesOf([...shapeOf(run, all), lanes])
  const sorted = order.every((axis, i) => axis === all[i])
  const data = sorted ? whole : new (whole.constructor as new(n: number) => Data)(whole.length)
  if (!sorted) {
    copyOut(data, whole, {
      shape: [...shapeOf(run, order), lanes],
      strides: [...order.map((axis) => own[all.indexOf(axis)]!), 1],
      offset: 0
    })
  }
  const outer = product(shapeOf(run, kept))
  const out = output(run, node, outer * lanes)
  reduce(reduceArg(node).op, node.dtype, out, data, { outer, count: product(shapeOf(run, closed)), inner: lanes })
  return out
}

/** Thread lidx0 is `local * threads + g`: every thread gets the combination over the g of its own `local`. */
const combineGroup = (run: Run, node: UOp, axes: ReadonlyArray<number>): Data => {
  const { op, threads } = groupArg(node)
  const source = valueOf(run, node.src[0]!)
  if (threads <= 1) return output(run, node, source.data.length).map((_, i) => source.data[i]!) as Data
  const axis = axes.find((a) => isThread(run.plan.axes[a]!.node))!
  if (run.length[axis]! % threads !== 0) fail(node, `${run.length[axis]} threads are not whole groups of ${threads}`)
  const whole = broadcast(run, source, axes, node.dtype.lanes)
  const inner = product(shapeOf(run, axes.filter((a) => a > axis))) * node.dtype.lanes
  const outer = whole.length / (threads * inner)
  const groups = allocate(node.dtype, outer * inner, run.float64)
  reduce(op, node.dtype, groups, whole, { outer, count: threads, inner })
  const out = output(run, node, whole.length)
  copyOut(out, groups, { shape: [outer, threads, inner], strides: [inner, 0, 1], offset: 0 })
  return out
}

/** Where an access goes: in workgroup memory, behind that of the workgroups before this one. */
const indexOf = (run: Run, element: UOp, axes: ReadonlyArray<number>): Data => {
  const index = broadcast(run, valueOf(run, element.src[1]!), axes, 1)
  const local = element.src[0]!
  if (local.op !== "LOCAL" || local.src.length === 0) return index
  let own = new Int32Array(index.length)
  for (const s of local.src) {
    const value = broadcast(run, valueOf(run, s), axes, 1)
    own = own.map((n, i) => n * KernelPlan.extentOf(s, run.vars) + value[i]!)
  }
  const { length } = argOf(local, "LOCAL")
  return own.map((n, i) => n * length + index[i]!)
}

const gateOf = (run: Run, element: UOp, axes: ReadonlyArray<number>): Data | undefined =>
  element.src[2] === undefined ? undefined : broadcast(run, valueOf(run, element.src[2]), axes, 1)

/** For each iteration, in order, the number of the thread it is in: that of its independent loops alone. */
const threadsOf = (run: Run, axes: ReadonlyArray<number>): Int32Array => {
  const shape = shapeOf(run, axes)
  let thread = 1
  const strides = axes.map((axis) => {
    const { node } = run.plan.axes[axis]!
    const isOrdered = node.is("RANGE") && node.arg.axis === "REDUCE"
    const stride = isOrdered ? 0 : thread
    if (!isOrdered) thread *= run.length[axis]!
    return stride
  })
  const all = Int32Array.from({ length: thread }, (_, i) => i)
  const threads = new Int32Array(product(shape))
  copyOut(threads, all, { shape, strides, offset: 0 })
  return threads
}

const evaluateStore = (run: Run, node: UOp, axes: ReadonlyArray<number>): void => {
  const element = node.src[0]!
  const lanes = node.src[1]!.dtype.lanes
  const value = broadcast(run, valueOf(run, node.src[1]!), axes, lanes)
  const index = indexOf(run, element, axes)
  const gate = gateOf(run, element, axes)
  if (!isAccumulating(node)) return run.memory.store(element, value, index, gate, lanes)
  const threads = isCoherent(element.src[0]!) ? undefined : threadsOf(run, axes)
  run.memory.accumulate(element, { value, index, gate, lanes, threads })
}

const evaluateNode = (run: Run, node: UOp, axes: ReadonlyArray<number>): Data | undefined => {
  if (elementwise.has(node.op)) return evaluateElementwise(run, node, axes)
  const count = product(shapeOf(run, axes))
  switch (node.op) {
    case "CONST":
      return output(run, node, node.dtype.lanes).fill(Number(node.arg))
    case "VAR":
      return output(run, node, 1).fill(variable(node, run.vars))
    case "RANGE":
    case "SPECIAL": {
      const axis = run.plan.axisOf.get(node)!
      const out = output(run, node, run.length[axis]!)
      for (let i = 0; i < out.length; i++) out[i] = run.start[axis]! + i
      return out
    }
    case "LOAD": {
      const element = node.src[0]!
      const out = output(run, node, count * node.dtype.lanes)
      run.memory.load(element, out, indexOf(run, element, axes), gateOf(run, element, axes), node.dtype.lanes)
      return out
    }
    case "STORE":
      return evaluateStore(run, node, axes) as undefined
    case "REDUCE": {
      const closed = node.src.slice(1).map((r) => run.plan.axisOf.get(r)!)
      return combine(run, node, valueOf(run, node.src[0]!), closed, axes)
    }
    case "GROUP_REDUCE":
      return combineGroup(run, node, axes)
    case "STACK": {
      const lanes = node.src.length
      const out = output(run, node, count * lanes)
      node.src.forEach((s, lane) => {
        const data = broadcast(run, valueOf(run, s), axes, 1)
        for (let i = 0; i < count; i++) out[i * lanes + lane] = data[i]!
      })
      return out
    }
    case "LANE": {
      const { data } = valueOf(run, node.src[0]!)
      const lanes = node.src[0]!.dtype.lanes
      const out = output(run, node, count)
      for (let i = 0; i < count; i++) out[i] = data[i * lanes + Number(node.arg)]!
      return out
    }
    default:
      return fail(node, "is not of a kernel stage")
  }
}

const runLevel = (run: Run, level: number): void => {
  for (const step of run.plan.steps) {
    if (step.level !== level) continue
    const data = evaluateNode(run, step.node, step.axes)
    if (data !== undefined) run.values.set(step.node, { data, axes: step.axes })
  }
  const axis = run.plan.loops[level]
  if (axis === undefined) return
  const { size } = run.plan.axes[axis]!
  const block = run.plan.block[axis]!
  for (let start = 0; start < size; start += block) {
    run.start[axis] = start
    run.length[axis] = Math.min(block, size - start)
    runLevel(run, level + 1)
  }
}

// Measured: speed is flat from 2^13 to 2^18 elements (`bench/kernel.ts`); less is less memory.
const defaultBlock = 2 ** 15

/** An END of several stores (spec `expanded`) as one END each: stores do not read what others write. */
const singleStores = (end: UOp): ReadonlyArray<UOp> =>
  end.src[0]!.op === "TUPLE" ? end.src[0]!.src.map((store) => end.with([store, ...end.src.slice(1)])) : [end]

/**
 * Runs a kernel of the stages `kernel`, `opted` or `expanded` on host memory. Every node's value is an array over the
 * loop variables (and thread indices) it depends on; what an axis is mapped to does not matter. Roots run one after
 * the other, and so do the phases of a persistent launch. Float reductions are exact to float64 and rounded once.
 *
 * Throws on an access outside a buffer, naming slot and index: that is a compiler's mistake, not a condition.
 */
export const evaluateKernel = (kernel: UOp, args: Arguments, vars: Vars = {}, options: Options = {}): void => {
  for (const phase of Phases.runningIn(kernel)) {
    const own = argumentsOf(phase, args)
    evaluateKernel(phase.kernel, own, vars, options)
    phase.copies?.forEach((slot, i) => {
      if (slot >= 0) {
        argumentOf(args, slot)!.set(argumentOf(own, i)!.subarray(0, Phases.sizes(phase.kernel).get(i)! / 4))
      }
    })
  }
  if (!Phases.isPersistent(kernel)) evaluateSink(kernel, args, vars, options)
}

/** What a phase sees of the arguments of its launch. */
const argumentsOf = ({ kernel, offsets, slots }: Phases.Phase, args: Arguments): Arguments =>
  new Map([...Phases.touched(kernel).keys()].map((slot) => {
    const data = argumentOf(args, slots[slot]!)
    if (data === undefined) throw new Error(`phase: no argument for slot ${slots[slot]!} of the launch`)
    return [slot, data.subarray(offsets[slot])]
  }))

const evaluateSink = (kernel: UOp, args: Arguments, vars: Vars, options: Options): void => {
  const instances = (local: UOp): number => local.src.reduce((n, s) => n * KernelPlan.extentOf(s, vars), 1)
  const memory = new Memory(toposort(kernel), args, { ...options, instances })
  for (const end of kernel.src.flatMap(singleStores)) {
    const plan = KernelPlan.make(end, vars, options.blockElements ?? defaultBlock)
    if (plan === undefined) continue
    const run: Run = {
      plan,
      memory,
      vars,
      float64: options.float64 === true,
      start: plan.axes.map(() => 0),
      length: [...plan.block],
      values: new Map(),
      scratch: new Map()
    }
    runLevel(run, 0)
  }
}
