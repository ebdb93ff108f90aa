/** Workgroups of a kernel that a larger workgroup runs side by side, each with threads of its own. */
import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { groupArg, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import * as Concatenate from "./Concatenate.ts"

/** Workgroups of a phase that one of the launch runs side by side. */
export interface Side {
  readonly beside: number
  /** Whether they have consecutive numbers: branches with barriers are taken by all of them or none. */
  readonly isAdjacent: boolean
}

/** The shape of the launch that they are part of. */
export interface Shape {
  readonly threads: number
  readonly workgroups: number
}

/** Whether a number is known, and a multiple of another one. */
export const isMultiple = (count: UOp, of: number): boolean => count.op === "CONST" && Number(count.arg) % of === 0

const alone: Side = { beside: 1, isAdjacent: false }

const sides = new WeakMap<UOp, Map<string, Side>>()

/** A kernel is asked for each launch that it may be in. */
export const sideOf = (member: Concatenate.Member, { threads, workgroups }: Shape): Side => {
  const known = sides.get(member.linear) ?? new Map<string, Side>()
  sides.set(member.linear, known)
  const text = `${threads} ${workgroups}`
  const side = known.get(text) ?? findSide(member, { threads, workgroups })
  known.set(text, side)
  return side
}

/** How many workgroups of a kernel one of a launch runs side by side, each with threads of its own. */
export const besideOf = (linear: UOp, shape: Shape): number => sideOf(Concatenate.memberOf(linear), shape).beside

/** How many workgroups of a phase one of the launch runs side by side: as many as it has threads for, and as there are. */
const findSide = (member: Concatenate.Member, { threads, workgroups }: Shape): Side => {
  const { linear, threads: own } = member
  const most = Math.floor(threads / own)
  const count = Symbolic.simplify(Concatenate.workgroupsOf(member))
  const wanted = Math.min(most, Math.ceil(Bounds.of(count).max / workgroups))
  const isWhole = linear.src.every((node) => node.op !== "SUBGROUP_REDUCE" || own % groupArg(node).threads === 0)
  if (wanted < 2 || !isWhole) return alone
  const branches = branchesWithBarriers(linear)
  if (branches.length === 0) return { beside: wanted, isAdjacent: false }
  const more = Array.from({ length: most - wanted + 1 }, (_, i) => wanted + i)
  const fewer = Array.from({ length: wanted - 2 }, (_, i) => wanted - 1 - i)
  const beside = [...more, ...fewer].find((n) => agree(member, branches, { beside: n, workgroups }))
  return beside === undefined ? alone : { beside, isAdjacent: true }
}

/** What decides whether, or how often, a thread comes to the barriers inside of branches and loops, as far as workgroups differ in it. */
const branchesWithBarriers = (linear: UOp): ReadonlyArray<UOp> => {
  const open: Array<UOp> = []
  const found = new Set<UOp>()
  for (const node of linear.src) {
    if (node.op === "END" || node.op === "ENDIF") open.pop()
    if (node.op === "RANGE" || node.op === "IF") open.push(node)
    if (node.op === "BARRIER") { for (const around of open) found.add(around.src[0]!) }
  }
  return [...found].filter((value) => toposort(value).some(({ op }) => op === "SPECIAL" || op === "LOAD"))
}

/**
 * The number of a workgroup of a turn that has so many neighbours. Where the last ones of all are missing, their threads do what those of the last workgroup do. What is added to the
 * first number of the turn stays below `beside`, so that comparisons with multiples of it depend on the turn alone.
 */
export const neighbour = (
  turn: UOp,
  part: UOp,
  { beside, count }: { readonly beside: number; readonly count: UOp }
): UOp => {
  const first = Expr.mul(turn, beside)
  // a turn behind the last one is not taken, but its number is a number
  const last = Expr.max(Expr.sub(Expr.sub(count, 1), first), 0)
  return Expr.add(first, isMultiple(count, beside) ? part : Expr.min(part, last))
}

/** How many turns a workgroup has that begins with its own number, where each next one is a step behind. */
export const ownTurns = (turns: UOp, workgroup: UOp, step: number): UOp =>
  Expr.floordiv(Expr.add(Expr.sub(turns, workgroup), step - 1), step)

/**
 * The number of a turn, as workgroups of a launch have it: of a loop, where there are more turns than workgroups. What simplifies without the loop need not with it, as bounds of
 * what is clamped depend on the loop's.
 */
const turnIn = (turns: UOp, workgroups: number): UOp => {
  const { arena } = turns
  const workgroup = Concatenate.special(arena, "gidx0", Expr.int(arena, workgroups))
  if (Bounds.of(turns).max <= workgroups) return workgroup
  const own = Symbolic.simplify(ownTurns(turns, workgroup, workgroups))
  const range = arena.make("RANGE", DType.index, [own], { id: -1, axis: "LOOP" })
  return Expr.add(workgroup, Expr.mul(range, workgroups))
}

/** Whether so many consecutive workgroups take the same branches, as far as simplification sees. */
const agree = (
  { grid, linear, threads }: Concatenate.Member,
  branches: ReadonlyArray<UOp>,
  { beside, workgroups }: { readonly beside: number; readonly workgroups: number }
): boolean => {
  const { arena } = linear
  const count = Symbolic.simplify(Concatenate.workgroupsOf({ grid }))
  const turns = Symbolic.simplify(Expr.floordiv(Expr.add(count, beside - 1), beside))
  const turn = turnIn(turns, workgroups)
  const part = Concatenate.special(arena, "lidx0", Expr.int(arena, beside))
  const at = { grid, workgroup: neighbour(turn, part, { count, beside }), thread: Expr.int(arena, threads - 1) }
  return branches.every((value) => {
    const nodes = toposort(value)
    if (nodes.some((node) => node.op === "LOAD" || node.is("SPECIAL") && node.arg.name.startsWith("lidx"))) return false
    const places = new Map(
      nodes.filter(({ op }) => op === "SPECIAL").map((node) => [node, Concatenate.indexOf(node, at)])
    )
    return !toposort(Symbolic.simplify(substitute(value, places))).includes(part)
  })
}
