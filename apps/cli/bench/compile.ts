/**
 * From a model's shape to WGSL: the programs that decode and that read prompts, each time in a new process, first without
 * anything kept, then from what was kept; and for models of the same blocks with 10 and with 60 layers.
 * Run: node apps/cli/bench/compile.ts [shape]
 */
import { spawnSync } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { h200 } from "@tg/core-uop/DeviceProfile"
import { Checked } from "@tg/core-uop/Spec"
import * as ActivationPolicy from "@tg/engine/ActivationPolicy"
import * as Prompts from "@tg/engine/Prompts"
import * as StepProgram from "@tg/engine/StepProgram"
import * as CompileCache from "@tg/jit/CompileCache"
import { Jit } from "@tg/jit/Jit"
import { Effect, Layer, Tracer } from "effect"
import { identity } from "../src/Build.ts"
import * as CompiledFiles from "../src/CompiledFiles.ts"
import { counting, modelOf } from "../test/support/compiling.ts"

/** From the start of the process until all code is there. */
const importMillis = performance.now()

const profile = h200
const context = 4096

/** What one process measures. */
interface Measured {
  readonly importMillis: number
  /** Both programs, from the model's numbers to code: everything but the imports. */
  readonly millis: number
  /** What the processors worked on that, all threads together: hardly depends on what else they do. */
  readonly cpuMillis: number
  readonly kernels: number
  /** Milliseconds of each program and stage, in words. */
  readonly text: string
}

const stageOf: Readonly<Record<string, string>> = {
  "Rangeify.schedule": "schedule",
  "Heuristics.choose": "opts",
  "Postrange.apply": "opts",
  "Devectorize.devectorize": "devectorize",
  "Linearize.linearize": "linearize",
  "WgslRenderer.render": "render",
  "CompileCache.get": "look up",
  "CompileCache.set": "keep"
}

/** Adds up the milliseconds of stages. */
class TimedSpan extends Tracer.NativeSpan {
  private readonly stages: Map<string, number>
  constructor(stages: Map<string, number>, options: ConstructorParameters<typeof Tracer.NativeSpan>[0]) {
    super(options)
    this.stages = stages
  }
  override end(...[endTime, exit]: Parameters<Tracer.NativeSpan["end"]>): void {
    super.end(endTime, exit)
    const stage = stageOf[this.name]
    if (stage === undefined) return
    this.stages.set(stage, (this.stages.get(stage) ?? 0) + Number(endTime - this.startTime) / 1e6)
  }
}

/** What jobs differ in. */
interface Job {
  readonly shape: string
  /** Those of the shape, if it is not said. */
  readonly layers?: number
  /** Where programs are kept; nowhere, if it is not said. */
  readonly folder?: string
}

const measure = ({ folder, layers, shape }: Job) =>
  Effect.gen(function*() {
    const model = yield* modelOf(shape, layers)
    const size = { activations: ActivationPolicy.activationsOn(profile), cache: "f16", context } as const
    const { batch } = Prompts.promptShape(model, { asked: undefined, context, profile })
    const programs = {
      decode: () => StepProgram.decodeProgram(model, size),
      prompt: () => StepProgram.stepProgram(model, { ...size, chunk: batch, order: "features", rows: "last" })
    }
    const { kernels, layer } = counting(profile)
    const cache = folder === undefined
      ? Layer.empty
      : Layer.suspend(() => CompileCache.layerStore({ compiler: identity() })).pipe(
        Layer.provide(CompiledFiles.layer(folder))
      )
    const started = performance.now()
    const cpuBefore = process.cpuUsage()
    const jit = yield* Effect.provide(
      Jit,
      Jit.layer.pipe(Layer.provide([layer, cache]))
    )
    const parts: Array<string> = []
    for (const [name, make] of Object.entries(programs)) {
      const stages = new Map<string, number>()
      const before = performance.now()
      const { sink } = make()
      stages.set("graph", performance.now() - before)
      const tracer = Tracer.make({ span: (options) => new TimedSpan(stages, options) })
      yield* jit.compile(sink).pipe(Effect.provideService(Tracer.Tracer, tracer))
      const list = [...stages].map(([stage, millis]) => `${stage} ${millis.toFixed(0)}`).join(", ")
      parts.push(`${name} ${(performance.now() - before).toFixed(0)} (${list})`)
    }
    const millis = performance.now() - started
    const { system, user } = process.cpuUsage(cpuBefore)
    const measured: Measured = {
      importMillis,
      millis,
      cpuMillis: (system + user) / 1000,
      kernels: kernels(),
      text: parts.join("; ")
    }
    return measured
  }).pipe(Effect.provideService(Checked, false), Effect.scoped, Effect.provide(NodeServices.layer))

/** Does a job in a process of its own. */
const measureApart = (job: Job): Measured => {
  const args = [fileURLToPath(import.meta.url), "--job", JSON.stringify(job)]
  const { status, stderr, stdout } = spawnSync(process.execPath, args, { encoding: "utf8" })
  if (status !== 0) throw new Error(stderr)
  return JSON.parse(stdout) as Measured
}

const main = (shape: string): void => {
  const folder = mkdtempSync(join(tmpdir(), "tg-bench-"))
  try {
    const print = (what: string, { cpuMillis, importMillis, kernels, millis, text }: Measured): void =>
      console.log(
        `${shape} ${what}: ${millis.toFixed(0)} ms (${
          cpuMillis.toFixed(0)
        } ms of processors) for ${kernels} kernels, ` +
          `after ${importMillis.toFixed(0)} ms of imports: ${text}`
      )
    print("cold", measureApart({ shape }))
    print("cold, and kept", measureApart({ shape, folder }))
    print("from the cache", measureApart({ shape, folder }))
  } finally {
    rmSync(folder, { recursive: true })
  }
  // taken in turns, the least of each: other processes come and go
  const counts = [10, 60] as const
  const runs = Array.from({ length: 3 }, () => counts.map((layers) => measureApart({ shape, layers })))
  const least = (of: (measured: Measured) => number) =>
    counts.map((_, i) => Math.min(...runs.map((run) => of(run[i]!))))
  const compare = ([few, many]: ReadonlyArray<number>): string =>
    `${few!.toFixed(0)} and ${many!.toFixed(0)} ms (${(100 * (many! / few! - 1)).toFixed(0)} % more)`
  console.log(
    `${shape} with ${counts.join(" and ")} layers: ${compare(least(({ millis }) => millis))}, ` +
      `${compare(least(({ cpuMillis }) => cpuMillis))} of processors; ${
        least(({ kernels }) => kernels).join(" and ")
      } kernels`
  )
}

const [first, job] = process.argv.slice(2)
if (first === "--job") console.log(JSON.stringify(await Effect.runPromise(measure(JSON.parse(job!) as Job))))
else main(first ?? "glm-4.7-flash:q4_0")
