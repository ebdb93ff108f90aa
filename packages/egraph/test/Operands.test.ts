import { type DeviceProfile, h200, wasm } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import { cheapest, costsOf, costsOfRows, type Form } from "@tg/egraph/OperandCost"
import { ofBody } from "@tg/egraph/Operands"
import { inPlaceIn, roundedIn } from "@tg/egraph/Rounded"
import { round } from "@tg/egraph/rules/index"
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import { param, Tensor } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { difference } from "./support/programs.ts"
import { random } from "./support/random.ts"

/** Devices on which each form of one row takes least. */
const devices: Readonly<Record<Exclude<Form, "stored values">, DeviceProfile>> = {
  floats: { ...h200, operationsPerByte: 1e9 },
  "bytes in place": { ...h200, operationsPerByte: 1e-9, loadMicros: 1e9 },
  "stored bytes": { ...h200, operationsPerByte: 1e-9, stageMicros: 1e9 }
}
const forms = Object.keys(devices) as ReadonlyArray<keyof typeof devices>

/** What makes tensors, weights and products that a policy leaves to costs. */
const maker = (seed: number) => {
  const rng = random(seed)
  const arena = new Arena()
  const buffers = new Map<UOp, Float32Array | Uint32Array>()
  const byte = (): number => 8 + Math.floor(rng.next() * 100)
  const tensor = (shape: ReadonlyArray<number>, dtype: DType.DType = DType.f32): Tensor => {
    const x = param(arena, buffers.size, { shape, dtype })
    const count = shape.reduce((a, b) => a * b, 1)
    const word = () => byte() | byte() << 8 | byte() << 16 | byte() << 24
    buffers.set(
      x.node,
      dtype === DType.u32
        ? Uint32Array.from({ length: count }, word)
        : Float32Array.from({ length: count }, () => 0.25 + 0.75 * rng.next())
    )
    return x
  }
  const weight = (rows: number, columns: number): Int8.Rows => {
    const scale = tensor([rows, columns / 32, rng.pick([1, 2])])
    return {
      words: tensor([rows, columns / 32, 2, 4], DType.u32),
      scale,
      zero: rng.pick([0, 8]),
      minimum: rng.pick([undefined, scale.mul(0.5)])
    }
  }
  /** Products of one value, whose records they share. */
  const products = (x: Tensor, weights: ReadonlyArray<Int8.Rows>): ReadonlyArray<Tensor> => {
    const records = Int8.quantise(x).label("int8").contiguous()
    return weights.map((rows, i) =>
      Int8.contract(records, rows, () => Nn.contract(x, Int8.values(rows), Int8.rowRank)).label(`y${i}`)
    )
  }
  const values = ({ src }: UOp) => evaluate(src, { buffers }).map((value) => Array.from(value!.data))
  const body = (results: ReadonlyArray<Tensor>): UOp => arena.make("TUPLE", DType.none, results.map(({ node }) => node))
  return { rng, arena, tensor, weight, products, values, body }
}

/** A norm, of what is there or was just computed. */
const sample = (seed: number) => {
  const { body, products, rng, tensor, values, weight } = maker(seed)
  const width = 32 * rng.pick([1, 2, 3, 8])
  const x = rng.pick([
    () => tensor([1, width]),
    () => Nn.contract(tensor([1, 32]), tensor([width, 32]), 1),
    () => tensor([1, width]).add(1)
  ])()
  const normed = Nn.rmsNorm(x, tensor([width]), 1e-5).label("norm")
  return { values, body: body(products(normed, [3, 5].slice(rng.pick([0, 1])).map((rows) => weight(rows, width)))) }
}

const isFormed = (node: UOp, form: Form): boolean =>
  form === "floats"
    ? Int8.productOf(new Tensor(node)) === undefined
    : (form === "bytes in place" ? inPlaceIn : roundedIn)(node) !== undefined

