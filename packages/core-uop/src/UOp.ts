import * as DType from "./DType.ts"
import type { FragmentArg, FragmentLoadArg, FragmentStoreArg } from "./MatrixTile.ts"
import type { GridBarrierArg, PersistentArg, PhaseArg } from "./Phases.ts"
import { type Op, ordinal, type ReduceOp } from "./Op.ts"

/**
 * What a loop variable stands for. `GLOBAL` and `LOOP` iterations are independent; `REDUCE` ones are combined, in an END in order and
 * in memory, by a store that accumulates. Those of `MATRIX` are done by matrix units: of an END its fragments, of a reduction its terms.
 */
export type Axis = "GLOBAL" | "LOOP" | "LOCAL" | "UPCAST" | "REDUCE" | "GROUP" | "UNROLL" | "MATRIX"

/** Everything an operation may carry besides its sources. Plain data, compared by value (and -0 is not 0). */
export type Arg =
  | undefined
  | number
  | boolean
  | string
  | ReadonlyArray<number>
  | { readonly [key: string]: number | string | boolean | ReadonlyArray<number> }

// type aliases, not interfaces: only those are records to TypeScript

/** A symbolic integer: its name, its least and its greatest value. */
export type VarArg = { readonly name: string; readonly min: number; readonly max: number }
/** A loop: its number and what it stands for. */
export type RangeArg = { readonly id: number; readonly axis: Axis }
/** A reduction; the axes are those of the tensor stage. */
export type ReduceArg = {
  readonly op: ReduceOp
  readonly axes: ReadonlyArray<number>
  /** By matrix units: `MatrixTile`. */
  readonly tile?: ReadonlyArray<number>
}
/** A store that accumulates: the element becomes the sum of what it was and of the value. Atomic if the buffer is coherent. */
export type StoreArg = { readonly op: "ADD" }
/** In which order rows are added to one row: in that of the index, or in any. */
export type ScatterArg = { readonly order: "rows" | "any" }
/** A reduction over threads. */
export type GroupArg = { readonly op: ReduceOp; readonly threads: number }
/** Workgroup memory: its number and how many elements it has. */
export type LocalArg = { readonly id: number; readonly length: number }
/** A hand-written kernel: its name, which of its sources it writes, and what `Custom` keeps beside that. */
export type CustomArg = {
  readonly name: string
  readonly writes: ReadonlyArray<number>
  /** How many of the sources are storage; all by default. */
  readonly storage?: number
  /** How many VARs follow them. */
  readonly vars?: number
  /** The digest of its reference. */
  readonly reference?: string
  /** By target. */
  readonly [text: `text ${string}`]: string
  readonly [workgroup: `workgroup ${string}`]: ReadonlyArray<number>
}

/**
 * An argument of a kernel or of a function, counted from 0. All accesses to a coherent one are atomic: what a workgroup writes is
 * seen by the others behind a GRID_BARRIER.
 */
export type ParamArg = { readonly slot: number; readonly coherent?: true }

/** The type of the arg, for operations whose arg has one type. */
export interface Args {
  readonly CONST: number | boolean
  readonly VAR: VarArg
  readonly BUFFER: { readonly id: number }
  readonly PARAM: ParamArg
  readonly RANGE: RangeArg
  readonly SPECIAL: { readonly name: string }
  readonly LOCAL: LocalArg
  readonly REG: { readonly id: number }
  readonly PERMUTE: ReadonlyArray<number>
  readonly FLIP: ReadonlyArray<number>
  readonly REDUCE: ReduceArg
  readonly STORE: StoreArg | undefined
  readonly SCATTER_ADD: ScatterArg
  readonly GROUP_REDUCE: GroupArg
  readonly SUBGROUP_REDUCE: GroupArg
  readonly ACCUMULATE: { readonly op: ReduceOp }
  readonly CALL: { readonly name: string }
  readonly GETTUPLE: number
  readonly CUSTOM: CustomArg
  readonly LANE: number
  readonly PHASE: PhaseArg
  readonly PERSISTENT: PersistentArg
  readonly GRID_BARRIER: GridBarrierArg
  readonly FRAGMENT: FragmentArg
  readonly FRAGMENT_LOAD: FragmentLoadArg
  readonly FRAGMENT_STORE: FragmentStoreArg
}

