/**
 * Scalars that are wanted in all lanes of a vector: what is loaded goes into all lanes at once, and what is done with it is
 * done there. A scalar would be computed in other registers and have to cross, which takes processors two instructions and
 * several cycles.
 */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { Op } from "@tg/core-uop/Op"
import type { UOp } from "@tg/core-uop/UOp"
import { affine } from "./address.ts"
import { endsStraightCode } from "./nest.ts"
import { constantOf, uniform } from "./value.ts"

const lanes = 4

/** Operations that cost a vector as much as a scalar. */
const cheap: ReadonlySet<Op> = new Set<Op>(["AND", "OR", "XOR", "SHL", "SHR", "BITCAST", "HALF_TO_FLOAT"])

const isWord = ({ scalar }: DType.DType): boolean => scalar === "u32" || scalar === "i32" || scalar === "f32"

const isShift = ({ op }: UOp): boolean => op === "SHL" || op === "SHR"

/** Whether a scalar is a loaded word, or made of one and constants by cheap operations. Words may be shifted by anything. */
const isMadeOfLoads = (scalar: UOp, known: Map<UOp, boolean>): boolean => {
  const found = known.get(scalar)
  if (found !== undefined) return found
  const [first, second] = scalar.src
  const made = isWord(scalar.dtype) && (scalar.op === "LOAD"
    ? first!.src[2] === undefined
    : cheap.has(scalar.op) && isMadeOfLoads(first!, known) &&
      (second === undefined || second.op === "CONST" || (isShift(scalar) && second.op !== "REG")))
  known.set(scalar, made)
  return made
}

/** The scalars that are wanted in all lanes, and what they are made of, up to loads. */
const wantedIn = (linear: UOp): ReadonlySet<UOp> => {
  const known = new Map<UOp, boolean>()
  const wanted = new Set<UOp>()
  const want = (scalar: UOp): void => {
    if (wanted.has(scalar) || scalar.op === "CONST") return
    wanted.add(scalar)
    if (scalar.op !== "LOAD") want(scalar.src[0]!)
  }
  for (const node of linear.src) {
    const scalar = splatted(node)
    if (scalar !== undefined && scalar.op !== "LOAD" && isMadeOfLoads(scalar, known)) want(scalar)
  }
  return wanted
}

/** The scalar that is in all lanes of a vector. */
const splatted = (node: UOp): UOp | undefined => node.dtype.lanes === lanes ? uniform(node) : undefined

const splat = (scalar: UOp): UOp =>
  scalar.arena.make("STACK", DType.make(scalar.dtype.scalar, lanes), Array<UOp>(lanes).fill(scalar))

/** Scalars that are lanes of a vector: neighbouring words, and what is done with all of them. */
interface Lane {
  readonly vector: UOp
  readonly lane: number
}

/** Four loads of neighbouring words in straight code, by the first of them. */
const neighbours = (linear: UOp, wanted: ReadonlySet<UOp>): ReadonlyMap<UOp, ReadonlyArray<UOp>> => {
  const groups = new Map<UOp, ReadonlyArray<UOp>>()
  let open = new Map<string, { readonly load: UOp; readonly constant: number }>()
  let order: Array<string> = []
  const close = (): void => {
    for (const key of order) {
      const first = open.get(key)
      if (first === undefined) continue
      const keys = [0, 1, 2, 3].map((i) => `${key.slice(0, key.lastIndexOf("+"))}+${first.constant + 4 * i}`)
      const found = keys.map((k) => open.get(k))
      // what comes first in memory has to come first in the code, so that its place is known
      if (found.some((x) => x === undefined) || keys.some((k) => order.indexOf(k) < order.indexOf(key))) continue
      groups.set(first.load, found.map((x) => x!.load))
      for (const k of keys) open.delete(k)
    }
    open = new Map()
    order = []
  }
  for (const node of linear.src) {
    if (endsStraightCode.has(node.op)) close()
    if (node.op !== "LOAD" || !wanted.has(node)) continue
    const { constant, terms } = affine(node.src[0]!.src[1]!)
    const place = [...terms].map(([term, scale]) => `${term.id}*${scale}`).toSorted().join()
    const key = `${node.src[0]!.src[0]!.id}:${place}+${constant}`
    open.set(key, { load: node, constant })
    order.push(key)
  }
  close()
  return groups
}