describe("how products read what they may round", () => {
  for (const form of forms) {
    it(`${form}, where they take least: within 2^-7 of what is stated`, () => {
      for (const seed of Array.from({ length: 40 }, (_, i) => i + 1)) {
        const { body, values } = sample(seed)
        const chosen = ofBody(body, devices[form])
        expect(chosen.reports.map((report) => [report.label, report.form])).toEqual([["norm", form]])
        expect(chosen.body.src.every((node) => isFormed(node, form))).toBe(true)
        expect(chosen.body.src.map((node) => body.arena.labelOf(node))).toEqual(
          body.src.map((node) => body.arena.labelOf(node))
        )
        const after = values(chosen.body)
        for (const [i, before] of values(body).entries()) {
          expect({ seed, isWithin: difference(before, after[i]!) <= round.bound }).toEqual({ seed, isWithin: true })
        }
      }
    })
  }

  it("knows what a product reads where another one that it reads is written otherwise", () => {
    const { body, products, tensor, values, weight } = maker(1)
    const [inner] = products(Nn.rmsNorm(tensor([1, 64]), tensor([64]), 1e-5), [weight(96, 64)])
    const [outer] = products(inner!.mul(2), [weight(4, 96)])
    const stated = body([outer!])
    const { body: now, reports } = ofBody(stated, devices["bytes in place"])
    // what a product leaves is rounded where it is computed
    expect(reports.map(({ form }) => form)).toEqual(["bytes in place"])
    const rounded = roundedIn(now.src[0]!)!
    expect(toposort(now)).not.toContain(inner!.node)
    expect(toposort(rounded.value.node).some((node) => inPlaceIn(node) !== undefined)).toBe(true)
    expect(rounded.of(rounded.value).node).toBe(now.src[0])
    expect(values(now)).toEqual(values(stated))
  })

  it("leaves programs alone that say it all, tokens that each workgroup would round, and processors", () => {
    const { arena, body, products, tensor, weight } = maker(2)
    const normed = (tokens: number): Tensor => Nn.rmsNorm(tensor([tokens, 64]), tensor([64]), 1e-5)
    const said = body([Int8.contract(Int8.quantise(normed(1)), weight(3, 64))])
    const many = body(products(normed(2), [weight(3, 64)]))
    const one = body(products(normed(1), [weight(3, 64)]))
    for (const stated of [said, many]) expect(ofBody(stated, devices.floats)).toEqual({ body: stated, reports: [] })
    expect(ofBody(one, wasm)).toEqual({ body: one, reports: [] })
    expect(ofBody(one, devices.floats).body).not.toBe(one)
    expect(arena).toBe(one.arena)
  })
})

