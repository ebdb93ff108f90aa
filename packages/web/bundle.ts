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
import { build, type Metafile } from "esbuild"
import * as Bundling from "./src/NodeBundling.ts"

const here = fileURLToPath(new URL(".", import.meta.url))

/** Writes the modules; tells what is in them. Each knows a name that changes when any of them does (`TG_BUILD`). */
export const bundle = async (folder: string): Promise<Metafile> => {
  const { metafile, outputFiles } = await build({
    entryPoints: { tg: path.join(here, "src/index.ts"), worker: path.join(here, "src/worker.ts") },
    outdir: folder,
    absWorkingDir: here,
    ...Bundling.options
  })
  fs.mkdirSync(folder, { recursive: true })
  for (const { path, text } of Bundling.named(outputFiles).files) fs.writeFileSync(path, text)
  // in a module of its own: what of Effect it offers is in no other
  const { define: _, splitting: __, ...options } = Bundling.options
  await build({
    ...options,
    entryPoints: [path.join(here, "src/effect.ts")],
    outdir: folder,
    absWorkingDir: here,
    write: true
  })
  return metafile
}

/** Bytes of modules, compressed one by one. */
export const compressed = (files: Iterable<string>): number => {
  let sum = 0
  for (const file of files) sum += gzipSync(fs.readFileSync(path.join(here, file))).length
  return sum
}

/** What is fetched for a module: it and all that it imports at once. */
export const closure = ({ outputs }: Metafile, entry: string, found = new Set<string>()): Set<string> => {
  if (found.has(entry) || outputs[entry] === undefined) return found
  found.add(entry)
  for (const { kind, path: next } of outputs[entry].imports) {
    if (kind === "import-statement") closure({ inputs: {}, outputs }, next, found)
  }
  return found
}

/** The module that an input became the beginning of. */
const outputOf = ({ outputs }: Metafile, input: string): string =>
  Object.entries(outputs).find(([, { entryPoint }]) => entryPoint?.endsWith(input) === true)![0]

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

/** What a page fetches for the engine; models of a hub, the store and the self-test are fetched when they are asked for. */
export const engine = (metafile: Metafile): EngineFiles => {
  const found = (inputs: ReadonlyArray<string>, into = new Set<string>()) => {
    for (const input of inputs) closure(metafile, outputOf(metafile, input), into)
    return into
  }
  const worker = ["src/worker.ts"]
  const compiler = ["src/Compiling.ts", "jit/src/internal/capture.ts?apart"]
  const ofWasm = ["codegen-wasm/src/Wasm.ts"]
  const ofGpu = ["runtime-webgpu/src/WebGpu.ts", "codegen-wgsl/src/WgslRenderer.ts"]
  return {
    first: found(worker),
    wasm: found([...worker, ...compiler, ...ofWasm]),
    webgpu: found([...worker, ...compiler, ...ofGpu]),
    both: found([...worker, ...compiler, ...ofWasm, ...ofGpu])
  }
}

if (import.meta.main) {
  const folder = path.resolve(process.argv[2] ?? path.join(here, "dist/browser"))
  const metafile = await bundle(folder)
  const say = (line: string) => process.stdout.write(`${line}\n`)
  const kilobytes = (bytes: number) => `${(bytes / 1000).toFixed(0)} kB gzip`
  say(`tg.js: ${kilobytes(compressed(closure(metafile, outputOf(metafile, "src/index.ts"))))}`)
  say(`worker.js: ${kilobytes(compressed(closure(metafile, outputOf(metafile, "src/worker.ts"))))}`)
  const { both, first, wasm, webgpu } = engine(metafile)
  say(`the engine: ${kilobytes(compressed(first))} for programs that were compiled before, on WebAssembly`)
  say(`  with the compiler: ${kilobytes(compressed(wasm))} on WebAssembly, ${kilobytes(compressed(webgpu))} on WebGPU`)
  say(`  with both devices: ${kilobytes(compressed(both))}`)
  say(`all: ${kilobytes(compressed(Object.keys(metafile.outputs)))}`)
  for (const [file, { inputs }] of Object.entries(metafile.outputs)) {
    const largest = Object.entries(inputs).sort(([, a], [, b]) => b.bytesInOutput - a.bytesInOutput).slice(0, 3)
    say(
      `  ${kilobytes(compressed([file])).padStart(12)}  ${path.basename(file)}: ${
        largest.map(([name]) => name).join(" ")
      }`
    )
  }
}
