import * as DType from "@tg/core-uop/DType"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import type { Data } from "@tg/core-uop/EvaluateOps"
import * as Expr from "@tg/core-uop/Expr"
import type { ReduceOp } from "@tg/core-uop/Op"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import { beforeEach, describe, expect, it } from "vitest"

let arena = new Arena()
/** Instructions in order; `emit` puts what a node needs before it. */
let code: Array<UOp> = []
beforeEach(() => {
  arena = new Arena()
  code = []
})

const emit = (node: UOp): UOp => {
  for (const n of toposort(node)) if (!code.includes(n)) code.push(n)
  return node
}
const param = (slot: number, dtype: DType.DType, length: number): UOp =>
  arena.make("PARAM", dtype, [Expr.int(arena, length)], { slot })
const special = (name: string, size: UOp | number): UOp =>
  arena.make("SPECIAL", DType.index, [typeof size === "number" ? Expr.int(arena, size) : size], { name })
const local = (length: number, id = 0): UOp => arena.make("LOCAL", DType.f32, [], { id, length })
const reg = (initial: UOp): UOp => emit(arena.make("REG", initial.dtype, [initial], { id: arena.fresh() }))
const accumulate = (op: ReduceOp, register: UOp, value: UOp): UOp =>
  emit(arena.make("ACCUMULATE", DType.none, [register, value], { op }))
const barrier = (): void => void code.push(arena.make("BARRIER", DType.none, [], arena.fresh()))
const loop = (size: UOp | number, body: (i: UOp) => void): void => {
  const range = emit(Expr.range(arena, size, arena.fresh(), "LOOP"))
  body(range)
  emit(arena.make("END", DType.none, [range]))
}
const branch = (condition: UOp, body: () => void): void => {
  const open = emit(arena.make("IF", DType.none, [condition]))
  body()
  emit(arena.make("ENDIF", DType.none, [open]))
}
/** Reads here, also when the same load stands somewhere before. */
const load = (buffer: UOp, at: UOp, gate?: UOp): UOp => {
  const node = Expr.load(Expr.element(buffer, at, gate))
  if (code.includes(node)) code.push(node)
  return emit(node)
}
const store = (buffer: UOp, at: UOp, value: UOp, gate?: UOp): UOp =>
  emit(Expr.store(Expr.element(buffer, at, gate), value))
const c = (value: number): UOp => Expr.constant(arena, DType.f32, value)
const float = (x: UOp): UOp => Expr.cast(x, DType.f32)

const run = (
  args: ReadonlyArray<Data>,
  vars: Readonly<Record<string, number>> = {},
  checkRaces = true
): ReadonlyArray<number> => {
  const linear = arena.make("LINEAR", DType.none, code)
  expect(Spec.check("linear", linear)).toEqual([])
  evaluateLinear(linear, args, vars, { checkRaces })
  return [...args[0]!]
}
const count = (n: number, f: (i: number) => number = (i) => i): Float32Array =>
  Float32Array.from({ length: n }, (_, i) => f(i))

describe("threads and grids", () => {
  it("runs every thread of every workgroup, in three dimensions", () => {
    const sizes = [2, 3, 2, 2, 1, 2] as const
    const names = ["gidx0", "gidx1", "gidx2", "lidx0", "lidx1", "lidx2"]
    const index = names.map((name, i) => special(name, sizes[i]!)).reduce(
      (sum, s, i) => Expr.add(Expr.mul(sum, sizes[i]!), s),
      Expr.int(arena, 0)
    )
    store(param(0, DType.f32, 48), index, float(Expr.add(index, 1)))
    expect(run([new Float32Array(48)])).toEqual([...count(48, (i) => i + 1)])
  })

  it("takes the grid from variables", () => {
    const n = Expr.variable(arena, "n", 0, 8)
    const g = special("gidx0", Expr.mul(n, 2))
    store(param(0, DType.f32, 8), g, c(1))
    expect(run([new Float32Array(8)], { n: 3 })).toEqual([1, 1, 1, 1, 1, 1, 0, 0])
    expect(run([new Float32Array(8)], { n: 0 })).toEqual([0, 0, 0, 0, 0, 0, 0, 0])
  })

  it("runs GLOBAL loops where there is no grid", () => {
    const range = emit(Expr.range(arena, 4, 0, "GLOBAL"))
    store(param(0, DType.f32, 4), range, float(Expr.mul(range, range)))
    emit(arena.make("END", DType.none, [range]))
    expect(run([new Float32Array(4)])).toEqual([0, 1, 4, 9])
  })
})

