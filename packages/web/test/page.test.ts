import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import type { Browser, Page } from "playwright-core"
import { afterAll, afterEach, assert, beforeAll, describe, it } from "vitest"
import { bundle } from "../bundle.ts"
import type * as ModelModule from "../src/Model.ts"
import { hasBrowser, launch } from "./support/browser.ts"
import { serve, type Site } from "./support/site.ts"

const models = fileURLToPath(new URL("../../../apps/cli/models/", import.meta.url))
const pages = fileURLToPath(new URL("./support/", import.meta.url))
const tiny = "../models/tg-tiny-Q4_0.gguf"

declare global {
  /** What the page of the tests has. */
  var Model: typeof ModelModule
}

describe.skipIf(!hasBrowser())("the engine in a page", () => {
  let built: string
  let site: Site
  let browser: Browser
  let page: Page

  beforeAll(async () => {
    built = fs.mkdtempSync(path.join(os.tmpdir(), "tg-web-"))
    ;[site, browser] = await Promise.all([serve({ models, pages, bundle: built }), launch(), bundle(built)])
  })
  afterAll(async () => {
    await browser.close()
    await site.close()
    fs.rmSync(built, { recursive: true })
  })
  afterEach(() => page.close())

  const open = async (mode: "isolated" | "plain"): Promise<void> => {
    page = await browser.newPage()
    await page.goto(`${site.url}/${mode}/pages/page.html`)
    await page.waitForFunction("globalThis.Model !== undefined")
  }

  /** Asks a fresh model, and says what it ran on. */
  const ask = (source: string, options: ModelModule.Options) =>
    page.evaluate(async ([source, options]) => {
      const model = await globalThis.Model.open(source, options)
      let answer = ""
      for await (const text of model.chat("What is 17 + 25?")) answer += text
      await model.close()
      return { answer, device: model.device, name: model.name }
    }, [source, options] as const)

  it("answers on wasm with threads, in a page that is isolated", async () => {
    await open("isolated")
    const { answer, device, name } = await ask(tiny, { device: "wasm", threads: 2 })
    assert.deepEqual([answer, name, device.name], ["17 + 25 = 42", "tg-tiny", "wasm, 2 threads"])
    assert.equal(device.why, "WebAssembly was asked for")
  })

  it("answers on wasm without threads, in a page that is not, and says what is missing", async () => {
    await open("plain")
    const { answer, device } = await ask(tiny, { device: "auto" })
    assert.deepEqual([answer, device.kind, device.threads], ["17 + 25 = 42", "wasm", 1])
    assert.match(
      device.why,
      /^WebGPU found only a CPU posing as a GPU.*; one thread, because.*Cross-Origin-Opener-Policy/
    )
  })
})
