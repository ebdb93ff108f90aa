import { type ChildProcess, spawn } from "node:child_process"
import { mkdirSync } from "node:fs"
import { createRequire } from "node:module"
import { fileURLToPath } from "node:url"
import type { AxeResults } from "axe-core"
import type { Browser, BrowserContext, Page } from "playwright-core"
import { afterAll, afterEach, assert, beforeAll, beforeEach, describe, it, vi } from "vitest"
import { hasBrowser, launch } from "../support/browser.ts"

const bin = fileURLToPath(new URL("../../src/bin.ts", import.meta.url))
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js")
/** With TG_SCREENSHOTS=1 the pictures of the docs are taken again. */
const pictures = process.env["TG_SCREENSHOTS"] === "1"
  ? fileURLToPath(new URL("../../../../docs/images/", import.meta.url))
  : undefined

/** `tg serve` with tg-tiny on wasm, at a free port of this machine. */
const serve = (): Promise<{ readonly url: string; readonly child: ChildProcess }> =>
  new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [bin, "serve", "--device", "wasm", "--port", "0"], {
      stdio: ["ignore", "ignore", "pipe"]
    })
    let said = ""
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      said += text
      const address = /(http:\/\/127\.0\.0\.1:\d+)\/v1/.exec(said)?.[1]
      if (address !== undefined) resolve({ child, url: address })
    })
    child.once("exit", (code) => reject(new Error(`tg serve ended with ${code}: ${said}`)))
  })

