import { h200 } from "@tg/core-uop/DeviceProfile"
import { scaleBehind, sumBlocks } from "@tg/egraph/rules/index"
import { describe, expect, it } from "vitest"
import { difference, expectedLogits, load, Session } from "./oracle.ts"

/**
 * Limits of the oracle: float32 arithmetic agrees with the reference to 5e-4 RMS (5e-3 at most); halves in the cache
 * cost up to ten times that. The usual mistakes move the RMS by 0.07 to 2.
 */
const limits = { f32: { rms: 5e-4, max: 5e-3 }, f16: { rms: 5e-3, max: 3e-2 } }

const argmax = (x: Float32Array): number => x.indexOf(x.reduce((a, b) => Math.max(a, b), -Infinity))

describe.each(["l01", "q01", "w01", "m01", "g01", "z01"])("%s", (name) => {
  const model = load(name)
  const run = model.runs[0]!
  const { vocabulary } = model.config
  const expected = expectedLogits(run)
  const steps = 2
  const rows = run.prompt.length + steps

  // rows of whole groups of halves, and of windows; the others differ in nothing that the cache holds
  const types = name === "l01" || name === "g01" ? ["f32", "f16"] as const : ["f32"] as const

  it.each(types)("prompt and %s cache, then single tokens, as the reference", (type) => {
    const session = new Session(model, type)
    const found = [session.feed(run.prompt), ...run.continuation.slice(0, steps).map((token) => session.feed([token]))]
    const all = Float32Array.from(found.flatMap((part) => Array.from(part)))
    const { max, rms } = difference(all, expected.subarray(0, rows * vocabulary))
    expect(rms).toBeLessThan(limits[type].rms)
    expect(max).toBeLessThan(limits[type].max)
    for (let row = run.prompt.length - 1; row < rows; row++) {
      expect(argmax(all.subarray(row * vocabulary, (row + 1) * vocabulary))).toBe(run.argmax[row])
    }
  })
})

/**
 * Rules take the factor of a norm out of what workgroups round. The quants are those of values that a factor of each token is missing from,
 * so few of them round the other way: the difference is a tenth of what rounding to bytes costs.
 */
it("a norm is the same wherever it is rounded", () => {
  const model = load("l01")
  const [run] = model.runs
  const tokens = run!.prompt.slice(0, 3)
  const logits = (how: ConstructorParameters<typeof Session>[3]): Float32Array => {
    const session = new Session(model, "f32", "tokens", how)
    return Float32Array.from(tokens.flatMap((token) => [...session.feed([token])]))
  }
  // floats and launches take long there
  const inPlace = { activations: "int8", profile: { ...h200, operationsPerByte: 1e-9, loadMicros: 1e9 } } as const
  const [floats, launched, hidden, behind] = [
    {},
    { activations: "int8" } as const,
    { ...inPlace, rules: [] },
    { ...inPlace, rules: [sumBlocks, scaleBehind] }
  ].map(logits)
  expect(difference(hidden!, launched!).rms).toBe(0)
  const rounding = difference(launched!, floats!).rms
  expect(rounding).toBeGreaterThan(0)
  const { rms } = difference(behind!, launched!)
  expect(rms).toBeGreaterThan(0)
  expect(rms).toBeLessThan(rounding / 10)
})