describe("registers and loops", () => {
  it("accumulates, and starts again each time control passes", () => {
    const t = special("lidx0", 2)
    loop(3, (i) => {
      const sum = reg(c(0))
      loop(4, (j) => void accumulate("ADD", sum, Expr.mul(load(param(1, DType.f32, 4), j), float(Expr.add(i, 1)))))
      store(param(0, DType.f32, 6), Expr.add(Expr.mul(i, 2), t), Expr.add(sum, float(t)))
    })
    expect(run([new Float32Array(6), count(4)])).toEqual([6, 7, 12, 13, 18, 19])
  })

  it("reads a register where its user stands", () => {
    const x = reg(c(1))
    const before = emit(Expr.add(x, 0))
    accumulate("MUL", x, c(5))
    store(param(0, DType.f32, 2), Expr.int(arena, 0), before)
    store(param(0, DType.f32, 2), Expr.int(arena, 1), x)
    expect(run([new Float32Array(2)])).toEqual([1, 5])
  })

  it("rounds a sum at every step", () => {
    const sum = reg(c(2 ** 24))
    loop(2, () => void accumulate("ADD", sum, c(1)))
    store(param(0, DType.f32, 1), Expr.int(arena, 0), sum)
    expect(run([new Float32Array(1)])).toEqual([2 ** 24])
  })

  it("takes no step of a loop of size zero, and accumulates vectors", () => {
    const n = Expr.variable(arena, "n", 0, 4)
    const sum = reg(emit(Expr.splat(c(1), 4)))
    loop(
      n,
      (i) => void accumulate("MAX", sum, emit(Expr.load(Expr.element(param(1, DType.f32, 16), Expr.mul(i, 4)), 4)))
    )
    emit(Expr.store(Expr.element(param(0, DType.f32, 4), Expr.int(arena, 0)), sum))
    expect(run([new Float32Array(4), count(16)], { n: 0 })).toEqual([1, 1, 1, 1])
    expect(run([new Float32Array(4), count(16)], { n: 3 })).toEqual([8, 9, 10, 11])
  })

  it("refuses a trip count that threads disagree about", () => {
    loop(special("lidx0", 3), () => undefined)
    expect(() => run([])).toThrow("threads disagree on the trip count: 0 and 1")
  })

  it("refuses a value outside the loop that defines it", () => {
    let inside: UOp | undefined
    loop(2, (i) => inside = emit(Expr.add(i, 1)))
    store(param(0, DType.f32, 4), inside!, c(1))
    expect(() => run([new Float32Array(4)])).toThrow("outside the RANGE that defines it")
  })
})

describe("branches and gates", () => {
  it("runs only the threads whose condition holds, also nested", () => {
    const t = special("lidx0", 6)
    const x = reg(c(0))
    branch(Expr.lt(t, 4), () => {
      accumulate("ADD", x, c(1))
      branch(Expr.lt(Expr.int(arena, 1), t), () => void accumulate("ADD", x, c(10)))
    })
    store(param(0, DType.f32, 6), t, x)
    expect(run([new Float32Array(6)])).toEqual([1, 1, 11, 11, 0, 0])
  })

  it("reads nothing and writes nothing where gate or branch say no", () => {
    const t = special("lidx0", 4)
    const x = load(param(1, DType.f32, 2), t, Expr.lt(t, 2))
    branch(Expr.lt(t, 3), () => void store(param(0, DType.f32, 3), t, Expr.add(x, 1)))
    expect(run([new Float32Array(3), count(2, () => 5)])).toEqual([6, 6, 1])
  })

  it("refuses a barrier in a branch", () => {
    branch(Expr.lt(special("lidx0", 2), 1), barrier)
    expect(() => evaluateLinear(arena.make("LINEAR", DType.none, code), [])).toThrow("some threads do not get here")
  })
})

