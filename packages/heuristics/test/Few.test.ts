import { assert, describe, it } from "@effect/vitest"
import { h200, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import { IllegalOpt, legal } from "@tg/postrange/Postrange"
import { choose } from "../src/Heuristics.ts"

const usual = [2048, 1024] as const
const [rows] = usual

/** out[t, r] = sum over k of w[r, k] * x[t, k], or of a matrix for each token. */
const product = (tokens: number, matrices: "one" | "own", [rows, terms]: readonly [number, number] = usual) => {
  const arena = new Arena()
  const param = (slot: number, length: number) => arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot })
  const [t, r, k] = [
    Expr.range(arena, tokens, 0, "GLOBAL"),
    Expr.range(arena, rows, 1, "GLOBAL"),
    Expr.range(arena, terms, 2, "REDUCE")
  ]
  const row = matrices === "one" ? r : Expr.add(Expr.mul(t, rows), r)
  const w = Expr.load(Expr.element(param(1, tokens * rows * terms), Expr.add(Expr.mul(row, terms), k)))
  const x = Expr.load(Expr.element(param(2, tokens * terms), Expr.add(Expr.mul(t, terms), k)))
  const sum = Expr.reduce("ADD", Expr.mul(w, x), [k])
  const store = Expr.store(Expr.element(param(0, tokens * rows), Expr.add(Expr.mul(t, rows), r)), sum)
  return arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, t, r])])
}

const optsOf = (...[tokens, matrices, profile]: [number, "one" | "own", typeof h200]) =>
  choose(product(tokens, matrices), profile).map(Opt.print)

/** A product of bytes, with rows of 24 blocks. */
const productOfBytes = (tokens: number, rows: number = usual[0]) => {
  const arena = new Arena()
  const [blocks, words] = [24, 8]
  const param = (slot: number, length: number) => arena.make("PARAM", DType.u32, [Expr.int(arena, length)], { slot })
  const [t, r, block, word] = [
    Expr.range(arena, tokens, 0, "GLOBAL"),
    Expr.range(arena, rows, 1, "GLOBAL"),
    Expr.range(arena, blocks, 2, "REDUCE"),
    Expr.range(arena, words, 3, "REDUCE")
  ]
  const at = (row: UOp) => Expr.add(Expr.mul(Expr.add(Expr.mul(row, blocks), block), words), word)
  const w = Expr.load(Expr.element(param(1, rows * blocks * words), at(r)))
  const x = Expr.load(Expr.element(param(2, tokens * blocks * words), at(t)))
  const dot = arena.make("CAST", DType.f32, [Expr.reduce("ADD", arena.make("DOT4I8", DType.i32, [x, w]), [word])])
  const out = arena.make("PARAM", DType.f32, [Expr.int(arena, tokens * rows)], { slot: 0 })
  const store = Expr.store(Expr.element(out, Expr.add(Expr.mul(t, rows), r)), Expr.reduce("ADD", dot, [block]))
  return arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, t, r])])
}
const bytesOf = (tokens: number, rows?: number) => choose(productOfBytes(tokens, rows), h200)

