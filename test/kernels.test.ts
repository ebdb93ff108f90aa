import { Effect } from "effect"
import { describe, expect, it } from "vitest"
import { agreed, differences, digests, shapes } from "../bench/kernels.ts"

describe("the kernels of models", () => {
  it.each(shapes)("%s: those that are agreed on in bench/kernels.json", async (shape) => {
    expect(differences(shape, agreed()[shape] ?? {}, await Effect.runPromise(digests(shape)))).toEqual([])
  })

  it("names what changed, went and came, and the command", () => {
    const before = { "decode on h200": { a: "1", b: "2", c: "3" }, "prompt on h200": { a: "1" } }
    const after = { "decode on h200": { a: "1", b: "4", d: "3" }, "prompt on h200": { a: "1" } }
    expect(differences("m", before, after)).toEqual([
      "m, decode on h200: changed b; gone c; new d; if that is meant: `pnpm bench:kernels --write`, and commit " +
      "bench/kernels.json with what it costs or gains"
    ])
    expect(differences("m", before, before)).toEqual([])
  })
})
