import * as DType from "./DType.ts"
import * as Custom from "./Custom.ts"
import { copyOut, dense, product, reduce, stridesOf, zip } from "./EvaluateArray.ts"
import { box, fail, moved, padded, type Value } from "./EvaluateMovement.ts"
import { allocate, type Data, variable, type Vars } from "./EvaluateOps.ts"
import { elementwise } from "./Op.ts"
import * as Shape from "./Shape.ts"
import { argOf, reduceArg, slotOf, toposort, type UOp } from "./UOp.ts"

export type { Value } from "./EvaluateMovement.ts"

/** What a tensor program runs in. */
export interface Environment {
  /**
   * Storage of BUFFER and PARAM nodes. A buffer with symbolic dimensions is laid out for the largest of each: element
   * [i, j] is at `i * maxOf(d1) + j`. STORE writes into these arrays.
   */
  readonly buffers: ReadonlyMap<UOp, Data>
  readonly vars?: Vars
  /** Floats are not rounded to 32 bits. Give buffers as Float64Array to keep stored values unrounded too. */
  readonly float64?: boolean
  /** Hand-written kernels by name, in place of their own references. */
  readonly custom?: ReadonlyMap<string, Custom.Reference>
}

/** Elements of a storage array: `addresses` has the logical shape. */
interface Place {
  readonly storage: Data
  readonly shape: ReadonlyArray<number>
  readonly addresses: Float64Array
  /** All of a buffer, not a part of it: the storage may be larger than the shape, by its symbolic dimensions. */
  readonly whole: boolean
}

/** What a body's PARAM stands for: the argument's value on entry and, for a buffer, where it lies. */
interface Argument {
  readonly value: Value
  readonly place: () => Place | undefined
}

interface Frame {
  readonly env: Environment
  readonly vars: Vars
  readonly args: ReadonlyArray<Argument> | undefined
  readonly values: Map<UOp, Value>
  /** Finished calls: the frame of the body, and its results. */
  readonly calls: Map<UOp, { readonly frame: Frame; readonly results: ReadonlyArray<UOp> }>
}

const frameOf = (env: Environment, args: Frame["args"]): Frame => ({
  env,
  vars: env.vars ?? {},
  args,
  values: new Map(),
  calls: new Map()
})

const valueOf = (frame: Frame, node: UOp): Value => frame.values.get(node) ?? fail(node, "has no value")
const numberOf = (frame: Frame, node: UOp): number => Number(valueOf(frame, node).data[0])
const dimsOf = (frame: Frame, nodes: ReadonlyArray<UOp>): ReadonlyArray<number> => nodes.map((n) => numberOf(frame, n))

const make = (frame: Frame, dtype: DType.DType, shape: ReadonlyArray<number>): Value => ({
  dtype,
  shape,
  data: allocate(dtype, product(shape), frame.env.float64)
})

/** Storage of a BUFFER or a program's PARAM, with its shape and the strides of the largest shape. */
const laidOut = (frame: Frame, node: UOp) => {
  const storage = frame.env.buffers.get(node) ?? fail(node, "has no storage; add it to the environment's buffers")
  const float = storage instanceof Float32Array || storage instanceof Float64Array
  if (float !== DType.isFloat(node.dtype)) fail(node, `cannot lie in a ${storage.constructor.name}`)
  const shape = dimsOf(frame, node.src)
  const strides = stridesOf(Shape.of(node).map(Shape.maxOf))
  const last = product(shape) === 0 ? -1 : shape.reduce((p, d, axis) => p + (d - 1) * strides[axis]!, 0)
  if (last >= storage.length) fail(node, `needs ${last + 1} elements, its storage has ${storage.length}`)
  return { storage, shape, strides }
}

