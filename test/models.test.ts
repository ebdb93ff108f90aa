import { Effect } from "effect"
import { describe, expect, it } from "vitest"
import * as Counts from "../bench/counts.ts"
import * as Idle from "../bench/idle.ts"
import * as Kernels from "../bench/kernels.ts"
import * as Compiled from "../bench/support/compiled.ts"
import { key } from "../packages/core-uop/src/UOp.ts"

const { differences: countDifferences, pinned, shapes } = Counts

/** What differs from what is agreed on. Each program is scheduled and lowered once, for its counts and for its kernels. */
const differences = (shape: string) =>
  Effect.gen(function*() {
    const pipelines = yield* Effect.forEach(Compiled.targets, Compiled.pipelineFor)
    const counted = countDifferences(shape, pinned()[shape] ?? {}, yield* Counts.count(shape, pipelines[0]!))
    const known = Kernels.agreed()[shape]
    return known === undefined
      ? counted
      : [...counted, ...Kernels.differences(shape, known, yield* Kernels.digests(shape, pipelines))]
  })

describe("models as they are compiled", () => {
  it.each(shapes)("%s: with the counts of bench/counts.json and the kernels of bench/kernels.json", async (shape) => {
    expect(await Effect.runPromise(differences(shape))).toEqual([])
  })

  it.each(Kernels.shapes)("%s: no stage has results in line while most threads are idle", async (shape) => {
    const found = Effect.gen(function*() {
      const pipeline = yield* Compiled.pipelineFor(Compiled.targets[0])
      const model = yield* Compiled.modelOf(shape)
      // one range of positions, and the next
      const places = [[1, 0], [1, 3000], [2, 0], [16, 0]] as const
      return yield* Effect.forEach(
        places,
        ([tokens, depth]) => Idle.idle(model, pipeline, { tokens, depth, context: 4096 })
      )
    })
    expect((await Effect.runPromise(found)).flat()).toEqual([])
  })

  it.each(["glm-4.7-flash:q4_0", "deepseek-v2-lite:q4_0"])(
    "%s: blocks have one form on all devices that were measured nearly alike",
    async (shape) => {
      // microseconds of a launch, and bytes in one: two H200s as they were measured, and around them. DeepSeek had two forms: in that of the second H200 a step takes 15% longer
      const measured = [[1.98, 4.71e6], [1.96, 4.61e6], [2.02, 4.55e6], [1.94, 4.8e6]] as const
      const [target] = Compiled.targets
      const forms = Effect.gen(function*() {
        const model = yield* Compiled.modelOf(shape)
        return yield* Effect.forEach(measured, ([dispatchMicros, bytesPerMicro]) => {
          const profile = { ...target.profile, dispatchMicros, bytesPerMicro }
          const { decode } = Compiled.stepsOf(model, profile)
          return Effect.flatMap(Compiled.pipelineFor({ ...target, profile }), ({ equal }) => equal(decode.sink))
        })
      })
      expect(new Set((await Effect.runPromise(forms)).map(({ sink }) => key(sink))).size).toBe(1)
    }
  )

  it("sees results in line where threads are taken away", async () => {
    const found = Effect.gen(function*() {
      const pipeline = yield* Compiled.pipelineFor(Compiled.targets[0])
      const model = yield* Compiled.modelOf("glm-4.7-flash:q4_0")
      const kernels = yield* Idle.kernelsOf(model, pipeline, { tokens: 1, depth: 0, context: 4096 })
      const [ast] = [...kernels].find(([, name]) => name === "int8_160_12")!
      const opts = yield* pipeline.choose(ast)
      return Idle.idleIn(yield* pipeline.apply("k", ast, opts.filter(({ kind }) => kind !== "LOCAL")))
    })
    expect(await Effect.runPromise(found)).toEqual(["stage 3 of 5 has 128 results in line with 4 of 32 threads"])
  })

  it("keeps the kernels of models that are counted", () => {
    expect(Object.keys(Kernels.agreed())).toEqual([...Kernels.shapes])
    for (const shape of Kernels.shapes) expect(shapes).toContain(shape)
  })

  it("says what grew, what fell and what to do", () => {
    const lines = countDifferences("m", { launches: 9, barriers: 20, gone: 1 }, {
      launches: 10,
      barriers: 19,
      fresh: 2
    })
    const write = "`pnpm bench:counts --write`, and commit bench/counts.json with the change"
    expect(lines).toEqual([
      `m: launches grew from 9 to 10; if it is worth that: ${write}`,
      `m: barriers fell from 20 to 19; so that it stays there: ${write}`,
      `m: gone was 1 and is not counted any more: ${write}`,
      `m: fresh is 2, and not in bench/counts.json: ${write}`
    ])
    expect(countDifferences("m", { launches: 9 }, { launches: 9 })).toEqual([])
  })

  it("names the kernels that changed, went and came, and the command", () => {
    const before = { "decode on h200": { a: "1", b: "2", c: "3" }, "prompt on h200": { a: "1" } }
    const after = { "decode on h200": { a: "1", b: "4", d: "3" }, "prompt on h200": { a: "1" } }
    expect(Kernels.differences("m", before, after)).toEqual([
      "m, decode on h200: changed b; gone c; new d; if that is meant: `pnpm bench:kernels --write`, and commit " +
      "bench/kernels.json with what it costs or gains"
    ])
    expect(Kernels.differences("m", before, before)).toEqual([])
  })
})
