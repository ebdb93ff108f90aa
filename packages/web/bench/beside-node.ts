/**
 * Tokens a second of a model on WebAssembly in a page, through `@tg/web` and its worker, beside those of Node, on as many threads: in turns, in one run.
 *
 *     node packages/web/bench/beside-node.ts [model.gguf] [prompt tokens] [tokens] [repetitions] [threads]
 *
 * tg-tiny, 256, 64, 5 and one thread for each core, if not said. Node takes the steps of a session one by one, as `tg bench` does; the page asks
 * for the whole text, and has it when the last piece of it has come from the worker. Needs Chromium.
 */
import * as os from "node:os"
import { fileURLToPath } from "node:url"
import * as Engine from "@tg/node/Model"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import type * as ModelModule from "../src/Model.ts"
import { served } from "../test/support/served.ts"

declare global {
  var Model: typeof ModelModule
  /** The model of the page. */
  var opened: ModelModule.Opened
}

const tiny = fileURLToPath(new URL("../../../apps/cli/models/tg-tiny-Q4_0.gguf", import.meta.url))
const [file = tiny, ...numbers] = process.argv.slice(2)
const [promptTokens = 256, count = 64, repetitions = 5, threads = os.availableParallelism()] = numbers.map(Number)
const context = promptTokens + count + 16

/** Milliseconds of a text: until its first token, and from there to its last. */
interface Times {
  readonly prompt: number
  readonly decode: number
}

const nouns = ["river", "stone", "market", "garden", "window", "letter", "engine", "harbour"]

/** A text of so many tokens that begins like no other one: nothing of it is known from before. */
const promptOf = (encode: (text: string) => ReadonlyArray<number>, round: number): string => {
  let text = `${round} ${nouns[round % nouns.length]!}`
  for (let i = 0;; i++) {
    const longer = `${text} ${nouns[(i * i + round) % nouns.length]!}`
    if (encode(longer).length > promptTokens) return text
    text = longer
  }
}

/** A text of one token, then one of all, by the steps of a session. The second takes the step behind the prompt's last token again. */
const inNode = Effect.fnUntraced(function*({ session }: Engine.Model["engine"], prompt: ReadonlyArray<number>) {
  const started = performance.now()
  yield* session.next(prompt)
  const first = performance.now()
  const tokens = [...prompt]
  for (let i = 0; i < count; i++) tokens.push(yield* session.next(tokens))
  const times: Times = { prompt: first - started, decode: performance.now() - first }
  return { times, written: tokens.slice(prompt.length) }
})

/** The same in the page. */
const inPage = (page: Page, prompt: string) =>
  page.evaluate(async ([prompt, count]) => {
    const take = async (maxTokens: number) => {
      let text = ""
      for await (const piece of globalThis.opened.generate(prompt, { maxTokens })) text += piece
      return text
    }
    const started = performance.now()
    await take(1)
    const first = performance.now()
    const text = await take(count)
    return { times: { prompt: first - started, decode: performance.now() - first }, text }
  }, [prompt, count] as const)

const median = (values: ReadonlyArray<number>): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!

const say = (line: string) => process.stdout.write(`${line}\n`)

/** Speeds of all rounds in a line. */
const lineOf = (name: string, tokens: number, node: ReadonlyArray<number>, page: ReadonlyArray<number>): string => {
  const shown = (millis: ReadonlyArray<number>) => {
    const [middle, least, most] = [median(millis), Math.max(...millis), Math.min(...millis)].map((each) =>
      (1000 * tokens / each).toFixed(1)
    )
    return `${middle} (${least} to ${most})`.padStart(26)
  }
  return `${name.padEnd(14)}${shown(node)}${shown(page)}${(median(node) / median(page)).toFixed(2).padStart(8)}`
}

const measure = Effect.gen(function*() {
  const { device, engine, name } = yield* Engine.load(file, { device: "wasm", threads, context })
  const encode = (text: string) => engine.model.codec.encode(text, { addSpecial: true })
  const { browser, site } = yield* Effect.acquireRelease(
    Effect.promise(() =>
      served((built) => ({
        "model.gguf": file,
        "pages/": fileURLToPath(new URL("../test/support/", import.meta.url)),
        "bundle/": built
      }))
    ),
    ({ end }) => Effect.promise(end)
  )
  const page = yield* Effect.promise(() => browser.newPage())
  yield* Effect.promise(() => page.goto(`${site.url}/isolated/pages/page.html`))
  yield* Effect.promise(() => page.waitForFunction("globalThis.Model !== undefined"))
  const there = yield* Effect.promise(() =>
    page.evaluate(async (options) => {
      globalThis.opened = await globalThis.Model.open("../model.gguf", options)
      return globalThis.opened.device.name
    }, { device: "wasm", threads, context } as const)
  )
  say(`${name}, Node: ${device}; ${browser.browserType().name()} ${browser.version()}: ${there}`)
  const [node, web]: [Array<Times>, Array<Times>] = [[], []]
  for (let round = 0, warm = 0; node.length < repetitions; round++) {
    const prompt = promptOf(encode, round)
    const own = yield* inNode(engine, encode(prompt))
    const theirs = yield* Effect.promise(() => inPage(page, prompt))
    // the page ends where the model does: such a text is too short to be measured
    if (own.written.some((id) => engine.model.codec.vocabulary.eog.has(id))) continue
    const text = engine.model.codec.decode(own.written)
    if (text !== theirs.text) {
      return yield* Effect.die(`Node writes ${JSON.stringify(text)}, the page ${JSON.stringify(theirs.text)}`)
    }
    // programs are compiled in the first one
    if (warm++ === 0) continue
    node.push(own.times)
    web.push(theirs.times)
  }
  say(`${"tokens/s".padEnd(14)}${"Node".padStart(26)}${"page".padStart(26)}${"ratio".padStart(8)}`)
  const of = (what: keyof Times) => [node, web].map((all) => all.map((each) => each[what])) as [number[], number[]]
  say(lineOf(`prompt of ${promptTokens}`, promptTokens, ...of("prompt")))
  say(lineOf(`decode ${count}`, count, ...of("decode")))
})

await Effect.runPromise(Effect.scoped(measure))
process.exit()
