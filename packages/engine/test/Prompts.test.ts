import { assert, describe, it } from "@effect/vitest"
import { type DeviceProfile, h200, wasm, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { type ActivationPolicy, activationsOn } from "../src/ActivationPolicy.ts"
import { promptShape, sizeFor } from "../src/Prompts.ts"
import { cacheRows, stepProgram } from "../src/StepProgram.ts"
import { tiny } from "./support/models.ts"

describe("what prompts read", () => {
  const cpu: DeviceProfile = { ...wasm, packedDot: true }
  const gpu = h200

  it("tiles, on every device, unless scores of a whole tile are too large for a binding", () => {
    const batchFrom = (profile: DeviceProfile) =>
      promptShape(tiny, { asked: undefined, context: 1024, profile }).batchFrom
    assert.deepStrictEqual([gpu, cpu, { ...cpu, packedDot: false }].map(batchFrom), [97, 64, 64])
    assert.strictEqual(batchFrom({ ...cpu, maxBindingBytes: 2 ** 16 }), Infinity)
  })
  it("rows that are no even number of cache lines apart, where a processor says what a line is", () => {
    const tilesOf = (profile: DeviceProfile, chunk: number) => {
      const size = { activations: "int8-all", cache: "f16", context: 1024, order: "features", rows: "last" } as const
      return stepProgram(tiny, { ...size, chunk, profile }).vars.find(({ name }) => name === "tiles")?.max
    }
    assert.deepStrictEqual([128, 112, 64].map((chunk) => tilesOf(cpu, chunk)), [9, 7, 5])
    // lines of 128 bytes: eight tiles are four of them, nine tiles are no whole number
    assert.strictEqual(tilesOf({ ...cpu, cacheLineBytes: 128 }, 128), 9)
    assert.strictEqual(tilesOf({ ...cpu, cacheLineBytes: undefined }, 128), 8)
    assert.strictEqual(tilesOf(gpu, 512), 32)
  })
  it("no more tokens than scores of which take a binding, with the room that rows have", () => {
    const batch = (tokens: number, profile: DeviceProfile = cpu) => {
      const maxBindingBytes = 4 * tiny.config.heads * cacheRows(1024) * tokens
      return promptShape(tiny, { asked: undefined, context: 1024, profile: { ...profile, maxBindingBytes } }).batch
    }
    assert.deepStrictEqual([144, 143, 80, 79].map((tokens) => batch(tokens)), [128, 64, 64, 32])
    assert.strictEqual(batch(128, { ...cpu, cacheLineBytes: undefined }), 128)
  })
  it("a batch has more tokens than the steps that a GPU takes in its place, of which those of a mixture read fewer experts", () => {
    const { config } = tiny
    const from = (tokens: number, experts: typeof config.experts) =>
      promptShape({ ...tiny, config: { ...config, experts } }, {
        asked: undefined,
        context: 4096,
        profile: { ...gpu, maxBindingBytes: 4 * config.heads * cacheRows(4096) * tokens }
      }).batchFrom
    assert.isDefined(config.experts)
    assert.deepStrictEqual([256, 128, 64].map((tokens) => from(tokens, config.experts)), [97, Infinity, Infinity])
    assert.deepStrictEqual([128, 64, 32].map((tokens) => from(tokens, undefined)), [65, 65, Infinity])
  })
  it("a few tokens have programs of their own on a GPU, of which a step takes the next larger one", () => {
    const shape = (given: Partial<Parameters<typeof promptShape>[1]>) =>
      promptShape(tiny, { asked: undefined, context: 1024, profile: gpu, ...given })
    assert.deepStrictEqual(shape({}).sizes, [1, 2, 4, 8, 16, 32])
    assert.strictEqual(shape({}).few, 32)
    assert.deepStrictEqual([1, 2, 3, 9, 16, 17, 40].map((n) => sizeFor(shape({}), n)), [1, 2, 4, 16, 16, 32, 32])
    assert.deepStrictEqual(shape({ context: 5 }).sizes, [1, 2, 4])
    assert.strictEqual(shape({ batchFrom: 2 }).few, 1)
    assert.isUndefined(sizeFor(shape({ profile: cpu }), 3))
    // a GPU whose registers are few shares a weight among fewer tokens
    const { batchFrom, sizes } = shape({ profile: webgpuDefault })
    assert.deepStrictEqual([batchFrom, sizes], [9, [1, 2, 4]])
    assert.strictEqual(shape({}).batchFrom, 97)
  })
  it("a CPU rounds for all products, a GPU for those with many rows", () => {
    assert.deepStrictEqual(
      ["auto", "int8", "float"].map((p) => activationsOn(cpu, p as ActivationPolicy)),
      [
        "int8-all",
        "int8-all",
        "float"
      ]
    )
    assert.strictEqual(activationsOn(gpu), "int8")
  })
})