/** A linear kernel with such scalars computed in vectors, where they stood. */
export const widenScalars = (linear: UOp): UOp => {
  const wanted = wantedIn(linear)
  if (wanted.size === 0) return linear
  const bytes = loadsOfBytes(linear, wanted)
  const groups = neighbours(linear, new Set([...wanted].filter((node) => !bytes.has(node))))
  const grouped = new Set([...groups.values()].flat())
  return new Widening(wanted, groups, halvesTogether(linear, wanted, grouped)).of(linear)
}

/** The words that are multiplied as bytes. There a lane of what others unpacked costs more than a load and a mask: registers are all taken. */
const loadsOfBytes = (linear: UOp, wanted: ReadonlySet<UOp>): ReadonlySet<UOp> => {
  const found = new Set<UOp>()
  for (const { op, src } of linear.src) {
    if (op !== "DOT4I8") continue
    for (const s of src) {
      let scalar = splatted(s)
      if (scalar === undefined || !wanted.has(scalar)) continue
      while (scalar.op !== "LOAD") scalar = scalar.src[0]!
      found.add(scalar)
    }
  }
  return found
}

const halfBits = 16
const lowBits = 2 ** halfBits - 1

/** A half of a loaded word. */
interface Half {
  readonly word: UOp
  /** 0, or 16 for the upper half. */
  readonly shift: number
}

const halfOf = (bits: UOp): Half | undefined => {
  const [a, b] = bits.src
  if (bits.op === "LOAD") return { word: bits, shift: 0 }
  if (bits.op === "AND" && constantOf(b!) === lowBits) return halfOf(a!)
  return bits.op === "SHR" && a!.op === "LOAD" && constantOf(b!) === halfBits
    ? { word: a!, shift: halfBits }
    : undefined
}

/**
 * Up to four halves of straight code, by the last of their words, which is loaded before the first of them is wanted: one conversion serves
 * them all. It stands where the words are loaded, because sums occupy the registers later.
 */
const halvesTogether = (
  linear: UOp,
  wanted: ReadonlySet<UOp>,
  grouped: ReadonlySet<UOp>
): ReadonlyMap<UOp, ReadonlyArray<ReadonlyArray<UOp>>> => {
  const groups = new Map<UOp, ReadonlyArray<ReadonlyArray<UOp>>>()
  const place = new Map(linear.src.map((node, i) => [node, i]))
  let open: Array<UOp> = []
  const close = (): void => {
    const last = open.map((half) => halfOf(half.src[0]!)!.word).toSorted((a, b) => place.get(b)! - place.get(a)!)[0]
    if (open.length > 1) groups.set(last!, [...groups.get(last!) ?? [], open])
    open = []
  }
  for (const node of linear.src) {
    if (endsStraightCode.has(node.op)) close()
    if (node.op !== "HALF_TO_FLOAT" || !wanted.has(node)) continue
    const half = halfOf(node.src[0]!)
    if (half === undefined || grouped.has(half.word)) continue
    if (open.length === lanes || (open.length > 0 && place.get(half.word)! > place.get(open[0]!)!)) close()
    open.push(node)
  }
  close()
  return groups
}

/** The new nodes of a kernel, in order. */
class Widening {
  private readonly wanted: ReadonlySet<UOp>
  private readonly groups: ReadonlyMap<UOp, ReadonlyArray<UOp>>
  private readonly halves: ReadonlyMap<UOp, ReadonlyArray<ReadonlyArray<UOp>>>
  /** Vectors of which all lanes are a scalar; lanes that scalars are; what became of all other nodes. */
  private readonly wide = new Map<UOp, UOp>()
  private readonly packed = new Map<UOp, Lane>()
  private readonly done = new Map<UOp, UOp>()
  private readonly nodes = new Set<UOp>()
  /** By how much words are shifted. */
  private readonly amounts: ReadonlySet<UOp>

  constructor(
    wanted: ReadonlySet<UOp>,
    groups: ReadonlyMap<UOp, ReadonlyArray<UOp>>,
    halves: ReadonlyMap<UOp, ReadonlyArray<ReadonlyArray<UOp>>>
  ) {
    this.wanted = wanted
    this.groups = groups
    this.halves = halves
    this.amounts = new Set([...wanted].flatMap((node) => isShift(node) ? [node.src[1]!] : []))
  }

  of(linear: UOp): UOp {
    for (const node of linear.src) {
      const scalar = splatted(node)
      if (scalar !== undefined && this.wanted.has(scalar)) this.done.set(node, this.inLanes(scalar))
      else this.copy(node)
    }
    const unused = new Set([...this.wanted].map((node) => this.done.get(node)!))
    return linear.with(withoutUnused([...this.nodes], unused))
  }

