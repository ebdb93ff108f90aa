/**
 * Whose bytes a page fetches before its first word: of each part of the engine by package, or by file.
 *
 *     node packages/web/bench/sizes.ts [first|wasm|webgpu|both] [files]
 */
import * as fs from "node:fs"
import { SourceMap } from "node:module"
import * as os from "node:os"
import * as path from "node:path"
import { bundle, compressed, engine, type EngineFiles } from "../bundle.ts"

const say = (line: string) => process.stdout.write(`${line}\n`)

/** The package that a source belongs to; what is of none ties them together. */
const packageOf = (source: string): string =>
  /.*\/node_modules\/(@[^/]+\/[^/]+|[^/]+)\//.exec(source)?.[1] ??
    /(?:packages\/|\.\.\/|^)([^/.]+)\/src\//.exec(source)?.[1] ?? "between them"

const [what = "wasm", detail] = process.argv.slice(2)
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-sizes-"))
const modules = await bundle(folder, { isMapped: true })
fs.rmSync(folder, { recursive: true })
const files = engine(modules)[what as keyof EngineFiles]
const sums = new Map<string, { bytes: number; gzip: number }>()
const add = (name: string, bytes: number, gzip: number): void => {
  const sum = sums.get(name) ?? { bytes: 0, gzip: 0 }
  sums.set(name, { bytes: sum.bytes + bytes, gzip: sum.gzip + gzip })
}
for (const { file, map, text } of modules.filter(({ file }) => files.has(file))) {
  // a source's part of a module is taken to compress as the module does
  const ratio = compressed(modules, [file]) / text.length
  const places = new SourceMap(JSON.parse(map ?? "{\"version\":3,\"sources\":[],\"names\":[],\"mappings\":\"\"}"))
  for (const [line, characters] of text.split("\n").entries()) {
    for (let column = 0; column < characters.length; column++) {
      const entry = places.findEntry(line, column)
      const source = ("originalSource" in entry ? entry.originalSource : undefined) ?? ""
      const name = packageOf(source)
      add(detail === undefined ? name : `${name} ${source.split("/").slice(-3).join("/")}`, 1, ratio)
    }
  }
}
for (const [name, { bytes, gzip }] of [...sums].sort(([, a], [, b]) => b.gzip - a.gzip)) {
  say(`${(gzip / 1000).toFixed(1).padStart(8)} kB gzip ${(bytes / 1000).toFixed(1).padStart(8)} kB  ${name}`)
}
say(
  `${(compressed(modules, files) / 1000).toFixed(1).padStart(8)} kB gzip in ${files.size} modules: ${
    [...files].join(" ")
  }`
)
