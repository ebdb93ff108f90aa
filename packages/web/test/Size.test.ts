import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll, assert, it } from "vitest"
import { bundle, compressed, engine } from "../bundle.ts"

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-size-"))
afterAll(() => fs.rmSync(folder, { recursive: true }))

/**
 * Bytes, gzip, of what a page fetches before an answer: of one whose programs come compiled with it, as those of tg-tiny do (`first`), and
 * with the compiler, for any other model, on one device (`wasm`, `webgpu`) or on whichever there is (`both`). `page.test.ts` has a browser fetch that and no more. What is fetched when it is
 * asked for (models at addresses and of a hub, the store, the self-test, code books) is not in it. 200,000 and 260,000 are asked for.
 */
const budget = { first: 125_600, wasm: 199_990, webgpu: 230_700, both: 248_200 }

const modules = await bundle(folder)
const files = engine(modules)

it("the engine is no larger than it was", () => {
  for (const [what, most] of Object.entries(budget)) {
    assert.isAtMost(compressed(modules, files[what as keyof typeof budget]), most, what)
  }
})

it("programs that come with the page need no compiler", () => {
  const codeOf = (what: keyof typeof budget): string =>
    [...files[what]].map((file) => fs.readFileSync(path.join(folder, file), "utf8")).join("")
  const [first, wasm] = [codeOf("first"), codeOf("wasm")]
  assert.include(first, "@tg/jit/Jit")
  for (const stage of ["rangeify/Rangeify", "postrange/Postrange", "heuristics/Heuristics"]) {
    assert.include(wasm, `@tg/${stage}`)
    assert.notInclude(first, `@tg/${stage}`)
  }
})

it("all that asks for durations has those of pages", () => {
  const sources = modules.flatMap(({ sources }) => sources).filter((source) => /[\\/]duration\.[jt]s$/i.test(source))
  assert.isNotEmpty(sources)
  for (const source of sources) assert.include(source, "internal")
})
