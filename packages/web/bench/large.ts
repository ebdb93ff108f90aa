/**
 * A large model in a page: from an HTTP server with ranges, and from the browser's own files. Tells the most that the JavaScript heaps of
 * the page and its worker took while it was loaded, and whether the first tokens are those of Node.
 *
 *     node packages/web/bench/large.ts [shape] [tokens] [http|opfs]
 *
 * The shape is one of `tg synth`; `youtu-llm-2b:q4_0`, 1.2 GB, if not said. Needs Chromium, and that much twice on the disk.
 */
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import type { Page } from "playwright-core"
import { bundle } from "../bundle.ts"
import type * as FilesModule from "../src/Files.ts"
import type * as ModelModule from "../src/Model.ts"
import { launchPersistent } from "../test/support/browser.ts"
import { watch } from "../test/support/heaps.ts"
import { serve } from "../test/support/site.ts"

declare global {
  var Model: typeof ModelModule
  var Files: typeof FilesModule
}

const [shape = "youtu-llm-2b:q4_0", tokens = "4", place] = process.argv.slice(2)
const places = ["http", "opfs"] as const
type Place = typeof places[number]
const mostHeap = 300e6
const prompt = "Once upon a time"
const root = fileURLToPath(new URL("../../../", import.meta.url))
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-large-"))
const file = path.join(folder, "large.gguf")

/** What a page does with a model. */
const inPage = (page: Page, where: Place) =>
  page.evaluate(
    async ([where, prompt, maxTokens]) => {
      const address = new URL("../models/large.gguf", location.href).href
      const started = performance.now()
      if (where === "opfs") await globalThis.Files.promises.keep(address)
      const kept = performance.now()
      const source = where === "opfs" ? { kept: address } : address
      const model = await globalThis.Model.open(source, { device: "wasm", threads: 2, context: 128 })
      const loaded = performance.now()
      let text = ""
      for await (const piece of model.generate(prompt, { maxTokens })) text += piece
      const { device } = model
      await model.close()
      return { text, device: device.name, keepMillis: kept - started, loadMillis: loaded - kept }
    },
    [where, prompt, Number(tokens)] as const
  )

const say = (line: string) => process.stdout.write(`${line}\n`)
const cli = (...args: ReadonlyArray<string>): string =>
  execFileSync(process.execPath, [path.join(root, "apps/cli/src/bin.ts"), ...args], { encoding: "utf8" })
cli("synth", "--shape", shape, "--out", file)
say(`${shape}: ${(fs.statSync(file).size / 1e9).toFixed(2)} GB`)
const expected = cli(
  "generate",
  "--raw",
  "--model",
  file,
  ...["--device", "wasm", "--threads", "2", "--context", "128", "--no-cache", "-n", tokens],
  prompt
).trim()
say(`Node: ${JSON.stringify(expected)}`)
const built = path.join(folder, "bundle")
await bundle(built)
const site = await serve({
  "models/": `${folder}/`,
  "bundle/": `${built}/`,
  "pages/": fileURLToPath(new URL("../test/support/", import.meta.url))
})
const profile = path.join(folder, "profile")
const context = await launchPersistent(profile)
let isRight = true
for (const where of places.filter((each) => place === undefined || each === place)) {
  const page = await context.newPage()
  await page.goto(`${site.url}/isolated/pages/page.html`)
  await page.waitForFunction("globalThis.Model !== undefined")
  const heaps = await watch(profile, site.url)
  const { device, keepMillis, loadMillis, text } = await inPage(page, where)
  heaps.end()
  const isSame = text.trim() === expected
  isRight &&= isSame && heaps.most() < mostHeap && heaps.samples() > 2
  say(
    `${where}: ${device}; ${where === "opfs" ? `kept in ${(keepMillis / 1000).toFixed(1)} s, ` : ""}loaded in ${
      (loadMillis / 1000).toFixed(1)
    } s; JavaScript heaps at most ${(heaps.most() / 1e6).toFixed(0)} MB in ${heaps.samples()} samples; ${
      isSame ? "the tokens of Node" : `other tokens: ${JSON.stringify(text)}`
    }`
  )
  await page.close()
}
await context.close()
await site.close()
fs.rmSync(folder, { recursive: true })
if (!isRight) {
  say(`wrong: heaps below ${mostHeap / 1e6} MB and the tokens of Node were asked for`)
  process.exitCode = 1
}
