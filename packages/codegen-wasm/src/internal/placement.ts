import type { UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { Address, affine, isNonNegative, type Term } from "./address.ts"
import { isConstant, shuffle, uniform } from "./value.ts"
import { Schema } from "effect"

/** What is computed at a place of the kernel: a node or an address. */
export type Item = UOp | Address

/** The body of the function, of a loop or of a branch. */
interface Block {
  readonly parent: Block | undefined
}

/** How a LOAD or STORE finds its element: `address + offset`, the offset as an immediate. */
export interface Access {
  readonly address: Item
  readonly offset: number
  readonly gate: UOp | undefined
}

/** The kernel in order, with addresses, and which values live inside the expression of their only user. */
export interface Placement {
  readonly items: ReadonlyArray<Item>
  readonly access: ReadonlyMap<UOp, Access>
  readonly inlined: ReadonlySet<Item>
  /** Values that are used; the others need no code. */
  readonly live: ReadonlySet<Item>
}

/** A value used after the loop or branch that defines it. */
export class ScopeProblem extends Schema.TaggedError<ScopeProblem>()("ScopeProblem", {
  message: Schema.String
}) {}

const effects: ReadonlySet<string> = new Set(["STORE", "ACCUMULATE", "RANGE", "END", "IF", "ENDIF", "REG"])
const boundaries: ReadonlySet<string> = new Set(["RANGE", "END", "IF", "ENDIF"])
const leaves: ReadonlySet<string> = new Set(["PARAM", "VAR", "RANGE", "REG"])

/** A value that is named or written in place wherever it is used. */
export const isLeaf = (item: Item): boolean => !(item instanceof Address) && (leaves.has(item.op) || isConstant(item))

/** Known when the kernel starts, wherever it stands. */
const isGlobal = (node: UOp): boolean => node.op === "PARAM" || node.op === "VAR" || isConstant(node)

/** The amounts of a vector shift as one scalar, or nothing when they differ. */
export const uniformShift = (node: UOp): UOp | undefined => node.dtype.lanes === 4 ? uniform(node.src[1]!) : undefined

/** The items an item evaluates, each as often as its code mentions it. */
const operands = (item: Item, access: ReadonlyMap<UOp, Access>): ReadonlyArray<Item> => {
  if (item instanceof Address) return [item.base, ...item.terms.map((t) => t.node)]
  switch (item.op) {
    case "INDEX":
    case "END":
    case "ENDIF":
    case "PARAM":
      return []
    case "LOAD":
    case "STORE": {
      const { address, gate } = access.get(item)!
      return [address, ...(gate === undefined ? [] : [gate]), ...item.src.slice(1)]
    }
    case "RANGE": // the guard and the test at the end of each iteration
      return [item.src[0]!, item.src[0]!]
    case "STACK": {
      const scalar = uniform(item)
      if (scalar !== undefined) return [scalar]
      // the first word goes into all lanes at once
      return shuffle(item)?.vectors ?? item.src.filter((s, i) => i === 0 || s !== item.src[0])
    }
    case "SHL":
    case "SHR": {
      const amount = uniformShift(item)
      return amount === undefined ? item.src : [item.src[0]!, amount]
    }
    default:
      return item.src
  }
}

/** Deeper expressions become locals: the assembler parses nested expressions recursively. */
const maxDepth = 48

const addressing = (linear: UOp): {
  readonly items: ReadonlyArray<Item>
  readonly access: ReadonlyMap<UOp, Access>
  readonly blocks: ReadonlyMap<Item, Block>
} | ScopeProblem => {
  const root: Block = { parent: undefined }
  const blocks = new Map<Item, Block>()
  const position = new Map<UOp, number>()
  const access = new Map<UOp, Access>()
  const following = new Map<number, Array<Address>>()
  const interned = new Map<Item, Map<string, Address>>()
  let block = root
  const depth = (b: Block): number => b.parent === undefined ? 0 : 1 + depth(b.parent)

  const intern = (base: Item, terms: ReadonlyArray<Term>, constant: number): Address => {
    const key = `${terms.map((t) => `${t.node.id}*${t.scale}`).join()}+${constant}`
    const family = interned.get(base) ?? new Map<string, Address>()
    interned.set(base, family)
    const found = family.get(key)
    if (found !== undefined) return found
    const address = new Address(base, terms, constant)
    family.set(key, address)
    const known = terms.map((t) => position.get(t.node)!)
    const at = Math.max(-1, ...known)
    const last = terms[known.indexOf(at)]
    blocks.set(address, last === undefined ? blocks.get(base) ?? root : blocks.get(last.node)!)
    const list = following.get(at) ?? []
    list.push(address)
    following.set(at, list)
    return address
  }

  const addressOf = (node: UOp): Access => {
    const { at, buffer, gate } = accessOf(node)
    const sum = affine(at)
    const foldable = sum.constant >= 0 && sum.constant < 2 ** 31 && isNonNegative(sum)
    const groups = new Map<number, Array<Term>>()
    for (const [node, scale] of sum.terms) {
      const level = depth(blocks.get(node) ?? root)
      groups.set(level, [...groups.get(level) ?? [], { node, scale }])
    }
    let address: Item = buffer
    const levels = [...groups.keys()].toSorted((a, b) => a - b)
    for (const level of levels) {
      const terms = groups.get(level)!.toSorted((a, b) => position.get(a.node)! - position.get(b.node)!)
      // a constant that is no immediate is added once, outermost
      address = intern(address, terms, level === levels[0] && !foldable ? sum.constant : 0)
    }
    if (levels.length === 0 && !foldable) address = intern(address, [], sum.constant)
    return { address, offset: foldable ? sum.constant : 0, gate }
  }

  const isOpen = (b: Block): boolean => {
    for (let open: Block | undefined = block; open !== undefined; open = open.parent) if (open === b) return true
    return false
  }

  for (const [at, node] of linear.src.entries()) {
    if (isGlobal(node)) {
      position.set(node, -1)
      blocks.set(node, root)
      continue
    }
    position.set(node, at)
    for (const s of node.src) {
      if (node.op !== "END" && node.op !== "ENDIF" && !isOpen(blocks.get(s) ?? root)) {
        return new ScopeProblem({
          message: `${node.op} uses ${s.op} outside of the loop or branch that defines it`
        })
      }
    }
    if (node.op === "END" || node.op === "ENDIF") block = block.parent!
    if (node.op === "RANGE") block = { parent: block }
    blocks.set(node, block)
    if (node.op === "IF") block = { parent: block }
    if (node.op === "LOAD" || node.op === "STORE") access.set(node, addressOf(node))
  }
  const items = linear.src.flatMap((node, at): ReadonlyArray<Item> => [node, ...following.get(at) ?? []])
  items.unshift(...following.get(-1) ?? [])
  return { items, access, blocks }
}

/** Whether a sorted list has a number strictly between the two. */
const anyBetween = (sorted: ReadonlyArray<number>, from: number, to: number): boolean => {
  let lo = 0
  let hi = sorted.length
  while (lo < hi) {
    const mid = (lo + hi) >> 1
    if (sorted[mid]! > from) hi = mid
    else lo = mid + 1
  }
  return lo < sorted.length && sorted[lo]! < to
}

/**
 * Decides where each value is computed. A value with one user, in the same block, moves into that user's expression,
 * unless a LOAD would pass a STORE, or a register's read would pass its ACCUMULATE, or either a loop or branch.
 */
export const place = (linear: UOp): Placement | ScopeProblem => {
  const addressed = addressing(linear)
  if (addressed instanceof ScopeProblem) return addressed
  const { access, blocks, items } = addressed

  const stores: Array<number> = []
  const crossings: Array<number> = []
  const accumulates = new Map<UOp, Array<number>>()
  for (const [at, item] of items.entries()) {
    if (item instanceof Address) continue
    if (item.op === "STORE") stores.push(at)
    if (boundaries.has(item.op)) crossings.push(at)
    if (item.op === "ACCUMULATE") {
      const register = item.src[0]!
      accumulates.set(register, [...accumulates.get(register) ?? [], at])
    }
  }
  const users = new Map<Item, Array<Item>>()
  const evaluatedAt = new Map<Item, number>()
  const depth = new Map<Item, number>()
  const inlined = new Set<Item>()
  const live = new Set<Item>()
  for (let at = items.length - 1; at >= 0; at--) {
    const item = items[at]!
    const uses = users.get(item) ?? []
    const isEffect = !(item instanceof Address) && effects.has(item.op)
    if (!isEffect && (uses.length === 0 || isLeaf(item))) continue
    live.add(item)
    evaluatedAt.set(item, at)
    const inputs = operands(item, access)
    const user = uses[0]
    if (!isEffect && uses.length === 1 && user !== undefined && blocks.get(item) === blocks.get(user)) {
      const end = evaluatedAt.get(user)!
      const registers = inputs.filter((s): s is UOp => !(s instanceof Address) && s.op === "REG")
      const isLoad = !(item instanceof Address) && item.op === "LOAD"
      const pinned = (isLoad && anyBetween(stores, at, end)) ||
        registers.some((r) => anyBetween(accumulates.get(r) ?? [], at, end)) ||
        ((isLoad || registers.length > 0) && anyBetween(crossings, at, end))
      if (!pinned && (depth.get(user) ?? 0) < maxDepth) {
        inlined.add(item)
        evaluatedAt.set(item, end)
        depth.set(item, (depth.get(user) ?? 0) + 1)
      }
    }
    for (const s of inputs) {
      const list = users.get(s)
      if (list === undefined) users.set(s, [item])
      else list.push(item)
    }
  }
  return { items, access, inlined, live }
}