describe("a product of a few tokens with one matrix", () => {
  it("gives a thread all of them, so that a weight is read once", () => {
    for (const tokens of [2, 4, 16]) assert.include(optsOf(tokens, "one", h200), `UPCAST(r0, ${tokens})`)
  })
  it("gives a thread a square of floats of 8 tokens, as large as its rows allow, and the others to workgroups of their own", () => {
    const opts = optsOf(8, "one", h200)
    assert.include(opts, "UPCAST(r0, 4)")
    assert.include(opts, "UPCAST(r1, 4)")
    assert.isFalse(opts.some((opt) => opt.startsWith("LOCAL(r0")))
    const pairs = choose(product(8, "one", [2050, 1024]), h200).map(Opt.print)
    assert.include(pairs, "UPCAST(r0, 2)")
    assert.include(pairs, "UPCAST(r1, 2)")
  })
  it("gives it four where registers are few", () => {
    assert.include(optsOf(16, "one", webgpuDefault), "UPCAST(r0, 4)")
  })
  it("gives two threads half of twice as many, in the shape of one tile", () => {
    assert.deepStrictEqual(optsOf(32, "one", h200), optsOf(16, "one", h200))
  })
  it("gives a thread four rows for a quarter of the tokens where products are of bytes, and the others to threads beside it", () => {
    const shapeOf = (tokens: number, rows?: number) =>
      bytesOf(tokens, rows).map(Opt.print).filter((opt) => /^(UPCAST|LOCAL)\(r[01],/.test(opt))
    assert.deepStrictEqual(shapeOf(16, 4096).slice(0, 3), ["UPCAST(r0, 4)", "LOCAL(r0, 4)", "UPCAST(r1, 4)"])
    assert.deepStrictEqual(shapeOf(32, 4096).slice(0, 3), ["UPCAST(r0, 8)", "LOCAL(r0, 4)", "UPCAST(r1, 4)"])
  })
  it("gives a thread squares of 8 tokens in bytes and columns of 4, as long as threads enough remain, with the other tokens in workgroups of their own", () => {
    const tileOf = (tokens: number, rows: number) =>
      bytesOf(tokens, rows).map(Opt.print).filter((opt) => /^UPCAST\(r[01],/.test(opt))
    // of 121651 threads that nearly saturate an H200, 8 for each row
    assert.deepStrictEqual(tileOf(8, 8192), ["UPCAST(r0, 2)", "UPCAST(r1, 2)"])
    assert.deepStrictEqual(tileOf(8, 4096), ["UPCAST(r1, 2)"])
    assert.deepStrictEqual(tileOf(4, 16384), ["UPCAST(r0, 4)"])
    assert.deepStrictEqual(tileOf(4, 8192), ["UPCAST(r0, 2)"])
    assert.deepStrictEqual(tileOf(4, 4096), [])
    for (const tokens of [4, 8]) {
      assert.isFalse(bytesOf(tokens).map(Opt.print).some((opt) => opt.startsWith("LOCAL(r0")))
    }
  })
  it("reads very many rows once for up to 8 tokens, with four rows for each thread", () => {
    const tileOf = (tokens: number) =>
      bytesOf(tokens, 154880).map(Opt.print).filter((opt) => /^UPCAST\(r[01],/.test(opt))
    assert.deepStrictEqual(tileOf(1), ["UPCAST(r1, 2)"])
    assert.deepStrictEqual(tileOf(4), ["UPCAST(r0, 4)", "UPCAST(r1, 4)"])
    assert.deepStrictEqual(tileOf(16), ["UPCAST(r0, 8)", "UPCAST(r1, 4)"])
  })
  it("gives a thread fewer rows where too few threads would remain", () => {
    assert.include(bytesOf(16).map(Opt.print), "UPCAST(r1, 2)")
    assert.isFalse(bytesOf(16, 512).map(Opt.print).some((opt) => opt.startsWith("UPCAST(r1")))
  })
  it("has the values of bytes", () => {
    const [tokens, rows] = [16, 8192]
    const plain = productOfBytes(tokens, rows)
    const inputs = [rows, tokens].map((own, slot) =>
      Uint32Array.from({ length: own * 24 * 8 }, (_, i) => (i * 2654435761 + slot * 40503) >>> 0)
    )
    const valuesOf = (kernel: UOp | IllegalOpt): Float32Array => {
      if (kernel instanceof IllegalOpt) throw kernel
      const out = new Float32Array(tokens * rows).fill(NaN)
      evaluateKernel(kernel, [out, ...inputs], {}, { checkWrites: true })
      return out
    }
    assert.deepStrictEqual(valuesOf(legal(plain, bytesOf(tokens, rows), h200)), valuesOf(plain))
  })
  it("has their values", () => {
    const [tokens, rows, terms] = [32, 128, 16]
    const plain = product(tokens, "one", [rows, terms])
    const opts = choose(plain, h200)
    assert.include(opts.map(Opt.print), "UPCAST(r0, 16)")
    const inputs = [tokens * rows * terms, tokens * terms].map((length, slot) =>
      Float32Array.from({ length }, (_, i) => (i * 13 + slot * 7) % 29 - 14)
    )
    const valuesOf = (kernel: UOp | IllegalOpt): Float32Array => {
      if (kernel instanceof IllegalOpt) throw kernel
      const out = new Float32Array(tokens * rows).fill(NaN)
      evaluateKernel(kernel, [out, ...inputs], {}, { checkWrites: true })
      return out
    }
    // sums of whole numbers below 2^24 are exact in any order
    assert.deepStrictEqual(valuesOf(legal(plain, opts, h200)), valuesOf(plain))
  })
  it("has several rows for a thread beside up to 8 tokens, and neighbouring activations for neighbouring threads beside a full tile", () => {
    const ofHead = (tokens: number) => choose(product(tokens, "one", [5120, 512]), h200).map(Opt.print)
    assert.include(ofHead(8), "UPCAST(r1, 4)")
    assert.isFalse(ofHead(16).some((opt) => opt.startsWith("UPCAST(r1")))
  })
  it("leaves tokens that have a matrix each, and those that fill no tiles or more than two", () => {
    for (const opts of [optsOf(4, "own", h200), ...[20, 24, 48].map((tokens) => optsOf(tokens, "one", h200))]) {
      assert.isFalse(opts.some((opt) => opt.startsWith("UPCAST(r0")))
    }
  })
  it("has rows of a power of two of threads, which a subgroup adds up", () => {
    const opts = bytesOf(4).map(Opt.print)
    assert.include(opts, "GROUP(r2, 8)")
    // one token: as many threads as divide the row
    assert.include(bytesOf(1).map(Opt.print), "GROUP(r2, 24)")
  })
})

/** The opts of the sum over the four experts that each token has chosen, by index, beside a product with one matrix; products of bytes. */
const downOf = (tokens: number, { pairs = false, profile = h200 } = {}) => {
  const arena = new Arena()
  const [experts, blocks, words] = [4, 48, 8]
  const param = (slot: number, length: number) => arena.make("PARAM", DType.u32, [Expr.int(arena, length)], { slot })
  const [t, r] = [Expr.range(arena, tokens, 0, "GLOBAL"), Expr.range(arena, rows, 1, "GLOBAL")]
  const at = (row: UOp, block: UOp, word: UOp) =>
    Expr.add(Expr.mul(Expr.add(Expr.mul(row, blocks), block), words), word)
  const dot = (w: UOp, x: UOp, word: UOp) =>
    arena.make("CAST", DType.f32, [Expr.reduce("ADD", arena.make("DOT4I8", DType.i32, [x, w]), [word])])
  const load = (slot: number, length: number, place: UOp) => Expr.load(Expr.element(param(slot, length), place))
  const own = (() => {
    const sizes = [experts, pairs ? blocks / 2 : blocks, words]
    const [k, each, word] = [2, 3, 4].map((id, i) => Expr.range(arena, sizes[i]!, id, "REDUCE"))
    const half = Expr.range(arena, 2, 7, "REDUCE")
    const block = pairs ? Expr.add(Expr.mul(each!, 2), half) : each
    const pair = Expr.add(Expr.mul(t, experts), k!)
    const expert = arena.make("CAST", DType.index, [load(3, tokens * experts, pair)])
    const w = load(1, 64 * rows * blocks * words, at(Expr.add(Expr.mul(expert, rows), r), block!, word!))
    return Expr.reduce("ADD", dot(w, load(2, tokens * experts * blocks * words, at(pair, block!, word!)), word!), [
      k!,
      each!,
      ...(pairs ? [half] : [])
    ])
  })()
  const [block, word] = [Expr.range(arena, blocks, 5, "REDUCE"), Expr.range(arena, words, 6, "REDUCE")]
  const shared = Expr.reduce(
    "ADD",
    dot(load(4, rows * blocks * words, at(r, block, word)), load(5, tokens * blocks * words, at(t, block, word)), word),
    [block]
  )
  const out = arena.make("PARAM", DType.f32, [Expr.int(arena, tokens * rows)], { slot: 0 })
  const store = Expr.store(Expr.element(out, Expr.add(Expr.mul(t, rows), r)), Expr.add(own, shared))
  return choose(arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, t, r])]), profile).map(Opt.print)
}