/** The storage elements that a view of a buffer stands for; undefined when the node is not such a view. */
const placeOf = (frame: Frame, node: UOp): Place | undefined => {
  switch (node.op) {
    case "AFTER":
      return placeOf(frame, node.src[0]!)
    case "GETTUPLE": {
      const done = frame.calls.get(node.src[0]!)
      return done === undefined ? undefined : placeOf(done.frame, done.results[argOf(node, "GETTUPLE")]!)
    }
    case "BUFFER":
    case "PARAM": {
      if (node.op === "PARAM" && frame.args !== undefined) return argument(frame, node).place()
      const { shape, storage, strides } = laidOut(frame, node)
      const addresses = new Float64Array(product(shape))
      const own = stridesOf(shape)
      for (let i = 0; i < addresses.length; i++) {
        let at = 0
        for (let axis = 0; axis < shape.length; axis++) at += Math.floor(i / own[axis]!) % shape[axis]! * strides[axis]!
        addresses[i] = at
      }
      return { storage, shape, addresses, whole: true }
    }
    case "RESHAPE":
    case "PERMUTE":
    case "SHRINK":
    case "FLIP": {
      const of = placeOf(frame, node.src[0]!)
      if (of === undefined) return undefined
      const value = moved(
        node,
        { dtype: DType.index, shape: of.shape, data: of.addresses },
        (size) => numberOf(frame, size)
      )
      return { storage: of.storage, shape: value.shape, addresses: value.data as Float64Array, whole: false }
    }
    default:
      return undefined
  }
}

const argument = (frame: Frame, node: UOp): Argument => {
  const slot = slotOf(node)
  return frame.args![slot] ?? fail(node, "is not bound to an argument")
}

/** What lies at a place now. */
const contents = (frame: Frame, dtype: DType.DType, place: Place): Value => {
  const value = make(frame, dtype, place.shape)
  for (let i = 0; i < value.data.length; i++) value.data[i] = place.storage[place.addresses[i]!]!
  return value
}

/** A buffer's contents now, without an address for every element. */
const bufferContents = (frame: Frame, node: UOp): Value => {
  const { shape, storage, strides } = laidOut(frame, node)
  const value = make(frame, node.dtype, shape)
  copyOut(value.data, storage, { shape, strides, offset: 0 })
  return value
}

const after = (frame: Frame, node: UOp): Value => {
  let x = node.src[0]!
  while (x.op === "AFTER") x = x.src[0]!
  if (x.op === "BUFFER" || (x.op === "PARAM" && frame.args === undefined)) return bufferContents(frame, x)
  const place = placeOf(frame, x)
  return place === undefined ? valueOf(frame, x) : contents(frame, node.dtype, place)
}

/** Where a store writes: a view, or rows of one that are chosen by their numbers. */
const targetOf = (frame: Frame, node: UOp): Place | undefined => {
  if (node.op !== "GATHER") return placeOf(frame, node)
  const of = placeOf(frame, node.src[0]!)
  if (of === undefined) return undefined
  const addresses: Value = { dtype: DType.index, shape: of.shape, data: of.addresses }
  const chosen = rowsOf(frame, node, addresses, valueOf(frame, node.src[1]!))
  return { storage: of.storage, shape: chosen.shape, addresses: chosen.data as Float64Array, whole: false }
}

const store = (frame: Frame, node: UOp): void => {
  const place = targetOf(frame, node.src[0]!) ??
    fail(node, "the target is not a view of a buffer with distinct elements")
  const value = valueOf(frame, node.src[1]!)
  if (place.addresses.length !== value.data.length) fail(node, `stores [${value.shape}] into [${place.shape}]`)
  for (let i = 0; i < value.data.length; i++) place.storage[place.addresses[i]!] = value.data[i]!
}

const gather = (frame: Frame, node: UOp): Value =>
  rowsOf(frame, node, valueOf(frame, node.src[0]!), valueOf(frame, node.src[1]!))

/** Rows of a value by their numbers. */
const rowsOf = (frame: Frame, node: UOp, x: Value, index: Value): Value => {
  const row = product(x.shape.slice(1))
  const out = make(frame, x.dtype, [...index.shape, ...x.shape.slice(1)])
  for (let i = 0; i < index.data.length; i++) {
    const at = index.data[i]!
    if (at < 0 || at >= x.shape[0]!) fail(node, `index ${at} at position ${i}, but there are ${x.shape[0]} rows`)
    out.data.set(x.data.subarray(at * row, (at + 1) * row), i * row)
  }
  return out
}

