/**
 * Writes a folder of modules for pages without a bundler: `tg.js`, which pages import (or `effect.js`, which has as much of Effect as
 * `LanguageModel` needs), `worker.js`, which it starts, and what the worker fetches when it needs it.
 *
 *     node packages/web/bundle.ts [folder]
 */
import * as fs from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { gzipSync } from "node:zlib"
import * as Bundling from "./src/NodeBundling.ts"
import * as StandIns from "./src/NodeStandIns.ts"

const here = fileURLToPath(new URL(".", import.meta.url))

/** The modules of a bundle. */
export type Modules = ReadonlyArray<Bundling.Module>

/** Writes the modules; tells what is in them. Each knows a name that changes when any of them does (`TG_BUILD`). */
export const bundle = async (folder: string, options: Bundling.Options = {}): Promise<Modules> => {
  const sources = (names: ReadonlyArray<string>) =>
    Object.fromEntries(names.map((name) => [name === "index" ? "tg" : name, path.join(here, `src/${name}.ts`)]))
  const { modules } = await Bundling.modules(sources(["index", "worker"]), options)
  // in a module of its own: what of Effect it offers is in no other
  const effect = await Bundling.modules(sources(["effect"]), { isWhole: true })
  fs.mkdirSync(folder, { recursive: true })
  for (const { file, text } of [...modules, ...effect.modules]) fs.writeFileSync(path.join(folder, file), text)
  return modules
}

/** Bytes of modules, compressed one by one. */
export const compressed = (modules: Modules, files: Iterable<string>): number => {
  let sum = 0
  for (const file of files) sum += gzipSync(modules.find((module) => module.file === file)!.text).length
  return sum
}

/** The file that begins with a source. */
const fileOf = (modules: Modules, source: string): string =>
  modules.find(({ sources }) => sources.some((id) => id.endsWith(source)))!.file

/** What a page fetches for the engine, as files. */
export interface EngineFiles {
  /** To answer with programs that were compiled before: the worker with WebAssembly, without the compiler. */
  readonly first: Set<string>
  /** To answer with any model: with the compiler for WebAssembly. */
  readonly wasm: Set<string>
  /** The same with WebGPU. */
  readonly webgpu: Set<string>
  /** All of that. */
  readonly both: Set<string>
}

const families = ["models-deepseek2/src/Family.ts", "models-llama/src/Family.ts"]

/** The family of models that takes most. */
const largestFamily = (modules: Modules): string => {
  const sizeOf = (family: string) => compressed(modules, Bundling.closure(modules, fileOf(modules, family)))
  return families.reduce((a, b) => sizeOf(a) < sizeOf(b) ? b : a)
}

/**
 * What a page fetches for the engine and models of a family; models of a hub, the store, the self-test and code books are fetched when they are needed.
 */
export const engine = (modules: Modules, family = largestFamily(modules)): EngineFiles => {
  const found = (sources: ReadonlyArray<string>, into = new Set<string>()) => {
    for (const source of sources) Bundling.closure(modules, fileOf(modules, source), into)
    return into
  }
  const worker = ["web/src/worker.ts", family]
  const compiler = ["web/src/Compiling.ts", "jit/src/internal/capture.ts?apart", "egraph/src/Equality.ts?apart"]
  const ofWasm = ["codegen-wasm/src/Wasm.ts"]
  const gpuParts = StandIns.gpuParts.map((part) => `${part}.ts${StandIns.apart}`)
  const ofGpu = ["runtime-webgpu/src/WebGpu.ts", "codegen-wgsl/src/WgslRenderer.ts", "tuner/src/Tuned.ts", ...gpuParts]
  return {
    first: found(worker),
    wasm: found([...worker, ...compiler, ...ofWasm]),
    webgpu: found([...worker, ...compiler, ...ofGpu]),
    both: found([...worker, ...compiler, ...ofWasm, ...ofGpu])
  }
}

if (import.meta.main) {
  const folder = path.resolve(process.argv[2] ?? path.join(here, "dist/browser"))
  const modules = await bundle(folder)
  const say = (line: string) => process.stdout.write(`${line}\n`)
  const kilobytes = (files: Iterable<string>) => `${(compressed(modules, files) / 1000).toFixed(0)} kB gzip`
  const { both, first, wasm, webgpu } = engine(modules)
  say(`tg.js: ${kilobytes(Bundling.closure(modules, "tg.js"))}`)
  say(`worker.js: ${kilobytes(Bundling.closure(modules, "worker.js"))}`)
  say(`the engine: ${kilobytes(first)} for programs that were compiled before, on WebAssembly`)
  say(`  with the compiler: ${kilobytes(wasm)} on WebAssembly, ${kilobytes(webgpu)} on WebGPU`)
  say(`  with both devices: ${kilobytes(both)}`)
  say(`all: ${kilobytes(modules.map(({ file }) => file))}`)
  for (const { file } of modules) say(`  ${kilobytes([file]).padStart(12)}  ${file}`)
}