describe.skipIf(!hasBrowser())("the chat page", () => {
  let server: Awaited<ReturnType<typeof serve>>
  let browser: Browser
  let context: BrowserContext
  let page: Page
  /** What the browser complains of, violations of the Content-Security-Policy among it. */
  let complaints: Array<string>

  beforeAll(async () => {
    ;[server, browser] = await Promise.all([serve(), launch()])
  })
  afterAll(async () => {
    await browser.close()
    server.child.kill("SIGKILL")
  })
  beforeEach(async () => {
    complaints = []
    context = await browser.newContext({ viewport: { width: 1200, height: 800 } })
    page = await context.newPage()
    page.on("console", (message) => {
      const { url } = message.location()
      // browsers ask for it by themselves, before they have read what the page's icon is
      if (!url.endsWith("/favicon.ico")) complaints.push(`${message.text()} ${url}`)
    })
    page.on("pageerror", (error) => complaints.push(error.message))
    await open()
  })
  afterEach(async () => {
    await context.close()
    assert.deepEqual(complaints, [])
  })

  const open = async (): Promise<void> => {
    await page.goto(server.url)
    await page.locator("[data-loaded=true]").waitFor()
  }
  const ask = async (text: string): Promise<void> => {
    await page.getByLabel("Question", { exact: true }).fill(text)
    await page.keyboard.press("Enter")
  }
  const answers = () => page.getByRole("article", { name: "Answer" })
  /** The last answer when it is whole. */
  const answered = async (): Promise<string> => {
    await page.getByRole("button", { name: "Answer again" }).waitFor()
    return (await answers().last().locator(".text").textContent() ?? "").trim()
  }
  /** Lets about so many bytes a second arrive, so that an answer takes its time. */
  const slowly = async (): Promise<void> => {
    const session = await context.newCDPSession(page)
    await session.send("Network.enable")
    await session.send("Network.emulateNetworkConditions", {
      offline: false,
      latency: 0,
      downloadThroughput: 4000,
      uploadThroughput: -1
    })
  }
  const picture = async (name: string): Promise<void> => {
    if (pictures === undefined) return
    mkdirSync(pictures, { recursive: true })
    await page.screenshot({ path: `${pictures}chat-${name}.png` })
  }

  it("answers a question, says how fast, and finds the conversation after a reload", async () => {
    await ask("What is 17 + 25?")
    assert.equal(await answered(), "17 + 25 = 42")
    assert.match(await page.locator(".speed").innerText(), /^\d+ tokens, [\d.]+ tokens\/s, first after \d+ ms$/)
    await page.reload()
    assert.equal(await answered(), "17 + 25 = 42")
    // the second turn is part of the same conversation: only what is new is processed
    await ask("What is 40 + 2?")
    assert.equal(await answered(), "40 + 2 = 42")
    assert.match(await page.locator(".speed").last().getAttribute("title") ?? "", /\(\d+ of them known\)/)
    await picture("wide-light")
  })

  it("stops an answer, keeps what there is, and answers again", async () => {
    await slowly()
    await ask("Tell me a story.")
    const text = answers().last().locator(".text")
    await vi.waitFor(async () => assert.isAbove((await text.textContent() ?? "").length, 10), 60_000)
    await page.getByRole("button", { name: "Stop" }).click()
    await page.getByText("Stopped.").waitFor()
    const stopped = await text.textContent()
    assert.isAbove(stopped?.trim().length ?? 0, 0)
    await page.reload()
    assert.equal(await text.textContent(), stopped)
  })

  it("asks an edited question again, without what followed", async () => {
    await ask("What is 1 + 1?")
    await answered()
    await ask("What is 2 + 2?")
    await answered()
    await page.getByRole("article", { name: "You" }).first().hover()
    await page.getByRole("button", { name: "Edit the question" }).first().click()
    await page.getByRole("textbox", { name: "Edit the question" }).fill("What is 17 + 25?")
    await page.keyboard.press("Enter")
    assert.equal(await answered(), "17 + 25 = 42")
    assert.equal(await answers().count(), 1)
  })

  it("folds what the model thinks", async () => {
    await page.getByRole("button", { name: "Settings" }).click()
    await page.getByLabel("Let the model think first, if it can").check()
    await page.getByRole("button", { name: "Done" }).click()
    await ask("What is 17 + 25?")
    assert.include(await answered(), "42")
    const thoughts = page.locator(".reasoning")
    assert.isFalse(await thoughts.locator("p").isVisible())
    await thoughts.locator("summary").click()
    assert.include(await thoughts.locator("p").innerText(), "17")
    await picture("thinking")
  })

  it("keeps conversations apart, and forgets one when told to", async () => {
    await ask("What is 1 + 1?")
    await answered()
    await page.keyboard.press("Alt+n")
    await ask("What is 2 + 2?")
    await answered()
    const chats = page.getByRole("navigation", { name: "Chats" }).locator("li")
    assert.equal(await chats.count(), 2)
    page.once("dialog", (dialog) => void dialog.accept())
    await page.getByRole("button", { name: "Delete What is 2 + 2?" }).click({ force: true })
    await vi.waitFor(async () => assert.equal(await chats.count(), 1), 5000)
    await page.reload()
    await answered()
    assert.equal(await chats.count(), 1)
  })

  it("works on a phone, in the dark", async () => {
    await page.emulateMedia({ colorScheme: "dark" })
    await page.setViewportSize({ width: 390, height: 780 })
    await ask("What is the capital of Peru?")
    assert.include(await answered(), "Lima")
    assert.isAtMost(await page.locator("html").evaluate(({ scrollWidth }) => scrollWidth), 390)
    await picture("phone-dark")
    await page.setViewportSize({ width: 1200, height: 800 })
    await picture("wide-dark")
  })

  it.each(["light", "dark"] as const)("has no fault that axe finds, in %s", async (colorScheme) => {
    await page.emulateMedia({ colorScheme })
    await ask("What is 17 + 25?")
    await answered()
    // from outside of the page, whose policy lets no other script in
    const session = await context.newCDPSession(page)
    await session.send("Page.setBypassCSP", { enabled: true })
    await page.reload()
    await answered()
    await page.addScriptTag({ path: axe })
    const { violations }: AxeResults = await page.evaluate("axe.run()")
    assert.deepEqual(violations.map(({ help, nodes }) => `${help}: ${nodes.map((node) => node.html).join(" ")}`), [])
  })
})