/** An operation whose arg has a type. */
export type TypedOp = keyof Args

/** Closed interval of the values of an integer or boolean node. */
export interface Range {
  readonly min: number
  readonly max: number
}

/** Memoised analyses, filled on first use. Other packages add theirs by declaration merging. */
export interface Cache {
  shape: ReadonlyArray<number | UOp> | undefined
  bounds: Range | undefined
  key: string | undefined
  ranges: ReadonlySet<UOp> | undefined
}

const keyOfArg = (arg: Arg): string => {
  if (arg === undefined) return ""
  switch (typeof arg) {
    case "number":
      return Object.is(arg, -0) ? "n-0" : `n${arg}`
    case "boolean":
      return arg ? "true" : "false"
    case "string":
      return `s${arg}`
    default:
      return JSON.stringify(arg)
  }
}

/** One node of the IR: immutable, and unique in its arena, so that equality is `===`. */
export class UOp {
  readonly arena: Arena
  readonly op: Op
  readonly dtype: DType.DType
  readonly src: ReadonlyArray<UOp>
  readonly arg: Arg
  /** Creation number in the arena. Sources have smaller numbers. Not part of any key or order that leaves the arena. */
  readonly id: number
  readonly hash: number
  /** The key of an arg that is an object: args are compared by value. */
  readonly argKey: string
  /** Of one hidden class, whichever analysis comes first. */
  readonly cache: Cache = { shape: undefined, bounds: undefined, key: undefined, ranges: undefined }
  /** The last walk over graphs that met this node: cheaper than a set of nodes for each walk. */
  met = 0

  constructor(
    arena: Arena,
    op: Op,
    dtype: DType.DType,
    src: ReadonlyArray<UOp>,
    arg: Arg,
    { argKey, hash, id }: { readonly id: number; readonly hash: number; readonly argKey: string }
  ) {
    this.arena = arena
    this.op = op
    this.dtype = dtype
    this.src = src
    this.arg = arg
    this.id = id
    this.hash = hash
    this.argKey = argKey
  }

  /** Whether this is a node of the operation; its arg then has that operation's type. */
  is<O extends TypedOp>(op: O): this is Node<O> {
    return this.op === op
  }

  /** The same node with other sources (itself when nothing changed). */
  with(src: ReadonlyArray<UOp>, dtype: DType.DType = this.dtype): UOp {
    if (dtype === this.dtype && hasSources(this, src)) return this
    const { arena } = this
    const since = arena.size
    const node = arena.intern(this.op, dtype, src, this.arg, this.argKey)
    arena.inherit(node, this, since)
    return node
  }
}

/** A node of one operation, with an arg of its type. */
export interface Node<O extends TypedOp> extends UOp {
  readonly op: O
  readonly arg: Args[O]
}

const mix = (h: number, k: number): number => {
  const x = Math.imul(h ^ k, 0x9e3779b1)
  return x ^ (x >>> 15)
}

const hashString = (s: string): number => {
  let h = 0x811c9dc5
  for (let i = 0; i < s.length; i++) h = Math.imul(h ^ s.charCodeAt(i), 0x01000193)
  return h
}

const firstPlaces = 256

const emptyTable = (places: number): Array<UOp | undefined> => new Array<UOp | undefined>(places).fill(undefined)

/** The nodes of a table in one of twice as many places. */
const rehashed = (table: ReadonlyArray<UOp | undefined>): Array<UOp | undefined> => {
  const larger = emptyTable(2 * table.length)
  const last = larger.length - 1
  for (const node of table) {
    if (node === undefined) continue
    let place = node.hash & last
    while (larger[place] !== undefined) place = (place + 1) & last
    larger[place] = node
  }
  return larger
}

