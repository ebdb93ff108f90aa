import { describe, expect, it } from "vitest"
import { count, differences, pinned, shapes } from "../bench/counts.ts"

describe("what a token takes", () => {
  it.each(shapes)("%s: as much as is agreed on in bench/counts.json", (shape) => {
    expect(differences(shape, pinned()[shape] ?? {}, count(shape))).toEqual([])
  })

  it("says what grew, what fell and what to do", () => {
    const lines = differences("m", { launches: 9, barriers: 20, gone: 1 }, { launches: 10, barriers: 19, fresh: 2 })
    const write = "`pnpm bench:counts --write`, and commit bench/counts.json with the change"
    expect(lines).toEqual([
      `m: launches grew from 9 to 10; if it is worth that: ${write}`,
      `m: barriers fell from 20 to 19; so that it stays there: ${write}`,
      `m: gone was 1 and is not counted any more: ${write}`,
      `m: fresh is 2, and not in bench/counts.json: ${write}`
    ])
    expect(differences("m", { launches: 9 }, { launches: 9 })).toEqual([])
  })
})
