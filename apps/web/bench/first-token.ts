/**
 * Milliseconds from navigation to the first word of tg-tiny: cold (a browser that has never been here), and warm (a second visit). On a
 * machine that has other things to do, look at the processor's time instead: of the page's thread, and of the worker with the engine.
 *
 *     node apps/web/bench/first-token.ts [times]
 */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import type { Browser, BrowserContext } from "playwright-core"
import { launch } from "../../../packages/web/test/support/browser.ts"
import { serve } from "../../../packages/web/test/support/site.ts"
import { site } from "../src/Build.ts"

/** The page notes when it shows the first word: its clock begins with the navigation. */
const watch = `new MutationObserver(() => {
  if (globalThis.firstWord === undefined && document.querySelector(".answer .text")?.textContent.trim()) {
    globalThis.firstWord = performance.now()
  }
}).observe(document, { subtree: true, childList: true, characterData: true })`

/** Milliseconds of a visit: of the clock, and of the processor. */
interface Visit {
  readonly wall: number
  readonly page: number
  readonly engine: number
}

interface TraceEvent {
  readonly name: string
  readonly pid: number
  readonly tid: number
  /** Microseconds of the processor. */
  readonly tdur?: number
  readonly args: { readonly name?: string }
}

/** Processor's time of the thread that has the name and took most of it, in the process that has workers. */
const busiest = (events: ReadonlyArray<TraceEvent>): Omit<Visit, "wall"> => {
  const keyOf = ({ pid, tid }: TraceEvent): string => `${pid} ${tid}`
  const names = new Map(events.filter(({ name }) => name === "thread_name").map((e) => [keyOf(e), e.args.name]))
  const worker = "DedicatedWorker thread"
  const times = new Map<string, number>()
  for (const event of events) {
    if (event.name !== "ThreadControllerImpl::RunTask" && event.name !== "RunTask") continue
    times.set(keyOf(event), (times.get(keyOf(event)) ?? 0) + (event.tdur ?? 0) / 1000)
  }
  const of = (wanted: string, pid = "") =>
    [...times].filter(([key]) => names.get(key) === wanted && key.startsWith(pid)).sort(([, a], [, b]) => b - a)[0] ??
      ["", 0]
  const [key, engine] = of(worker)
  return { engine, page: of("CrRendererMain", key.split(" ")[0])[1] }
}

const visit = async (browser: Browser, context: BrowserContext, url: string): Promise<Visit> => {
  const page = await context.newPage()
  await browser.startTracing(page, { categories: ["toplevel", "__metadata"] })
  await page.addInitScript(watch)
  await page.goto(url, { waitUntil: "commit" })
  await page.getByLabel("Question", { exact: true }).fill("What is 17 + 25?")
  await page.keyboard.press("Enter")
  await page.getByRole("button", { name: "Answer again" }).waitFor({ timeout: 120_000 })
  const trace = JSON.parse((await browser.stopTracing()).toString()) as { readonly traceEvents: Array<TraceEvent> }
  // what is kept for the next visit is kept after the model is ready
  await page.waitForTimeout(2000)
  const wall = await page.evaluate<number>("firstWord")
  await page.evaluate("indexedDB.deleteDatabase('tg')")
  await page.close()
  return { wall, ...busiest(trace.traceEvents) }
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-site-"))
const [host, browser] = await Promise.all([serve({ "page/": `${folder}/` }), launch(), site(folder)])
// a browser that has just started has its own things to do
await new Promise((resolve) => setTimeout(resolve, 5000))
const shown = ({ engine, page, wall }: Visit): string =>
  `${wall.toFixed(0)} ms (processor: page ${page.toFixed(0)}, engine ${engine.toFixed(0)})`
const url = `${host.url}/isolated/page/`
for (let i = 0; i < Number(process.argv[2] ?? 3); i++) {
  const context = await browser.newContext()
  const cold = await visit(browser, context, url)
  const warm = await visit(browser, context, url)
  console.log(`cold ${shown(cold)}, warm ${shown(warm)}`)
  await context.close()
}
await browser.close()
await host.close()
fs.rmSync(folder, { recursive: true })
