import * as DType from "@tg/core-uop/DType"
import type { Arena, UOp } from "@tg/core-uop/UOp"

/** Instructions of one loop body (or of the kernel) under construction. */
export interface Scope {
  readonly range: UOp | undefined
  readonly depth: number
  readonly items: Array<UOp | Scope>
}

/** A kernel's instructions under construction, in nested loops. */
export class Code {
  readonly arena: Arena
  readonly root: Scope = { range: undefined, depth: 0, items: [] }
  /** The instruction that has the value of each node that is computed: for a reduction, its register. */
  readonly done = new Map<UOp, UOp>()
  readonly #scopes = new Map<UOp, Scope>()
  readonly #locals: ReadonlySet<UOp>
  #ids = 0

  /** Code for a kernel that has workgroup memory of its own. */
  constructor(arena: Arena, locals: ReadonlyArray<UOp>) {
    this.arena = arena
    this.#locals = new Set(locals)
  }

  /** A number that no register, memory or barrier made here has. */
  freshId(): number {
    return this.#ids++
  }

  /** A loop number that no loop of the kernel has. */
  freshRange(): number {
    return 1_000_000 + this.freshId()
  }

  /**
   * A new LOCAL. Nodes are hash-consed, so its number must differ from those of the kernel's own LOCALs.
   */
  memory(dtype: DType.DType, length: number): UOp {
    for (;;) {
      const memory = this.arena.make("LOCAL", dtype, [], { id: this.freshId(), length })
      if (!this.#locals.has(memory)) return memory
    }
  }

  isOpen(range: UOp): boolean {
    return this.#scopes.has(range)
  }

  /** The innermost of these loops. */
  scopeOf(ranges: Iterable<UOp>): Scope {
    let deepest = this.root
    for (const range of ranges) {
      const scope = this.#scopes.get(range)
      if (scope === undefined) throw new Error("a loop variable is used outside its loop")
      if (scope.depth > deepest.depth) deepest = scope
    }
    return deepest
  }

  /** Adds an instruction to a loop's body. */
  push(scope: Scope, node: UOp): UOp {
    scope.items.push(node)
    return node
  }

  /** Adds an instruction that is its own value. */
  define(scope: Scope, node: UOp): UOp {
    this.done.set(node, node)
    return this.push(scope, node)
  }

  barrier(scope: Scope): void {
    this.push(scope, this.arena.make("BARRIER", DType.none, [], this.freshId()))
  }

  /** Opens nested loops: the innermost, for its body. `emit` computes their sizes. */
  open(parent: Scope, ranges: ReadonlyArray<UOp>, emit: (size: UOp) => UOp): Scope {
    let scope = parent
    for (const range of ranges) {
      emit(range.src[0]!)
      const inner: Scope = { range, depth: scope.depth + 1, items: [] }
      this.#scopes.set(range, inner)
      this.done.set(range, range)
      scope = inner
    }
    return scope
  }

  /** Ends nested loops: they enter their parents' instruction lists when their bodies are complete. */
  close(parent: Scope, ranges: ReadonlyArray<UOp>): void {
    for (let i = ranges.length - 1; i >= 0; i--) {
      const scope = this.#scopes.get(ranges[i]!)!
      const outer = i === 0 ? parent : this.#scopes.get(ranges[i - 1]!)!
      outer.items.push(scope)
    }
  }

  /** The instructions in order, once each (spec `linear`). */
  linear(): UOp {
    return this.arena.make("LINEAR", DType.none, [...new Set(flatten(this.root))])
  }
}

const flatten = (scope: Scope): ReadonlyArray<UOp> =>
  scope.items.flatMap((item) =>
    "items" in item
      ? [item.range!, ...flatten(item), item.range!.arena.make("END", DType.none, [item.range!])]
      : [item]
  )
