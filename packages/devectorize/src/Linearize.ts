import { accessOf, endOf } from "@tg/core-uop/View"
import type { RendererCaps } from "@tg/core-uop/Program"
import { argOf, isAccumulating, isThread, openRanges, toposort, type UOp } from "@tg/core-uop/UOp"
import { acrossThreads } from "./internal/acrossThreads.ts"
import { addIn } from "./internal/additions.ts"
import { Code } from "./internal/code.ts"
import { earlyLoads } from "./internal/early.ts"
import { inProducts } from "./internal/matrix.ts"
import { overLoops } from "./internal/overLoops.ts"
import { Siblings } from "./internal/siblings.ts"

/**
 * Puts an expanded kernel into instruction order (spec `linear`), with loop-invariant code motion: every value is computed in the
 * innermost of the loops it depends on, outside of all others. Reductions over the same loops, at the same place, share them (loop
 * fusion). Reductions over threads use a subgroup operation where subgroups have one known size, else workgroup memory. Loads that need not
 * wait for a barrier are in front of it.
 */
export const linearize = (kernel: UOp, { subgroupSize }: Pick<RendererCaps, "subgroupSize">): UOp => {
  const nodes = toposort(kernel)
  const code = new Code(kernel.arena, nodes.filter((n) => n.op === "LOCAL"))
  const siblings = new Siblings()
  const emit = emitter(code, siblings, { thread: nodes.find(isThread), subgroupSize })
  /** Memory that was written since the last barrier. */
  const unseen = new Set<UOp>()
  const meet = (end: UOp): void => {
    if (toposort(end).some((n) => n.op === "LOAD" && unseen.has(accessOf(n).buffer))) {
      code.barrier(code.root)
      unseen.clear()
    }
  }
  const isInProduct = inProducts(kernel, { code, emit, meet })
  for (const load of earlyLoads(kernel, subgroupSize)) emit(load)
  for (const end of kernel.src) {
    // loops are not fused across a barrier
    siblings.clear()
    siblings.note([end])
    const { loops, stores } = endOf(end)
    if (!isInProduct(end)) {
      meet(end)
      const body = code.open(code.root, loops, emit)
      if (stores.some(isAccumulating)) addIn(code, body, stores.map((store) => store.with(store.src.map(emit))))
      else for (const store of stores) code.push(body, store.with(store.src.map(emit)))
      code.close(code.root, loops)
    }
    // no kernel reads what it writes elsewhere
    for (const store of stores) unseen.add(accessOf(store).buffer)
  }
  return code.linear()
}

/**
 * The instruction that has a node's value, which is emitted on first use, in the innermost of the loops that the node depends on.
 * Sources come first, from left to right. With an explicit stack: unrolled code is deeper than the call stack.
 */
const emitter = (
  code: Code,
  siblings: Siblings,
  device: { readonly thread: UOp | undefined; readonly subgroupSize: number | undefined }
) => {
  const { arena, done } = code
  const emit = (wanted: UOp): UOp => {
    const pending = [wanted]
    for (let node = pending.at(-1); node !== undefined; node = pending.at(-1)) {
      if (done.has(node)) {
        pending.pop()
      } else if (node.op === "LOCAL") {
        const { length } = argOf(node, "LOCAL")
        done.set(node, code.push(code.root, arena.make("LOCAL", node.dtype, [], { id: code.freshId(), length })))
      } else if (node.op === "REDUCE" || node.op === "GROUP_REDUCE") {
        const group = siblings.of(node).filter((n) => !done.has(n))
        if (node.op === "REDUCE") overLoops(group, { code, siblings, emit })
        else acrossThreads(group, { ...device, code, emit, scope: code.scopeOf(openRanges(node)) })
      } else {
        const missing = node.src.filter((s) => !done.has(s))
        if (missing.length > 0) pending.push(...missing.reverse())
        else {
          const instruction = node.with(node.src.map((s) => done.get(s)!))
          done.set(node, code.push(code.scopeOf(openRanges(node)), instruction))
        }
      }
    }
    return done.get(wanted)!
  }
  return emit
}
