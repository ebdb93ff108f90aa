import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import { type Arena, toposort, type UOp, type VarArg, varArg } from "@tg/core-uop/UOp"
import { param, Tensor } from "./Tensor.ts"
import { fail } from "./TensorError.ts"

/** A buffer that a program touches. */
export interface BufferInfo {
  readonly id: number
  readonly shape: Shape.Shape
  readonly dtype: DType.DType
  readonly label: string | undefined
  /** Some effect of the program writes to it. */
  readonly written: boolean
}

/** A tensor program as plain data: what to do, and the storage and symbolic integers it needs. */
export interface TensorProgram {
  readonly arena: Arena
  readonly sink: UOp
  readonly buffers: ReadonlyArray<BufferInfo>
  readonly vars: ReadonlyArray<VarArg>
}

const isStorage = (node: UOp): boolean => node.op === "BUFFER" || node.op === "PARAM"

/** The storage that a view (a chain of shapes, slices and orderings over a buffer) looks at. */
export const storageOf = (view: UOp): UOp | undefined => {
  let node = view
  while (["RESHAPE", "PERMUTE", "SHRINK", "FLIP", "AFTER"].includes(node.op)) node = node.src[0]!
  return isStorage(node) ? node : undefined
}

/** Writes `value` into a view of a buffer. The result is an effect: order reads after it with `after`. */
export const assign = (target: Tensor, value: Tensor): Tensor => {
  if (storageOf(target.node) === undefined) {
    return fail("assign", "a view of a buffer or of a parameter", `${target.node.op}`, "only storage can be written")
  }
  if (target.dtype !== value.dtype || !Shape.equal(target.shape, value.shape)) {
    return fail(
      "assign",
      `${DType.print(target.dtype)} ${Shape.print(target.shape)}`,
      `${DType.print(value.dtype)} ${Shape.print(value.shape)}`,
      "cast, expand or slice"
    )
  }
  return new Tensor(target.arena.make("STORE", DType.none, [target.node, value.node]))
}

/** The buffer as it is once the effects have happened. */
export const after = (target: Tensor, effects: ReadonlyArray<Tensor>): Tensor => {
  requireEffects("after", effects)
  if (storageOf(target.node) === undefined) {
    return fail("after", "a buffer or a parameter", target.node.op, "order reads of storage; values need no order")
  }
  return effects.length === 0
    ? target
    : new Tensor(target.arena.make("AFTER", target.dtype, [target.node, ...effects.map((e) => e.node)]))
}

/** The root of a program: everything that must happen. */
export const sink = (effects: ReadonlyArray<Tensor>): UOp => {
  requireEffects("sink", effects)
  const first = effects[0] ?? fail("sink", "at least one effect", "none", "assign a result to a buffer")
  return first.arena.make("SINK", DType.none, effects.map((e) => e.node))
}

const requireEffects = (operation: string, effects: ReadonlyArray<Tensor>): void => {
  for (const e of effects) {
    if (e.dtype !== DType.none) {
      fail(operation, "effects", `a ${DType.print(e.dtype)} value`, "assign the value to a buffer")
    }
  }
}

const isSymbol = (x: Tensor): boolean => x.dtype === DType.index && x.rank === 0

/** Parameters for the arguments: storage becomes PARAM(slot), symbolic integers stay what they are. */
const parametersOf = (arena: Arena, name: string, args: ReadonlyArray<Tensor>) => {
  const stored: Array<Tensor> = []
  const params = args.map((arg) => {
    if (isSymbol(arg)) return arg
    if (!DType.isStorable(arg.dtype)) {
      return fail(`call ${name}`, "arguments that can be stored", DType.print(arg.dtype), "cast to i32, u32 or f32")
    }
    stored.push(arg)
    return param(arena, stored.length - 1, { shape: arg.shape, dtype: arg.dtype })
  })
  return { params, stored }
}

