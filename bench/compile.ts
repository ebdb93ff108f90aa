/**
 * What compiling a model for an H200 that need not be there takes: `plan`, its programs that decode and process prompts as a first
 * start compiles them, and as a second one takes them from the cache. Each in a process of its own, without what starting it takes.
 * What the e-graph takes is time of the thread that compiles.
 *
 *     node bench/compile.ts [shape..]
 */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { Clock, Effect, Layer } from "effect"
import { KeyValueStore, makeStringOnly } from "effect/persistence/KeyValueStore"
import * as CompileCache from "../packages/jit/src/CompileCache.ts"
import * as EqualTimes from "../packages/jit/src/EqualTimes.ts"
import * as ScheduleCache from "../packages/rangeify/src/ScheduleCache.ts"
import * as Compiled from "./support/compiled.ts"

const kinds = ["plan", "cold", "cached"] as const
type Kind = typeof kinds[number]

/** Of one run: seconds of the clock, of the thread that compiles, and of all threads; and of these the e-graph's. */
interface Took extends EqualTimes.Took {
  readonly wall: number
  readonly thread: number
  readonly all: number
  /** Schedules of bodies that were made. */
  readonly misses: number
}

const seconds = ({ system, user }: NodeJS.CpuUsage): number => (system + user) / 1e6

/** Compiled programs as files of a folder. */
const storeIn = (folder: string): KeyValueStore => {
  const fileOf = (key: string): string => path.join(folder, key)
  return makeStringOnly({
    get: (key) => Effect.sync(() => fs.existsSync(fileOf(key)) ? fs.readFileSync(fileOf(key), "utf8") : undefined),
    set: (key, text) => Effect.sync(() => fs.writeFileSync(fileOf(key), text)),
    remove: (key) => Effect.sync(() => fs.rmSync(fileOf(key), { force: true })),
    clear: Effect.void,
    size: Effect.sync(() => fs.readdirSync(folder).length),
    keys: Effect.sync(() => fs.readdirSync(folder))
  })
}

/** A clock that runs while this thread does, so that others on the machine do not count. */
const ofThread = Effect.map(Clock.Clock, (clock): Clock.Clock => {
  const nanos = (): bigint => {
    const { system, user } = process.threadCpuUsage()
    return BigInt(system + user) * 1000n
  }
  const millis = (): number => Number(nanos()) / 1e6
  return {
    currentTimeMillisUnsafe: millis,
    currentTimeMillis: Effect.sync(millis),
    currentTimeNanosUnsafe: nanos,
    currentTimeNanos: Effect.sync(nanos),
    monotonicTimeNanosUnsafe: nanos,
    monotonicTimeNanos: Effect.sync(nanos),
    sleep: (time) => clock.sleep(time)
  }
})

const measured = (kind: Kind, shape: string, folder: string) =>
  Effect.gen(function*() {
    const start = performance.now()
    const [thread, all] = [process.threadCpuUsage(), process.cpuUsage()]
    const work = (counts: Effect.Effect<ScheduleCache.Counts>) =>
      EqualTimes.counting((took) =>
        Effect.gen(function*() {
          const model = yield* Compiled.modelOf(shape)
          const pipeline = yield* Compiled.pipelineFor(Compiled.targets[0])
          yield* kind === "plan" ? Compiled.plan(model, pipeline) : Compiled.programs(model, pipeline)
          const { misses } = yield* counts
          const told: Took = {
            ...yield* took,
            misses,
            wall: (performance.now() - start) / 1000,
            thread: seconds(process.threadCpuUsage(thread)),
            all: seconds(process.cpuUsage(all))
          }
          return told
        })
      )
    return yield* Effect.provideService(ScheduleCache.counting(work), Clock.Clock, yield* ofThread)
  }).pipe(
    Effect.provide(
      CompileCache.layerStore({ compiler: "bench" }).pipe(
        Layer.provide(Layer.succeed(KeyValueStore, storeIn(folder)))
      )
    )
  )

const row = (...cells: ReadonlyArray<string | number>): void => console.log(`| ${cells.join(" | ")} |`)

const table = (shapes: ReadonlyArray<string>): void => {
  row("model", "what", "s", "s of its thread", "s of all threads", "e-graph: searched, ms", "weighed, ms", "schedules")
  row("---", "---", "---", "---", "---", "---", "---", "---")
  for (const shape of shapes) {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-compile-"))
    for (const kind of kinds) {
      const args = [import.meta.filename, "--one", kind, shape, folder]
      const { status, stderr, stdout } = spawnSync(process.execPath, args, { encoding: "utf8" })
      if (status !== 0) throw new Error(stderr)
      const { all, misses, searchMillis, thread, wall, weighMillis } = JSON.parse(stdout) as Took
      const [search, weigh] = [searchMillis.toFixed(0), weighMillis.toFixed(0)]
      row(shape, kind, wall.toFixed(2), thread.toFixed(2), all.toFixed(2), search, weigh, misses)
    }
    fs.rmSync(folder, { recursive: true })
  }
}

const [first, kind, shape, folder] = process.argv.slice(2)
if (first === "--one") {
  const took = await Effect.runPromise(measured(kinds.find((one) => one === kind)!, shape!, folder!))
  console.log(JSON.stringify(took))
} else table(process.argv.length > 2 ? process.argv.slice(2) : ["glm-4.7-flash:q4_0"])
