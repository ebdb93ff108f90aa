import { names } from "@tg/gguf/GgufType"
import { h200, wasm } from "@tg/core-uop/DeviceProfile"
import { gridCodecs } from "@tg/gguf/LayoutGrids"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import { afterAll, assert, it } from "vitest"
import * as CodeBooks from "../src/CodeBooks.ts"
import * as Bundling from "../src/NodeBundling.ts"
import * as StandIns from "../src/NodeStandIns.ts"
import type * as Books from "./support/books.ts"
import * as Programs from "./support/programs.ts"
import { synthetic } from "./support/synthetic.ts"
import * as Windows from "./support/windows.ts"

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-stand-ins-"))
afterAll(() => fs.rmSync(folder, { recursive: true }))

/** A script, as it is bundled. */
const bundled = async <A>(script: string): Promise<A> => {
  const { modules } = await Bundling.modules({
    [script]: fileURLToPath(new URL(`support/${script}.ts`, import.meta.url))
  })
  for (const { file, text } of modules) fs.writeFileSync(path.join(folder, file), text)
  return import(pathToFileURL(path.join(folder, `${script}.js`)).href)
}

it("stand for modules that are there, with names that these export, but for those that fetch one", () => {
  const namesIn = (code: string) =>
    [...code.matchAll(/^export (?:const|class|function) (\w+)/gm)].map(([, name]) => name!)
  assert.isNotEmpty(StandIns.modules)
  for (const name of StandIns.modules) {
    const path = fileURLToPath(new URL(`../../${name}.ts`, import.meta.url))
    assert.isTrue(fs.existsSync(path), name)
    const code = fs.readFileSync(path, "utf8")
    const own = new Set(namesIn(code))
    const unknown = namesIn(StandIns.of(path, code)!).filter((each) => !own.has(each) && !each.startsWith("fetch"))
    assert.deepEqual(unknown, [], name)
  }
})

it("code books are no part of a bundle until they are fetched, and then what they are elsewhere", async () => {
  const { codecOf, fetchBooks } = await bundled<typeof Books>("books")
  const types = Object.keys(gridCodecs) as ReadonlyArray<keyof typeof gridCodecs>
  const row = { blocksPerRow: 8 }
  for (const type of types) assert.throws(() => codecOf(type, row), "the code books were not fetched")
  await fetchBooks()
  for (const type of types) {
    const codec = codecOf(type, row)
    assert.deepEqual([codec?.planes, codec?.book], [gridCodecs[type].planes, gridCodecs[type].book], type)
  }
})

it("what cuts kernels into windows is no part of a bundle until it is fetched, and then what it is elsewhere", async () => {
  const { fetchWindows, kernelsOf } = await bundled<typeof Windows>("windows")
  assert.equal(kernelsOf(256), 1)
  assert.throws(() => kernelsOf(1024))
  await fetchWindows()
  assert.equal(kernelsOf(1024), 4)
  assert.equal(kernelsOf(1024), Windows.kernelsOf(1024))
})

it("of parts for GPUs have the numbers that these have", async () => {
  let numbers = 0
  for (const name of StandIns.gpuParts) {
    const path = fileURLToPath(new URL(`../../${name}.ts`, import.meta.url))
    const own = [...StandIns.of(path, "")!.matchAll(/^export const (\w+) = ([\d.e-]+)$/gm)]
    if (own.length === 0) continue
    const module = await import(path) as Readonly<Record<string, unknown>>
    for (const [, key, value] of own) {
      assert.equal(module[key!], Number(value), `${name} ${key}`)
      numbers++
    }
  }
  assert.isAtLeast(numbers, 2)
})

it("are fetched for the types that have one", () => {
  assert.sameMembers(names.filter(CodeBooks.isCoded), Object.keys(gridCodecs))
})

it("a bundle makes the programs that are made elsewhere", async () => {
  const { programsOf } = await bundled<typeof Programs>("programs")
  // pieces of attention and kernels with stages on the one, experts and their search on the other, which `page.test.ts` answers with, too
  const cases = [["tiny-llama:q4_0", h200], ["tiny-lite:q4_0", wasm]] as const
  for (const [shape, profile] of process.env["TG_FULL"] === "1" ? cases : cases.slice(0, 1)) {
    const bytes = synthetic(shape)
    const expected = await Programs.programsOf(bytes, profile)
    assert.isAbove(expected.length, 5)
    assert.deepEqual(await programsOf(bytes, profile), expected)
  }
})
