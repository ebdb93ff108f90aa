import { accessOf, endOf } from "@tg/core-uop/View"
import type { RendererCaps } from "@tg/core-uop/Program"
import { argOf, isAccumulating, isThread, openRanges, toposort, type UOp } from "@tg/core-uop/UOp"
import { acrossThreads } from "./internal/acrossThreads.ts"
import { addIn } from "./internal/additions.ts"
import { Code } from "./internal/code.ts"
import { earlyLoads } from "./internal/early.ts"
import { byMatrixUnits, inProducts, loadAhead, type Product } from "./internal/matrix.ts"
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
  const thread = nodes.find(isThread)
  const emit = emitter(code, siblings, { thread, subgroupSize })
  const parts = inProducts(kernel.src)
  const products = parts.filter(isProduct)
  const writing = { code, emit, thread: thread! }
  const written = new Set(kernel.src.flatMap((end) => endOf(end).stores.map((store) => accessOf(store).buffer)))
  /** Workgroup memory that was written since the last barrier. */
  const unseen = new Set<UOp>()
  /** What a part reads has to be there. */
  const meet = (ends: ReadonlyArray<UOp>): void => {
    if (toposort(...ends).some((n) => n.op === "LOAD" && unseen.has(accessOf(n).buffer))) {
      code.barrier(code.root)
      unseen.clear()
    }
  }
  const note = (store: UOp): void => {
    const { buffer } = accessOf(store)
    if (buffer.op === "LOCAL") unseen.add(buffer)
  }
  if (products.length === 0) for (const load of earlyLoads(kernel, subgroupSize)) emit(load)
  for (const part of parts) {
    // loops are not fused across a barrier
    siblings.clear()
    if (isProduct(part)) {
      const [left, right, results] = part
      meet([left, right])
      // results of the product before have left the memory that they share
      if (part !== products[0]) code.barrier(code.root)
      byMatrixUnits(part, writing)
      endOf(results).stores.forEach(note)
      const next = products[products.indexOf(part) + 1]
      if (next !== undefined) loadAhead(next, (buffer) => written.has(buffer), writing)
      continue
    }
    siblings.note([part])
    meet([part])
    const { loops, stores } = endOf(part)
    const body = code.open(code.root, loops, emit)
    if (stores.some(isAccumulating)) addIn(code, body, stores.map((store) => store.with(store.src.map(emit))))
    else {
      for (const store of stores) {
        code.push(body, store.with(store.src.map(emit)))
        note(store)
      }
    }
    code.close(code.root, loops)
  }
  return code.linear()
}

const isProduct = (part: UOp | Product): part is Product => Array.isArray(part)

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