/** One row after the other. */
const scattered = (frame: Frame, node: UOp): Value => {
  const [initial, index, value] = node.src.map((s) => valueOf(frame, s))
  const out = make(frame, node.dtype, initial!.shape)
  out.data.set(initial!.data)
  const [rows = 0, ...own] = initial!.shape
  const columns = product(own)
  for (let k = 0; k < index!.data.length; k++) {
    const row = index!.data[k]!
    if (row < 0 || row >= rows) continue
    for (let j = 0; j < columns; j++) out.data[row * columns + j]! += value!.data[k * columns + j]!
  }
  return out
}

const reduced = (frame: Frame, node: UOp): Value => {
  const x = valueOf(frame, node.src[0]!)
  const { axes, op } = reduceArg(node)
  const strides = stridesOf(x.shape)
  const kept = x.shape.map((_, axis) => axis).filter((axis) => !axes.includes(axis))
  const order = [...kept, ...axes]
  const sorted = box(x, order.map((axis) => x.shape[axis]!), order.map((axis) => strides[axis]!))
  const out = make(frame, node.dtype, kept.map((axis) => x.shape[axis]!))
  reduce(op, node.dtype, out.data, sorted.data, {
    outer: out.data.length,
    count: product(axes.map((axis) => x.shape[axis]!)),
    inner: 1
  })
  return out
}

const elementwiseValue = (frame: Frame, node: UOp): Value => {
  const sources = node.src.map((s) => valueOf(frame, s))
  const last = sources[sources.length - 1]!
  for (const s of sources) {
    if (s.data.length !== last.data.length) {
      fail(
        node,
        `shapes ${sources.map((v) => `[${v.shape}]`).join(" and ")} differ`
      )
    }
  }
  const out = make(frame, node.dtype, last.shape)
  const extent = { outer: 1, middle: 1, inner: out.data.length }
  zip(node.op, last.dtype, node.dtype, out.data, extent, sources.map((s) => dense(s.data)))
  return out
}

/** What a hand-written kernel gets for an argument: the storage itself, or a copy of a computed value. */
const storageOf = (frame: Frame, node: UOp): Data => {
  const place = placeOf(frame, node)
  if (place === undefined) return valueOf(frame, node).data
  const { addresses, storage, whole } = place
  if (whole) return storage
  const first = addresses[0] ?? 0
  if (!addresses.every((at, i) => at === first + i)) fail(node, "is not contiguous; a hand-written kernel needs that")
  return storage.subarray(first, first + addresses.length)
}

const runCustom = (frame: Frame, node: UOp, args: ReadonlyArray<Data>): void => {
  const { name } = argOf(node, "CUSTOM")
  const custom = frame.env.custom?.get(name) ?? Custom.referenceOf(node) ??
    fail(node, `no hand-written kernel ${name}; add it to the environment's custom`)
  custom(args, frame.vars)
}

const call = (frame: Frame, node: UOp): void => {
  const body = node.src[0]!
  if (body.op === "CUSTOM" && body.src.length === 0) {
    return runCustom(frame, body, node.src.slice(1).map((arg) => storageOf(frame, arg)))
  }
  const args = node.src.slice(1).map((arg): Argument => ({
    value: valueOf(frame, arg),
    place: () => placeOf(frame, arg)
  }))
  const inner = frameOf(frame.env, args)
  const results = body.op === "TUPLE" ? body.src : [body]
  run(inner, results)
  frame.calls.set(node, { frame: inner, results })
}

