import { accessOf, endOf } from "@tg/core-uop/View"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { ReduceOp } from "@tg/core-uop/Op"
import type { RendererCaps } from "@tg/core-uop/Program"
import {
  argOf,
  groupArg,
  isThread,
  openRanges,
  rangeArg,
  reduceArg,
  substitute,
  toposort,
  type UOp
} from "@tg/core-uop/UOp"

/** Instructions of one loop body (or of the kernel) under construction. */
interface Scope {
  readonly range: UOp | undefined
  readonly depth: number
  readonly items: Array<UOp | Scope>
}

/** With this many sums at once, adding to one need not wait for the last addition to it. */
const manySums = 8

/** What a sum's copies of the body add, one by one: a product and an addition to a register are one instruction. */
const addendsOf = (value: UOp, op: ReduceOp): ReadonlyArray<UOp> => {
  const found: Array<UOp> = []
  let rest = value
  while (rest.op === op) {
    found.unshift(rest.src[1]!)
    rest = rest.src[0]!
  }
  found.unshift(rest)
  return new Set(found).size === found.length ? found : [value]
}

/**
 * Puts an expanded kernel into instruction order (spec `linear`). Every value is computed in the outermost loop it
 * depends on; reductions over the same loops, at the same place, share them; reductions over threads go through a
 * subgroup operation where the device has one of a known size, else through workgroup memory.
 */
