import { groupArg, openRanges, toposort, type UOp } from "@tg/core-uop/UOp"

/**
 * Which reductions of a kernel are fused: those over the same loops at the same place share the loops, and those over threads share
 * their barriers.
 */
export class Siblings {
  readonly #lists = new Map<string, Array<UOp>>()
  readonly #depths = new Map<UOp, number>()

  /** Forgets the reductions that were noted. */
  clear(): void {
    this.#lists.clear()
  }

  /** Notes the reductions under these nodes. */
  note(roots: ReadonlyArray<UOp>): void {
    for (const node of toposort(...roots)) {
      if (node.op !== "REDUCE" && node.op !== "GROUP_REDUCE") continue
      const key = this.#keyOf(node)
      const list = this.#lists.get(key)
      if (list === undefined) this.#lists.set(key, [node])
      else if (!list.includes(node)) list.push(node)
    }
  }

  /** The noted reductions that are fused with one of them, itself among them. */
  of(node: UOp): ReadonlyArray<UOp> {
    return this.#lists.get(this.#keyOf(node))!
  }

  /** Reductions with one key are at the same place, and independent across threads. */
  #keyOf(node: UOp): string {
    const over = node.op === "GROUP_REDUCE"
      ? `threads ${groupArg(node).threads}`
      : node.src.slice(1).map((r) => r.id).join()
    const place = [...openRanges(node)].map((r) => r.id).sort((a, b) => a - b).join()
    return `${over}:${this.#depthOf(node)}|${place}`
  }

  /** The longest chain of reductions over threads under a value: those of equal depth are independent. */
  #depthOf(root: UOp): number {
    const known = this.#depths.get(root)
    if (known !== undefined) return known
    for (const node of toposort(root)) {
      if (this.#depths.has(node)) continue
      const below = Math.max(0, ...node.src.map((s) => this.#depths.get(s)!))
      this.#depths.set(node, node.op === "GROUP_REDUCE" ? below + 1 : below)
    }
    return this.#depths.get(root)!
  }
}