/** Calls a unit of the program with arguments. Results mirror what the unit's function returns. */
export type Unit = (args: ReadonlyArray<Tensor>) => ReadonlyArray<Tensor>

/** A function over parameters, built. */
interface Body {
  /** Spec `tensor`: a TUPLE of the results. */
  readonly node: UOp
  /** Slots of the parameters that it writes. */
  readonly written: ReadonlySet<number>
}

const build = (
  name: string,
  params: ReadonlyArray<Tensor>,
  fn: (...params: ReadonlyArray<Tensor>) => ReadonlyArray<Tensor>
): Body => {
  const results = fn(...params).map((r) => r.node)
  for (const node of toposort(...results)) {
    if (node.op === "BUFFER") {
      fail(`call ${name}`, "a body over its parameters", "a buffer used directly", "pass the buffer as an argument")
    }
  }
  const node = params[0]!.arena.make("TUPLE", DType.none, results)
  return { node, written: writtenSlots(node) }
}

/**
 * A unit of the program: `fn` is built over parameters, once for arguments of the same shapes and types, so it depends on
 * nothing else that changes. Arguments are storage-typed tensors or symbolic integers (which pass through). Effects among
 * the results must reach the sink, or be named in an `after`, to happen.
 */
export const unit = (name: string, fn: (...params: ReadonlyArray<Tensor>) => ReadonlyArray<Tensor>): Unit => {
  const bodies = new Map<Arena, Map<string, Body>>()
  return (args) => {
    const arena = (args[0] ?? fail(`call ${name}`, "arguments", "none", "inline the function")).arena
    const { params, stored } = parametersOf(arena, name, args)
    const own = bodies.get(arena) ?? new Map<string, Body>()
    bodies.set(arena, own)
    const signature = params.map(({ node }) => node.id).join()
    const { node: body, written } = own.get(signature) ?? build(name, params, fn)
    own.set(signature, { node: body, written })
    for (const slot of written) {
      const given = stored[slot]!.node
      const root = given.op === "AFTER" ? storageOf(given) : given
      if (root === undefined || !isStorage(root)) {
        fail(`call ${name}`, `storage as argument ${slot}, which it writes`, given.op, "pass the whole buffer")
      }
    }
    const node = arena.make("CALL", DType.none, [body, ...stored.map((a) => a.node)], { name })
    return body.src.map((r, i) => new Tensor(arena.make("GETTUPLE", r.dtype, [node], i)))
  }
}

/** A unit that is called once: what differs between calls may be in `fn`. Equal bodies are one all the same. */
export const call = (
  name: string,
  args: ReadonlyArray<Tensor>,
  fn: (...params: ReadonlyArray<Tensor>) => ReadonlyArray<Tensor>
): ReadonlyArray<Tensor> => unit(name, fn)(args)

/** A kernel written by hand: how to run it on each target, and what it does. Its storage arguments are its bindings. */
export interface CustomKernel {
  readonly name: string
  /** Numbers of the storage arguments (counted from 0) that it writes; the others it only reads. */
  readonly writes: ReadonlyArray<number>
  readonly wgsl?: {
    readonly source: string
    readonly workgroup: readonly [number, number, number]
    readonly grid: readonly [Shape.Dim, Shape.Dim, Shape.Dim]
  }
  readonly wasm?: Uint8Array
  /** Estimated work, for profiles and fusion. */
  readonly cost: { readonly bytes: number; readonly flops: number }
  /** What it computes, on the storage of its arguments. */
  readonly reference: (
    buffers: ReadonlyArray<Float32Array | Float64Array | Uint32Array | Int32Array | Uint8Array>,
    vars: Readonly<Record<string, number>>
  ) => void
}

/** Hand-written kernels by name: a program's side table, because nodes carry plain data only. */
export type CustomKernels = ReadonlyMap<string, CustomKernel>

