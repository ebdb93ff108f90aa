import { DType, Expr } from "@tg/core-uop"
import { Arena, type UOp } from "@tg/core-uop/UOp"

/** Writes linear kernels by hand: each method appends an instruction, with its missing leaves before it. */
export class Kernel {
  readonly arena = new Arena()
  private readonly list: Array<UOp> = []
  private readonly seen = new Set<UOp>()

  /** Appends the node after the sources that do not stand yet. */
  add(node: UOp): UOp {
    if (this.seen.has(node)) return node
    for (const s of node.src) this.add(s)
    this.seen.add(node)
    this.list.push(node)
    return node
  }

  /** Appends the node where it may stand already. */
  again(node: UOp): UOp {
    this.list.push(node)
    return node
  }

  linear(): UOp {
    return this.arena.make("LINEAR", DType.none, this.list)
  }

  int(value: number): UOp {
    return Expr.int(this.arena, value)
  }
  f32(value: number): UOp {
    return Expr.constant(this.arena, DType.f32, value)
  }
  u32(value: number): UOp {
    return Expr.constant(this.arena, DType.u32, value)
  }
  param(slot: number, dtype: DType.DType, length = 1): UOp {
    return this.arena.make("PARAM", dtype, [this.int(length)], { slot })
  }
  local(id: number, dtype: DType.DType, length: number): UOp {
    return this.arena.make("LOCAL", dtype, [], { id, length })
  }
  special(name: string, size: UOp | number): UOp {
    return this.arena.make("SPECIAL", DType.index, [typeof size === "number" ? this.int(size) : size], { name })
  }
  register(id: number, initial: UOp): UOp {
    return this.add(this.arena.make("REG", initial.dtype, [initial], { id }))
  }
  range(id: number, size: UOp | number): UOp {
    return this.add(Expr.range(this.arena, size, id, "REDUCE"))
  }
  end(range: UOp): void {
    this.add(this.arena.make("END", DType.none, [range]))
  }
  accumulate(op: "ADD" | "MUL" | "MAX" | "MIN", register: UOp, value: UOp): void {
    this.add(this.arena.make("ACCUMULATE", DType.none, [register, value], { op }))
  }
  load(buffer: UOp, at: UOp, lanes: DType.Lanes = 1, gate?: UOp): UOp {
    return this.add(Expr.load(Expr.element(buffer, at, gate), lanes))
  }
  store(buffer: UOp, at: UOp, value: UOp, gate?: UOp): void {
    this.add(Expr.store(Expr.element(buffer, at, gate), value))
  }
  barrier(): void {
    this.add(this.arena.make("BARRIER", DType.none, []))
  }
  subgroup(op: "ADD" | "MUL" | "MAX" | "MIN", value: UOp, threads: number): UOp {
    return this.add(this.arena.make("SUBGROUP_REDUCE", value.dtype, [value], { op, threads }))
  }
  branch(condition: UOp, then: () => void): void {
    const start = this.add(this.arena.make("IF", DType.none, [condition]))
    then()
    this.add(this.arena.make("ENDIF", DType.none, [start]))
  }
}