/**
 * The interner of one tensor program. Structurally equal nodes made in one arena are the same object. Nodes of
 * different arenas never mix: that is a defect, not an error.
 */
export class Arena {
  /** Nodes by their hash, with open addressing: at most half of the places are taken, which are a power of two. */
  private table: Array<UOp | undefined> = emptyTable(firstPlaces)
  private readonly labels = new Map<UOp, string>()
  private nextId = 0
  private nextFresh = 0
  /** Told about every rewrite of a node of this arena, while someone listens: rule, node before, node after. */
  onRewrite: ((rule: string, before: UOp, after: UOp) => void) | undefined = undefined

  /** Number of distinct nodes made. */
  get size(): number {
    return this.nextId
  }

  /** A number no one else got from this arena: ranges and buffers use it as their identity. */
  fresh(): number {
    return this.nextFresh++
  }

  make(op: Op, dtype: DType.DType, src: ReadonlyArray<UOp> = [], arg?: Arg): UOp {
    return this.intern(op, dtype, src, arg, typeof arg === "object" ? keyOfArg(arg) : "")
  }

  /** `make`, with the key of an arg that is an object. */
  intern(op: Op, dtype: DType.DType, src: ReadonlyArray<UOp>, arg: Arg, argKey: string): UOp {
    let hash = mix(mix(0, ordinal[op]), dtype.ordinal)
    for (let i = 0; i < src.length; i++) {
      const s = src[i]!
      if (s.arena !== this) throw new Error(`${op}: a source belongs to another arena`)
      hash = mix(hash, s.id)
    }
    if (typeof arg === "number") hash = mix(hash, Number.isInteger(arg) ? arg | 0 : hashString(String(arg)))
    else if (arg !== undefined) hash = mix(hash, hashString(argKey === "" ? String(arg) : argKey))
    const { table } = this
    const last = table.length - 1
    let place = hash & last
    for (let node = table[place]; node !== undefined; node = table[place]) {
      if (node.hash === hash && same(node, op, dtype, src, arg, argKey)) return node
      place = (place + 1) & last
    }
    const node = new UOp(this, op, dtype, src, arg, { id: this.nextId++, hash, argKey })
    table[place] = node
    if (2 * this.nextId > table.length) this.table = rehashed(table)
    return node
  }

  /** Records which model line a node came from. Labels of merged nodes are joined; they take no part in identity. */
  label(node: UOp, name: string): UOp {
    const old = this.labels.get(node)
    if (old === undefined) this.labels.set(node, name)
    else if (!old.split("+").includes(name)) this.labels.set(node, `${old}+${name}`)
    return node
  }

  labelOf(node: UOp): string | undefined {
    return this.labels.get(node)
  }

  /**
   * `node` replaces `from`: it keeps the model line, unless it has one already. In an arena of several programs a stage names what it made
   * itself, since the arena had so many nodes: one that was there before may be part of what somebody else wrote.
   */
  inherit(node: UOp, from: UOp, since = 0): void {
    if (node.id < since) return
    const label = this.labels.get(from)
    if (label !== undefined && !this.labels.has(node)) this.labels.set(node, label)
  }
}

const hasSources = (node: UOp, src: ReadonlyArray<UOp>): boolean => {
  const own = node.src
  if (own === src) return true
  if (own.length !== src.length) return false
  for (let i = 0; i < own.length; i++) if (own[i] !== src[i]) return false
  return true
}

const same = (
  node: UOp,
  op: Op,
  dtype: DType.DType,
  src: ReadonlyArray<UOp>,
  arg: Arg,
  argKey: string
): boolean => {
  if (node.op !== op || node.dtype !== dtype || !hasSources(node, src)) return false
  return argKey === "" ? Object.is(node.arg, arg) : node.argKey === argKey
}

/** Walks so far. */
let walks = 0

