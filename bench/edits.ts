/**
 * What a step would take if its launches were written otherwise, before a pass is changed to write them so: texts of its programs, edited, and whole steps timed in turns by the device's clock.
 *
 *     node bench/edits.ts model.gguf edits.mjs [--context 512] [--depth 100] [--profile H200.json] [--persistent auto] [--rounds 31] [--write FOLDER]
 *
 * `edits.mjs` exports functions `(code, name) => code` of WGSL and a program's name; each is a variant, beside the step as it is. `support/waiting.ts` has some. What an edited step computes is
 * not looked at. `--write` writes the programs' texts instead.
 */
import * as fs from "node:fs"
import * as path from "node:path"
import { pathToFileURL } from "node:url"
import { parseArgs } from "node:util"
import * as Profiler from "../packages/jit/src/Profiler.ts"
import { Device, type Executable } from "../packages/runtime/src/Device.ts"
import { Effect } from "effect"
import { decoding } from "./support/decoding.ts"
import { deviceGiven } from "./support/given.ts"

const { positionals: [model, file], values: given } = parseArgs({
  allowPositionals: true,
  options: {
    context: { type: "string", default: "512" },
    depth: { type: "string", default: "100" },
    device: { type: "string", default: "webgpu" },
    persistent: { type: "string", default: "auto" },
    profile: { type: "string" },
    rounds: { type: "string", default: "31" },
    write: { type: "string" }
  }
})
if (model === undefined) throw new Error("which model?")

/** Steps in front of each one that is timed: a GPU that waits for the host lowers its clock. */
const stepsAwake = 40

type Edit = (code: string, name: string) => string
const edits: Readonly<Record<string, Edit>> = file === undefined ? {} : await import(pathToFileURL(file).href)

const run = Effect.gen(function*() {
  const { prepared, vars } = yield* decoding(model, { context: Number(given.context), depth: Number(given.depth) })
  const device = yield* Device
  const programs = [...new Set(prepared.dispatches.map(({ executable }) => executable))]
  if (given.write !== undefined) {
    fs.mkdirSync(given.write, { recursive: true })
    for (const [i, { program }] of programs.entries()) {
      fs.writeFileSync(path.join(given.write, `${i}-${program.name}.wgsl`), String(program.code))
    }
    return
  }
  /** The step with its texts edited. */
  const edited = Effect.fnUntraced(function*(name: string, edit: Edit) {
    const made = new Map<Executable, Executable>()
    for (const executable of programs) {
      const { program } = executable
      const code = edit(String(program.code), program.name)
      made.set(executable, code === program.code ? executable : yield* device.load({ ...program, code }))
    }
    const changed = [...made].filter(([was, is]) => was !== is).length
    const replay = yield* device.plan(
      prepared.dispatches.map((dispatch) => ({ ...dispatch, executable: made.get(dispatch.executable)! }))
    )
    if (replay.timed === undefined) throw new Error(`${given.device} has no clock`)
    const awake = Effect.replicateEffect(replay.run(vars), stepsAwake, { discard: true })
    return { name, changed, sample: Effect.andThen(awake, replay.timed(vars)), times: [] as Array<number> }
  })
  // all are compiled before any is timed: while the host compiles, the device's clock falls
  const variants = yield* Effect.forEach(
    Object.entries({ "as it is": (code: string) => code, ...edits }),
    (pair) => edited(...pair)
  )
  for (const { sample } of variants) yield* sample
  yield* Profiler.warm(prepared, vars)
  for (let i = 0; i < Number(given.rounds); i++) {
    for (const { sample, times } of variants) times.push(yield* sample)
  }
  for (const { changed, name, times } of variants) {
    const sorted = times.toSorted((a, b) => a - b)
    const at = (part: number): string => sorted[Math.floor(part * (sorted.length - 1))]!.toFixed(1)
    const what = name === "as it is" ? `${prepared.dispatches.length} launches` : `${changed} programs changed`
    console.log(`${at(0.5).padStart(8)} us (${at(0.1)} to ${at(0.9)})  ${name}, ${what}`)
  }
}).pipe(Effect.scoped)

await Effect.runPromise(run.pipe(Effect.provide(deviceGiven(given))))
