import * as Bounds from "@tg/core-uop/Bounds"
import { h200 } from "@tg/core-uop/DeviceProfile"
import * as Contraction from "@tg/egraph/Contraction"
import type { ENode } from "@tg/egraph/ENode"
import { choose, type Chosen, explanation, explore, type Explored, listing } from "@tg/egraph/Optimise"
import { usual } from "@tg/egraph/rules/index"
import { describe, expect, it } from "vitest"
import { deepseekLite, glm, latentAttention, type Sizes } from "./support/equations.ts"

const tokens = [1, 4, 64, 512]
const before = [0, 4096]

/** Whether a chosen value has an axis of positions and another one of a head's features: keys or values of each head. */
const isExpanded = ({ choice, roots: [root] }: Chosen, { written }: Explored, features: number): boolean => {
  const nodes = choice === undefined
    ? written.graph.classes().flatMap((cls) => written.graph.members(cls).map(({ node }) => node))
    : [...choice.values()]
  return nodes.some((node) => {
    if (node.kind !== "contract" || Contraction.summed(node.contraction).length === 0) return false
    const shape = Contraction.shapeOf(node.contraction.sizes, node.contraction.output)
    const hasPositions = shape.some((d) =>
      typeof d !== "number" && d.arena === root!.arena && Bounds.of(d).max === 65536
    )
    return hasPositions && shape.some((d) => d === features)
  })
}

const chosenFor = (explored: Explored) =>
  before.flatMap((start) =>
    tokens.map((T) => ({ T, start, chosen: choose(explored, { profile: h200, vars: { T, S: start + T } }) }))
  )

const table = (sizes: Sizes) => {
  const { output, residency } = latentAttention(sizes)
  const explored = explore([output.node], { residency, rules: usual })
  const form = (isOne: boolean): string => isOne ? "expanded" : "absorbed"
  return chosenFor(explored).map(({ T, chosen, start }) =>
    [
      `${T} behind ${start}:`,
      `keys ${form(isExpanded(chosen, explored, sizes.heads * sizes.plain))},`,
      `values ${form(isExpanded(chosen, explored, sizes.heads * sizes.value))},`,
      `${Math.round(chosen.writtenMicros)} -> ${Math.round(chosen.micros)} us`
    ].join(" ")
  )
}