/** All nodes under the roots, sources before users; stable for equal graphs. */
export const toposort = (...roots: ReadonlyArray<UOp>): ReadonlyArray<UOp> => {
  const walk = ++walks
  const order: Array<UOp> = []
  for (const root of roots) if (root.met !== walk) visit(root, walk, order, undefined)
  return order
}

/** Adds the nodes under `root` that the walk has not met and no one has seen yet, sources first. */
const visit = (
  root: UOp,
  walk: number,
  order: Array<UOp>,
  isSeen: ((node: UOp) => boolean) | undefined
): void => {
  const stack: Array<UOp> = [root]
  const child: Array<number> = [0]
  root.met = walk
  for (let top = 0; top >= 0;) {
    const node = stack[top]!
    const { src } = node
    let i = child[top]!
    while (i < src.length && (src[i]!.met === walk || isSeen?.(src[i]!) === true)) i++
    if (i === src.length) {
      order.push(node)
      top--
      continue
    }
    child[top] = i + 1
    const next = src[i]!
    next.met = walk
    stack[++top] = next
    child[top] = 0
  }
}

/**
 * The nodes under `root` that an analysis has not seen yet, sources before users. Nothing under a node it has seen is
 * visited, so an incremental analysis of a growing graph stays linear. `isSeen` looks at the node alone: it walks no graphs.
 */
export const unseen = (root: UOp, isSeen: (node: UOp) => boolean): ReadonlyArray<UOp> => {
  if (isSeen(root)) return []
  if (root.src.every(isSeen)) return [root]
  const order: Array<UOp> = []
  visit(root, ++walks, order, isSeen)
  return order
}

const hasKey = (node: UOp): boolean => node.cache.key !== undefined
const hasRanges = (node: UOp): boolean => node.cache.ranges !== undefined

/** The structural key of a node: equal for equal structure, on every machine, in every arena (104 bits, hexadecimal). */
export const key = (root: UOp): string => {
  if (root.cache.key !== undefined) return root.cache.key
  for (const node of unseen(root, hasKey)) {
    node.cache.key = digest(
      `${node.op}:${DType.print(node.dtype)}:${node.argKey === "" ? keyOfArg(node.arg) : node.argKey}(${
        node.src.map((s) => s.cache.key).join()
      })`
    )
  }
  return root.cache.key!
}

/** A short name of a text: equal for equal texts, on every machine (104 bits, hexadecimal). */
export const digest = (text: string): string => digestPart(text, 0) + digestPart(text, 0x51ed270b)

const digestPart = (text: string, seed: number): string => {
  let a = 0xdeadbeef ^ seed
  let b = 0x41c6ce57 ^ seed
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i)
    a = Math.imul(a ^ c, 0x9e3779b1)
    b = Math.imul(b ^ c, 0x5f356495)
  }
  a = Math.imul(a ^ (a >>> 16), 0x85ebca6b) ^ Math.imul(b ^ (b >>> 13), 0xc2b2ae35)
  b = Math.imul(b ^ (b >>> 16), 0x85ebca6b) ^ Math.imul(a ^ (a >>> 13), 0xc2b2ae35)
  return (4294967296 * (0xfffff & b) + (a >>> 0)).toString(16).padStart(13, "0")
}

/**
 * A bottom-up rebuild of the graph, each node once: `make` gets the node, its new sources, and `now`, which gives the new node of
 * any other one under the root. Nodes in `known` are replaced without a visit; what only they use is not visited either.
 */
export const rebuild = (
  root: UOp,
  make: (node: UOp, src: ReadonlyArray<UOp>, now: (node: UOp) => UOp) => UOp,
  known: ReadonlyMap<UOp, UOp> = noNodes
): UOp => {
  // only nodes that have changed are kept
  const done = new Map<UOp, UOp>(known)
  const now = (node: UOp): UOp => done.get(node) ?? node
  for (const node of known.size === 0 ? toposort(root) : unseen(root, (n) => known.has(n))) {
    const { src } = node
    let changed = false
    for (let i = 0; i < src.length && !changed; i++) changed = now(src[i]!) !== src[i]
    const made = make(node, changed ? src.map(now) : src, now)
    if (made !== node) done.set(node, made)
  }
  return now(root)
}

