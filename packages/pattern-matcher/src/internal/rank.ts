import { ordinal } from "@tg/core-uop/Op"
import { type Axis, key, rangeArg, unseen, type UOp, varArg } from "@tg/core-uop/UOp"
import { slot } from "./slot.ts"

// outer loops first, so that the loop-invariant part of a sum is a prefix of it
const axes: Readonly<Record<Axis, number>> = {
  GLOBAL: 1,
  LOCAL: 3,
  LOOP: 4,
  GROUP: 5,
  REDUCE: 6,
  UPCAST: 7,
  UNROLL: 8,
  MATRIX: 7
}
const perAxis = 512

const mix = (h: number, k: number): number => {
  const x = Math.imul(h ^ k, 0x9e3779b1)
  return x ^ (x >>> 15)
}

const hashText = (s: string): number => {
  let h = 0x811c9dc5
  for (let i = 0; i < s.length; i++) h = Math.imul(h ^ s.charCodeAt(i), 0x01000193)
  return h
}

const hashArg = (arg: UOp["arg"]): number =>
  arg === undefined
    ? 0
    : typeof arg === "number" && (arg | 0) === arg
    ? arg
    : hashText(typeof arg === "object" ? JSON.stringify(arg) : String(arg))

/** Variables are ordered by the first four characters of their names, then by a hash. */
const hashName = (name: string): number => {
  let result = 0
  for (let i = 0; i < 4; i++) result = result * 128 + (i < name.length ? name.charCodeAt(i) & 127 : 0)
  return result * 8 + (hashText(name) & 7)
}

/** The nesting level of the innermost loop a node depends on. */
const level = (node: UOp): number => {
  let result = 0
  for (const s of node.src) result = Math.max(result, Math.floor(slot(s).rank / 2 ** 38))
  if (node.op === "RANGE") {
    const { axis, id } = rangeArg(node)
    return Math.max(result, axes[axis] * perAxis + Math.min(id, perAxis - 1))
  }
  if (!node.is("SPECIAL")) return result
  const { name } = node.arg
  return (name.startsWith("gidx") ? axes.GLOBAL : axes.LOCAL) * perAxis + Number(name.slice(-1))
}

/** 13 bits of loop level, 7 of operation, 31 of structural hash. */
const derive = (node: UOp): number => {
  if (node.op === "VAR") return ordinal.VAR * 2 ** 31 + hashName(varArg(node).name)
  let hash = mix(mix(ordinal[node.op], node.dtype.ordinal), hashArg(node.arg))
  for (const s of node.src) {
    const { rank } = slot(s)
    hash = mix(mix(hash, rank | 0), Math.floor(rank / 2 ** 31) | 0)
  }
  return level(node) * 2 ** 38 + ordinal[node.op] * 2 ** 31 + (hash >>> 1)
}

const hasRank = (node: UOp): boolean => slot(node).rank >= 0

/** Position of a node in the canonical order: a function of its structure, the same on every machine. */
export const rank = (root: UOp): number => {
  const known = slot(root).rank
  if (known >= 0) return known
  for (const node of unseen(root, hasRank)) slot(node).rank = derive(node)
  return slot(root).rank
}

/** The canonical order of index nodes: negative when `a` comes first, 0 only for the same node. */
export const compare = (a: UOp, b: UOp): number => {
  if (a === b) return 0
  const difference = rank(a) - rank(b)
  return difference !== 0 ? difference : key(a) < key(b) ? -1 : 1
}