const evaluateNode = (frame: Frame, node: UOp): Value | undefined => {
  switch (node.op) {
    case "CONST": {
      const value = make(frame, node.dtype, dimsOf(frame, node.src))
      value.data.fill(Number(node.arg))
      return value
    }
    case "VAR": {
      const value = make(frame, node.dtype, [])
      value.data[0] = variable(node, frame.vars)
      return value
    }
    case "BUFFER":
      return bufferContents(frame, node)
    case "PARAM":
      return frame.args === undefined ? bufferContents(frame, node) : argument(frame, node).value
    case "IOTA": {
      const value = make(frame, node.dtype, dimsOf(frame, node.src))
      for (let i = 0; i < value.data.length; i++) value.data[i] = i
      return value
    }
    case "PAD": {
      const x = valueOf(frame, node.src[0]!)
      const at = (offset: number) => x.shape.map((_, axis) => numberOf(frame, node.src[offset + 2 * axis]!))
      return padded(x, at(1), at(2))
    }
    case "RESHAPE":
    case "EXPAND":
    case "PERMUTE":
    case "SHRINK":
    case "FLIP":
      return moved(node, valueOf(frame, node.src[0]!), (size) => numberOf(frame, size))
    case "GATHER":
      return gather(frame, node)
    case "SCATTER_ADD":
      return scattered(frame, node)
    case "CONTIGUOUS":
      return valueOf(frame, node.src[0]!)
    case "REDUCE":
      return reduced(frame, node)
    case "STORE":
      return store(frame, node) as undefined
    case "AFTER":
      return after(frame, node)
    case "CALL":
      return call(frame, node) as undefined
    case "GETTUPLE": {
      const done = frame.calls.get(node.src[0]!) ??
        fail(node, "takes the result of something that is not a call of a body")
      const result = done.results[argOf(node, "GETTUPLE")] ?? fail(node, `there are ${done.results.length} results`)
      if (result.dtype.scalar === "void") return undefined
      return done.frame.values.get(result) ?? fail(node, "this result has no value")
    }
    case "CUSTOM":
      return runCustom(frame, node, Custom.of(node).storage.map((s) => storageOf(frame, s))) as undefined
    case "TUPLE":
    case "SINK":
      return undefined
    default:
      return elementwise.has(node.op) ? elementwiseValue(frame, node) : fail(node, "is not of the tensor stage")
  }
}

/** Which sources a node's evaluation reads as values (or waits for). */
const inputs = (node: UOp): ReadonlyArray<UOp> => {
  if (node.op === "CALL") return node.src.slice(1) // the body runs in its own frame
  if (node.op === "STORE") return [...placeInputs(node.src[0]!), node.src[1]!]
  if (node.op === "AFTER") return [...placeInputs(node.src[0]!), ...node.src.slice(1)]
  return node.src
}

/** A view that is written is not read: only its offsets and dimensions are, and the effects that come before. */
const placeInputs = (target: UOp): ReadonlyArray<UOp> => {
  switch (target.op) {
    case "BUFFER":
    case "PARAM":
      return target.src
    case "AFTER":
    case "RESHAPE":
    case "PERMUTE":
    case "SHRINK":
    case "FLIP":
    case "GATHER":
      return [...placeInputs(target.src[0]!), ...target.src.slice(1)]
    default:
      return [target]
  }
}

/** Every node under the roots that has to be evaluated, sources first. */
const order = (roots: ReadonlyArray<UOp>): ReadonlyArray<UOp> => {
  const needed = new Set(roots)
  const all = toposort(...roots)
  for (let i = all.length - 1; i >= 0; i--) {
    if (needed.has(all[i]!)) { for (const s of inputs(all[i]!)) needed.add(s) }
  }
  return all.filter((node) => needed.has(node))
}

const run = (frame: Frame, roots: ReadonlyArray<UOp>): void => {
  const nodes = order(roots)
  const uses = new Map<UOp, number>()
  for (const node of nodes) for (const s of inputs(node)) uses.set(s, (uses.get(s) ?? 0) + 1)
  for (const root of roots) uses.set(root, Infinity)
  for (const node of nodes) {
    const value = evaluateNode(frame, node)
    if (value !== undefined) frame.values.set(node, value)
    for (const s of inputs(node)) {
      const left = uses.get(s)! - 1
      uses.set(s, left)
      // scalars stay: they are dimensions and offsets, which views ask for again
      if (left === 0 && frame.values.get(s)?.shape.length !== 0) frame.values.delete(s)
    }
  }
}

/**
 * The values of tensor-stage roots (`undefined` for effects), by the most direct way there is: every node is a whole
 * row-major array. Float sums and products of a REDUCE are exact to float64 and rounded once.
 *
 * A BUFFER or PARAM stands for its contents before any store under the roots; `AFTER` for the contents after its effects.
 */
export const evaluate = (roots: ReadonlyArray<UOp>, env: Environment): ReadonlyArray<Value | undefined> => {
  const frame = frameOf(env, undefined)
  run(frame, roots)
  return roots.map((root) => frame.values.get(root))
}