const noNodes: ReadonlyMap<UOp, UOp> = new Map()

/** Replaces nodes by others, everywhere under `root`. Replacements are taken as they are, not searched again. */
export const substitute = (root: UOp, replace: ReadonlyMap<UOp, UOp>): UOp =>
  replace.size === 0 ? root : rebuild(root, (node, src) => src === node.src ? node : node.with(src), replace)

/** Copies a graph into another arena, with labels. */
export const transfer = (root: UOp, to: Arena): UOp =>
  rebuild(root, (node, src) => {
    const copy = to.intern(node.op, node.dtype, src, node.arg, node.argKey)
    const label = node.arena.labelOf(node)
    if (label !== undefined) to.label(copy, label)
    return copy
  })

/** The arg of a node of this operation. Throws on another operation: a defect of the caller. */
export const argOf = <O extends TypedOp>(node: UOp, op: O): Args[O] => {
  if (node.is(op)) return node.arg
  throw new Error(`${node.op} stands where ${op} is expected`)
}

export const varArg = (node: UOp): VarArg => argOf(node, "VAR")
export const rangeArg = (node: UOp): RangeArg => argOf(node, "RANGE")
export const reduceArg = (node: UOp): ReduceArg => argOf(node, "REDUCE")
export const groupArg = (node: UOp): GroupArg => node.is("SUBGROUP_REDUCE") ? node.arg : argOf(node, "GROUP_REDUCE")
/** The slot of a PARAM: the number of the argument of its kernel or function, from 0. */
export const slotOf = (node: UOp): number => argOf(node, "PARAM").slot
/** Whether a STORE adds to the element instead of replacing it. */
export const isAccumulating = (node: UOp): boolean => node.op === "STORE" && node.arg !== undefined
/** Whether all accesses to a buffer are atomic. */
export const isCoherent = (node: UOp): boolean => node.is("PARAM") && node.arg.coherent === true
/** The name of a hardware index: `gidx0`, `lidx0`. */
export const specialName = (node: UOp): string => argOf(node, "SPECIAL").name
/** Whether a node is the index of the thread in its workgroup. */
export const isThread = (node: UOp): boolean => node.is("SPECIAL") && node.arg.name === "lidx0"

const noRanges: ReadonlySet<UOp> = new Set()

/** The loop variables a node's value depends on and no node under it has closed (REDUCE and END close theirs). */
export const openRanges = (root: UOp): ReadonlySet<UOp> => {
  if (root.cache.ranges !== undefined) return root.cache.ranges
  for (const node of unseen(root, hasRanges)) {
    if (node.op === "RANGE") {
      node.cache.ranges = node.src[0]!.cache.ranges!.size === 0
        ? new Set([node])
        : new Set([...node.src[0]!.cache.ranges!, node])
      continue
    }
    if (node.src.length === 0) {
      node.cache.ranges = noRanges
      continue
    }
    let first: ReadonlySet<UOp> = noRanges
    let merged: Set<UOp> | undefined
    const closes = node.op === "REDUCE" || node.op === "END"
    const inputs = closes ? node.src.slice(0, 1) : node.src
    for (const s of inputs) {
      const ranges = s.cache.ranges!
      if (ranges.size === 0 || ranges === first) continue
      if (first.size === 0) {
        first = ranges
        continue
      }
      for (const r of ranges) {
        if (merged === undefined ? first.has(r) : merged.has(r)) continue
        merged ??= new Set(first)
        merged.add(r)
      }
    }
    let open: ReadonlySet<UOp> = merged ?? first
    if (closes && node.src.length > 1) {
      const rest = new Set(open)
      for (const r of node.src.slice(1)) rest.delete(r)
      for (const r of node.src.slice(1)) for (const outer of r.src[0]!.cache.ranges!) rest.add(outer)
      open = rest
    }
    node.cache.ranges = open
  }
  return root.cache.ranges!
}
