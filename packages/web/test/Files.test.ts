import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import type { Browser, BrowserContext, Page } from "playwright-core"
import { afterAll, afterEach, assert, beforeAll, beforeEach, describe, it } from "vitest"
import type * as FilesModule from "../src/Files.ts"
import type * as ModelModule from "../src/Model.ts"
import { hasBrowser } from "./support/browser.ts"
import { served } from "./support/served.ts"
import type { Site } from "./support/site.ts"

const models = fileURLToPath(new URL("../../../apps/cli/models/", import.meta.url))
const pages = fileURLToPath(new URL("./support/", import.meta.url))
const tiny = path.join(models, "tg-tiny-Q4_0.gguf")
const size = fs.statSync(tiny).size
const sha256 = createHash("sha256").update(fs.readFileSync(tiny)).digest("hex")

declare global {
  /** What the page of the tests has. */
  var Model: typeof ModelModule
  var Files: typeof FilesModule
}

describe.skipIf(!hasBrowser())("models that the browser keeps", () => {
  let site: Site
  let browser: Browser
  let end: () => Promise<void>
  let context: BrowserContext

  beforeAll(async () => {
    ;({ browser, end, site } = await served((built) => ({ "models/": models, "pages/": pages, "bundle/": built })))
  })
  afterAll(() => end())
  beforeEach(async () => {
    context = await browser.newContext()
  })
  afterEach(() => context.close())

  const tab = async (): Promise<Page> => {
    const page = await context.newPage()
    await page.goto(`${site.url}/isolated/pages/page.html`)
    await page.waitForFunction("globalThis.Model !== undefined")
    return page
  }
  const address = (query = ""): string => `${site.url}/isolated/models/tg-tiny-Q4_0.gguf${query}`

  /** The files of the store, with their sizes. */
  const stored = (page: Page) =>
    page.evaluate(async () => {
      const root = await navigator.storage.getDirectory()
      const blobs = await (await root.getDirectoryHandle("tg-models")).getDirectoryHandle("blobs")
      const found: Record<string, number> = {}
      for await (const [name, handle] of blobs) {
        if (handle instanceof FileSystemFileHandle) found[name] = (await handle.getFile()).size
      }
      return found
    })
  const ask = (page: Page, kept: string) =>
    page.evaluate(async (kept) => {
      const model = await globalThis.Model.open({ kept }, { device: "wasm", threads: 2 })
      let answer = ""
      for await (const text of model.chat("What is 17 + 25?")) answer += text
      await model.close()
      return answer
    }, kept)

  it("goes on where it was stopped, mends what was damaged, keeps one copy, and forgets", async () => {
    const page = await tab()
    const url = address("?slow")
    const stoppedAt = await page.evaluate(async (url) => {
      const controller = new AbortController()
      let reached = 0
      await globalThis.Files.promises.keep(url, {
        signal: controller.signal,
        onProgress: ({ doneBytes, totalBytes }) => {
          reached = doneBytes
          if (doneBytes > 0.6 * totalBytes) controller.abort()
        }
      }).catch(() => {})
      return reached
    }, url)
    assert.isBelow(stoppedAt, size)
    const [half] = await page.evaluate(() => globalThis.Files.promises.list())
    assert.isTrue(half !== undefined && half.doneBytes > 0 && !half.isComplete)
    // a byte of what is there becomes another one
    await page.evaluate(async () => {
      const root = await navigator.storage.getDirectory()
      const blobs = await (await root.getDirectoryHandle("tg-models")).getDirectoryHandle("blobs")
      for await (const [name, handle] of blobs) {
        if (!name.endsWith(".part") || !(handle instanceof FileSystemFileHandle)) continue
        const writing = await handle.createWritable({ keepExistingData: true })
        await writing.write({ type: "write", position: 10, data: new Uint8Array([255]) })
        await writing.close()
      }
    })
    const { first, kept } = await page.evaluate(async (url) => {
      let first: number | undefined
      const kept = await globalThis.Files.promises.keep(url, { onProgress: ({ doneBytes }) => first ??= doneBytes })
      return { first, kept }
    }, url)
    assert.isAbove(first ?? 0, 0)
    assert.deepEqual(kept, { _tag: "Kept", name: url, doneBytes: size, totalBytes: size, isComplete: true })
    assert.deepEqual(await stored(page), { [sha256]: size })
    assert.equal(await ask(page, url), "17 + 25 = 42")
    // the same content under another address
    await page.evaluate((url) => globalThis.Files.promises.keep(url), address())
    assert.deepEqual(await stored(page), { [sha256]: size })
    assert.equal(await page.evaluate((url) => globalThis.Files.promises.forget(url), url), 0)
    assert.equal(await page.evaluate((url) => globalThis.Files.promises.forget(url), address()), size)
    assert.deepEqual(await stored(page), {})
    const error = await ask(page, url).catch(String)
    assert.include(error, "this browser does not keep it")
  })

  it("is fetched once for two tabs, and both use it", async () => {
    const [one, other] = await Promise.all([tab(), tab()])
    const url = address("?slow")
    const before = site.sent()
    const keep = (page: Page) =>
      page.evaluate(async (url) => {
        let waited = false
        await globalThis.Files.promises.keep(url, { onProgress: ({ isWaiting }) => waited ||= isWaiting })
        return waited
      }, url)
    const waited = await Promise.all([keep(one), keep(other)])
    assert.sameMembers(waited, [true, false])
    // and the first byte, twice each, to learn how long it is
    assert.isAtMost(site.sent() - before, size + 16)
    assert.deepEqual(await Promise.all([ask(one, url), ask(other, url)]), ["17 + 25 = 42", "17 + 25 = 42"])
  })

  it("lists what is there while another tab writes it anew", async () => {
    const [one, other] = await Promise.all([tab(), tab()])
    await one.evaluate((url) => globalThis.Files.promises.keep(url), address())
    const writing = other.evaluate(async () => {
      const root = await navigator.storage.getDirectory()
      const names = await (await root.getDirectoryHandle("tg-models")).getDirectoryHandle("names")
      const [handle] = await Array.fromAsync(names.values())
      if (!(handle instanceof FileSystemFileHandle)) throw new Error("nothing is kept")
      const text = await (await handle.getFile()).text()
      const end = performance.now() + 2000
      let times = 0
      while (performance.now() < end) {
        const file = await handle.createWritable()
        await file.write(text)
        await file.close()
        times++
      }
      return times
    })
    const lists = await one.evaluate(async () => {
      const end = performance.now() + 1500
      const lists = new Set<string>()
      while (performance.now() < end) {
        const list = await globalThis.Files.promises.list().catch((error: unknown) => String(error))
        lists.add(typeof list === "string" ? list : list.map(({ name }) => name).join())
      }
      return [...lists]
    })
    assert.isAbove(await writing, 10)
    assert.deepEqual(lists, [address()])
  })

  it("says what to delete when there is no room", async () => {
    const page = await tab()
    await page.evaluate((url) => globalThis.Files.promises.keep(url), address())
    const session = await context.newCDPSession(page)
    // on a busy machine Chromium stored more than such a quota in one of some forty runs: then a smaller one is set, which no model fits
    const quotas = [size + 1_000_000, 1_000_000, 1_000_000]
    let error: unknown
    for (const [i, quotaSize] of quotas.entries()) {
      await session.send("Storage.overrideQuotaForOrigin", { origin: site.url, quotaSize })
      const url = address(`?another${i}`)
      error = await page.evaluate((url) => globalThis.Files.promises.keep(url).catch(String), url)
      if (typeof error === "string") break
      await page.evaluate((url) => globalThis.Files.promises.forget(url), url)
    }
    assert.match(
      String(error),
      /7\.3 MB are missing, and the browser keeps no more, .* free; delete a model that is kept: .*gguf \(7\.3 MB\)/,
      String(error)
    )
  })
})
