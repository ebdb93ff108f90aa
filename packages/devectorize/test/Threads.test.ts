import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { evaluateIndex } from "@tg/core-uop/Program"
import { Arena, type Axis, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import { expand } from "../src/Expand.ts"
import { addThreads, GridProblem } from "../src/Threads.ts"
import * as Kernels from "./support/kernels.ts"
import { gpu, opted } from "./support/stages.ts"

/** Stores 1 at the row-major place of its loops. */
const fill = (sizes: ReadonlyArray<number | UOp>, axes: ReadonlyArray<Axis>, arena = new Arena()): UOp => {
  const ranges = sizes.map((size, id) => Expr.range(arena, size, id, axes[id]!))
  const at = ranges.reduce<UOp>((sum, r) => Expr.add(Expr.mul(sum, r.src[0]!), r), Expr.int(arena, 0))
  const out = arena.make("PARAM", DType.f32, [Expr.int(arena, 2 ** 24)], { slot: 0 })
  const store = Expr.store(Expr.element(out, at), Expr.constant(arena, DType.f32, 1))
  return arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, ...ranges])])
}

const mapped = (kernel: UOp, maxGrid = 65535): UOp => {
  const result = addThreads(kernel, maxGrid)
  if (result instanceof GridProblem) throw result
  return result
}

interface Launch {
  readonly names: ReadonlyArray<string>
  readonly sizes: ReadonlyArray<UOp>
  /** Where each thread stores, by hardware index. */
  readonly at: (indices: ReadonlyArray<number>, vars?: Readonly<Record<string, number>>) => number
  readonly stores: (indices: ReadonlyArray<number>, vars?: Readonly<Record<string, number>>) => boolean
}

const launchOf = (kernel: UOp): Launch => {
  const nameOf = (special: UOp): string => (special.arg as { name: string }).name
  const specials = toposort(kernel).filter((n) => n.op === "SPECIAL").toSorted((a, b) => nameOf(a) < nameOf(b) ? -1 : 1)
  const names = specials.map(nameOf)
  const variables = specials.map((n, i) => Expr.variable(n.arena, names[i]!, 0, 2 ** 30))
  const [, at, gate] = toposort(kernel).find((n) => n.op === "STORE")!.src[0]!.src
  const value = (node: UOp): Launch["at"] => {
    const expression = substitute(node, new Map(specials.map((n, i) => [n, variables[i]!])))
    return (indices, vars = {}) =>
      evaluateIndex(expression, { ...vars, ...Object.fromEntries(names.map((n, i) => [n, indices[i]!])) })
  }
  return {
    names,
    sizes: specials.map((n) => n.src[0]!),
    at: value(at!),
    stores: (indices, vars) => gate === undefined || value(gate)(indices, vars) === 1
  }
}

const combinations = (sizes: ReadonlyArray<number>): ReadonlyArray<ReadonlyArray<number>> =>
  sizes.reduce<ReadonlyArray<ReadonlyArray<number>>>(
    (list, size) => list.flatMap((head) => Array.from({ length: size }, (_, i) => [...head, i])),
    [[]]
  )

/** Every element is stored by exactly one thread. */
const checkBijective = (kernel: UOp, count: number, vars: Readonly<Record<string, number>> = {}): Launch => {
  const launch = launchOf(kernel)
  const sizes = launch.sizes.map((size) => evaluateIndex(size, vars))
  const places = combinations(sizes).map((indices) => launch.at(indices, vars)).toSorted((a, b) => a - b)
  assert.deepStrictEqual(places, Array.from({ length: count }, (_, i) => i))
  return launch
}

const globals = ["GLOBAL", "GLOBAL", "GLOBAL", "GLOBAL"] as const

