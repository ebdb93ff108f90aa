import { assert, describe, it } from "@effect/vitest"
import type { Program } from "@tg/core-uop/Program"
import { twinOf, type Window } from "../src/Device.ts"

/** The windows of a launch with these accesses of one buffer, from these bytes on. */
const launch = (...all: ReadonlyArray<readonly ["read" | "write", offset: number, bytes: number]>) => {
  const buffer = { bytes: 1024, label: "one" }
  const program: Program = {
    ...{ name: "p", target: "reference", code: "", workgroup: [1, 1, 1], grid: [1, 1, 1], vars: [] },
    bindings: all.map(([access], slot) => ({ slot, access }))
  }
  const windows = all.map(([, offset, bytes]): Window => ({ buffer, offset, bytes }))
  return windows.map((_, i) => twinOf(program, windows, i))
}

describe("windows of one buffer in a launch", () => {
  it("may be read as often as one likes, and written where they do not meet", () => {
    assert.deepStrictEqual(launch(["read", 0, 512], ["read", 256, 512]), [-1, -1])
    assert.deepStrictEqual(launch(["write", 0, 256], ["write", 256, 256], ["write", 512, 512]), [-1, -1, -1])
  })

  it("must not be written where they meet, nor read and written at once", () => {
    assert.deepStrictEqual(launch(["write", 0, 256], ["write", 512, 256], ["write", 0, 516]), [2, 2, 0])
    assert.deepStrictEqual(launch(["write", 0, 256], ["read", 512, 256]), [1, 0])
  })
})
