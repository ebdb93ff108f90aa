import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { Model as NodeModel } from "@tg/node"
import type { Browser, BrowserContext, Page } from "playwright-core"
import { afterAll, afterEach, assert, beforeAll, describe, it } from "vitest"
import type * as ModelModule from "../src/Model.ts"
import { engine, type EngineFiles, type Modules } from "../bundle.ts"
import { closure } from "../src/NodeBundling.ts"
import { hasBrowser } from "./support/browser.ts"
import { served } from "./support/served.ts"
import type { Site } from "./support/site.ts"
import { synthetic } from "./support/synthetic.ts"

const models = fileURLToPath(new URL("../../../apps/cli/models/", import.meta.url))
const pages = fileURLToPath(new URL("./support/", import.meta.url))
const example = fileURLToPath(new URL("../../../examples/web/", import.meta.url))
const tiny = "../models/tg-tiny-Q4_0.gguf"

declare global {
  /** What the page of the tests has. */
  var Model: typeof ModelModule
}

describe.skipIf(!hasBrowser())("the engine in a page", () => {
  let site: Site
  let browser: Browser
  let end: () => Promise<void>
  let modules: Modules
  // one for all tests: what the browser keeps is there for the next
  let context: BrowserContext
  let page: Page

  const made = fs.mkdtempSync(path.join(os.tmpdir(), "tg-made-"))

  beforeAll(async () => {
    fs.writeFileSync(path.join(made, "tiny-youtu.gguf"), new Uint8Array(synthetic("tiny-youtu:q4_0")))
    ;({ browser, end, modules, site } = await served((built) => ({
      "example/tg/": built,
      "example/tg-tiny-Q4_0.gguf": path.join(models, "tg-tiny-Q4_0.gguf"),
      "example/": example,
      "models/": models,
      "made/": made,
      "pages/": pages,
      "bundle/": built
    })))
    context = await browser.newContext()
  })
  afterAll(async () => {
    await end()
    fs.rmSync(made, { recursive: true })
  })
  afterEach(() => page.close())

  const open = async (mode: "isolated" | "plain"): Promise<void> => {
    page = await context.newPage()
    await page.goto(`${site.url}/${mode}/pages/page.html`)
    await page.waitForFunction("globalThis.Model !== undefined")
  }

  /** Asks a fresh model, and says what it ran on. */
  const ask = (source: string, options: ModelModule.Options) =>
    page.evaluate(async ([source, options]) => {
      const progress: Array<number> = []
      const model = await globalThis.Model.open(source, {
        ...options,
        onProgress: ({ loadedBytes, totalBytes }) => progress.push(loadedBytes / totalBytes)
      })
      let answer = ""
      for await (const text of model.chat("What is 17 + 25?")) answer += text
      await model.close()
      return { answer, progress, device: model.device, name: model.name }
    }, [source, options] as const)

  /** Has the page open a file from its disk, and go on with a text. */
  const goOn = (address: string, device: "wasm" | "webgpu") =>
    page.evaluate(async ([address, device]) => {
      const bytes = await (await fetch(address)).blob()
      const model = await globalThis.Model.open(new File([bytes], "model.gguf"), { device })
      let text = ""
      for await (const more of model.generate("a", { maxTokens: 2 })) text += more
      await model.close()
      return text
    }, [address, device] as const)

  /** What pages have fetched by now beside their own script, and what they are to have. */
  const fetched = (...budget: ReadonlyArray<keyof EngineFiles>) => {
    const asked = budget.flatMap((each) => [...engine(modules, "models-deepseek2/src/Family.ts")[each]])
    return [[...site.scripts()].toSorted(), [...new Set([...closure(modules, "tg.js"), ...asked])].toSorted()] as const
  }

  it("fetches what its budget counts", async () => {
    await open("isolated")
    await goOn("../made/tiny-youtu.gguf", "wasm")
    assert.deepEqual(...fetched("wasm"))
    await goOn(tiny, "wasm")
    assert.deepEqual(...fetched("wasm"))
    if (process.env["TG_FULL"] !== "1") return
    await goOn("../made/tiny-youtu.gguf", "webgpu")
    assert.deepEqual(...fetched("wasm", "webgpu"))
  })

  it("answers on wasm with threads, in a page that is isolated", async () => {
    await open("isolated")
    const { answer, device, name, progress } = await ask(tiny, { device: "wasm", threads: 2 })
    assert.deepEqual([answer, name, device.name], ["17 + 25 = 42", "tg-tiny", "wasm, 2 threads"])
    assert.equal(device.why, "WebAssembly was asked for")
    assert.deepEqual(progress, progress.toSorted((a, b) => a - b))
    assert.equal(progress.at(-1), 1)
  })

  it("keeps what it has compiled, and finds it when it is opened again", async () => {
    await open("isolated")
    const seen = await page.evaluate(async (source) => {
      const put = "a store that was never read"
      const kept = async () => {
        const [name, ...others] = (await caches.keys()).filter((each) => each.startsWith("tg-programs-"))
        const cache = await caches.open(name!)
        return { name, others, cache, addresses: (await cache.keys()).map(({ url }) => url) }
      }
      // other models kept theirs, too: those of this one alone
      for (const name of (await caches.keys()).filter((each) => each.startsWith("tg-programs-"))) {
        await caches.delete(name)
      }
      const first = await globalThis.Model.open(source, { device: "wasm", threads: 2 })
      for await (const _ of first.chat("What is 17 + 25?"));
      await first.close()
      const before = await kept()
      // whoever reads them finds that they are damaged, and writes them anew
      await Promise.all(before.addresses.map((url) => before.cache.put(url, new Response(put))))
      await caches.open("tg-programs-of-another-build")
      const model = await globalThis.Model.open(source, { device: "wasm", threads: 2 })
      let answer = ""
      for await (const text of model.chat("What is 17 + 25?")) answer += text
      await model.close()
      const after = await kept()
      const texts = await Promise.all(after.addresses.map(async (url) => (await after.cache.match(url))!.text()))
      return {
        answer,
        before: before.addresses,
        after: after.addresses,
        others: after.others,
        read: texts.map((text) => text !== put)
      }
    }, tiny)
    assert.isAbove(seen.before.length, 0)
    assert.deepEqual(seen.after, seen.before)
    assert.deepEqual(seen.read, seen.before.map(() => true))
    assert.deepEqual([seen.answer, seen.others], ["17 + 25 = 42", []])
  })

  it("answers in the page of the example: on wasm without threads, and says what is missing", async () => {
    page = await context.newPage()
    await page.goto(`${site.url}/plain/example/index.html`)
    await page.getByText(/: 17 \+ 25 = 42$/).waitFor()
    assert.match(
      await page.locator("p").innerText(),
      /^wasm, one thread \(WebGPU found only a CPU posing as a GPU.*; one thread, because.*Cross-Origin-Opener-Policy/
    )
  })

  it("is Effect's LanguageModel in the page of the other example", async () => {
    page = await context.newPage()
    await page.goto(`${site.url}/isolated/example/language-model.html`)
    await page.getByText("17 + 25 = 42", { exact: true }).waitFor()
  })

  // half a minute of software
  it.skipIf(process.env["TG_FULL"] !== "1")("answers on WebGPU", async () => {
    await open("plain")
    const { answer, device } = await ask(tiny, { device: "webgpu" })
    assert.deepEqual([answer, device.kind, device.why], ["17 + 25 = 42", "webgpu", "WebGPU was asked for"])
  })

  it("stops within a token when it is told to, and goes on with the next question", async () => {
    await open("isolated")
    const seen = await page.evaluate(async (source) => {
      // each token comes alone
      const worker = () => new Worker(new URL("slow.js", location.href), { type: "module" })
      // this server sends no ranges
      const model = await globalThis.Model.open(`${source}?whole`, { device: "wasm", threads: 2, worker })
      const question = "Tell me a story."
      for await (const _ of model.chat(question, { maxTokens: 1 }));
      const prompt = await model.cached()
      const controller = new AbortController()
      let taken = 0
      let thrown: unknown
      try {
        for await (const _ of model.chat(question, { signal: controller.signal })) {
          if (++taken === 5) controller.abort("enough")
        }
      } catch (error) {
        thrown = error
      }
      const atOnce = await model.cached()
      await new Promise((resolve) => setTimeout(resolve, 200))
      const later = await model.cached()
      for await (const _ of model.chat(question)) if (++taken === 10) break
      await new Promise((resolve) => setTimeout(resolve, 200))
      const afterBreak = await model.cached()
      let answer = ""
      for await (const text of model.chat("What is 17 + 25?")) answer += text
      await model.close()
      return { taken, thrown, answer, stopped: atOnce - prompt, later: later - prompt, broken: afterBreak - prompt }
    }, tiny)
    assert.deepEqual([seen.taken, seen.thrown, seen.answer], [10, "enough", "17 + 25 = 42"])
    // five were taken, of which the fifth need not be in the cache, and at most one more was on its way
    for (const computed of [seen.stopped, seen.broken]) assert.include([4, 5], computed)
    assert.equal(seen.later, seen.stopped)
  })

  it("stops within a token where many come together", async () => {
    await open("isolated")
    const seen = await page.evaluate(async (source) => {
      const model = await globalThis.Model.open(source, { device: "wasm", threads: 2 })
      const question = "Tell me a story."
      const [stopped, later]: [Array<number>, Array<number>] = [[], []]
      for (const at of [1, 2, 9, 17, 40]) {
        const controller = new AbortController()
        let taken = 0
        let told: Promise<number> | undefined
        try {
          for await (const _ of model.chat(question, { signal: controller.signal })) {
            if (++taken !== at) continue
            // both are on their way to the worker at once
            told = model.cached()
            controller.abort("enough")
          }
        } catch {
          const atOnce = await model.cached()
          stopped.push(atOnce - await told!)
          await new Promise((resolve) => setTimeout(resolve, 100))
          later.push(await model.cached() - atOnce)
        }
      }
      await model.close()
      return { stopped, later }
    }, tiny)
    assert.equal(seen.stopped.length, 5)
    // a page that others interrupt between both messages may let more of them pass now and then
    assert.include([0, 1], seen.stopped.toSorted((a, b) => a - b)[2])
    assert.deepEqual(seen.later, [0, 0, 0, 0, 0])
  })

  it("counts what it sends to the worker, in memory that both share if they can", async () => {
    for (const mode of ["isolated", "plain"] as const) {
      await open(mode)
      const seen = await page.evaluate(async (source) => {
        let sent: Int32Array | undefined
        let posted = 0
        const worker = () => {
          const made = new Worker("../bundle/worker.js", { type: "module" })
          const post = made.postMessage.bind(made)
          made.postMessage = (message: ReadonlyArray<unknown>, ...rest: ReadonlyArray<unknown>) => {
            if (message[0] === 2) sent = message[1] as Int32Array
            else posted++
            post(message, rest[0] as Array<Transferable>)
          }
          return made
        }
        const model = await globalThis.Model.open(source, { device: "wasm", threads: 1, worker })
        for await (const _ of model.chat("What is 17 + 25?"));
        const counted = sent!.at(0)
        await model.close()
        return { counted, posted, isShared: !(sent!.buffer instanceof ArrayBuffer) }
      }, tiny)
      assert.isAbove(seen.posted, 2)
      assert.deepEqual([seen.counted, seen.isShared], [seen.posted, mode === "isolated"])
      if (mode === "isolated") await page.close()
    }
  })

  it("has the text and the counts of Node in the order of Node, each piece of a reply once", async () => {
    const question = "Tell me a short story."
    await using own = await NodeModel.open(path.join(models, "tg-tiny-Q4_0.gguf"), { device: "wasm" })
    const expected = (await Array.fromAsync(own.chat(question, { maxTokens: 50 }))).join("")
    await open("isolated")
    const seen = await page.evaluate(async ([source, question]) => {
      const model = await globalThis.Model.open(source, { device: "wasm", threads: 2 })
      const pieces = await Array.fromAsync(model.reply(question, { maxTokens: 50 }))
      const short = await Array.fromAsync(model.reply("What is 17 + 25?"))
      await model.close()
      return { pieces, short }
    }, [tiny, question] as const)
    const text = (pieces: typeof seen.pieces) => pieces.map((piece) => piece.type === "done" ? "" : piece.text).join("")
    assert.equal(text(seen.pieces), expected)
    assert.equal(text(seen.short), "17 + 25 = 42")
    const done = (pieces: typeof seen.pieces) => pieces.filter(({ type }) => type === "done")
    assert.deepInclude(done(seen.pieces)[0], { ending: "length", answerTokens: 50, cachedTokens: 0 })
    assert.deepInclude(done(seen.short)[0], { ending: "end" })
    for (const pieces of [seen.pieces, seen.short]) {
      assert.equal(done(pieces).length, 1)
      assert.equal(pieces.at(-1)!.type, "done")
    }
  })

  it("fails with the engine's errors, and says what to do", async () => {
    await open("plain")
    const errors = await page.evaluate(async () => {
      const attempts: ReadonlyArray<() => Promise<unknown>> = [
        () => globalThis.Model.open("page.html"),
        () => globalThis.Model.open("../models/no-such-file.gguf"),
        () => globalThis.Model.open("ftp://example.org/model.gguf"),
        () => globalThis.Model.open(new Uint8Array(100)),
        () => globalThis.Model.open("page.html", { threads: 0 }),
        () => globalThis.Model.open("page.html", { worker: () => new Worker("no-such-worker.js", { type: "module" }) }),
        () => globalThis.Model.open("page.html", { signal: AbortSignal.abort(new Error("never mind")) })
      ]
      const errors: Array<readonly [string, string]> = []
      for (const attempt of attempts) {
        await attempt().catch((error: Error & { readonly reason?: string }) =>
          errors.push([error.reason ?? error.name, error.message])
        )
      }
      return errors
    })
    assert.deepEqual(errors.map(([reason]) => reason), [
      "NotGguf",
      "HttpError",
      "InvalidRequest",
      "NotGguf",
      "InvalidRequest",
      "WorkerFailed",
      "Error"
    ])
    // the message says what to do
    assert.match(errors[0]![1], /choose a GGUF file$/)
    assert.match(errors[4]![1], /threads/)
    assert.match(errors[5]![1], /^the worker failed: .*worker\.js.*; open the model again$/)
    assert.equal(errors[6]![1], "never mind")
  })

  it("answers one after the other, refuses what makes no sense, and what comes after its end", async () => {
    await open("isolated")
    const { both, errors } = await page.evaluate(async (source) => {
      const model = await globalThis.Model.open(source, { device: "wasm", threads: 2 })
      const drain = async (texts: AsyncIterable<string>) => {
        for await (const _ of texts);
      }
      const errors: Array<readonly [string, string]> = []
      const note = (error: { readonly reason: string; readonly message: string }) =>
        errors.push([error.reason, error.message])
      const collect = async (texts: AsyncIterable<string>) => {
        let all = ""
        for await (const text of texts) all += text
        return all
      }
      // the second waits for the first
      const both = await Promise.all([collect(model.chat("What is 17 + 25?")), collect(model.chat("What is 40 + 2?"))])
      await drain(model.chat([])).catch(note)
      await drain(model.chat("Hi", { temperature: Number.NaN })).catch(note)
      await drain(model.chat("Hi", { temperature: -1 })).catch(note)
      await drain(model.chat("Hi", JSON.parse(`{ "maxTokns": 1 }`))).catch(note)
      await drain(model.generate("word ".repeat(10_000))).catch(note)
      await Promise.all([drain(model.chat("Tell me a story.")).catch(note), model.close()])
      await drain(model.chat("Hi")).catch(note)
      await model.cached().catch(note)
      return { errors, both }
    }, tiny)
    assert.deepEqual(both, ["17 + 25 = 42", "40 + 2 = 42"])
    assert.deepEqual(errors.map(([reason]) => reason), [
      "InvalidRequest",
      "InvalidRequest",
      "InvalidSampling",
      "InvalidRequest",
      "ContextFull",
      "Closed",
      "Closed",
      "Closed"
    ])
    assert.match(errors[0]![1], /^messages: Expected an array of one or more messages/)
    assert.match(errors[3]![1], /maxTokns/)
    assert.equal(errors[5]![1], "the model was closed; open it again")
  })
})
