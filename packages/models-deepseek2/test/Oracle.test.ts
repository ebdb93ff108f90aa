import { describe, expect, it } from "vitest"
import { difference, expectedLogits, load, Session } from "./oracle.ts"

/**
 * Limits of the oracle: float32 arithmetic agrees with the reference to 5e-4 RMS (5e-3 at most); halves in the cache
 * cost up to ten times that. The usual mistakes move the RMS by 0.07 to 2.
 */
const limits = { f32: { rms: 5e-4, max: 5e-3 }, f16: { rms: 5e-3, max: 3e-2 } }

const argmax = (x: Float32Array): number => x.indexOf(x.reduce((a, b) => Math.max(a, b), -Infinity))

describe.each(["c01", "c02", "c03", "c04", "c05", "c06"])("%s", (name) => {
  const model = load(name)
  const run = model.runs[0]!
  const { vocabulary } = model.config
  const expected = expectedLogits(run)
  const steps = 2
  const rows = run.prompt.length + steps

  // the packed cache once with low-rank queries and once in the old form; its row layouts differ in no other way
  const types = name === "c01" || name === "c04" || name === "c06" ? ["f32", "f16"] as const : ["f32"] as const

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
