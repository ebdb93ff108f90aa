/**
 * Process replay: a digest of every kernel of these models, compiled for these devices. `kernels.json` has those that are
 * agreed on, `test/models.test.ts` compares: a change of the compiler's structure changes none of them.
 *
 *     pnpm bench:kernels            names the kernels that differ; fails if there are any
 *     pnpm bench:kernels --write    agrees on them
 */
import * as fs from "node:fs"
import { fileURLToPath } from "node:url"
import { Effect } from "effect"
import type { Pipeline } from "../packages/jit/src/Pipeline.ts"
import * as Compiled from "./support/compiled.ts"

const file = fileURLToPath(new URL("kernels.json", import.meta.url))

/** The models, by shape. */
export const shapes = ["glm-4.7-flash:q4_0", "deepseek-v2-lite:q4_0", "youtu-llm-2b:q4_0"] as const

/** Digests of kernels by their names, by program: `decode on h200`. */
export type Digests = Readonly<Record<string, Readonly<Record<string, string>>>>

/** The digests that are agreed on, by shape. */
export const agreed = (): Readonly<Record<string, Digests>> => JSON.parse(fs.readFileSync(file, "utf8"))

/** Digests of the kernels of a model, from a pipeline for each target. */
export const digests = (
  shape: string,
  pipelines: ReadonlyArray<Pipeline["Service"]>
): Effect.Effect<Digests> =>
  Effect.gen(function*() {
    const model = yield* Compiled.modelOf(shape)
    const found: Record<string, Record<string, string>> = {}
    for (const pipeline of pipelines) {
      for (const [step, programs] of Object.entries(yield* Compiled.programs(model, pipeline))) {
        const own: Record<string, string> = {}
        for (const program of programs) own[freeName(own, program.name)] = Compiled.digestOf(program)
        found[`${step} on ${pipeline.profile.name}`] = own
      }
    }
    return found
  })

/** Different kernels of one name get a number: `x`, `x.2`. */
const freeName = (taken: Readonly<Record<string, string>>, name: string): string => {
  let number = 1
  while (taken[number === 1 ? name : `${name}.${number}`] !== undefined) number++
  return number === 1 ? name : `${name}.${number}`
}

const advice =
  "if that is meant: `pnpm bench:kernels --write`, and commit bench/kernels.json with what it costs or gains"

/** How a model's kernels differ from the agreed ones, a line for each program, with what to do about it. */
export const differences = (shape: string, before: Digests, after: Digests): ReadonlyArray<string> =>
  [...new Set([...Object.keys(before), ...Object.keys(after)])].flatMap((program) => {
    const [old, now] = [before[program] ?? {}, after[program] ?? {}]
    const names = [...new Set([...Object.keys(old), ...Object.keys(now)])]
    const parts = [
      ["changed", names.filter((name) => name in old && name in now && old[name] !== now[name])],
      ["gone", names.filter((name) => !(name in now))],
      ["new", names.filter((name) => !(name in old))]
    ] as const
    const told = parts.flatMap(([what, some]) => some.length === 0 ? [] : [`${what} ${some.join(", ")}`])
    return told.length === 0 ? [] : [`${shape}, ${program}: ${told.join("; ")}; ${advice}`]
  })

if (import.meta.main) {
  const found: Record<string, Digests> = {}
  for (const shape of shapes) {
    const pipelines = Effect.forEach(Compiled.targets, Compiled.pipelineFor)
    found[shape] = await Effect.runPromise(Effect.flatMap(pipelines, (made) => digests(shape, made)))
  }
  if (process.argv.includes("--write")) fs.writeFileSync(file, `${JSON.stringify(found, undefined, 2)}\n`)
  const known = agreed()
  for (const [shape, own] of Object.entries(found)) {
    for (const [program, kernels] of Object.entries(own)) {
      console.log(`${shape}, ${program}: ${Object.keys(kernels).length} kernels`)
    }
    for (const line of differences(shape, known[shape] ?? {}, own)) {
      console.error(line)
      process.exitCode = 1
    }
  }
}
