/**
 * What drafts by lookup gain where an answer says again what its prompt says, and what they cost where it says something else: texts of 400 tokens that are
 * repeated, edited (every 20th token is another one), or in which a frequent token is renamed; and one in which there is nothing to look up. The answers are
 * given (`forced`), so that it does not matter what the weights are.
 *
 *     node bench/lookup.ts model.gguf [--device webgpu] [--profile H100.json] [--rounds 3]
 *     node bench/lookup.ts --costs 1:2.87,2:3.96,4:4.74,8:6.5,16:9.55 [--wait 0.5] [--ahead 3]
 *
 * The second one needs no device: steps take the milliseconds that are given by their tokens, `--wait` more where they are waited for alone, and `--ahead` of
 * one token are under way at a time, as many as a GPU has; those that are are lost when drafts are verified. With `--ahead 1` nothing is.
 * Tokens are made (`written`), or those of `--text FILE` by the tokenizer of a model; `--tokens 400` is the length of a text and `--seed 1` which one is made.
 */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { readFileSync } from "node:fs"
import { parseArgs } from "node:util"
import { fromModel } from "../packages/engine/src/Engine.ts"
import { mostStep } from "../packages/engine/src/DraftLength.ts"
import * as ModelFile from "../packages/engine/src/ModelFile.ts"
import * as Sampler from "../packages/engine/src/Sampler.ts"
import type { Session } from "../packages/engine/src/Session.ts"
import type { Steps } from "../packages/engine/src/Speculation.ts"
import * as GgufFile from "../packages/gguf/src/GgufFile.ts"
import * as Profiler from "../packages/jit/src/Profiler.ts"
import { known } from "../packages/models/src/Models.ts"
import * as Devices from "../packages/node/src/Devices.ts"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { deviceGiven } from "./support/given.ts"
import * as Lookup from "./support/lookup.ts"
import { table } from "./support/tg.ts"

const { positionals: [file], values: given } = parseArgs({
  allowPositionals: true,
  options: {
    ahead: { type: "string", default: "3" },
    costs: { type: "string" },
    device: { type: "string", default: "webgpu" },
    profile: { type: "string" },
    rounds: { type: "string", default: "3" },
    seed: { type: "string", default: "1" },
    text: { type: "string" },
    tokens: { type: "string", default: "400" },
    wait: { type: "string", default: "0" }
  }
})
if (file === undefined && (given.costs === undefined || given.text !== undefined)) {
  throw new Error("which model? node bench/lookup.ts model.gguf, or --costs 1:2.87,2:3.96 and no --text")
}
const [count, seed] = [Number(given.tokens), Number(given.seed)]

/** Tokens of a text without a model: as many as GLM-4.7-Flash has. */
const usualVocabulary = 154_880

const opened = (name: string) =>
  Effect.gen(function*() {
    const { gguf, source } = yield* GgufFile.open(name)
    return { source, model: yield* ModelFile.ofGguf(gguf, { families: known.families }) }
  })

/** The texts of a file, one behind the other, or made ones. */
const casesFor = (model: ModelFile.ModelFile | undefined): ReadonlyArray<Lookup.Case> => {
  const vocabulary = model?.config.vocabulary ?? usualVocabulary
  if (given.text === undefined || model === undefined) return Lookup.madeCases(vocabulary, { count, seed })
  const ids = model.codec.encode(readFileSync(given.text, "utf8"))
  if (ids.length < 2 * count) throw new Error(`${given.text} has ${ids.length} tokens, and ${2 * count} are needed`)
  return Lookup.casesOf({ text: ids.slice(0, count), other: ids.slice(count, 2 * count), vocabulary })
}

/** Compiles what steps of all numbers of drafts and of one token run, and wakes the device. */
const prepared = Effect.fnUntraced(function*(session: Session, depth: number) {
  for (let tokens = 1; tokens <= mostStep; tokens *= 2) yield* session.prepareDrafts(tokens, Sampler.greedy)
  yield* session.prepareNext(Sampler.greedy)
  yield* Profiler.warm(yield* session.decodeStep(depth), { T: 1, startPos: depth })
  // it has written into the cache
  yield* session.reset
})

/** What runs texts: as they come without drafts, and as they are given with them. */
interface Runner {
  readonly plain: (text: ReadonlyArray<number>) => Pick<Session, "next">
  readonly given: (text: ReadonlyArray<number>) => Steps
}

