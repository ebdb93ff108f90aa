import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import * as NodeVectors from "@tg/self-test/NodeVectors"
import type { Index } from "@tg/self-test/Vectors"
import type { BrowserContext, Page } from "playwright-core"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import type * as ModelModule from "../src/Model.ts"
import type * as TrialModule from "../src/Trial.ts"
import { hasBrowser } from "./support/browser.ts"
import { served } from "./support/served.ts"

const models = fileURLToPath(new URL("../../../apps/cli/models/", import.meta.url))
const pages = fileURLToPath(new URL("./support/", import.meta.url))

declare global {
  /** What the page of the tests has. */
  var Model: typeof ModelModule
  var Trial: typeof TrialModule
}

/** Vectors of one type, without models: right ones, and with a value that is another. */
const writeVectors = (folder: string): void => {
  const index = JSON.parse(fs.readFileSync(path.join(NodeVectors.folder, "index.json"), "utf8")) as Index
  const types = index.types.filter(({ type }) => type === "Q4_0")
  const bytes = fs.readFileSync(path.join(NodeVectors.folder, "vectors.bin"))
  for (const name of ["right", "wrong"]) {
    fs.mkdirSync(path.join(folder, name))
    fs.writeFileSync(path.join(folder, name, "index.json"), JSON.stringify({ types, models: [] }))
    if (name === "wrong") bytes.writeFloatLE(0.5, types[0]!.values + 4 * 7)
    fs.writeFileSync(path.join(folder, name, "vectors.bin"), bytes)
  }
}

describe.skipIf(!hasBrowser())("the self-test of a page", () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-vectors-"))
  let end: () => Promise<void>
  let context: BrowserContext
  let page: Page

  beforeAll(async () => {
    writeVectors(folder)
    const all = await served((built) => ({
      "models/": models,
      "pages/": pages,
      "bundle/": built,
      "vectors/": `${folder}/`
    }))
    end = all.end
    context = await all.browser.newContext()
    page = await context.newPage()
    await page.goto(`${all.site.url}/isolated/pages/page.html`)
    await page.waitForFunction("globalThis.Trial !== undefined")
  })
  afterAll(async () => {
    fs.rmSync(folder, { recursive: true })
    await end()
  })

  /** Tests the device with these vectors, and opens a model then. */
  const test = (vectors: string) =>
    page.evaluate(async (vectors) => {
      const options = { device: "wasm", threads: 2 } as const
      const progress: Array<number> = []
      const onProgress = ({ done, of }: TrialModule.Testing) => progress.push(done / of)
      const verdict = await globalThis.Trial.promises.run(`../vectors/${vectors}/`, { ...options, onProgress })
      const last = await globalThis.Trial.promises.last(options)
      const opened = await globalThis.Model.open("../models/tg-tiny-Q4_0.gguf", options).then(
        async (model) => {
          await model.close()
          return model.name
        },
        (error: Error) => error.message
      )
      return { verdict, last, progress, opened, report: globalThis.Trial.report(verdict) }
    }, vectors)

  it("finds a device right, and remembers it", async () => {
    const { last, opened, progress, verdict } = await test("right")
    assert.deepEqual([verdict.failures, verdict.refused, verdict.device], [[], false, "wasm, 2 threads"])
    assert.equal(progress.at(-1), 1)
    assert.deepEqual(last, verdict)
    assert.match(verdict.identity, /^WebAssembly\n.*Chrome/)
    assert.equal(opened, "tg-tiny")
  })

  it("refuses one that is wrong until it is right again", async () => {
    const { opened, report, verdict } = await test("wrong")
    assert.deepEqual(verdict.failures.map(({ name }) => name), ["Q4_0"])
    assert.isTrue(verdict.refused)
    assert.match(report.join("\n"), /weights, Q4_0: unpacked: value 7 is .*, not 0.5/)
    assert.match(opened, /wasm, 2 threads computed wrong results in its self-test of .*\(Q4_0\)/)
    assert.equal((await test("right")).opened, "tg-tiny")
  })

  it("says which vectors are missing", async () => {
    const message = await page.evaluate(() =>
      globalThis.Trial.promises.run("../vectors/none/", { device: "wasm" }).then(
        () => "",
        (error: Error) => error.message
      )
    )
    assert.match(message, /index\.json.*cannot be read: .*404/)
  })

  it("tells how fast a model is, kernel by kernel", async () => {
    const gauged = await page.evaluate(async () => {
      const model = await globalThis.Model.open("../models/tg-tiny-Q4_0.gguf", { device: "wasm", threads: 2 })
      const gauged = await model.gauge()
      await model.close()
      return gauged
    })
    assert.deepEqual([gauged.model, gauged.method, gauged.device.kind], ["tg-tiny", "each", "wasm"])
    assert.isAbove(gauged.tokensPerSecond, 1)
    assert.equal(gauged.kernels.reduce((sum, { calls }) => sum + calls, 0), gauged.launches)
    assert.closeTo(gauged.kernels.reduce((sum, { share }) => sum + share, 0), 1, 1e-9)
  })
})