export const linearize = (kernel: UOp, caps: Pick<RendererCaps, "subgroupSize">): UOp => {
  const { arena } = kernel
  const root: Scope = { range: undefined, depth: 0, items: [] }
  const scopes = new Map<UOp, Scope>()
  const done = new Map<UOp, UOp>()
  const nodes = toposort(kernel)
  const thread = nodes.find(isThread)
  let nextId = 0
  /** A loop number that no loop of the kernel has. */
  const freshRange = (): number => 1_000_000 + nextId++

  const scopeOf = (ranges: Iterable<UOp>): Scope => {
    let deepest = root
    for (const range of ranges) {
      const scope = scopes.get(range)
      if (scope === undefined) throw new Error("a loop variable is used outside its loop")
      if (scope.depth > deepest.depth) deepest = scope
    }
    return deepest
  }

  const push = (scope: Scope, node: UOp): UOp => {
    scope.items.push(node)
    return node
  }

  const open = (parent: Scope, ranges: ReadonlyArray<UOp>): Scope => {
    let scope = parent
    for (const range of ranges) {
      emit(range.src[0]!)
      const inner: Scope = { range, depth: scope.depth + 1, items: [] }
      scopes.set(range, inner)
      done.set(range, range)
      scope = inner
    }
    return scope
  }

  // loops enter their parents' instruction lists when their bodies are complete
  const close = (parent: Scope, ranges: ReadonlyArray<UOp>): void => {
    for (let i = ranges.length - 1; i >= 0; i--) {
      const scope = scopes.get(ranges[i]!)!
      const outer = i === 0 ? parent : scopes.get(ranges[i - 1]!)!
      outer.items.push(scope)
    }
  }

  const siblings = new Map<string, Array<UOp>>()
  const openKey = (node: UOp): string => [...openRanges(node)].map((r) => r.id).sort((a, b) => a - b).join()
  /** Reductions over threads that a value needs, one after the other: those of equal depth do not need each other. */
  const depths = new Map<UOp, number>()
  const depthOf = (root: UOp): number => {
    const known = depths.get(root)
    if (known !== undefined) return known
    for (const node of toposort(root)) {
      if (depths.has(node)) continue
      const below = Math.max(0, ...node.src.map((s) => depths.get(s)!))
      depths.set(node, node.op === "GROUP_REDUCE" ? below + 1 : below)
    }
    return depths.get(root)!
  }
  /** What shares a loop: of two of them, none needs what crosses the workgroup after the other. */
  const siblingKey = (node: UOp): string =>
    `${node.src.slice(1).map((r) => r.id).join()}:${depthOf(node)}|${openKey(node)}`
  /** What crosses the workgroup together: the results may come from loops of different kinds. */
  const groupKeyOf = (node: UOp): string => `threads ${groupArg(node).threads}:${depthOf(node)}|${openKey(node)}`
  const note = (key: string, node: UOp): void => {
    const list = siblings.get(key)
    if (list === undefined) siblings.set(key, [node])
    else if (!list.includes(node)) list.push(node)
  }
  const noteReductions = (roots: ReadonlyArray<UOp>): void => {
    for (const node of toposort(...roots)) {
      if (node.op === "REDUCE") note(siblingKey(node), node)
      if (node.op === "GROUP_REDUCE") note(groupKeyOf(node), node)
    }
  }
  const reduce = (node: UOp): void => {
    const ranges = node.src.slice(1)
    const parent = scopeOf(openRanges(node))
    const group = siblings.get(siblingKey(node))!.filter((n) => !done.has(n))
    const registers = group.map((n) => {
      const initial = emit(Expr.identity(arena, reduceArg(n).op, n.dtype))
      return push(parent, arena.make("REG", n.dtype, [initial], { id: nextId++ }))
    })
    // copies of one reduction that stand at different places have loops of their own
    const own = ranges.map((r) => scopes.has(r) ? Expr.range(arena, r.src[0]!, freshRange(), rangeArg(r).axis) : r)
    const renamed = new Map(ranges.map((r, i) => [r, own[i]!] as const).filter(([r, fresh]) => r !== fresh))
    const values = group.map((n) => substitute(n.src[0]!, renamed))
    if (renamed.size > 0) noteReductions(values)
    const body = open(parent, own)
    const addends = group.map((n, i) => group.length < manySums ? [values[i]!] : addendsOf(values[i]!, reduceArg(n).op))
    // one addend of every sum, then the next: what they share is read, used and forgotten
    for (let j = 0; j < Math.max(...addends.map((list) => list.length)); j++) {
      group.forEach((n, i) => {
        const addend = addends[i]![j]
        if (addend === undefined) return
        push(body, arena.make("ACCUMULATE", DType.none, [registers[i]!, emit(addend)], { op: reduceArg(n).op }))
      })
    }
    group.forEach((n, i) => done.set(n, registers[i]!))
    close(parent, own)
  }

  /** All results of one group of reductions cross the workgroup between the same two barriers. */
  const crossThreads = (node: UOp): void => {
    const group = siblings.get(groupKeyOf(node))!.filter((n) => !done.has(n))
    const scope = scopeOf(openRanges(node))
    const { threads } = groupArg(node)
    const lanes = caps.subgroupSize
    const values = group.map((n) => emit(n.src[0]!))
    const add = (n: UOp): UOp => push(scope, n)
    if (lanes !== undefined && lanes % threads === 0) {
      group.forEach((n, i) => {
        done.set(n, add(arena.make("SUBGROUP_REDUCE", n.dtype, [values[i]!], { op: groupArg(n).op, threads })))
      })
      return
    }
    const width = lanes !== undefined && threads % lanes === 0 ? lanes : 1
    const partials = threads / width
    const total = Number(thread!.src[0]!.arg) / width
    const define = (n: UOp): UOp => {
      done.set(n, n)
      return n
    }
    const slot = width === 1 ? thread! : Expr.floordiv(thread!, width)
    const gate = width === 1 ? undefined : Expr.lt(Expr.floormod(thread!, width), 1)
    const buffers = group.map((n, i) => {
      const value = width === 1
        ? values[i]!
        : add(arena.make("SUBGROUP_REDUCE", n.dtype, [values[i]!], { op: groupArg(n).op, threads: width }))
      const memory = define(push(root, arena.make("LOCAL", n.dtype, [], { id: nextId++, length: total })))
      add(Expr.store(emit(Expr.element(memory, slot, gate)), value))
      return memory
    })
    add(arena.make("BARRIER", DType.none, [], nextId++))
    const registers = group.map((n) => {
      const initial = emit(Expr.identity(arena, groupArg(n).op, n.dtype))
      return add(arena.make("REG", n.dtype, [initial], { id: nextId++ }))
    })
    const range = Expr.range(arena, partials, freshRange(), "REDUCE")
    emit(range.src[0]!)
    const first = emit(Expr.mul(Expr.floordiv(thread!, threads), partials))
    const body: Scope = { range, depth: scope.depth + 1, items: [] }
    const at = Expr.add(first, range)
    body.items.push(at)
    group.forEach((n, i) => {
      const element = Expr.element(buffers[i]!, at)
      const value = Expr.load(element)
      body.items.push(
        element,
        value,
        arena.make("ACCUMULATE", DType.none, [registers[i]!, value], { op: groupArg(n).op })
      )
      done.set(n, registers[i]!)
    })
    scope.items.push(body)
    // the next iteration of an enclosing loop overwrites the memory
    if (scope.range !== undefined) add(arena.make("BARRIER", DType.none, [], nextId++))
  }

  /** Sources first, from left to right. Not by recursion: straight code is deeper than the stack. */
  const emit = (wanted: UOp): UOp => {
    const pending = [wanted]
    for (let node = pending.at(-1); node !== undefined; node = pending.at(-1)) {
      if (done.has(node)) {
        pending.pop()
      } else if (node.op === "LOCAL") {
        const { length } = argOf(node, "LOCAL")
        done.set(node, push(root, arena.make("LOCAL", node.dtype, [], { id: nextId++, length })))
      } else if (node.op === "REDUCE") reduce(node)
      else if (node.op === "GROUP_REDUCE") crossThreads(node)
      else {
        const missing = node.src.filter((s) => !done.has(s))
        if (missing.length > 0) pending.push(...missing.reverse())
        else done.set(node, push(scopeOf(openRanges(node)), node.with(node.src.map((s) => done.get(s)!))))
      }
    }
    return done.get(wanted)!
  }

  /** Workgroup memory written since the last barrier. */
  const unseen = new Set<UOp>()
  for (const end of kernel.src) {
    // reductions on both sides of a barrier share no loop
    siblings.clear()
    noteReductions([end])
    if (toposort(end).some((n) => n.op === "LOAD" && unseen.has(accessOf(n).buffer))) {
      push(root, arena.make("BARRIER", DType.none, [], nextId++))
      unseen.clear()
    }
    const { loops, stores } = endOf(end)
    const body = open(root, loops)
    for (const store of stores) {
      body.items.push(store.with(store.src.map(emit)))
      const { buffer } = accessOf(store)
      if (buffer.op === "LOCAL") unseen.add(buffer)
    }
    close(root, loops)
  }
  return arena.make("LINEAR", DType.none, [...new Set(flatten(root))])
}

const flatten = (scope: Scope): ReadonlyArray<UOp> =>
  scope.items.flatMap((item) =>
    "items" in item
      ? [item.range!, ...flatten(item), item.range!.arena.make("END", DType.none, [item.range!])]
      : [item]
  )
