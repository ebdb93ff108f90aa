/** Kernels written by hand, as CUSTOM nodes: one node holds what every target needs, and its key depends on all of it. */
import * as DType from "./DType.ts"
import type { Data, Vars } from "./EvaluateOps.ts"
import * as Expr from "./Expr.ts"
import { type HostCode, type Program, RenderError } from "./Program.ts"
import * as Shape from "./Shape.ts"
import { type Arena, argOf, type CustomArg, digest, type UOp, varArg } from "./UOp.ts"

/** The semantics of a kernel, as a function on its arguments' storage. It depends on nothing else. */
export type Reference = (buffers: ReadonlyArray<Data>, vars: Vars) => void

/** The text of a kernel for one target, and how it is launched. */
export interface Source {
  readonly text: string
  /** Threads of a workgroup, where the target has them. */
  readonly workgroup: readonly [number, number, number]
  /** Workgroups, as index expressions over VARs. Where the target has no grid the first one counts iterations. */
  readonly grid: readonly [UOp, UOp, UOp]
}

/** A hand-written kernel on its arguments. */
export interface Custom {
  readonly name: string
  /** BUFFERs, PARAMs, or views of them: the bindings, in their order. */
  readonly storage: ReadonlyArray<UOp>
  /** Numbers of the storage that is written. */
  readonly writes: ReadonlyArray<number>
  /** VARs, in the order in which the kernel takes them. */
  readonly vars: ReadonlyArray<UOp>
  /** Bytes that a launch moves, and its operations, as index expressions over VARs. */
  readonly cost: { readonly bytes: UOp; readonly flops: UOp }
  /** By target. */
  readonly sources: ReadonlyMap<string, Source>
}

/** A function is not data: a reference is kept beside the arg of its node, not in it. */
const references = new WeakMap<object, Reference>()

/** The CUSTOM node of a kernel. Its reference takes part in the key by its text. */
export const make = (arena: Arena, custom: Custom, reference: Reference): UOp => {
  const { cost, name, sources, storage, vars, writes } = custom
  const targets = [...sources].sort(([a], [b]) => a < b ? -1 : 1)
  const texts = targets.map(([target, { text }]) => [`text ${target}`, text] as const)
  const workgroups = targets.map(([target, { workgroup }]) => [`workgroup ${target}`, workgroup] as const)
  const arg: CustomArg = {
    name,
    writes,
    storage: storage.length,
    vars: vars.length,
    reference: digest(String(reference)),
    ...Object.fromEntries(texts),
    ...Object.fromEntries(workgroups)
  }
  const grids = targets.flatMap(([, { grid }]) => grid)
  const node = arena.make("CUSTOM", DType.none, [...storage, ...vars, cost.bytes, cost.flops, ...grids], arg)
  const kept = argOf(node, "CUSTOM")
  if (!references.has(kept)) references.set(kept, reference)
  return node
}

/** The kernel that a CUSTOM node holds: the inverse of `make`. */
export const of = (node: UOp): Custom => {
  const arg = argOf(node, "CUSTOM")
  const { name, storage = node.src.length, vars = 0, writes } = arg
  const [bytes, flops, ...grids] = node.src.slice(storage + vars)
  const targets = Object.keys(arg).filter((key) => key.startsWith("text ")).map((key) => key.slice("text ".length))
  const none = () => Expr.int(node.arena, 0)
  return {
    name,
    writes,
    storage: node.src.slice(0, storage),
    vars: node.src.slice(storage, storage + vars),
    cost: { bytes: bytes ?? none(), flops: flops ?? none() },
    sources: new Map(targets.map((target, i) => {
      const [x, y, z] = arg[`workgroup ${target}`]!
      const [columns, rows, layers] = grids.slice(3 * i, 3 * i + 3)
      const text = arg[`text ${target}`]!
      return [target, { text, workgroup: [x!, y!, z!], grid: [columns!, rows!, layers!] }]
    }))
  }
}

/** The reference of a CUSTOM node that `make` made. */
export const referenceOf = (node: UOp): Reference | undefined => references.get(argOf(node, "CUSTOM"))

/** For estimates: the source that a device of this kind would run, or any if there is none for it. */
export const sourceFor = ({ sources }: Custom, kind: "gpu" | "cpu"): Source | undefined =>
  sources.get(kind === "gpu" ? "wgsl" : "wasm") ?? [...sources.values()][0]

const dataOf = (words: Uint32Array, { dtype }: UOp): Data => {
  const { buffer, byteOffset, length } = words
  if (dtype.scalar === "f32") return new Float32Array(buffer, byteOffset, length)
  return dtype.scalar === "i32" ? new Int32Array(buffer, byteOffset, length) : words
}

/** Storage is allocated for the largest value of each symbolic dimension. */
const bytesOf = (storage: UOp): number => 4 * Shape.maxElements(Shape.of(storage))

/** The part of a program that is the same for all targets. */
const signatureOf = ({ name, storage, vars, writes }: Custom) => ({
  name,
  bindings: storage.map((node, slot) => ({
    slot,
    access: writes.includes(slot) ? "write" as const : "read" as const,
    bytes: bytesOf(node)
  })),
  vars: vars.map((node) => varArg(node).name),
  bounds: vars.map((node) => ({ min: varArg(node).min, max: varArg(node).max }))
})

const constantOf = (node: UOp): UOp | number => node.op === "CONST" ? Number(node.arg) : node

/**
 * The program of a CUSTOM node for a target, with its text as the code. The evaluator, target `reference`, takes the reference.
 */
export const program = (node: UOp, target: string): Program | RenderError => {
  const custom = of(node)
  const { cost, name, sources, storage } = custom
  const source = sources.get(target)
  const reference = referenceOf(node)
  if (target === "reference" && reference !== undefined) {
    const code: HostCode = (words, vars) => reference(storage.map((s, i) => dataOf(words[i]!, s)), vars)
    return { ...signatureOf(custom), target, code, workgroup: [1, 1, 1], grid: [1, 1, 1] }
  }
  if (source === undefined) {
    const found = sources.size === 0 ? "no target" : [...sources.keys()].join(" and ")
    const message =
      `${name} is written by hand for ${found}, and this device runs ${target}; add sources.${target} to its ` +
      `CustomKernel`
    return new RenderError({ kernel: name, message })
  }
  const [x, y, z] = source.grid.map(constantOf)
  const perIteration = Expr.floordiv(cost.flops, Expr.max(source.grid[0], 1))
  return {
    ...signatureOf(custom),
    target,
    code: source.text,
    workgroup: source.workgroup,
    grid: [x!, y!, z!],
    ...(cost.flops.op === "CONST" && cost.flops.arg === 0 ? {} : { instructions: { perPart: 0, perIteration } })
  }
}
