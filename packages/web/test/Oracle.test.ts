import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import type { Index } from "@tg/self-test/Vectors"
import type { Page } from "playwright-core"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { extract } from "../../self-test/test/support/extract.ts"
import type * as TrialModule from "../src/Trial.ts"
import { hasBrowser } from "./support/browser.ts"
import { served } from "./support/served.ts"

const pages = fileURLToPath(new URL("./support/", import.meta.url))
const isFull = process.env["TG_FULL"] === "1"

/** All models of the oracle; usually the two that are least like those of the self-test. */
const names = isFull
  ? ["c01", "c02", "c03", "c04", "c05", "c06", "l01", "q01", "w01", "m01", "g01", "z01"]
  : ["c06", "g01"]

declare global {
  /** What the page of the tests has. */
  var Trial: typeof TrialModule
}

// the cases and bounds are those of the self-test: a prompt in tiles, token by token, and with activations as the device has them
describe.skipIf(!hasBrowser())("the oracle's models in a page", () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-oracle-"))
  let end: () => Promise<void>
  let page: Page

  beforeAll(async () => {
    for (const name of names) {
      const own = path.join(folder, name)
      extract(own, [{ name, about: "oracle" }])
      const file = path.join(own, "index.json")
      const { models } = JSON.parse(fs.readFileSync(file, "utf8")) as Index
      fs.writeFileSync(file, JSON.stringify({ types: [], models }))
    }
    const all = await served((built) => ({ "pages/": pages, "bundle/": built, "oracle/": `${folder}/` }))
    end = all.end
    page = await all.browser.newPage()
    await page.goto(`${all.site.url}/isolated/pages/page.html`)
    await page.waitForFunction("globalThis.Trial !== undefined")
  })
  afterAll(async () => {
    fs.rmSync(folder, { recursive: true })
    await end()
  })

  for (const device of isFull ? ["wasm", "webgpu"] as const : ["wasm"] as const) {
    for (const name of names) {
      it(`${name} agrees on ${device}`, async () => {
        const { cases, failures, ...verdict } = await page.evaluate(
          ([name, device]) => globalThis.Trial.promises.run(`../oracle/${name}/`, { device, families: ["steps"] }),
          [name, device] as const
        )
        assert.deepEqual([cases, failures], [3, []])
        assert.match(verdict.device, new RegExp(`^${device}`))
      })
    }
  }
})
