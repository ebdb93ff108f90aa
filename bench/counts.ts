/**
 * Counts of a decode step that may not grow unnoticed: launches, barriers and bytes of these models, planned for an H200
 * with 1024 tokens of context. `counts.json` has the values that are agreed on, `test/models.test.ts` compares.
 *
 *     pnpm bench:counts            shows them beside the agreed ones; fails if they differ
 *     pnpm bench:counts --write    agrees on them
 */
import * as fs from "node:fs"
import { fileURLToPath } from "node:url"
import { Effect } from "effect"
import type { Pipeline } from "../packages/jit/src/Pipeline.ts"
import * as Compiled from "./support/compiled.ts"

const file = fileURLToPath(new URL("counts.json", import.meta.url))

/** The models, by shape. */
export const shapes = [
  "glm-4.7-flash:q4_0",
  "deepseek-v2-lite:q4_0",
  "youtu-llm-2b:q4_0",
  "llama-3.1-8b:q4_0",
  "qwen3-30b-a3b:q4_0"
] as const

/** What is counted of a step, by name. Bytes as in `tg plan`. Launches of a layer are those of each kind of block. */
export type Counts = Readonly<Record<string, number>>

/** The counts that are agreed on, by shape. */
export const pinned = (): Readonly<Record<string, Counts>> => JSON.parse(fs.readFileSync(file, "utf8"))

/** Plans a step with the heuristics' opts. */
export const count = (shape: string, pipeline: Pipeline["Service"]): Effect.Effect<Counts> =>
  Effect.gen(function*() {
    const plan = yield* Compiled.plan(yield* Compiled.modelOf(shape), pipeline)
    const layers: Record<string, number> = {}
    for (const { body, launches } of plan.explain) {
      if (body === undefined) continue
      const name = `dispatchesPerLayer.${body}`
      layers[name] = Math.max(layers[name] ?? 0, launches.length)
    }
    return {
      dispatchesPerToken: plan.dispatchesPerToken,
      ...layers,
      barriersPerToken: plan.barriersPerToken!,
      bytesPerToken: plan.bytesPerToken,
      movedBytesPerToken: plan.movedBytesPerToken,
      scratchBytes: plan.scratchBytes
    }
  })

/** How the counts of a step differ from the agreed ones, a line each, with what to do about it. */
export const differences = (shape: string, agreed: Counts, counted: Counts): ReadonlyArray<string> =>
  [...new Set([...Object.keys(agreed), ...Object.keys(counted)])].flatMap((name) => {
    const [before, after] = [agreed[name], counted[name]]
    if (before === after) return []
    const write = "`pnpm bench:counts --write`, and commit bench/counts.json with the change"
    if (before === undefined) return [`${shape}: ${name} is ${after}, and not in bench/counts.json: ${write}`]
    if (after === undefined) return [`${shape}: ${name} was ${before} and is not counted any more: ${write}`]
    return after > before
      ? [`${shape}: ${name} grew from ${before} to ${after}; if it is worth that: ${write}`]
      : [`${shape}: ${name} fell from ${before} to ${after}; so that it stays there: ${write}`]
  })

if (import.meta.main) {
  const counted: Record<string, Counts> = {}
  for (const shape of shapes) {
    const pipeline = Compiled.pipelineFor(Compiled.targets[0])
    counted[shape] = await Effect.runPromise(Effect.flatMap(pipeline, (made) => count(shape, made)))
  }
  if (process.argv.includes("--write")) fs.writeFileSync(file, `${JSON.stringify(counted, undefined, 2)}\n`)
  const agreed = pinned()
  for (const [shape, counts] of Object.entries(counted)) {
    console.log(shape)
    for (const [name, value] of Object.entries(counts)) console.log(`  ${name.padEnd(32)}${value}`)
    for (const line of differences(shape, agreed[shape] ?? {}, counts)) {
      console.error(line)
      process.exitCode = 1
    }
  }
}