describe("memory", () => {
  it("names an element outside a buffer", () => {
    store(param(0, DType.f32, 2), special("lidx0", 3), c(1))
    expect(() => run([new Float32Array(2)])).toThrow("slot 0: element 2 is outside the 2 elements")
  })

  it("refuses a vector that is not aligned", () => {
    emit(Expr.store(Expr.element(param(0, DType.f32, 8), Expr.int(arena, 2)), emit(Expr.splat(c(1), 4))))
    expect(() => run([new Float32Array(8)])).toThrow("not a multiple of 4")
  })

  it("refuses an index beyond 32 bits", () => {
    const v = Expr.variable(arena, "v", 0, 2 ** 20)
    emit(Expr.mul(v, 4096))
    expect(() => run([], { v: 2 ** 20 })).toThrow("does not fit 32 bits")
  })

  it("notices two threads that write different values to one element, not the same value", () => {
    const t = special("lidx0", 4)
    store(param(0, DType.f32, 1), Expr.int(arena, 0), c(3))
    expect(run([new Float32Array(1)])).toEqual([3])
    store(param(0, DType.f32, 1), Expr.int(arena, 0), float(t))
    expect(() => run([new Float32Array(1)])).toThrow(/slot 0: thread \d writes element 0/)
    expect(run([new Float32Array(1)], {}, false)).toEqual([3])
  })

  it("notices threads that add to one element, unless they add atomically and nothing else touches it", () => {
    const added = (coherent: boolean, reads: boolean): ReadonlyArray<number> => {
      arena = new Arena()
      code.length = 0
      const out = emit(
        arena.make("PARAM", DType.f32, [Expr.int(arena, 1)], coherent ? { slot: 0, coherent: true } : { slot: 0 })
      )
      emit(arena.make("SPECIAL", DType.index, [Expr.int(arena, 3)], { name: "lidx0" }))
      const element = Expr.element(out, Expr.int(arena, 0))
      emit(arena.make("STORE", DType.none, [element, c(2)], { op: "ADD" }))
      if (reads) load(out, Expr.int(arena, 0))
      return run([Float32Array.of(1)])
    }
    expect(added(true, false)).toEqual([7])
    expect(() => added(false, false)).toThrow("slot 0: thread 1 reads element 0, which thread 0 wrote")
    expect(() => added(true, true)).toThrow("slot 0: thread 0 reads element 0, which an atomic operation wrote")
  })

  it("notices a workgroup that reads what another one wrote", () => {
    const g = special("gidx0", 2)
    const out = param(0, DType.f32, 3)
    store(out, Expr.add(g, 1), Expr.add(load(out, g), 1))
    expect(() => run([new Float32Array(3)])).toThrow("slot 0: thread 1 reads element 1, which thread 0 wrote")
  })

  /** Two workgroups of two threads each store values to the first elements; then each thread reads its neighbour's. */
  const neighbours = (valueOf: (g: UOp, t: UOp) => UOp, middle: () => void): ReadonlyArray<number> => {
    arena = new Arena()
    code.length = 0
    const [g, t] = [special("gidx0", 2), special("lidx0", 2)]
    const out = param(0, DType.f32, 6)
    store(out, t, valueOf(g, t))
    middle()
    store(out, Expr.add(Expr.add(t, 2), Expr.mul(g, 2)), load(out, Expr.floormod(Expr.add(t, 1), 2)))
    return run([new Float32Array(6)])
  }
  const each = (_: UOp, t: UOp): UOp => float(Expr.add(t, 5))

  it("lets a workgroup read what it wrote itself in front of a barrier, whoever else writes the same", () => {
    expect(neighbours(each, barrier)).toEqual([5, 6, 6, 5, 6, 5])
    expect(() => neighbours(each, () => {})).toThrow("slot 0: thread 0 reads element 1, which thread 1 wrote")
    expect(() => neighbours((g, t) => float(Expr.add(g, t)), barrier)).toThrow(/slot 0: thread 2 writes element 0/)
  })
})

