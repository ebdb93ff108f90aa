/**
 * The modules that packages export by name: those of their `index.ts`, and those that something else in the repository imports or a
 * document shows. `test/packages.test.ts` compares with `package.json`.
 *
 *     node scripts/exports.ts            says what differs; fails if anything does
 *     node scripts/exports.ts --write    brings package.json up to date
 */
import * as fs from "node:fs"
import * as path from "node:path"
import process from "node:process"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("..", import.meta.url))

/** The packages that name their modules; the others export all that are not internal. */
export const explicit: ReadonlyArray<string> = [
  "core-uop",
  "pattern-matcher",
  "postrange",
  "devectorize",
  "codegen-wgsl",
  "codegen-wasm",
  "runtime",
  "runtime-wasm",
  "runtime-webgpu",
  "jit",
  "tuner",
  "constrain",
  "dialogue",
  "hub",
  "tokenizer"
]

const skipped = new Set(["node_modules", "dist", ".git", ".bundle", ".gpu"])

const filesIn = (folder: string): ReadonlyArray<string> =>
  fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (skipped.has(entry.name)) return []
    const file = path.join(folder, entry.name)
    if (entry.isDirectory()) return filesIn(file)
    return entry.isFile() && /\.(?:tsx?|mts|js|mjs|md|html)$/.test(entry.name) ? [file] : []
  })

/** Modules by package, as `@tg/package/Module` stands in any file of the repository that is not of the package's sources. */
const named = (): ReadonlyMap<string, ReadonlySet<string>> => {
  const found = new Map<string, Set<string>>()
  for (const file of filesIn(root)) {
    const home = /^packages\/([^/]+)\/src\//.exec(path.relative(root, file).replaceAll(path.sep, "/"))?.[1]
    for (const [, name, module] of fs.readFileSync(file, "utf8").matchAll(/@tg\/([a-z0-9-]+)\/([A-Z]\w*)\b/g)) {
      if (name === home || !fs.existsSync(path.join(root, "packages", name!, "src", `${module}.ts`))) continue
      const modules = found.get(name!) ?? new Set()
      found.set(name!, modules.add(module!))
    }
  }
  return found
}

interface Manifest {
  readonly exports: Readonly<Record<string, unknown>>
  readonly publishConfig: { readonly exports: Readonly<Record<string, unknown>> }
}

/** What `package.json` should say, by package. */
export const wanted = (): ReadonlyMap<string, Manifest> => {
  const all = named()
  return new Map(explicit.map((name) => {
    const index = fs.readFileSync(path.join(root, "packages", name, "src/index.ts"), "utf8")
    const own = [...index.matchAll(/from "\.\/([A-Z]\w*)\.ts"/g)].map(([, module]) => module!)
    const modules = [...new Set([...own, ...all.get(name) ?? []])].sort()
    const built = (file: string) => ({ types: `./dist/${file}.d.ts`, default: `./dist/${file}.js` })
    const manifest = { "./package.json": "./package.json" }
    return [name, {
      exports: {
        ...manifest,
        ".": "./src/index.ts",
        ...Object.fromEntries(modules.map((module) => [`./${module}`, `./src/${module}.ts`]))
      },
      publishConfig: {
        exports: {
          ...manifest,
          ".": built("index"),
          ...Object.fromEntries(modules.map((module) => [`./${module}`, built(module)]))
        }
      }
    }]
  }))
}

const manifestOf = (name: string): string => path.join(root, "packages", name, "package.json")

/** The packages whose `package.json` says something else, each with the modules that are missing or too many. */
export const differences = (): ReadonlyArray<string> =>
  [...wanted()].flatMap(([name, { exports, publishConfig }]) => {
    const found: Manifest = JSON.parse(fs.readFileSync(manifestOf(name), "utf8"))
    const same = JSON.stringify([found.exports, found.publishConfig.exports]) ===
      JSON.stringify([exports, publishConfig.exports])
    if (same) return []
    const missing = Object.keys(exports).filter((key) => !(key in found.exports))
    const extra = Object.keys(found.exports).filter((key) => !(key in exports))
    return [`@tg/${name}: missing ${missing.join(", ") || "none"}; too many ${extra.join(", ") || "none"}`]
  })

if (import.meta.main) {
  if (process.argv.includes("--write")) {
    for (const [name, { exports, publishConfig }] of wanted()) {
      const found = JSON.parse(fs.readFileSync(manifestOf(name), "utf8"))
      const next = { ...found, exports, publishConfig: { ...found.publishConfig, ...publishConfig } }
      fs.writeFileSync(manifestOf(name), `${JSON.stringify(next, undefined, 2)}\n`)
    }
  }
  const lines = differences()
  for (const line of lines) console.error(`${line}; \`node scripts/exports.ts --write\` says what is imported`)
  process.exitCode = lines.length === 0 ? 0 : 1
}
