import * as fs from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { Model as NodeModel } from "@tg/node"
import type { Browser, BrowserContext, Page } from "playwright-core"
import { afterAll, afterEach, assert, beforeAll, describe, it, vi } from "vitest"
import type * as ModelModule from "../src/Model.ts"
import { hasBrowser } from "./support/browser.ts"
import { served } from "./support/served.ts"
import type { Site } from "./support/site.ts"

const models = fileURLToPath(new URL("../../../apps/cli/models/", import.meta.url))
const pages = fileURLToPath(new URL("./support/", import.meta.url))
const isFull = process.env["TG_FULL"] === "1"

declare global {
  /** What the page of the tests has. */
  var Model: typeof ModelModule
}

interface Question {
  readonly messages: ReadonlyArray<{ readonly role: string; readonly content: string }>
}
const questions: ReadonlyArray<Question> = fs.readFileSync(path.join(models, "eval.jsonl"), "utf8").trim().split("\n")
  .map((line) => JSON.parse(line) as Question)
/** Of many kinds. */
const sample = questions.filter((_, i) => i % Math.floor(questions.length / 24) === 0).slice(0, 24)

describe.skipIf(!hasBrowser())("the engine in a page, for a while", () => {
  let site: Site
  let browser: Browser
  let end: () => Promise<void>
  let context: BrowserContext
  let page: Page

  beforeAll(async () => {
    ;({ browser, end, site } = await served((built) => ({ "models/": models, "pages/": pages, "bundle/": built })))
    context = await browser.newContext()
  })
  afterAll(() => end())
  afterEach(() => page.close())

  const open = async (): Promise<void> => {
    page = await context.newPage()
    await page.goto(`${site.url}/isolated/pages/page.html`)
    await page.waitForFunction("globalThis.Model !== undefined")
  }

  it("answers as Node does", async () => {
    const asked = (isFull ? sample : sample.filter((_, i) => i % 6 === 0)).map(({ messages }) => messages)
    const expected: Array<string> = []
    {
      await using model = await NodeModel.open(path.join(models, "tg-tiny-Q4_0.gguf"), { device: "wasm" })
      for (const messages of asked) {
        expected.push((await Array.fromAsync(model.chat(messages, { maxTokens: 100 }))).join(""))
      }
    }
    await open()
    const answers = await page.evaluate(async (asked) => {
      const model = await globalThis.Model.open("../models/tg-tiny-Q4_0.gguf", { device: "wasm", threads: 2 })
      const answers: Array<string> = []
      for (const messages of asked) {
        let answer = ""
        for await (const text of model.chat(messages, { maxTokens: 100 })) answer += text
        answers.push(answer)
      }
      await model.close()
      return answers
    }, asked)
    assert.deepEqual(answers, expected)
  })

  /** Bytes of memory that the browser's processes have for themselves. */
  const residentBytes = async (): Promise<number> => {
    const session = await browser.newBrowserCDPSession()
    const { processInfo } = await session.send("SystemInfo.getProcessInfo")
    await session.detach()
    return processInfo.reduce((sum, { id }) => {
      const file = `/proc/${id}/smaps_rollup`
      const [, kilobytes = "0"] =
        /^Pss_Anon:\s+(\d+) kB/m.exec(fs.existsSync(file) ? fs.readFileSync(file, "utf8") : "") ??
          []
      return sum + 1024 * Number(kilobytes)
    }, 0)
  }

  it.skipIf(process.platform !== "linux")("gives back what models took", async () => {
    await open()
    const cycle = (times: number) =>
      page.evaluate(async (times) => {
        for (let i = 0; i < times; i++) {
          const model = await globalThis.Model.open("../models/tg-tiny-Q4_0.gguf", { device: "wasm", threads: 2 })
          for await (const _ of model.chat("What is 17 + 25?", { maxTokens: 2 }));
          await model.close()
        }
      }, times)
    const session = await context.newCDPSession(page)
    const settled = async (): Promise<number> => {
      await session.send("HeapProfiler.collectGarbage")
      return residentBytes()
    }
    await cycle(3)
    const before = await settled()
    assert.isAbove(before, 50e6)
    const times = isFull ? 197 : 5
    await cycle(times)
    // a model, its worker and its two threads are some 80 MB: less than one of them may stay. The browser ends the last workers, and gives their
    // pages back to the system, some time after `close`: what is still there after that stays
    await vi.waitFor(async () => {
      const after = await settled()
      assert.isBelow(after - before, 60e6, `${before} before, ${after} after ${times} more`)
    }, { timeout: 10_000, interval: 250 })
  })

  // software compiles all programs anew on each device, a minute and more each time: TG_LOSSES=20 asks for as many
  it.skipIf(!isFull)("goes on with the same text when the GPU is lost", async () => {
    await open()
    const losses = Number(process.env["TG_LOSSES"] ?? 2)
    const texts = await page.evaluate(async (losses) => {
      const lose = new BroadcastChannel("lose")
      const worker = () => new Worker(new URL("losing.js", location.href), { type: "module" })
      const model = await globalThis.Model.open("../models/tg-tiny-Q4_0.gguf", { device: "webgpu", worker })
      const ask = async (loseAt: number) => {
        let text = ""
        let i = 0
        for await (const piece of model.chat("Tell me a short story.", { maxTokens: 24 })) {
          // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a channel has no target
          if (++i === loseAt) lose.postMessage("now")
          text += piece
        }
        return text
      }
      const texts = [await ask(-1)]
      // random, but the same each time
      for (let n = 0, at = 7; n < losses; n++, at = (at * 5 + 3) % 23) texts.push(await ask(1 + at % 20))
      await model.close()
      return texts
    }, losses)
    assert.isAbove(texts[0]!.length, 20)
    assert.deepEqual(texts, texts.map(() => texts[0]))
  })
})
