import { h200 } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { Arena } from "@tg/core-uop/UOp"
import { places } from "@tg/model-parts/Grouped"
import { tileTokens } from "@tg/model-parts/Order"
import { buffer, variable } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { difference, expectedLogits, load, Session } from "./oracle.ts"

describe("tokens in tiles, stored feature by feature", () => {
  // where launches cost nothing, these small experts are grouped; where they do, they are not worth a counting sort
  const profiles = { "token by token": h200, "grouped by expert": { ...h200, dispatchMicros: 0 } }
  it.each(Object.entries(profiles))("the logits of a prompt token by token, its experts %s", (name, profile) => {
    const model = load("c06")
    const { continuation, prompt } = model.runs[0]!
    const tokens = [...prompt, ...continuation].slice(0, 20)
    const expected = new Session(model, "f32").feed(tokens)
    // a tile that starts behind others, and one that is not full; sums run over whole pieces of the cache
    const pieces = new Session(model, "f32", { order: "features", profile })
    const found = [tokens.slice(0, 3), tokens.slice(3, 19)].map((piece) => pieces.feed(piece))
    const all = Float32Array.from([...found[0]!, ...found[1]!, ...pieces.feed(tokens.slice(19), "last")])
    expect(difference(all, expected).max).toBeLessThan(1e-4)
    expect(pieces.labels.has("ffn_moe_places")).toBe(name === "grouped by expert")
  })
})

describe("as the equations are written", () => {
  // limits of the oracle; halves, and keys and values in one matrix, are checked on wasm
  it("the reference's logits", () => {
    const model = load("c06")
    const run = model.runs[0]!
    const tokens = [...run.prompt, ...run.continuation].slice(0, 9)
    const found = new Session(model, "f32", { order: "features", profile: { ...h200, dispatchMicros: 0 } }).feed(tokens)
    const expected = expectedLogits(run).subarray(0, tokens.length * model.config.vocabulary)
    const apart = difference(found.subarray(0, expected.length), expected)
    expect(apart.rms).toBeLessThan(5e-4)
    expect(apart.max).toBeLessThan(5e-3)
  })
})

/** Where the pairs of `chosen [T, used]` are put. */
const placed = (chosen: ReadonlyArray<ReadonlyArray<number>>, count: number) => {
  const arena = new Arena()
  const used = chosen[0]!.length
  const tiles = variable(arena, "tiles", 1, 4)
  const table = buffer(arena, 0, { shape: [tiles.mul(tileTokens).node, used], dtype: DType.u32 })
  const data = new Uint32Array(4 * tileTokens * used)
  data.set(chosen.flat())
  const { expert, place, token } = places(table, tiles, count)
  const found = evaluate([expert.node, token.node, place.node], {
    buffers: new Map([[table.node, data]]),
    vars: { tiles: chosen.length / tileTokens }
  })
  const [experts, tokens, at] = found.map((value) => Array.from(value!.data))
  return { experts: experts!, tokens: tokens!, at: at! }
}

describe("the places of pairs", () => {
  const cases: Readonly<Record<string, (token: number) => ReadonlyArray<number>>> = {
    "spread over the experts": (token) => [token * 5 % 7, (token * 5 + 3) % 7],
    "all at one expert, and another": () => [6, 0],
    "an expert without tokens": (token) => [1 + token % 2, 3 + token % 4]
  }
  it.each(Object.entries(cases))("%s: each pair has one, in a group of its expert", (_, choose) => {
    for (const length of [tileTokens, 3 * tileTokens]) {
      const chosen = Array.from({ length }, (_, token) => choose(token))
      const { at, experts, tokens } = placed(chosen, 7)
      expect(experts.length).toBe(chosen.flat().length / tileTokens + 7)
      expect(new Set(at).size).toBe(at.length)
      at.forEach((place, i) => {
        const token = Math.floor(i / 2)
        expect(tokens[place]).toBe(token)
        expect(experts[Math.floor(place / tileTokens)]).toBe(chosen[token]![i % 2])
      })
      expect(tokens.every((token) => token >= 0 && token < length)).toBe(true)
    }
  })
})