describe("what products compute of several rows", () => {
  /** A gated network for some rows, of the kind in which a choice is stored beside it or not. */
  const gated = (seed: number, rows: number, kind: "alone" | "beside a choice" | "of chosen matrices") => {
    const { body, products, rng, tensor, values, weight } = maker(seed)
    const width = 32 * rng.pick([1, 2])
    const x = tensor([rows, 64])
    const logits = Nn.contract(x, tensor([4, 64]), 1)
    const chosen = Nn.topK(logits, 1).indices.contiguous()
    const all = [weight(width, 64), weight(width, 64)]
    const pick = (w: Tensor): Tensor => w.unsqueeze(0).expand([4, ...w.shape]).gather(chosen.reshape([rows]))
    const [gate, up] = products(x, kind === "of chosen matrices" ? all.map((own) => Int8.mapRows(own, pick)) : all)
    const [down] = products(gate!.silu().mul(up!), [weight(5, width)])
    const results = kind === "alone" ? [down!] : [down!, chosen.cast(DType.f32).contiguous()]
    return { values, body: body(results) }
  }
  const stores = (node: UOp): number => toposort(node).filter(({ op }) => op === "CONTIGUOUS").length
  // reading the matrices again for another row takes longer than a launch, and not
  const slow = { ...h200, cachedPerByte: 1e-9 }
  const fast = { ...h200, cachedPerByte: 1e9 }

  it("is stored for a launch that rounds it, where reading the matrices for each row takes longer", () => {
    for (const seed of [1, 2, 3]) {
      const { body, values } = gated(seed, 3, "alone")
      const chosen = ofBody(body, slow)
      expect(chosen.reports.map(({ form, label }) => [label, form])).toEqual([["y0 and y1", "stored values"]])
      expect(stores(chosen.body)).toBe(stores(body) + 1)
      expect(values(chosen.body)).toEqual(values(body))
      expect(ofBody(body, fast).body).toBe(body)
    }
  })

  it("is stored beside what is stored anyway, if that takes no longer than a launch waits", () => {
    const { body, values } = gated(4, 2, "beside a choice")
    const chosen = ofBody(body, fast)
    expect(chosen.reports.map(({ form }) => form)).toEqual(["stored values"])
    expect(values(chosen.body)).toEqual(values(body))
    expect(ofBody(body, { ...fast, operationsPerByte: 1e-9 }).body).toBe(body)
  })

  it("is rounded where it is computed, of one row, of rows that choose their matrices, and on a processor", () => {
    const forms = (own: ReturnType<typeof gated>, profile: DeviceProfile): ReadonlyArray<Form> =>
      ofBody(own.body, profile).reports.map(({ form }) => form)
    expect(forms(gated(5, 3, "alone"), slow)).toContain("stored values")
    expect(forms(gated(5, 1, "alone"), slow)).not.toContain("stored values")
    expect(forms(gated(5, 3, "of chosen matrices"), slow)).toEqual([])
    expect(forms(gated(5, 3, "alone"), { ...slow, kind: "cpu" })).toEqual([])
  })

  it("takes as long as the rules say that were measured on an H200", () => {
    /** Gate and up of Q4_0. */
    const of = (columns: number, width: number, rows: number, isBeside: boolean): Form => {
      const matrix = { rows: width, columns, bytes: width * columns * 18 / 32 }
      return cheapest(costsOfRows({ matrices: [matrix, matrix], rows, isBeside }, h200))
    }
    // GLM-4.7-Flash's dense block, and its shared experts beside the choice of others
    expect([2, 4].map((rows) => of(2048, 10240, rows, false))).toEqual(["stored bytes", "stored values"])
    expect([2, 8, 16].map((rows) => of(2048, 1536, rows, true))).toEqual([
      "stored values",
      "stored values",
      "stored bytes"
    ])
    // Llama-3.1-8B's
    expect(of(4096, 14336, 2, false)).toBe("stored values")
  })
})

describe("the costs of forms", () => {
  /** Of Q4_0. */
  const matrices = (columns: number, ...rows: ReadonlyArray<number>) =>
    rows.map((n) => ({ rows: n, columns, bytes: n * columns * 18 / 32 }))
  const of = (columns: number, ...rows: ReadonlyArray<number>): Form =>
    cheapest(costsOf(matrices(columns, ...rows), h200))

  it("are as they were measured on an H200", () => {
    // query and latent of GLM-4.7-Flash and Youtu, and the query's second half
    expect(of(2048, 768, 576)).toBe("floats")
    expect(of(2048, 1536, 576)).toBe("bytes in place")
    expect(of(768, 5120)).toBe("bytes in place")
    // queries, keys and values of Llama-3.1-8B
    expect(of(4096, 4096, 1024, 1024)).toBe("bytes in place")
    // gate and up of Youtu, GLM-4.7-Flash, Qwen3-8B and Llama-3.1-8B
    expect(of(2048, 6144, 6144)).toBe("stored bytes")
    expect(of(2048, 10240, 10240)).toBe("stored bytes")
    expect(of(4096, 12288, 12288)).toBe("bytes in place")
    expect(of(4096, 14336, 14336)).toBe("bytes in place")
  })
})
