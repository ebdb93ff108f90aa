/**
 * Milliseconds from navigation to the first word of tg-tiny: cold (a browser that has never been here), and warm (a second visit), and when
 * what it waits for was there. The browser's own trace is taken meanwhile, which costs some time too.
 *
 *     node apps/web/bench/first-token.ts [times]
 *
 * On a machine that has other things to do, look at the processor's time (of the page's thread, and of the worker with the engine), or ask
 * for a processor before all others: `sudo chrt --rr 1 node apps/web/bench/first-token.ts`.
 */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import type { Browser, BrowserContext } from "playwright-core"
import { launch } from "../../../packages/web/test/support/browser.ts"
import { serve } from "../../../packages/web/test/support/site.ts"
import { site } from "../src/Build.ts"

/** The page notes when it has a model, and when it shows the first word: its clock begins with the navigation. */
const watch = `{
  const seen = new Set()
  const note = (name) => {
    if (seen.has(name)) return
    seen.add(name)
    performance.mark("tg " + name)
  }
  new MutationObserver(() => {
    if (document.querySelector(".model[data-at=ready]") !== null) note("ready")
    if (document.querySelector(".answer .text")?.textContent.trim()) note("word")
  }).observe(document, { subtree: true, childList: true, characterData: true, attributes: true })
}`

/** What the first word waits for, in the order in which it is there. */
const parts = {
  document: "the document is there",
  worker: "the worker has its script",
  modules: "the worker has its modules",
  engine: "the worker has run them",
  page: "the page has run its modules",
  model: "the page has the model's bytes",
  programs: "the worker has the programs",
  ready: "the model is ready",
  word: "the first word is on the screen"
} as const
type Part = keyof typeof parts

/** When parts were there, and the processor's time of two threads, in milliseconds. */
interface Visit {
  readonly at: Readonly<Record<Part, number>>
  readonly page: number
  readonly engine: number
}

interface TraceEvent {
  readonly name: string
  readonly pid: number
  readonly tid: number
  /** Microseconds. */
  readonly ts: number
  readonly dur?: number
  /** Of the processor. */
  readonly tdur?: number
  readonly args: {
    readonly name?: string
    /** `startTime` of a mark: milliseconds since the navigation. */
    readonly data?: { readonly requestId?: string; readonly url?: string; readonly startTime?: number }
  }
}

const threadOf = ({ pid, tid }: TraceEvent): string => `${pid} ${tid}`
const isTask = ({ name }: TraceEvent): boolean => name === "ThreadControllerImpl::RunTask" || name === "RunTask"
const endOf = ({ dur = 0, ts }: TraceEvent): number => ts + dur

/** What a trace says of a visit. */
const read = (events: ReadonlyArray<TraceEvent>): Visit => {
  const word = events.find(({ name }) => name === "tg word")!
  const start = word.ts - 1000 * word.args.data!.startTime!
  const own = events.filter(({ pid }) => pid === word.pid).sort((a, b) => a.ts - b.ts)
  const names = new Map(own.filter(({ name }) => name === "thread_name").map((e) => [threadOf(e), e.args.name]))
  const busy = Map.groupBy(own.filter((event) => isTask(event) && event.ts > start), threadOf)
  const busyMillis = (thread: string): number => busy.get(thread)!.reduce((sum, { tdur = 0 }) => sum + tdur / 1000, 0)
  const page = threadOf(word)
  const [engine] = [...busy.keys()].filter((thread) => names.get(thread) === "DedicatedWorker thread")
    .sort((a, b) => busyMillis(b) - busyMillis(a))
  const urls = new Map(own.flatMap(({ args: { data } }) => data?.url === undefined ? [] : [[data.requestId, data.url]]))
  const fetched = own.filter(({ name, ts }) => name === "ResourceFinish" && ts > start && ts < word.ts)
    .map((event) => ({ ...event, url: urls.get(event.args.data?.requestId) ?? "" }))
  const [pageRan, engineRan] = [page, engine].map((thread) =>
    own.filter((event) => event.name === "v8.evaluateModule" && event.ts > start && threadOf(event) === thread)
      .sort((a, b) => (b.dur ?? 0) - (a.dur ?? 0))[0]!
  )
  const at: Record<Part, number | undefined> = {
    document: fetched.find(({ url }) => url.endsWith("/page/"))?.ts,
    worker: fetched.find((event) => threadOf(event) === engine)?.ts,
    modules: engineRan!.ts,
    engine: endOf(engineRan!),
    page: endOf(pageRan!),
    model: fetched.findLast(({ url }) => url.endsWith(".gguf"))?.ts,
    programs: fetched.findLast(({ url }) => /programs\b.*\.json$/.test(url))?.ts,
    ready: own.find(({ name }) => name === "tg ready")?.ts,
    word: word.ts
  }
  return {
    at: Object.fromEntries(Object.entries(at).map(([part, ts = NaN]) => [part, (ts - start) / 1000])) as Visit["at"],
    page: busyMillis(page),
    engine: busyMillis(engine!)
  }
}

const categories = ["toplevel", "__metadata", "blink.user_timing", "devtools.timeline", "v8"]

const visit = async (browser: Browser, context: BrowserContext, url: string): Promise<Visit> => {
  const page = await context.newPage()
  // a browser that has just opened a tab has its own things to do
  await page.waitForTimeout(1500)
  await browser.startTracing(page, { categories })
  await page.addInitScript(watch)
  await page.goto(url, { waitUntil: "commit" })
  await page.getByLabel("Question", { exact: true }).fill("What is 17 + 25?")
  await page.keyboard.press("Enter")
  await page.getByRole("button", { name: "Answer again" }).waitFor({ timeout: 120_000 })
  const trace = JSON.parse((await browser.stopTracing()).toString()) as { readonly traceEvents: Array<TraceEvent> }
  // what is kept for the next visit is kept after the model is ready
  await page.waitForTimeout(2000)
  await page.evaluate("indexedDB.deleteDatabase('tg')")
  await page.close()
  return read(trace.traceEvents)
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-site-"))
const [host, browser] = await Promise.all([serve({ "page/": `${folder}/` }), launch(), site(folder)])
const url = `${host.url}/isolated/page/`
const visits: Record<"cold" | "warm", Array<Visit>> = { cold: [], warm: [] }
for (let i = 0; i < Number(process.argv[2] ?? 3); i++) {
  const context = await browser.newContext()
  for (const [kind, all] of Object.entries(visits)) {
    const seen = await visit(browser, context, url)
    all.push(seen)
    const [page, engine, word] = [seen.page, seen.engine, seen.at.word].map((millis) => millis.toFixed(0))
    console.log(`${kind} ${word} ms (processor: page ${page}, engine ${engine})`)
  }
  await context.close()
}
const median = (values: ReadonlyArray<number>): string =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!.toFixed(0).padStart(6)
console.log(`\nmilliseconds from the navigation, in the middle of ${visits.cold.length} visits\n  cold   warm`)
for (const [part, text] of Object.entries(parts)) {
  const [cold, warm] = [visits.cold, visits.warm].map((all) => median(all.map(({ at }) => at[part as Part])))
  console.log(`${cold} ${warm}  ${text}`)
}
await browser.close()
await host.close()
fs.rmSync(folder, { recursive: true })
