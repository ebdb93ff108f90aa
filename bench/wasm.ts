/**
 * How long one thread takes for the kernels of a step on wasm, alone:
 *
 *     node bench/wasm.ts [SHAPE] [prompt|decode] [TOKENS] [DEPTH] [KERNEL ..]
 *
 * A kernel is run in parts of a quarter of a millisecond, over and over for a second; what is printed are the least of the parts, a
 * tenth of the way up and the middle, each for the whole kernel. On a machine that others use, parts that were interrupted fall out.
 * The context has 1024 tokens, or `CONTEXT=4096`: DEPTH and TOKENS fit in it. `WASM_OUT=FILE` keeps the last kernel's module: `node --print-wasm-code --no-liftoff --no-wasm-lazy-compilation` shows what becomes of it.
 */
import * as fs from "node:fs"
import { Effect } from "effect"
import * as Wasm from "../packages/codegen-wasm/src/Wasm.ts"
import { wasm } from "../packages/core-uop/src/DeviceProfile.ts"
import { evaluateIndex, type Program } from "../packages/core-uop/src/Program.ts"
import * as Compiled from "./support/compiled.ts"

const [shape = "youtu-llm-2b:q4_0", step = "prompt", tokensText = "128", depthText = "0", ...names] = process.argv
  .slice(2)
const [tokens, depth] = [Number(tokensText), Number(depthText)]
const positions = depth + tokens
/** Values of the variables that programs of steps have. */
const variables: Readonly<Record<string, number>> = {
  T: tokens,
  tiles: Math.ceil(tokens / 16),
  count: tokens,
  startPos: depth,
  pieces: Math.ceil(positions / 64)
}

const partMillis = 0.25
const longestMillis = 1000

/** Times of parts of so many iterations, in microseconds of the whole, rising. */
const times = (run: (from: number, to: number) => void, iterations: number): ReadonlyArray<number> => {
  const timed = (from: number, size: number): number => {
    const started = performance.now()
    run(from, Math.min(from + size, iterations))
    return performance.now() - started
  }
  // the engine's better compiler is done by then
  for (let i = 0; i < 20; i++) timed(0, Math.ceil(iterations / 64))
  let size = 1
  while (size < iterations && timed(0, size) < partMillis) size = Math.min(2 * size, iterations)
  const found: Array<number> = []
  const ends = performance.now() + longestMillis
  for (let from = 0; performance.now() < ends; from = from + 2 * size > iterations ? 0 : from + size) {
    found.push(timed(from, size) * 1000 * iterations / size)
  }
  return found.sort((a, b) => a - b)
}

/** The kernel's function with arguments in place: buffers as large as they have to be, with small floats in them. */
const bound = ({ bindings, code, vars }: Program): (from: number, to: number) => void => {
  const sizes = bindings.map(({ bytes = 2 ** 24 }) => Math.ceil(bytes / 64) * 64)
  const pages = 2 + Math.ceil(sizes.reduce((a, b) => a + b, 0) / 2 ** 16)
  const memory = new WebAssembly.Memory({ initial: pages, maximum: 65536, shared: true })
  new Float32Array(memory.buffer).forEach((_, i, all) => (all[i] = (Math.imul(i, 0x9e3779b1) >> 20) / 1000))
  const module = new WebAssembly.Module(code as Uint8Array<ArrayBuffer>)
  const run = new WebAssembly.Instance(module, { env: { memory } }).exports["run"] as (...args: Array<number>) => void
  const pointers = sizes.map((_, i) => 64 + sizes.slice(0, i).reduce((a, b) => a + b, 0))
  const values = vars.map((name) => variables[name] ?? 1)
  return (from, to) => run(from, to, ...pointers, ...values)
}

const programs = await Effect.runPromise(Effect.gen(function*() {
  const pipeline = yield* Compiled.pipelineFor({ profile: wasm, renderer: Wasm.layer })
  return (yield* Compiled.programs(yield* Compiled.modelOf(shape), pipeline))[step] ?? []
}))
console.log(`${"us on one thread".padEnd(32)}${["least", "tenth", "middle"].map((x) => x.padStart(10)).join("")}`)
for (const program of programs) {
  if (names.length > 0 && !names.some((name) => program.name.startsWith(name))) continue
  const out = process.env["WASM_OUT"]
  if (out !== undefined) fs.writeFileSync(out, program.code as Uint8Array)
  const found = times(bound(program), evaluateIndex(program.grid[0], variables))
  const columns = [0, 0.1, 0.5].map((q) => found[Math.floor(q * found.length)]!.toFixed(0).padStart(10))
  console.log(program.name.padEnd(32) + columns.join(""))
}