describe("rows of the experts that tokens have chosen", () => {
  it("are outside of the tokens in the grid, so that an expert is read once for all that have chosen it", () => {
    for (const tokens of [2, 4, 8, 16]) {
      const order = downOf(tokens).filter((opt) => opt.startsWith("OUTER"))
      assert.lengthOf(order, 1)
      assert.match(order[0]!, /OUTER\(r1, /)
    }
  })
  it("share what they read in a thread, as many as leave the device saturated", () => {
    const rowsOf = (tokens: number) => downOf(tokens).filter((opt) => opt.startsWith("UPCAST(r1"))
    assert.deepStrictEqual([2, 4, 8, 16].map(rowsOf), [[], ["UPCAST(r1, 2)"], ["UPCAST(r1, 4)"], ["UPCAST(r1, 4)"]])
  })
  it("go in pairs where there are many times as many as saturate the device", () => {
    assert.include(downOf(32), "UPCAST(r1, 2)")
  })
  it("take a subgroup, which meets at no barrier, where that saturates the device", () => {
    const threads = (tokens: number) =>
      downOf(tokens).flatMap((opt) => /^GROUP\(r([234]), (\d+)\)/.exec(opt)?.[2] ?? []).reduce(
        (n, size) => n * Number(size),
        1
      )
    assert.strictEqual(threads(2), 64)
    for (const tokens of [4, 8, 16, 32]) {
      assert.strictEqual(threads(tokens), 32)
      assert.include(downOf(tokens), "LOCAL(r1, 8)")
    }
  })
  it("have a subgroup for each workgroup, where large ones would be fewer than two for each processor", () => {
    // as an H100 was measured
    const profile = { ...h200, saturatingThreads: 67584 }
    const rowsOf = (tokens: number) => downOf(tokens, { profile }).filter((opt) => /^(UPCAST|LOCAL)\(r1,/.test(opt))
    assert.deepStrictEqual(rowsOf(2), ["UPCAST(r1, 2)"])
    assert.deepStrictEqual(rowsOf(8), ["UPCAST(r1, 4)", "LOCAL(r1, 8)"])
  })
  it("are read by neighbouring threads, of which pairs take the blocks whose scales share a word", () => {
    const groups = downOf(16, { pairs: true }).filter((opt) => /^GROUP\(r[237],/.test(opt))
    assert.deepStrictEqual(groups, ["GROUP(r7, 2)", "GROUP(r2, 4)", "GROUP(r3, 4)"])
  })
  it("are in their order where there is one token", () => {
    assert.isEmpty(downOf(1).filter((opt) => opt.startsWith("OUTER")))
  })
})

/** Blocks of each token's row, 12 words each, which read a sum over the whole row that their workgroup stages. */
const blocksOf = (tokens: number): UOp => {
  const arena = new Arena()
  const [blocks, words, values] = [64, 12, 32]
  const param = (slot: number, length: number): UOp =>
    arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot })
  const [t, b, w] = [tokens, blocks, words].map((size, id) => Expr.range(arena, size, id, "GLOBAL")) as [UOp, UOp, UOp]
  const [k, v] = [Expr.range(arena, blocks * values, 3, "REDUCE"), Expr.range(arena, values, 4, "REDUCE")]
  const x = (column: UOp): UOp =>
    Expr.load(
      Expr.element(param(1, tokens * blocks * values), Expr.add(Expr.mul(t, blocks * values), column))
    )
  const local = Expr.element(arena.make("LOCAL", DType.f32, [t], { id: 0, length: 1 }), Expr.int(arena, 0))
  const staged = Expr.store(local, Expr.reduce("ADD", x(k), [k]))
  const value = Expr.mul(x(Expr.add(Expr.mul(b, values), v)), arena.make("CAST", DType.f32, [w]))
  const largest = Expr.reduce("MAX", value, [v])
  const place = Expr.add(Expr.mul(Expr.add(Expr.mul(t, blocks), b), words), w)
  const stored = Expr.store(
    Expr.element(param(0, tokens * blocks * words), place),
    Expr.add(largest, Expr.load(local))
  )
  return arena.make("SINK", DType.none, [
    arena.make("END", DType.none, [staged, t]),
    arena.make("END", DType.none, [stored, t, b, w])
  ])
}

describe("blocks of a few tokens' rows that read what a workgroup stages", () => {
  it("are as many in a workgroup as it has threads for and leave enough workgroups", () => {
    const inWorkgroup = (tokens: number): ReadonlyArray<string> =>
      choose(blocksOf(tokens), h200).map(Opt.print).filter((opt) => opt.startsWith("LOCAL(r1"))
    assert.deepStrictEqual([8, 16, 32].map(inWorkgroup), [["LOCAL(r1, 4)"], ["LOCAL(r1, 8)"], ["LOCAL(r1, 16)"]])
  })
  it("have their values", () => {
    const tokens = 8
    const plain = blocksOf(tokens)
    const x = Float32Array.from({ length: tokens * 64 * 32 }, (_, i) => (i * 13) % 29 - 14)
    const valuesOf = (kernel: UOp | IllegalOpt): Float32Array => {
      if (kernel instanceof IllegalOpt) throw kernel
      const out = new Float32Array(tokens * 64 * 12).fill(NaN)
      evaluateKernel(kernel, [out, x], {}, { checkWrites: true })
      return out
    }
    // sums of whole numbers are exact in any order
    assert.deepStrictEqual(valuesOf(legal(plain, choose(plain, h200), h200)), valuesOf(plain))
  })
})

/** The largest of each part of a row, as far as it is the largest of the row, which each workgroup finds among the 160 parts' largest first. */
const placesOf = (tokens: number): UOp => {
  const arena = new Arena()
  const [parts, values] = [160, 1024]
  const param = (slot: number, length: number): UOp =>
    arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot })
  const load = (slot: number, length: number, at: UOp): UOp => Expr.load(Expr.element(param(slot, tokens * length), at))
  const [t, p] = [tokens, parts].map((size, id) => Expr.range(arena, size, id, "GLOBAL")) as [UOp, UOp]
  const [k, v] = [Expr.range(arena, parts, 2, "REDUCE"), Expr.range(arena, values, 3, "REDUCE")]
  const part = Expr.add(Expr.mul(t, parts), p)
  const local = Expr.element(arena.make("LOCAL", DType.f32, [t], { id: 0, length: 1 }), Expr.int(arena, 0))
  const largest = Expr.reduce("MAX", load(1, parts, Expr.add(Expr.mul(t, parts), k)), [k])
  const value = load(2, parts * values, Expr.add(Expr.mul(part, values), v))
  const found = Expr.reduce("MAX", Expr.mul(value, Expr.load(local)), [v])
  return arena.make("SINK", DType.none, [
    arena.make("END", DType.none, [Expr.store(local, largest), t]),
    arena.make("END", DType.none, [Expr.store(Expr.element(param(0, tokens * parts), part), found), t, p])
  ])
}

describe("a long reduction behind a staged one of 160 terms", () => {
  it.each([1, 2, 4, 8, 16])("is split over threads, for %i tokens", (tokens) => {
    const groups = choose(placesOf(tokens), h200).filter(({ kind, range }) => kind === "GROUP" && range === 3)
    assert.isAtLeast(groups.reduce((n, { amount }) => n * amount, 1), 32)
  })
})