describe("attention over latents, from the paper's equations", () => {
  it("GLM-4.7-Flash: absorbed on both sides for few tokens behind many, expanded for prompts", () => {
    expect(table(glm)).toMatchInlineSnapshot(`
      [
        "1 behind 0: keys absorbed, values expanded, 19 -> 18 us",
        "4 behind 0: keys expanded, values expanded, 21 -> 21 us",
        "64 behind 0: keys expanded, values expanded, 100 -> 100 us",
        "512 behind 0: keys expanded, values expanded, 856 -> 856 us",
        "1 behind 4096: keys absorbed, values absorbed, 1358 -> 25 us",
        "4 behind 4096: keys absorbed, values absorbed, 1363 -> 47 us",
        "64 behind 4096: keys absorbed, values absorbed, 1605 -> 511 us",
        "512 behind 4096: keys expanded, values expanded, 3749 -> 3748 us",
      ]
    `)
  })

  it("DeepSeek-V2-Lite", () => {
    expect(table(deepseekLite)).toMatchInlineSnapshot(`
      [
        "1 behind 0: keys expanded, values expanded, 18 -> 17 us",
        "4 behind 0: keys expanded, values expanded, 19 -> 19 us",
        "64 behind 0: keys expanded, values expanded, 64 -> 64 us",
        "512 behind 0: keys expanded, values expanded, 492 -> 492 us",
        "1 behind 4096: keys absorbed, values absorbed, 630 -> 23 us",
        "4 behind 4096: keys absorbed, values absorbed, 633 -> 40 us",
        "64 behind 4096: keys absorbed, values absorbed, 765 -> 394 us",
        "512 behind 4096: keys expanded, values expanded, 1910 -> 1909 us",
      ]
    `)
  })

  it("does not fold matrices at load time, though it may: the product of two weights has more bytes than both", () => {
    const { output, residency } = latentAttention(glm)
    const explored = explore([output.node], { residency, rules: usual })
    const situation = { profile: h200, vars: { T: 1, S: 4097 } }
    const chosen = choose(explored, { ...situation, folds: true })
    expect(chosen.micros).toBeLessThanOrEqual(choose(explored, situation).micros)
    const folded = [...chosen.choice!].filter(([id, node]) =>
      node.kind === "contract" && Contraction.summed(node.contraction).length > 0 &&
      explored.graph.facts(id).residency === 1
    )
    expect(folded).toEqual([])
  })

  it("chooses nothing that a situation forbids", () => {
    const { output, residency } = latentAttention(glm)
    const explored = explore([output.node], { residency, rules: usual })
    const situation = { profile: h200, vars: { T: 1, S: 4097 } }
    const free = choose(explored, situation)
    const chosen = new Set(free.choice!.values())
    // every sum that was not written
    const isMixed = (node: ENode) =>
      chosen.has(node) && node.kind === "contract" && node.origin === undefined &&
      Contraction.summed(node.contraction).length > 0
    const bound = choose(explored, { ...situation, without: isMixed })
    expect([...bound.choice!.values()].filter(isMixed)).toEqual([])
    expect(bound.micros).toBeGreaterThan(free.micros)
    expect(bound.micros).toBeLessThan(Infinity)
  })

  it("says what it chose, and why that is equal", () => {
    const { output, residency } = latentAttention(glm)
    const explored = explore([output.node], { residency, rules: usual })
    const chosen = choose(explored, { profile: h200, vars: { T: 1, S: 4097 } })
    expect(listing(explored, chosen).join("\n")).toMatchInlineSnapshot(`
      "c36 = [ -> a b](1)
      c4 = rows[0:512 of axis 1]
      c2 = [a (cd), (bc) d -> a b](low, mul)
      c47 = [a (be), (bec) d -> a b c d](c2, mul)
      c7 = [c (de), a b d e -> a b c](c4, c47)
      c9 = rows[512:576 of axis 1]
      c10 = [a b d, c d -> a b c](q_rope, c9)
      c11 = (c7 + c10)
      c13 = [a b c,  -> a b c](c11, 0.0625)
      c14 = reduce(c13)
      c15 = [a b -> a b c](c14)
      c16 = sub(c13, c15)
      c18 = [a b c,  -> a b c](c16, 1.4426950408889634)
      c19 = exp2(c18)
      c20 = [a b c -> a b](c19)
      c37 = (c36 / c20)
      c148 = [e (cd), a b e -> a b c d](c4, c19)
      c25 = [(bcd) e, a b, a b d e -> a b c](mul, c37, c148)
      c27 = [a c (de), (bcd) e -> a b](c25, mul)"
    `)
    expect(explanation(explored, chosen).join("\n")).toMatchInlineSnapshot(`
      "nest: [a (bd), c (bd) -> a b c]([a (cd), (bc) d -> a b](c0, c1), [a (cd), (bc) d -> a b](c4, c5)) = [a (bd), c (ef), (bde) f -> a b c]([a (cd), (bc) d -> a b](c0, c1), c3[0:512 of axis 1], mul)
      associate: [a (bd), c (ef), (bde) f -> a b c]([a (cd), (bc) d -> a b](c0, c1), c3[0:512 of axis 1], mul) = [c (de), a b d e -> a b c](c3[0:512 of axis 1], [a (be), (bec) d -> a b c d](c2, c5))
      nest: [a b d, d (bc) -> a b c]((c19 / c21), [a (cd), (bc) d -> a b](c4, c23)) = [d (ef), a b d, (bce) f -> a b c](c3[0:512 of axis 1], (c19 / c21), mul)
      divide: (exp2(c18) / [a b -> a b c](c20)) = [a b c, a b c -> a b c](exp2(c18), [a b -> a b c](c37))
      nest: [a b c, a b c -> a b c](exp2(c18), [a b -> a b c](c37)) = [a b c, a b -> a b c](exp2(c18), (c36 / c20))
      nest: [d (ef), (bce) f, a b d -> a b c](c3[0:512 of axis 1], mul, [a b c, a b -> a b c](c19, c37)) = [d (ef), a b d, (bce) f, a b -> a b c](c3[0:512 of axis 1], exp2(c18), mul, (c36 / c20))
      associate: [d (ef), a b d, (bce) f, a b -> a b c](c3[0:512 of axis 1], exp2(c18), mul, (c36 / c20)) = [(bcd) e, a b, a b d e -> a b c](mul, (c36 / c20), [e (cd), a b e -> a b c d](c4, c19))"
    `)
  })
})
