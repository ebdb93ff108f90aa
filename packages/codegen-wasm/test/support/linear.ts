import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { ReduceOp } from "@tg/core-uop/Op"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, type Axis, toposort, type UOp } from "@tg/core-uop/UOp"

/** Writes a linear kernel by hand: values stand where they are first needed, in their loop. */
export class LinearBuilder {
  readonly arena = new Arena()
  private readonly instructions: Array<UOp> = []
  private readonly scopes: Array<Set<UOp>> = [new Set()]

  param(slot: number, dtype: DType.DType = DType.f32, length = 1024): UOp {
    return this.add(this.arena.make("PARAM", dtype, [Expr.int(this.arena, length)], { slot }))
  }

  /** Puts a node here, after those of its sources that are not there yet. */
  add(node: UOp): UOp {
    for (const n of toposort(node)) {
      if (this.scopes.some((s) => s.has(n))) continue
      this.scopes[this.scopes.length - 1]!.add(n)
      this.instructions.push(n)
    }
    return node
  }

  int(value: number): UOp {
    return this.add(Expr.int(this.arena, value))
  }

  load(buffer: UOp, index: UOp | number, options: { readonly lanes?: DType.Lanes; readonly gate?: UOp } = {}): UOp {
    const at = typeof index === "number" ? this.int(index) : index
    return this.add(Expr.load(Expr.element(buffer, at, options.gate), options.lanes ?? 1))
  }

  store(buffer: UOp, index: UOp | number, value: UOp, gate?: UOp): void {
    const at = typeof index === "number" ? this.int(index) : index
    this.add(Expr.store(Expr.element(buffer, at, gate), value))
  }

  private enter(node: UOp): UOp {
    for (const s of node.src) this.add(s)
    this.instructions.push(node)
    this.scopes.push(new Set([node]))
    return node
  }

  private leave(op: "END" | "ENDIF", node: UOp): void {
    this.instructions.push(this.arena.make(op, DType.none, [node]))
    this.scopes.pop()
  }

  loop(size: UOp | number, axis: Axis, body: (i: UOp) => void): void {
    const range = this.enter(Expr.range(this.arena, size, this.arena.fresh(), axis))
    body(range)
    this.leave("END", range)
  }

  branch(condition: UOp, body: () => void): void {
    const node = this.enter(this.arena.make("IF", DType.none, [condition]))
    body()
    this.leave("ENDIF", node)
  }

  register(initial: UOp): UOp {
    return this.add(this.arena.make("REG", initial.dtype, [initial], { id: this.arena.fresh() }))
  }

  accumulate(op: ReduceOp, register: UOp, value: UOp): void {
    this.add(this.arena.make("ACCUMULATE", DType.none, [register, value], { op }))
  }

  /** The kernel, checked against the linear spec. */
  build(): UOp {
    const linear = this.arena.make("LINEAR", DType.none, this.instructions)
    const violations = Spec.check("linear", linear)
    if (violations.length > 0) throw new Error(JSON.stringify(violations, null, 1))
    return linear
  }
}

/** Writes a kernel with a function. */
export const kernel = (write: (b: LinearBuilder) => void): UOp => {
  const b = new LinearBuilder()
  write(b)
  return b.build()
}
