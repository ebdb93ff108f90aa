import type { Program } from "@tg/core-uop/Program"
import { assert, describe, it } from "@effect/vitest"
import { phasesOf, workOf } from "../src/internal/division.ts"

const whole = 1000
const small = { iterations: 4, size: 4 }

describe("phases", () => {
  it("are divided launches, and rows of those that are not", () => {
    const phases = phasesOf([small, small, { iterations: 10, size: 4 }, { iterations: 8, size: 4 }, small], whole)
    assert.deepStrictEqual(phases, [
      { first: 0, end: 2, parts: 1, size: whole },
      { first: 2, end: 3, parts: 3, size: 4 },
      { first: 3, end: 4, parts: 2, size: 4 },
      { first: 4, end: 5, parts: 1, size: whole }
    ])
  })

  it("are one where nothing is worth dividing", () => {
    assert.deepStrictEqual(phasesOf([small, small, small], whole), [{ first: 0, end: 3, parts: 1, size: whole }])
    assert.deepStrictEqual(phasesOf([], whole), [])
  })
})

describe("work", () => {
  const program = (perIteration: number, perPart = 0): Program => ({
    name: "k",
    target: "wasm",
    code: new Uint8Array(),
    bindings: [],
    vars: [],
    workgroup: [1, 1, 1],
    grid: [1000, 1, 1],
    instructions: { perIteration, perPart }
  })

  it("is divided from so many instructions on, if there are threads", () => {
    assert.deepStrictEqual(workOf(program(100), {}, { count: 2, worthwhile: 30_000 }), { iterations: 1000, size: 125 })
    assert.deepStrictEqual(workOf(program(100), {}, { count: 1, worthwhile: 30_000 }), { iterations: 1000, size: 1000 })
    assert.deepStrictEqual(workOf(program(2000), {}, { count: 2, worthwhile: 30_000 }), { iterations: 1000, size: 50 })
    assert.deepStrictEqual(workOf(program(9000), {}, { count: 2, worthwhile: 30_000 }), { iterations: 1000, size: 32 })
    assert.deepStrictEqual(workOf(program(10), {}, { count: 2, worthwhile: 30_000 }), { iterations: 1000, size: 1000 })
  })

  it("has parts that are large beside what each of them does again", () => {
    assert.strictEqual(workOf(program(100, 6250), {}, { count: 2, worthwhile: 30_000 }).size, 500)
    assert.strictEqual(workOf(program(100, 50_000), {}, { count: 2, worthwhile: 30_000 }).size, 1000)
  })
})