type Runs = { readonly plain: Array<number> } & Record<keyof typeof Lookup.ways, Array<Lookup.Run>>

/** All ways of a case, in turns with the others. */
const turn = Effect.fnUntraced(function*({ given, plain }: Runner, each: Lookup.Case, runs: Runs) {
  const { answer, prompt } = each
  const text = [...prompt, ...answer]
  runs.plain.push((yield* Lookup.run(plain(text), prompt, answer.length)).tokensPerSecond)
  for (const [way, drafter] of Object.entries(Lookup.ways)) {
    runs[way as keyof typeof Lookup.ways].push(yield* Lookup.drafted(given(text), each, drafter))
  }
})

const noRuns = (): Runs => ({ plain: [], lookup: [], auto: [] })
const mean = (values: ReadonlyArray<number>): number => Math.round(values.reduce((a, b) => a + b) / values.length)

/** A row of the table, and whether all texts are the ones that were given. */
const rowOf = ({ answer, name, prompt }: Lookup.Case, runs: Runs) => {
  const text = [...prompt, ...answer].join()
  const plain = Profiler.median(runs.plain)
  const drafted = [runs.lookup, runs.auto]
  const cells = drafted.flatMap((all) => {
    const speed = Profiler.median(all.map(({ tokensPerSecond }) => tokensPerSecond))
    const counts = (["steps", "drafted", "accepted"] as const).map((what) =>
      mean(all.map(({ drafts }) => drafts[what]))
    )
    return [speed.toFixed(1), (speed / plain).toFixed(2), ...counts.map(String)]
  })
  return {
    cells: [name, plain.toFixed(1), ...cells],
    isRight: drafted.flat().every(({ tokens }) => tokens.join() === text)
  }
}

/** Measures all cases in turns and prints what came of them. */
const measured = Effect.fnUntraced(function*(runner: Runner, cases: ReadonlyArray<Lookup.Case>, rounds: number) {
  const runs = cases.map(noRuns)
  for (let round = 0; round < rounds; round++) {
    for (const [i, each] of cases.entries()) yield* turn(runner, each, runs[i]!)
  }
  const rows = cases.map((each, i) => rowOf(each, runs[i]!))
  const counted = ["times", "steps", "drafted", "accepted"]
  console.log(table([["", "without", "lookup", ...counted, "auto", ...counted], ...rows.map(({ cells }) => cells)]))
  if (rows.every(({ isRight }) => isRight)) return
  console.error("a text with drafts is not the one that was given")
  process.exitCode = 1
})

/** On a device. What is compiled meanwhile, and the first round of all, is not measured. */
const onDevice = (name: string) =>
  Effect.gen(function*() {
    const { model, source } = yield* opened(name)
    const cases = casesFor(model)
    const { answer, prompt } = cases[0]!
    const { session } = yield* fromModel(source, model, { context: prompt.length + answer.length })
    for (const each of cases) yield* turn(runnerOf(session), each, noRuns())
    yield* prepared(session, prompt.length)
    console.log(
      `${model.config.name} on ${(yield* Devices.Chosen).name}, ${count} tokens, ${given.rounds} rounds, tokens/s`
    )
    yield* measured(runnerOf(session), cases, Number(given.rounds))
  }).pipe(
    Effect.scoped,
    Effect.provide(deviceGiven(given))
  )
const runnerOf = (session: Session): Runner => ({
  plain: () => session,
  given: (text) => Lookup.forced(session, text)
})

/** By given times of steps. */
const onClock = (costs: string) =>
  Effect.gen(function*() {
    const model = file === undefined ? undefined : (yield* opened(file)).model
    const times: Lookup.Times = {
      costs: new Map(costs.split(",").map((pair) => pair.split(":").map(Number) as [number, number])),
      wait: Number(given.wait),
      ahead: Number(given.ahead)
    }
    const steps = (text: ReadonlyArray<number>): Steps => Lookup.simulated(text, times)
    console.log(`steps of ${costs} ms, ${given.wait} ms to wait, ${given.ahead} under way, ${count} tokens, tokens/s`)
    yield* measured({ plain: steps, given: steps }, casesFor(model), 1)
  }).pipe(Effect.scoped, Effect.provide([TestClock.layer(), NodeServices.layer]))

await Effect.runPromise(given.costs === undefined ? onDevice(file!) : onClock(given.costs))
