import * as fs from "node:fs"
import { createRequire } from "node:module"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import type { AxeResults } from "axe-core"
import type { Browser, Page } from "playwright-core"
import { afterAll, afterEach, assert, beforeAll, describe, it } from "vitest"
import { hasBrowser, launch } from "../../../packages/web/test/support/browser.ts"
import { serve, type Site } from "../../../packages/web/test/support/site.ts"
import { site as build } from "../src/Build.ts"

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js")
const isFull = process.env["TG_FULL"] === "1"
/** With TG_SCREENSHOTS=1 the pictures of the docs are taken again. */
const pictures = process.env["TG_SCREENSHOTS"] === "1"
  ? fileURLToPath(new URL("../../../docs/images/", import.meta.url))
  : undefined

describe.skipIf(!hasBrowser())("the page about this device", () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-site-"))
  let host: Site
  let browser: Browser
  let page: Page
  let complaints: Array<string>

  beforeAll(async () => {
    ;[host, browser] = await Promise.all([serve({ "page/": `${folder}/` }), launch(), build(folder)])
  })
  afterAll(async () => {
    await browser.close()
    await host.close()
    fs.rmSync(folder, { recursive: true })
  })
  afterEach(async () => {
    await page.context().close()
    assert.deepEqual(complaints, [])
  })

  const open = async (): Promise<void> => {
    complaints = []
    const context = await browser.newContext({
      viewport: { width: 1100, height: 900 },
      bypassCSP: true,
      permissions: ["clipboard-read", "clipboard-write"]
    })
    page = await context.newPage()
    page.on("console", (message) => complaints.push(`${message.text()} ${message.location().url}`))
    page.on("pageerror", (error) => complaints.push(error.message))
    await page.goto(`${host.url}/isolated/page/device.html`)
  }
  const picture = async (name: string): Promise<void> => {
    if (pictures !== undefined) await page.screenshot({ path: `${pictures}web-${name}.png` })
  }

  it("measures tokens a second, launches and each kernel, and has no fault that axe finds", async () => {
    await open()
    await page.getByLabel("Runs on").selectOption("wasm")
    await page.getByRole("button", { name: "Measure" }).click()
    const figures = page.getByRole("group", { name: "Figures" })
    await figures.waitFor()
    assert.match(await figures.innerText(), /tokens a second\s+[\d.]+\s+launches a token\s+\d+\s+ms a step\s+[\d.]+/)
    const launches = Number(/launches a token\s+(\d+)/.exec(await figures.innerText())![1])
    const rows = await page.locator("tbody tr").allInnerTexts()
    assert.isAbove(rows.length, 5)
    assert.equal(rows.reduce((sum, row) => sum + Number(row.split(/\s+/)[1]), 0), launches)
    await page.addScriptTag({ path: axe })
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme })
      const { violations }: AxeResults = await page.evaluate("axe.run()")
      const faults = violations.map(({ help, nodes }) => `${help}: ${nodes.map((node) => node.html).join(" ")}`)
      assert.deepEqual(faults, [], colorScheme)
    }
    await page.setViewportSize({ width: 390, height: 780 })
    assert.isAtMost(await page.locator("html").evaluate(({ scrollWidth }) => scrollWidth), 390)
  })

  // a small set of vectors is tested in @tg/web
  it.skipIf(!isFull)("tests the device, copies the report, and knows it at the next visit", async () => {
    await open()
    await page.getByLabel("Runs on").selectOption("wasm")
    await page.getByRole("button", { name: "Test this device" }).click()
    await page.getByText(/All \d+ cases are right/).waitFor({ timeout: 240_000 })
    await page.getByRole("button", { name: "Copy the report" }).click()
    await page.getByRole("button", { name: "Copied" }).waitFor()
    assert.match(await page.evaluate("navigator.clipboard.readText()"), /^self-test of wasm.*\n.*WebAssembly; Mozilla/)
    await page.getByRole("button", { name: "Measure" }).click()
    await page.locator("tbody tr").first().waitFor()
    await picture("device")
    await page.reload()
    await page.getByText(/All \d+ cases are right/).waitFor()
  })
})
