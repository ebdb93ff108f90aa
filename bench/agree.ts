/**
 * Whether the programs of a model agree behind many tokens, where each has kernels of its own (ranges of positions, matrix units): logits after the same tokens by steps
 * of one and of a few, beside steps of one with activations as floats. Rounding to bytes is most of each distance, so that all of a row's should be alike.
 *
 *     node bench/agree.ts model.gguf [--profile H100.json] [--depths 100,3000,9000] [--tokens 1,2,4,16] [--context 16384] [--device webgpu]
 *
 * Prints the median over 16 tokens of the distance (root mean square over the logits' spread), and the largest one: a router that nearly ties makes single ones large.
 */
import { parseArgs } from "node:util"
import * as ModelFile from "../packages/engine/src/ModelFile.ts"
import { fromModel } from "../packages/engine/src/Engine.ts"
import type { Session } from "../packages/engine/src/Session.ts"
import * as GgufFile from "../packages/gguf/src/GgufFile.ts"
import { known } from "../packages/models/src/Models.ts"
import { Effect } from "effect"
import { distance } from "./support/distance.ts"
import { deviceGiven } from "./support/given.ts"
import { table } from "./support/tg.ts"

const { positionals: [file], values: given } = parseArgs({
  allowPositionals: true,
  options: {
    context: { type: "string", default: "16384" },
    depths: { type: "string", default: "100,3000,9000" },
    device: { type: "string", default: "webgpu" },
    profile: { type: "string" },
    tokens: { type: "string", default: "1,2,4,16" }
  }
})
if (file === undefined) throw new Error("which model? node bench/agree.ts model.gguf")

const context = Number(given.context)
const [depths, steps] = [given.depths, given.tokens].map((list) => list.split(",").map(Number)) as [
  Array<number>,
  Array<number>
]
/** Tokens whose logits are compared. */
const compared = 16
if (steps.some((each) => compared % each !== 0)) {
  throw new Error(`--tokens ${given.tokens}: of ${compared} tokens, steps take 1, 2, 4, 8 or 16`)
}

const tokenAt = (i: number, vocabulary: number): number => (Math.imul(i + 1, 0x9e3779b1) >>> 8) % vocabulary

/** Rows of logits after each of the compared tokens, so many at a time, behind the tokens before them. */
const rows = Effect.fnUntraced(function*(session: Session, depth: number, each: number) {
  const { vocabulary } = session
  const all = Array.from({ length: depth + compared }, (_, i) => tokenAt(i, vocabulary))
  yield* session.reset
  yield* session.advance(all.slice(0, depth))
  const found: Array<Float32Array> = []
  for (let at = depth; at < all.length; at += each) {
    const logits = each === 1
      ? yield* session.advance(all.slice(0, at + 1))
      : yield* session.verify(all.slice(0, at + 1), all.slice(at + 1, at + each))
    for (let i = 0; i < each; i++) found.push(logits.slice(i * vocabulary, (i + 1) * vocabulary))
  }
  return found
})

/** All of them, by depth and tokens. */
const measured = (activations: "int8" | "float", sizes: ReadonlyArray<number>) =>
  Effect.gen(function*() {
    const { gguf, source } = yield* GgufFile.open(file)
    const model = yield* ModelFile.ofGguf(gguf, { families: known.families })
    const { session } = yield* fromModel(source, model, { activations, context })
    const found = new Map<string, ReadonlyArray<Float32Array>>()
    for (const depth of depths) {
      for (const each of sizes) found.set(`${depth} ${each}`, yield* rows(session, depth, each))
    }
    return found
  }).pipe(
    Effect.scoped,
    Effect.provide(deviceGiven(given))
  )

const run = Effect.gen(function*() {
  const floats = yield* measured("float", [1])
  const bytes = yield* measured("int8", steps)
  const lines = depths.map((depth) => [
    `behind ${depth}`,
    ...steps.map((each) => {
      const all = bytes.get(`${depth} ${each}`)!.map((row, i) => distance(row, floats.get(`${depth} 1`)![i]!))
        .toSorted((a, b) => a - b)
      return `${all[compared / 2]!.toFixed(4)} (${all.at(-1)!.toFixed(2)})`
    })
  ])
  console.log(table([["", ...steps.map((each) => `steps of ${each}`)], ...lines]))
})

await Effect.runPromise(run)