describe("Threads", () => {
  it("maps up to four loops to the grid, one to one", () => {
    for (const sizes of [[7], [3, 5], [2, 3, 4], [2, 3, 2, 5], [1, 6]]) {
      const count = sizes.reduce((n, d) => n * d, 1)
      for (const maxGrid of [65535, 16, 7]) checkBijective(mapped(fill(sizes, globals), maxGrid), count)
    }
  })

  it("merges loops into one dimension as far as the limit allows, the innermost first", () => {
    const grid = (maxGrid: number): ReadonlyArray<unknown> =>
      launchOf(mapped(fill([4, 3, 5], globals), maxGrid)).sizes.map((s) => s.arg)
    assert.deepStrictEqual(grid(60), [60])
    assert.deepStrictEqual(grid(59), [15, 4])
    assert.deepStrictEqual(grid(14), [5, 12])
  })

  it("splits a loop that is larger than a grid dimension", () => {
    checkBijective(mapped(fill([24], globals), 6), 24)
    checkBijective(mapped(fill([24, 3], globals), 8), 72)
    const large = launchOf(mapped(fill([2 ** 20], globals)))
    assert.deepStrictEqual(large.sizes.map((s) => s.arg), [32768, 32])
    assert.strictEqual(large.at([32767, 31]), 2 ** 20 - 1)
    assert.strictEqual(large.at([5, 2]), 5 + 2 * 32768)
  })

  it("gives symbolic loops a dimension of their own", () => {
    const arena = new Arena()
    const n = Expr.variable(arena, "n", 1, 7)
    for (let value = 1; value <= 7; value++) {
      const launch = checkBijective(mapped(fill([n, 3], globals, arena)), 3 * value, { n: value })
      assert.isTrue(launch.sizes[0] === Expr.int(arena, 3) && launch.sizes[1] === n)
    }
    checkBijective(mapped(fill([2, n, 3], globals, arena)), 24, { n: 4 })
  })

  it("puts local loops on one line of threads, the last one fastest", () => {
    const kernel = mapped(fill([3, 4, 2], ["GLOBAL", "LOCAL", "LOCAL"]))
    const launch = checkBijective(kernel, 24)
    const thread = launch.names.indexOf("lidx0")
    assert.strictEqual(launch.sizes[thread]!.arg, 8)
    const at = (t: number): number => launch.at(launch.names.map((_, i) => i === thread ? t : 0))
    assert.deepStrictEqual([0, 1, 2, 7].map(at), [0, 1, 2, 7])
  })

  it("lets only the first thread of a group store", () => {
    const kernel = mapped(expand(opted(Kernels.sums(), [Opt.group(1, 8), Opt.local(0, 3)]), gpu))
    const store = toposort(kernel).find((n) => n.op === "STORE")!
    const lidx = toposort(kernel).find((n) => n.op === "SPECIAL" && (n.arg as { name: string }).name === "lidx0")!
    assert.strictEqual(lidx.src[0]!.arg, 24)
    const gate = substitute(store.src[0]!.src[2]!, new Map([[lidx, Expr.variable(kernel.arena, "t", 0, 23)]]))
    const storing = Array.from({ length: 24 }, (_, t) => t).filter((t) => evaluateIndex(gate, { t }) === 1)
    assert.deepStrictEqual(storing, [0, 8, 16])
  })

  it("has threads for a group even if the value is the same for all of them", () => {
    const kernel = mapped(expand(opted(Kernels.constantReduction(), [Opt.group(1, 3)]), gpu))
    assert.include(launchOf(kernel).names, "lidx0")
  })

  it("keeps loops inside of threads", () => {
    const kernel = mapped(expand(opted(Kernels.elementwise(), [Opt.loop(0, 6)]), gpu))
    assert.deepStrictEqual(kernel.src[0]!.src.slice(1).map((r) => r.src[0]!.arg), [6])
  })

  it("covers a loop that does not split, and stores nothing behind its end", () => {
    const arena = new Arena()
    const n = Expr.variable(arena, "n", 1, 40)
    const covers = (kernel: UOp, count: number, vars: Readonly<Record<string, number>> = {}): void => {
      const launch = launchOf(kernel)
      const sizes = launch.sizes.map((size) => evaluateIndex(size, vars))
      for (const size of sizes) assert.isAtMost(size, 7)
      const all = combinations(sizes)
      const places = all.filter((i) => launch.stores(i, vars)).map((i) => launch.at(i, vars)).toSorted((a, b) => a - b)
      assert.deepStrictEqual(places, Array.from({ length: count }, (_, i) => i))
      assert.isTrue(all.every((i) => launch.at(i, vars) < count))
    }
    for (const size of [11, 13, 22, 46, 47]) covers(mapped(fill([size], globals), 7), size)
    covers(mapped(fill([3, 11], globals), 7), 33)
    for (let value = 1; value <= 40; value++) {
      covers(mapped(fill([n], globals, arena), 7), value, { n: value })
      covers(mapped(fill([n, 3], globals, arena), 7), 3 * value, { n: value })
    }
  })

  it("stores nothing where a loop that runs once at most does not run", () => {
    const arena = new Arena()
    const more = Expr.max(Expr.sub(Expr.variable(arena, "n", 1, 5), Expr.int(arena, 4)), Expr.int(arena, 0))
    const launch = launchOf(mapped(fill([more, 3], globals, arena), 7))
    assert.deepStrictEqual(launch.sizes.map((size) => evaluateIndex(size, {})), [3])
    for (const n of [1, 4, 5]) assert.strictEqual(launch.stores([2], { n }), n === 5)
  })

  it("says which grid the device cannot express", () => {
    assert.deepStrictEqual(
      addThreads(fill([50], globals), 7),
      new GridProblem({ message: "a loop of 50 workgroups does not fit a grid of 7 squared" })
    )
    assert.deepStrictEqual(
      addThreads(fill([5, 5, 5, 5], globals), 6),
      new GridProblem({ message: "4 grid dimensions are needed, there are 3" })
    )
  })
})
