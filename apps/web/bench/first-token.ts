/**
 * Milliseconds from navigation to the first word of tg-tiny: cold (a browser that has never been here), and warm (a second visit).
 *
 *     node apps/web/bench/first-token.ts [times]
 */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import type { BrowserContext } from "playwright-core"
import { launch } from "../../../packages/web/test/support/browser.ts"
import { serve } from "../../../packages/web/test/support/site.ts"
import { site } from "../src/Build.ts"

/** The page notes when it shows the first word: its clock begins with the navigation. */
const watch = `new MutationObserver(() => {
  if (globalThis.firstWord === undefined && document.querySelector(".answer .text")?.textContent.trim()) {
    globalThis.firstWord = performance.now()
  }
}).observe(document, { subtree: true, childList: true, characterData: true })`

const visit = async (context: BrowserContext, url: string): Promise<number> => {
  const page = await context.newPage()
  await page.addInitScript(watch)
  await page.goto(url, { waitUntil: "commit" })
  await page.getByLabel("Question", { exact: true }).fill("What is 17 + 25?")
  await page.keyboard.press("Enter")
  await page.getByRole("button", { name: "Answer again" }).waitFor({ timeout: 120_000 })
  // what is kept for the next visit is kept after the model is ready
  await page.waitForTimeout(2000)
  const millis = await page.evaluate<number>("firstWord")
  await page.evaluate("indexedDB.deleteDatabase('tg')")
  await page.close()
  return millis
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-site-"))
const [host, browser] = await Promise.all([serve({ "page/": `${folder}/` }), launch(), site(folder)])
const url = `${host.url}/isolated/page/`
for (let i = 0; i < Number(process.argv[2] ?? 3); i++) {
  const context = await browser.newContext()
  const cold = await visit(context, url)
  const warm = await visit(context, url)
  console.log(`cold ${Math.round(cold)} ms, warm ${Math.round(warm)} ms`)
  await context.close()
}
await browser.close()
await host.close()
fs.rmSync(folder, { recursive: true })