describe("workgroup memory", () => {
  /** Each of 8 threads leaves a value; thread t takes the one of its neighbour. */
  const rotate = (middle: () => void): void => {
    const t = special("lidx0", 8)
    const shared = local(8)
    store(shared, t, float(Expr.mul(t, 10)))
    middle()
    store(param(0, DType.f32, 8), t, load(shared, Expr.floormod(Expr.add(t, 1), 8)))
  }

  it("passes values between threads over a barrier", () => {
    rotate(barrier)
    expect(run([new Float32Array(8)])).toEqual([10, 20, 30, 40, 50, 60, 70, 0])
  })

  it("notices the missing barrier before a read", () => {
    rotate(() => undefined)
    expect(() => run([new Float32Array(8)])).toThrow(
      "local 0: thread 0 reads element 1, which thread 1 wrote with no BARRIER"
    )
  })

  it("notices the missing barrier before the next write", () => {
    const t = special("lidx0", 4)
    const shared = local(4)
    const x = reg(float(t))
    const rounds = (last: () => void) =>
      loop(2, (i) => {
        store(shared, t, Expr.add(x, float(i)))
        barrier()
        accumulate("ADD", x, load(shared, Expr.floormod(Expr.add(t, 1), 4)))
        last()
      })
    rounds(() => undefined)
    expect(() => run([])).toThrow(/thread 0 writes element 0, which thread 3 read with no BARRIER/)
    code = []
    reg(float(t))
    const y = reg(float(t))
    loop(2, (i) => {
      store(shared, t, Expr.add(y, float(i)))
      barrier()
      accumulate("ADD", y, load(shared, Expr.floormod(Expr.add(t, 1), 4)))
      barrier()
    })
    store(param(0, DType.f32, 4), t, y)
    // round 0: y = t + t1; round 1: y + (y1 + 1), with t1 the next thread
    expect(run([new Float32Array(4)])).toEqual([1 + 3 + 1, 3 + 5 + 1, 5 + 3 + 1, 3 + 1 + 1])
  })

  it("notices reading what nobody wrote, in every workgroup anew", () => {
    const shared = local(2)
    const g = special("gidx0", 2)
    branch(Expr.lt(g, 1), () => void store(shared, Expr.int(arena, 0), c(1)))
    barrier()
    store(param(0, DType.f32, 2), g, load(shared, Expr.int(arena, 0)))
    expect(() => run([new Float32Array(2)])).toThrow("reads element 0 of workgroup memory that nobody wrote")
  })

  it("reduces a row as a tree, and agrees with the kernel", () => {
    const [rows, width] = [3, 16]
    const x = (at: UOp) => Expr.load(Expr.element(param(1, DType.f32, rows * width), at))
    const i = Expr.range(arena, rows, 100, "GLOBAL")
    const r = Expr.range(arena, width, 101, "REDUCE")
    const sum = Expr.reduce("ADD", x(Expr.add(Expr.mul(i, width), r)), [r])
    const end = arena.make("END", DType.none, [Expr.store(Expr.element(param(0, DType.f32, rows), i), sum), i])
    const data = count(rows * width, (n) => (n * 7) % 13 - 5) // integers: every order of the sum is exact
    const wanted = new Float32Array(rows)
    evaluateKernel(arena.make("SINK", DType.none, [end]), [wanted, data])

    const g = special("gidx0", rows)
    const t = special("lidx0", width)
    const shared = local(width)
    store(shared, t, emit(x(Expr.add(Expr.mul(g, width), t))))
    for (let half = width / 2; half >= 1; half /= 2) {
      barrier()
      const other = emit(Expr.add(t, half))
      branch(Expr.lt(t, half), () => void store(shared, t, Expr.add(load(shared, t), load(shared, other))))
    }
    barrier()
    branch(Expr.eq(t, 0), () => void store(param(0, DType.f32, rows), g, load(shared, Expr.int(arena, 0))))
    expect(run([new Float32Array(rows), data])).toEqual([...wanted])
  })
})

describe("subgroups", () => {
  const reduceOver = (threads: number): void => {
    const t = special("lidx0", 8)
    const total = emit(arena.make("SUBGROUP_REDUCE", DType.f32, [float(t)], { op: "ADD", threads }))
    store(param(0, DType.f32, 8), t, total)
  }

  it("combines over aligned groups of neighbours, for all of them", () => {
    reduceOver(4)
    expect(run([new Float32Array(8)])).toEqual([6, 6, 6, 6, 22, 22, 22, 22])
  })

  it("refuses groups that the workgroup does not fill", () => {
    reduceOver(16)
    expect(() => run([new Float32Array(8)])).toThrow("not whole groups of 16")
  })

  it("refuses a group of which only some threads are there", () => {
    const t = special("lidx0", 4)
    branch(Expr.lt(t, 2), () => {
      emit(arena.make("SUBGROUP_REDUCE", DType.f32, [float(t)], { op: "MAX", threads: 4 }))
    })
    expect(() => run([])).toThrow("only some threads of the group at 0 are here")
  })
})

describe("vectors", () => {
  it("loads, computes lane by lane, takes lanes out and stores", () => {
    const t = special("lidx0", 2)
    const v = emit(Expr.load(Expr.element(param(1, DType.f32, 8), Expr.mul(t, 4)), 4))
    const doubled = emit(Expr.mul(v, 2))
    const mixed = emit(arena.make("STACK", DType.make("f32", 2), [Expr.lane(doubled, 3), Expr.lane(v, 0)]))
    emit(Expr.store(Expr.element(param(0, DType.f32, 4), Expr.mul(t, 2)), mixed))
    expect(run([new Float32Array(4), count(8)])).toEqual([6, 0, 14, 4])
  })
})