  private copy(node: UOp): void {
    const copy = node.with(node.src.map((s) => this.done.get(s) ?? s))
    this.done.set(node, copy)
    this.nodes.add(copy)
    for (const halves of this.halves.get(node) ?? []) this.convert(halves)
    // known wherever the amount is
    if (this.amounts.has(node)) this.nodes.add(splat(copy))
    if (!this.wanted.has(node) || this.packed.has(node)) return
    const group = this.groups.get(node)
    if (group !== undefined) return this.load(copy, group)
    const from = node.op === "LOAD" ? undefined : this.packed.get(node.src[0]!)
    if (from === undefined) return this.widen(copy, node)
    this.packed.set(node, { lane: from.lane, vector: this.inVector(copy, from.vector) })
  }

  private make(op: Op, like: UOp, sources: ReadonlyArray<UOp>, arg = like.arg): UOp {
    const made = like.arena.make(op, DType.make(like.dtype.scalar, lanes), sources, arg)
    this.nodes.add(made)
    return made
  }

  private load(first: UOp, group: ReadonlyArray<UOp>): void {
    const vector = this.make("LOAD", first, first.src)
    for (const [lane, load] of group.entries()) this.packed.set(load, { lane, vector })
  }

  /** Halves of several words in the lanes of one conversion. */
  private convert(halves: ReadonlyArray<UOp>): void {
    const found = Array.from({ length: lanes }, (_, i) => halfOf((halves[i] ?? halves[0]!).src[0]!)!)
    const like = found[0]!.word
    const stack = (dtype: DType.DType, sources: ReadonlyArray<UOp>): UOp => {
      const made = like.arena.make("STACK", DType.make(dtype.scalar, lanes), sources)
      this.nodes.add(made)
      return made
    }
    const loads = [...new Set(found.map(({ word }) => this.done.get(word)!))]
    const loaded = stack(like.dtype, Array.from({ length: lanes }, (_, i) => loads[i] ?? loads[0]!))
    const words = stack(
      like.dtype,
      found.map(({ word }) => {
        const at = like.arena.make("LANE", like.dtype, [loaded], loads.indexOf(this.done.get(word)!))
        this.nodes.add(at)
        return at
      })
    )
    const amounts = stack(like.dtype, found.map(({ shift }) => Expr.constant(like.arena, like.dtype, shift)))
    const low = stack(like.dtype, Array<UOp>(lanes).fill(Expr.constant(like.arena, like.dtype, lowBits)))
    const shifted = this.make("SHR", like, [words, amounts], undefined)
    const bits = this.make("AND", like, [shifted, low], undefined)
    const vector = this.make("HALF_TO_FLOAT", halves[0]!, [bits], undefined)
    for (const [lane, half] of halves.entries()) this.packed.set(half, { lane, vector })
  }

  /** What is done to a scalar, done to a vector. */
  private inVector(copy: UOp, vector: UOp): UOp {
    const amount = copy.src[1]
    if (amount === undefined) return this.make(copy.op, copy, [vector])
    const constant = splat(amount)
    this.nodes.add(constant)
    return this.make(copy.op, copy, [vector, constant])
  }

  private widen(copy: UOp, node: UOp): void {
    if (node.op !== "LOAD") {
      this.wide.set(node, this.inVector(copy, this.wide.get(node.src[0]!)!))
      return
    }
    const vector = splat(copy)
    this.nodes.add(vector)
    this.wide.set(node, vector)
  }

  /** The vector that is a scalar in all lanes. */
  private inLanes(scalar: UOp): UOp {
    const from = this.packed.get(scalar)
    if (from === undefined) return this.wide.get(scalar)!
    const one = scalar.arena.make("LANE", scalar.dtype, [from.vector], from.lane)
    const vector = splat(one)
    this.nodes.add(one)
    this.nodes.add(vector)
    return vector
  }
}

/** Without those of these scalars that nothing uses any more. */
const withoutUnused = (nodes: ReadonlyArray<UOp>, scalars: ReadonlySet<UOp>): ReadonlyArray<UOp> => {
  const used = new Set<UOp>()
  const kept = nodes.toReversed().filter((node) => {
    if (scalars.has(node) && !used.has(node)) return false
    for (const s of node.src) used.add(s)
    return true
  })
  return kept.reverse()
}