/** The kernels by name; two different ones of one name are an error. */
export const customKernels = (kernels: ReadonlyArray<CustomKernel>): CustomKernels => {
  const table = new Map<string, CustomKernel>()
  for (const kernel of kernels) {
    if (table.has(kernel.name) && table.get(kernel.name) !== kernel) {
      fail("customKernels", `one kernel named ${kernel.name}`, "two", "rename one of them")
    }
    table.set(kernel.name, kernel)
  }
  return table
}

/**
 * Calls a hand-written kernel; the result is an effect. The body is CUSTOM over the parameters, with the name and the
 * written ones as its argument. What it computes lies in the buffers it writes: read them with `after`.
 */
export const custom = (kernel: CustomKernel, args: ReadonlyArray<Tensor>): Tensor =>
  call(kernel.name, args, (...params) => {
    const stored = params.filter((p) => !isSymbol(p)).map((p) => p.node)
    const { name, writes } = kernel
    return [new Tensor(stored[0]!.arena.make("CUSTOM", DType.none, stored, { name, writes: [...writes] }))]
  })[0]!

/** Slots of the parameters that a body writes, itself or through the calls in it. */
const writtenSlots = (body: UOp): ReadonlySet<number> =>
  new Set(
    [...writtenStorage(body)].filter(({ op }) => op === "PARAM")
      .map(({ arg }) => (arg as { readonly slot: number }).slot)
  )

/** Buffers and parameters that the graph writes. Bodies of calls are their own scope: their parameters are arguments. */
const writtenStorage = (root: UOp): ReadonlySet<UOp> => {
  const written = new Set<UOp>()
  const slots = new Map<UOp, ReadonlySet<number>>()
  const slotsOf = (body: UOp): ReadonlySet<number> => {
    const known = slots.get(body) ?? writtenSlots(body)
    slots.set(body, known)
    return known
  }
  for (const node of scope(root)) {
    if (node.op === "STORE") written.add(storageOf(node.src[0]!)!)
    if (node.op === "CUSTOM") {
      for (const i of (node.arg as { readonly writes: ReadonlyArray<number> }).writes) written.add(node.src[i]!)
    }
    if (node.op !== "CALL") continue
    for (const slot of slotsOf(node.src[0]!)) {
      const argument = storageOf(node.src[1 + slot]!)
      if (argument !== undefined) written.add(argument)
    }
  }
  return written
}

/** The nodes under a root, not entering the bodies of calls. */
const scope = (root: UOp): ReadonlyArray<UOp> => {
  const seen = new Set<UOp>([root])
  const order: Array<UOp> = [root]
  for (let i = 0; i < order.length; i++) {
    const node = order[i]!
    for (const s of node.op === "CALL" ? node.src.slice(1) : node.src) {
      if (seen.has(s)) continue
      seen.add(s)
      order.push(s)
    }
  }
  return order
}

/** The program that performs the effects: finds its buffers and variables. */
export const make = (effects: ReadonlyArray<Tensor>): TensorProgram => {
  const root = sink(effects)
  const written = writtenStorage(root)
  const nodes = toposort(root)
  const vars = new Map<string, VarArg>()
  for (const node of nodes) {
    if (node.op !== "VAR") continue
    const old = vars.get(varArg(node).name)
    if (old !== undefined && old !== varArg(node)) {
      fail("program", `one variable ${old.name}`, "two with different bounds", "share the variable or rename one")
    }
    vars.set(varArg(node).name, varArg(node))
  }
  return {
    arena: root.arena,
    sink: root,
    buffers: nodes.filter((n) => n.op === "BUFFER").map((n) => ({
      id: (n.arg as { readonly id: number }).id,
      shape: Shape.of(n),
      dtype: n.dtype,
      label: root.arena.labelOf(n),
      written: written.has(n)
    })).toSorted((a, b) => a.id - b.id),
    vars: [...vars.values()].toSorted((a, b) => a.name < b.name ? -1 : 1)
  }
}
