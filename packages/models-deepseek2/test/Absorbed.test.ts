import { h200 } from "@tg/core-uop/DeviceProfile"
import * as Shape from "@tg/core-uop/Shape"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import * as Bodies from "@tg/egraph/Bodies"
import * as Split from "@tg/egraph/Split"
import * as rules from "@tg/egraph/rules/index"
import { bodyBounds } from "@tg/egraph/Saturate"
import { Effect } from "effect"
import { describe, expect, it } from "vitest"
import { difference, expectedLogits, load, Session } from "./oracle.ts"

/** The forms of a program's bodies that the search takes for the cheapest, whatever a compiler makes of them. */
const searched = (program: UOp): Bodies.Optimised => {
  let weighed = 0
  const weigh = () => Effect.succeed({ launches: 1, stages: 1, pieces: weighed++, micros: 1 })
  return Effect.runSync(
    Bodies.ofProgram(program, { profile: h200, weigh, search: { rules: rules.ofBodies, bounds: bodyBounds } })
  )
}

/** Sums of which each cached position has so many for itself: keys or values of heads. */
const ofPositions = (program: UOp, sizes: ReadonlyArray<number>): number =>
  toposort(program).filter((node) => {
    if (node.op !== "REDUCE") return false
    const shape = Shape.of(node)
    const fixed = shape.reduce<number>((n, d) => typeof d === "number" ? n * d : n, 1)
    return shape.some((d) => typeof d !== "number") && sizes.includes(fixed)
  }).length

/** The names of a program's nodes, of which its key in the cache of programs is made. */
const namesIn = (program: UOp): ReadonlyArray<string | undefined> =>
  toposort(program).map((node) => node.arena.labelOf(node))

/** Keys and values in one matrix, and a packed cache; TG_FULL=1 has larger ones and matrices of each. */
const cases = process.env["TG_FULL"] === "1"
  ? [["c01", "f32"], ["c03", "f32"], ["c06", "f16"]] as const
  : [["c06", "f16"]] as const

describe.each(cases)("%s, %s cache", (name, type) => {
  it("is written with keys and values of each head, and found without", () => {
    const model = load(name)
    const { heads, latent, plain, value, vocabulary } = model.config
    const run = model.runs[0]!
    const expanded = [heads * plain, heads * value]
    const found: Array<Bodies.BodyReport> = []
    const session = new Session(model, type, {
      // the search counts costs for a quarter of it: of few positions, keys cost little
      context: 1024,
      optimise: (program) => {
        const names = namesIn(program)
        const { bodies, sink } = searched(program)
        found.push(...bodies)
        expect(ofPositions(program, expanded)).toBeGreaterThan(0)
        expect(ofPositions(sink, expanded)).toBe(0)
        // heads read the same rows, behind the axis of tokens
        const mixes = Split.ofProgram(sink, h200).reports.filter(({ width }) => width === latent)
        expect(mixes.length).toBeGreaterThan(0)
        for (const { shared } of mixes) expect(shared).toEqual([{ axis: 1, size: heads }])
        // what is made is named; what was written, of which it has parts, keeps its names
        expect(namesIn(program)).toEqual(names)
        return sink
      }
    })
    const tokens = run.prompt.slice(0, 1)
    const logits = Float32Array.from(tokens.flatMap((token) => Array.from(session.feed([token]))))
    const { max, rms } = difference(logits, expectedLogits(run).subarray(0, tokens.length * vocabulary))
    // the oracle's limits, as in Oracle.test.ts
    expect(rms).toBeLessThan(type === "f32" ? 5e-4 : 5e-3)
    expect(max).toBeLessThan(type === "f32" ? 5e-3 : 3e-2)
    for (const { isTaken, reasons } of found) {
      expect(isTaken).toBe(true)
      expect(reasons().because.length).toBeGreaterThan(0)
    }
  })
})
