import * as Custom from "@tg/core-uop/Custom"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import * as Shape from "@tg/core-uop/Shape"
import { type Arena, argOf, toposort, type UOp, type VarArg, varArg } from "@tg/core-uop/UOp"
import { type Extent, param, Tensor } from "./Tensor.ts"
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

/** The storage under a view: a chain of RESHAPE, PERMUTE, SHRINK, FLIP and AFTER. */
export const storageOf = (view: UOp): UOp | undefined => {
  let node = view
  while (["RESHAPE", "PERMUTE", "SHRINK", "FLIP", "AFTER"].includes(node.op)) node = node.src[0]!
  return isStorage(node) ? node : undefined
}

/** The storage that a write goes to: that of a view, or of gathered rows of one. */
const targetOf = (target: UOp): UOp | undefined => storageOf(target.op === "GATHER" ? target.src[0]! : target)

/**
 * Writes `value` into a view of a buffer, or scatters it into rows of one, `view.gather(rows)`; of rows that are named twice either
 * value may stay. The result is an effect: order reads after it with `after`.
 */
export const assign = (target: Tensor, value: Tensor): Tensor => {
  if (targetOf(target.node) === undefined) {
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

/** The buffer's contents after the effects. */
export const after = (target: Tensor, effects: ReadonlyArray<Tensor>): Tensor => {
  requireEffects("after", effects)
  if (storageOf(target.node) === undefined) {
    return fail("after", "a buffer or a parameter", target.node.op, "order reads of storage; values need no order")
  }
  return effects.length === 0
    ? target
    : new Tensor(target.arena.make("AFTER", target.dtype, [target.node, ...effects.map((e) => e.node)]))
}

/** The root of a program: its effects. */
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

/** Parameters for the arguments: storage becomes PARAM(slot), symbolic integers pass through. */
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

/** A unit that is called once, so `fn` may depend on anything. Bodies of equal structure are one node all the same. */
export const call = (
  name: string,
  args: ReadonlyArray<Tensor>,
  fn: (...params: ReadonlyArray<Tensor>) => ReadonlyArray<Tensor>
): ReadonlyArray<Tensor> => unit(name, fn)(args)

/** A kernel's text for one target. */
export interface CustomSource {
  /** As the renderer of the target takes it: a module of WGSL, the fields of a module of WebAssembly. */
  readonly text: string
  /** Threads of a workgroup: as the WGSL says. One if the target has none. */
  readonly workgroup?: readonly [number, number, number]
  /** Workgroups along each axis; for `wasm` iterations, all along the first. It may follow from the arguments of the call. */
  readonly grid: Grid | ((...args: ReadonlyArray<Tensor>) => Grid)
}
export type Grid = readonly [Extent, Extent, Extent]

/** What a launch moves and computes. By default every byte of the storage once, and no operations. */
export interface Cost {
  readonly bytes?: Extent
  /** Operations. Devices with threads divide a launch among them by it. */
  readonly flops?: Extent
}

/**
 * A hand-written kernel: its text by target, its cost, and its semantics. Its storage arguments are its bindings,
 * its symbolic arguments are its variables, both in the order of the call.
 */
export interface CustomKernel {
  readonly name: string
  /** Numbers of the storage arguments (counted from 0) that it writes; the others it only reads. */
  readonly writes: ReadonlyArray<number>
  /** By target: `wgsl`, `wasm`, or that of another renderer. A device without its target refuses the program. */
  readonly sources?: Readonly<Record<string, CustomSource>>
  readonly cost?: Cost | ((...args: ReadonlyArray<Tensor>) => Cost)
  /** Its semantics as a function on its arguments' storage, which evaluators run. It depends on nothing else. */
  readonly reference: Custom.Reference
}

const extent = (arena: Arena, size: Extent): UOp => Shape.toUOp(arena, size instanceof Tensor ? size.node : size)

const gridOf = (arena: Arena, { grid }: CustomSource, args: ReadonlyArray<Tensor>): Custom.Source["grid"] => {
  const [x, y, z] = typeof grid === "function" ? grid(...args) : grid
  return [extent(arena, x), extent(arena, y), extent(arena, z)]
}

/** Every byte of the storage, once. */
const bytesOf = (arena: Arena, storage: ReadonlyArray<Tensor>): UOp =>
  storage.map(({ shape }) => shape.reduce<UOp>((n, dim) => Expr.mul(n, extent(arena, dim)), Expr.int(arena, 4)))
    .reduce((a, b) => Expr.add(a, b), Expr.int(arena, 0))

/**
 * Calls a hand-written kernel; the result is an effect. What it computes lies in the buffers it writes: read them with
 * `after`.
 */
export const custom = (kernel: CustomKernel, args: ReadonlyArray<Tensor>): Tensor =>
  call(kernel.name, args, (...params) => {
    const { name, reference, sources = {}, writes } = kernel
    const storage = params.filter((p) => !isSymbol(p))
    const vars = params.filter(isSymbol).map(({ node }) => node)
    const { arena } = storage[0] ?? fail(`custom ${name}`, "storage that it writes", "none", "pass a buffer")
    for (const i of writes) {
      if (storage[i] === undefined) {
        fail(`custom ${name}`, `storage ${i}, which it writes`, `${storage.length} arguments`, "count from 0")
      }
    }
    for (const node of vars) {
      if (node.op !== "VAR") {
        fail(`custom ${name}`, "variables as symbolic arguments", node.op, "pass its variables, and compute it inside")
      }
    }
    const cost = typeof kernel.cost === "function" ? kernel.cost(...params) : kernel.cost
    const made: Custom.Custom = {
      name,
      writes: [...writes],
      storage: storage.map(({ node }) => node),
      vars,
      cost: {
        bytes: cost?.bytes === undefined ? bytesOf(arena, storage) : extent(arena, cost.bytes),
        flops: extent(arena, cost?.flops ?? 0)
      },
      sources: new Map(
        Object.entries(sources).map(([target, source]) => [target, {
          text: source.text,
          workgroup: source.workgroup ?? [1, 1, 1],
          grid: gridOf(arena, source, params)
        }])
      )
    }
    return [new Tensor(Custom.make(arena, made, reference))]
  })[0]!

/** Slots of the parameters that a body writes, itself or through the calls in it. */
const writtenSlots = (body: UOp): ReadonlySet<number> =>
  new Set(
    [...writtenStorage(body)].filter(({ op }) => op === "PARAM")
      .map(({ arg }) => (arg as { readonly slot: number }).slot)
  )

/** Buffers and parameters that the graph writes. Bodies of calls are their own scope: their parameters are arguments. */
export const writtenStorage = (root: UOp): ReadonlySet<UOp> => {
  const written = new Set<UOp>()
  const slots = new Map<UOp, ReadonlySet<number>>()
  const slotsOf = (body: UOp): ReadonlySet<number> => {
    const known = slots.get(body) ?? writtenSlots(body)
    slots.set(body, known)
    return known
  }
  for (const node of scope(root)) {
    if (node.op === "STORE") written.add(targetOf(node.src[0]!)!)
    if (node.op === "CUSTOM") {
      for (const i of argOf(node, "CUSTOM").writes) written.add(node.src[i]!)
    }
    if (node.op !== "CALL") continue
    for (const slot of slotsOf(node.src[0]!)) {
      const argument = storageOf(node.src[1 + slot]!)
      if (argument !== undefined) written.add(argument)
    }
  }
  return written
}

/** The nodes under a root, without the bodies of calls. */
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

/** The program of the effects, with its buffers and variables. */
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
      id: argOf(n, "BUFFER").id,
      shape: Shape.of(n),
      dtype: n.dtype,
      label: root.arena.labelOf(n),
      written: written.has(n)
    })).toSorted((a, b) => a.id - b.id),
    vars: [...vars.values()].toSorted((a, b) => a.name < b.name ? -1 : 1)
  }
}
