import { accessOf } from "./View.ts"
import { Context, type Effect, Schema } from "effect"
import type * as DType from "./DType.ts"
import type { Op } from "./Op.ts"
import { isPersistent } from "./Phases.ts"
import { signatureOfPhases } from "./PhasesSignature.ts"
import { isCoherent, slotOf, specialName, toposort, type UOp, varArg } from "./UOp.ts"

/** What a renderer can express; what it lacks is decomposed before it sees the kernel. */
export interface RendererCaps {
  /** The language of its programs: `wgsl`, `wasm`, or any other name. Devices take programs of their own target. */
  readonly target: string
  /** True: GLOBAL and LOCAL ranges are hardware indices. False: they are loops. */
  readonly hasGrid: boolean
  /** Vector widths of values and of memory access. */
  readonly lanes: ReadonlyArray<DType.Lanes>
  /**
   * Elementwise operations it renders, for every dtype that the spec allows: `Op.mandatory`, and which of the others it has.
   */
  readonly ops: ReadonlySet<Op>
  /** Lanes of a subgroup, if SUBGROUP_REDUCE may be used. */
  readonly subgroupSize: number | undefined
}

/** An argument of a program: the kernel's PARAM slot and what happens to it. */
export interface Binding {
  readonly slot: number
  readonly access: "read" | "write"
  /** Bytes that the kernel may touch; the bound buffer must have as many. */
  readonly bytes?: number | undefined
  /** Its number in `Program.group`. */
  readonly at?: number | undefined
}

/** The values that a variable may have, both ends included. */
export interface VarBounds {
  readonly min: number
  readonly max: number
}

/** A kernel as a function of its arguments, as words in the order of `bindings`, and of its variables. */
export type HostCode = (args: ReadonlyArray<Uint32Array>, vars: Readonly<Record<string, number>>) => void

/**
 * A compiled kernel. `grid` are the workgroup counts as index expressions over VARs. Buffers are bound in the order of
 * `bindings`, scalars are passed as 32-bit integers in the order of `vars`.
 */
export interface Program {
  readonly name: string
  readonly target: RendererCaps["target"]
  /** Text, such as WGSL; bytes, such as a WebAssembly module; or (reference) the kernel itself, or the function of a hand-written one. */
  readonly code: string | Uint8Array | UOp | HostCode
  readonly workgroup: readonly [number, number, number]
  readonly grid: readonly [UOp | number, UOp | number, UOp | number]
  readonly bindings: ReadonlyArray<Binding>
  readonly vars: ReadonlyArray<string>
  /** Values of those variables that its runs do not say: programs of one code differ in them. */
  readonly given?: Readonly<Record<string, number>> | undefined
  /** Of each of `vars`, in their order. */
  readonly bounds?: ReadonlyArray<VarBounds> | undefined
  /**
   * Estimated instructions, as index expressions over VARs: a fixed number for each part of the grid, and a number for each
   * iteration. For devices that divide a launch among a few threads.
   */
  readonly instructions?: { readonly perPart: UOp | number; readonly perIteration: UOp | number } | undefined
  /** Of a program that shares its bindings with others (`Placement`): what happens to each of them, by its number. */
  readonly group?: ReadonlyArray<Binding["access"]> | undefined
}

/** Where a program finds its arguments among bindings that it shares with others, so that one bind group is good for all. */
export interface Placement {
  /** What happens to each binding, by its number: one that any program writes is one that all may write. */
  readonly group: ReadonlyArray<Binding["access"]>
  /** Of each of the program's bindings: the number of the shared one, and the bytes it begins at there, a multiple of 16. */
  readonly places: ReadonlyArray<{ readonly at: number; readonly offset: number }>
  /** The variables of all programs. */
  readonly vars: ReadonlyArray<string>
}

/** A kernel the target cannot express. */
export class RenderError extends Schema.TaggedError<RenderError>()("RenderError", {
  kernel: Schema.String,
  message: Schema.String
}) {}

