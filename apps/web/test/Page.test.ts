import * as fs from "node:fs"
import { createRequire } from "node:module"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import type { AxeResults } from "axe-core"
import type { Browser, BrowserContext, BrowserContextOptions, Page } from "playwright-core"
import { afterAll, afterEach, assert, beforeAll, describe, it, vi } from "vitest"
import { hasBrowser, launch } from "../../../packages/web/test/support/browser.ts"
import { serve, type Site } from "../../../packages/web/test/support/site.ts"
import { site as build } from "../src/Build.ts"

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js")
const tiny = fileURLToPath(new URL("../../cli/models/tg-tiny-Q4_0.gguf", import.meta.url))
/** With TG_SCREENSHOTS=1 the pictures of the docs are taken again. */
const pictures = process.env["TG_SCREENSHOTS"] === "1"
  ? fileURLToPath(new URL("../../../docs/images/", import.meta.url))
  : undefined

describe.skipIf(!hasBrowser())("the page with the engine inside", () => {
  let folder: string
  let host: Site
  let browser: Browser
  /** What the browser keeps for most tests: programs are compiled once. */
  let usual: BrowserContext
  let context: BrowserContext
  let page: Page
  /** What the browser complains of, violations of the page's policy among it. */
  let complaints: Array<string>

  beforeAll(async () => {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-site-"))
    ;[host, browser] = await Promise.all([
      serve({ "page/": `${folder}/`, "models/": `${path.dirname(tiny)}/` }),
      launch(),
      build(folder)
    ])
    usual = await browser.newContext({ viewport: { width: 1200, height: 800 } })
  })
  afterAll(async () => {
    await browser.close()
    await host.close()
    fs.rmSync(folder, { recursive: true })
  })
  afterEach(async () => {
    if (context === usual) {
      await page.evaluate("localStorage.clear()")
      await page.close()
    } else await context.close()
    assert.deepEqual(complaints, [])
  })

  const open = async (mode: "isolated" | "plain", options?: BrowserContextOptions): Promise<void> => {
    complaints = []
    context = options === undefined
      ? usual
      : await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options })
    page = await context.newPage()
    page.on("console", (message) => {
      // the test was faster than the page, and has the field that would have been given the focus
      if (!message.text().startsWith("Autofocus processing was blocked")) {
        complaints.push(`${message.text()} ${message.location().url}`)
      }
    })
    page.on("pageerror", (error) => complaints.push(error.message))
    await page.goto(`${host.url}/${mode}/page/`)
    await page.locator("[data-loaded=true]").waitFor()
    await page.keyboard.press("Alt+n")
  }
  const ready = () => page.locator(".model[data-at=ready]").waitFor()
  /** Ends when the model has been loading, however shortly: a small one is there before a look from outside. */
  const loading = (): Promise<unknown> =>
    page.evaluate(`new Promise((resolve) => new MutationObserver((_, observer) => {
      if (document.querySelector(".model[data-at=loading]") === null) return
      observer.disconnect()
      resolve(true)
    }).observe(document.body, { attributes: true, childList: true, subtree: true }))`)
  const ask = async (text: string): Promise<void> => {
    await page.getByLabel("Question", { exact: true }).fill(text)
    await page.keyboard.press("Enter")
  }
  const text = () => page.locator(".answer .text").last()
  /** The last answer when it is whole. */
  const answered = async (): Promise<string> => {
    await page.getByRole("button", { name: "Answer again" }).waitFor()
    return (await text().textContent() ?? "").trim()
  }
  const choose = () => page.locator(".model").click()
  const picture = async (name: string): Promise<void> => {
    if (pictures === undefined) return
    fs.mkdirSync(pictures, { recursive: true })
    await page.screenshot({ path: `${pictures}web-${name}.png` })
  }

  it("answers while the model is still on its way, streams, and finds the conversation after a reload", async () => {
    await open("isolated")
    // lengths of the answer that are on the screen
    await page.evaluate(`globalThis.lengths = new Set()
      new MutationObserver(() => lengths.add(document.querySelector(".answer .text")?.textContent.length)).observe(
        document.body,
        { subtree: true, childList: true, characterData: true }
      )`)
    await ask("What is 17 + 25?")
    assert.equal(await answered(), "17 + 25 = 42")
    assert.match(await page.locator(".speed").innerText(), /^\d+ tokens, [\d.]+ tokens\/s, first after \d+ ms$/)
    assert.isAbove(await page.evaluate<number>("lengths.size"), 4)
    await page.reload()
    assert.equal(await answered(), "17 + 25 = 42")
    await ask("What is 40 + 2?")
    await vi.waitFor(async () => assert.equal((await text().textContent() ?? "").trim(), "40 + 2 = 42"), 60_000)
    await ready()
    await picture("desktop")
    await choose()
    assert.match(
      await page.locator(".card").innerText(),
      /tg-tiny\s+Q4_0, 13 million parameters, 7.3 MB; .*tokens of conversation\s+Runs on wasm, \d+ threads: WebGPU found only a CPU/
    )
    await picture("model")
  })

  it("stops, keeps what there is, and goes on", async () => {
    await open("isolated")
    await ready()
    // the page itself presses the key: on a busy machine the story could be over before the test hears of its beginning
    await page.evaluate(`new MutationObserver((_, observer) => {
      if ((document.querySelector(".answer .text")?.textContent.trim().length ?? 0) <= 10) return
      observer.disconnect()
      document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }))
    }).observe(document.body, { subtree: true, childList: true, characterData: true })`)
    await ask("Tell me a story.")
    await page.getByText("Stopped.").waitFor()
    // lines end where Markdown says; until what renders it is fetched, and makes paragraphs, they end where the model did
    const shown = async () => {
      await text().locator("p").first().waitFor()
      return (await text().textContent() ?? "").trim()
    }
    const stopped = await shown()
    assert.isAbove(stopped.length, 10)
    await page.reload()
    assert.equal(await shown(), stopped)
    await page.getByText("Stopped.").waitFor()
    await page.getByRole("button", { name: "New chat" }).first().click()
    await ask("What is 17 + 25?")
    assert.equal(await answered(), "17 + 25 = 42")
  })

  it("isolates itself where the host cannot, and works without a network from then on", async () => {
    await open("plain", {})
    await ready()
    assert.isTrue(await page.evaluate("crossOriginIsolated"))
    await choose()
    await page.getByText("This page works without a network.").waitFor()
    await context.setOffline(true)
    await page.reload()
    await ask("What is 17 + 25?")
    assert.equal(await answered(), "17 + 25 = 42")
    assert.isTrue(await page.evaluate("crossOriginIsolated"))
    // all programs of tg-tiny come with the page
    const kept = `caches.keys().then((names) => Promise.all(names.filter((name) => name.startsWith("tg-programs-")).map(
      async (name) => (await (await caches.open(name)).keys()).length)))`
    assert.deepEqual(await page.evaluate(kept), [0])
  })

  it("runs on one thread where nothing isolates it, and says so", async () => {
    await open("plain", { serviceWorkers: "block" })
    await ready()
    await choose()
    assert.match(await page.locator(".card").innerText(), /Runs on wasm, one thread: .*not cross-origin isolated/)
    await page.getByRole("button", { name: "Close", exact: true }).click()
    await ask("What is 17 + 25?")
    assert.equal(await answered(), "17 + 25 = 42")
    // the browser says once that the test has blocked it
    complaints = complaints.filter((complaint) => !/service worker/i.test(complaint))
  })

  it("shows what a model will take before it is read: a file, an address, and what is none", async () => {
    await open("isolated")
    await ready()
    await choose()
    const before = host.sent()
    await page.getByLabel("Address or name of a model").fill(`${host.url}/isolated/models/tg-tiny-Q4_0.gguf`)
    await page.getByRole("button", { name: "Look" }).click()
    const plan = page.locator(".plan")
    await plan.waitFor()
    assert.match(await plan.innerText(), /deepseek2, 13 million parameters/)
    assert.match(await plan.innerText(), /Memory\s+13\.\d MB of 4\.3 GB/)
    // the header alone
    assert.isBelow(host.sent() - before, 2_000_000)
    await page.getByRole("button", { name: "Download and keep" }).click()
    await page.locator(".kept", { hasText: "7.3 MB" }).waitFor()
    await picture("kept")
    await page.reload()
    await ready()
    await choose()
    assert.include(await page.locator(".kept").innerText(), "tg-tiny-Q4_0.gguf")
    const afterwards = host.sent()
    await page.getByLabel("Choose a GGUF file").setInputFiles({
      name: "notes.txt",
      mimeType: "text/plain",
      buffer: Buffer.from("no model")
    })
    assert.match(await page.getByRole("alert").innerText(), /notes\.txt.*choose a GGUF file/)
    await page.getByLabel("Choose a GGUF file").setInputFiles(tiny)
    await plan.waitFor()
    await picture("plan")
    const isLoading = loading()
    await page.getByRole("button", { name: "Load", exact: true }).click()
    await isLoading
    await ready()
    assert.equal(host.sent(), afterwards)
    await ask("What is 17 + 25?")
    assert.equal(await answered(), "17 + 25 = 42")
  })

  it("has no fault that axe finds, in light and in the dark, and fits a phone", async () => {
    await open("isolated", { bypassCSP: true })
    await ready()
    await page.addScriptTag({ path: axe })
    const check = async (): Promise<void> => {
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme })
        const { violations }: AxeResults = await page.evaluate("axe.run()")
        const faults = violations.map(({ help, nodes }) => `${help}: ${nodes.map((node) => node.html).join(" ")}`)
        assert.deepEqual(faults, [], colorScheme)
      }
    }
    await check()
    await page.emulateMedia({ colorScheme: "light" })
    await page.setViewportSize({ width: 820, height: 1100 })
    await picture("tablet")
    await page.setViewportSize({ width: 390, height: 780 })
    await page.emulateMedia({ colorScheme: "dark" })
    await ask("What is the capital of Peru?")
    assert.include(await answered(), "Lima")
    assert.isAtMost(await page.locator("html").evaluate(({ scrollWidth }) => scrollWidth), 390)
    await picture("phone")
    await choose()
    await check()
    await picture("phone-model")
  })
})