/** Turns a linear kernel (spec `linear`) into a program of one target. */
export class Renderer extends Context.Service<Renderer, {
  /** For cache keys: equal for renderers that give the same code for equal kernels and capabilities. */
  readonly id?: string | undefined
  readonly caps: RendererCaps
  readonly render: (name: string, linear: UOp) => Effect.Effect<Program, RenderError>
  /** Makes code of the text of a hand-written kernel, which `program` holds. Without it the text is the code. */
  readonly assemble?: ((program: Program) => Effect.Effect<Program, RenderError>) | undefined
  /** The same program with its arguments in shared bindings; undefined if its code cannot be relocated. */
  readonly place?: ((program: Program, placement: Placement) => Program | undefined) | undefined
}>()("@tg/core-uop/Renderer") {}

/** The arguments and launch shape that a kernel's own nodes declare (any kernel stage). */
export const signature = (kernel: UOp): Pick<Program, "workgroup" | "grid" | "bindings" | "vars"> & {
  readonly bounds: ReadonlyArray<VarBounds>
} => {
  const slots = new Map<number, Binding>()
  const vars = new Map<string, VarBounds>()
  const workgroup: [number, number, number] = [1, 1, 1]
  const grid: [UOp | number, UOp | number, UOp | number] = [1, 1, 1]
  if (isPersistent(kernel)) return signatureOfPhases(kernel, signature)
  const nodes = toposort(kernel)
  const stored = new Set(nodes.filter((n) => n.op === "STORE").map((n) => accessOf(n).buffer))
  for (const node of nodes) {
    if (node.op === "PARAM") {
      const slot = slotOf(node)
      const length = node.src[0]
      const bytes = length?.op === "CONST" ? { bytes: 4 * Number(length.arg) } : {}
      const isWritten = stored.has(node) || isCoherent(node) || slots.get(slot)?.access === "write"
      slots.set(slot, { slot, access: isWritten ? "write" : "read", ...bytes })
    } else if (node.op === "VAR") {
      const { max, min, name } = varArg(node)
      const known = vars.get(name) ?? { min, max }
      vars.set(name, { min: Math.max(known.min, min), max: Math.min(known.max, max) })
    } else if (node.op === "SPECIAL") {
      const name = specialName(node)
      const axis = Number(name.slice(-1))
      const size = node.src[0]!.op === "CONST" ? Number(node.src[0]!.arg) : node.src[0]!
      if (name.startsWith("gidx")) grid[axis] = size
      else workgroup[axis] = Number(size)
    }
  }
  const names = [...vars.keys()].sort()
  return {
    workgroup,
    grid,
    bindings: [...slots.values()].sort((a, b) => a.slot - b.slot),
    vars: names,
    bounds: names.map((name) => vars.get(name)!)
  }
}

/** The value of an index expression over constants and VARs. */
export const evaluateIndex = (node: UOp | number, vars: Readonly<Record<string, number>>): number => {
  if (typeof node === "number") return node
  const at = (i: number): number => evaluateIndex(node.src[i]!, vars)
  switch (node.op) {
    case "CONST":
      return Number(node.arg)
    case "VAR": {
      const value = vars[varArg(node).name]
      if (value === undefined) throw new Error(`no value for the variable ${varArg(node).name}`)
      return value
    }
    case "ADD":
      return at(0) + at(1)
    case "SUB":
      return at(0) - at(1)
    case "NEG":
      return -at(0)
    case "MUL":
      return at(0) * at(1)
    case "FLOORDIV":
      return Math.floor(at(0) / at(1))
    case "FLOORMOD":
      return at(0) - Math.floor(at(0) / at(1)) * at(1)
    case "SHL":
      return at(0) * 2 ** at(1)
    case "SHR":
      return Math.floor(at(0) / 2 ** at(1))
    case "AND":
      return at(0) & at(1)
    case "MAX":
      return Math.max(at(0), at(1))
    case "MIN":
      return Math.min(at(0), at(1))
    case "CMPLT":
      return at(0) < at(1) ? 1 : 0
    case "WHERE":
      return at(0) !== 0 ? at(1) : at(2)
    case "CAST":
      return at(0)
    default:
      throw new Error(`${node.op} in an index expression`)
  }
}
