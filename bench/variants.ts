/**
 * Variants of a model's kernels on a device: each compiled with other opts, all of them first, then timed in turns on a GPU at its full clock. What they compute is
 * compared with what the usual opts do.
 *
 *     node bench/variants.ts FILE [--shape glm-4.7-flash:q4_0] [--context 4096] [--depth 48] [--profile H100.json] [--device webgpu]
 *
 * FILE has a line for each kernel, and one for the opts of each variant behind it, as `kernel` and `bench/steps.ts --opts` print them; a member that is not named keeps its own:
 *
 *     == 8 ffn_inp_8                a step of 8 tokens; `8 pool` of 8 conversations; the kernel, or how its name begins, and `.2` for the second one of that name
 *     UPCAST(r0, 2), UPCAST(r1, 2), UNROLL(r3, 4), GROUP(r4, 16), GROUP(r5, 2), LOCAL(r1, 32)
 */
import * as fs from "node:fs"
import { parseArgs } from "node:util"
import { Checked } from "../packages/core-uop/src/Spec.ts"
import * as Estimate from "../packages/jit/src/Estimate.ts"
import { Pipeline } from "../packages/jit/src/Pipeline.ts"
import * as Profiler from "../packages/jit/src/Profiler.ts"
import * as Opt from "../packages/postrange/src/Opt.ts"
import { members } from "../packages/rangeify/src/Horizontal.ts"
import * as Check from "../packages/tuner/src/Check.ts"
import * as Launch from "../packages/tuner/src/Launch.ts"
import * as Workbench from "../packages/tuner/src/Workbench.ts"
import { Effect, Result } from "effect"
import { modelOf } from "./support/compiled.ts"
import { deviceGiven } from "./support/given.ts"
import { stepAt } from "./support/places.ts"

const { positionals: [file], values: given } = parseArgs({
  allowPositionals: true,
  options: {
    context: { type: "string", default: "4096" },
    depth: { type: "string", default: "48" },
    device: { type: "string", default: "webgpu" },
    profile: { type: "string" },
    shape: { type: "string", default: "glm-4.7-flash:q4_0" }
  }
})
if (file === undefined) throw new Error("which variants? node bench/variants.ts FILE")
const [context, depth] = [Number(given.context), Number(given.depth)]

/** A kernel of a step, and its variants. */
interface Asked {
  readonly tokens: number
  readonly isPool: boolean
  readonly kernel: string
  readonly variants: ReadonlyArray<string>
}

const asked: ReadonlyArray<Asked> = fs.readFileSync(file, "utf8").split(/^== */m).slice(1).map((part) => {
  const [head = "", ...variants] = part.split("\n").map((line) => line.trim()).filter((line) => line !== "")
  const [tokens, ...rest] = head.split(/\s+/)
  return { tokens: Number(tokens), isPool: rest[0] === "pool", kernel: rest.at(-1) ?? "", variants }
})

/** Opts as they are printed, by member. */
const optsOf = (line: string, usual: Launch.Opts): Launch.Opts => {
  const named = [...line.matchAll(/(?:(\d+): )?([A-Z]+)\(r(\d+), (\d+)\)/g)].map(([, member, kind, range, amount]) => ({
    member: Number(member ?? 1) - 1,
    opt: new Opt.Opt({ kind: kind as Opt.Kind, range: Number(range), amount: Number(amount) })
  }))
  return usual.map((own, i) => {
    const given = named.filter(({ member }) => member === i).map(({ opt }) => opt)
    return given.length === 0 ? own : given
  })
}

/** Bytes after which caches have forgotten what was read, and microseconds of a timing and of waking the device. */
const rotateBytes = 2 ** 27
const timeMicros = 3000
const wakeMicros = 400_000
const rounds = 7

const measured = Effect.fnUntraced(function*({ isPool, kernel, tokens, variants }: Asked) {
  const pipeline = yield* Pipeline
  const [{ sink }, vars] = stepAt(yield* modelOf(given.shape), { context, depth, isPool, tokens }, pipeline.profile)
  const launches = yield* (yield* Estimate.estimate(pipeline, sink)).launches(vars)
  // `NAME.2` is the second kernel of that name
  const [, name = kernel, number = "1"] = /^(.*)\.(\d+)$/.exec(kernel) ?? []
  const named = launches.flatMap(({ bytes, step }) =>
    step.kind === "custom" || !step.name.startsWith(name) ? [] : [{ ast: step.ast, bytes, launch: step.name }]
  )
  const found = [...new Map(named.map((own) => [own.ast, own])).values()][Number(number) - 1]
  if (found === undefined) {
    throw new Error(`no kernel ${kernel} of ${[...new Set(launches.map(({ step }) => step.name))].join(" ")}`)
  }
  const { ast, bytes, launch } = found
  const bench = yield* Workbench.make(name, ast, { vars, bytes, rotateBytes, seed: 0 })
  const usual = yield* Launch.usual(ast, pipeline)
  const programs = yield* Effect.forEach(
    ["", ...variants],
    (line) =>
      Effect.map(
        Effect.result(bench.compile(optsOf(line, usual))),
        (program) => ({ line, program, times: new Array<number>() })
      )
  )
  const running = programs.flatMap(({ program, times }) =>
    Result.isSuccess(program) ? [{ program: program.success, times }] : []
  )
  const wanted = yield* bench.outputs(running[0]!.program)
  const first = yield* bench.time(running[0]!.program, 100)
  for (let spent = 0; spent < wakeMicros;) spent += 100 * (yield* first.again)
  for (let round = 0; round < rounds; round++) {
    for (const { program, times } of running) {
      const like = times[0] ?? (yield* first.again)
      yield* Effect.scoped(Effect.gen(function*() {
        const timing = yield* bench.time(program, Math.max(2, Math.min(400, Math.ceil(timeMicros / like))))
        times.push(yield* timing.again)
      }))
    }
  }
  console.log(
    `${launch} (${members(ast).length} members), ${tokens} tokens${isPool ? " of as many conversations" : ""}`
  )
  for (const { line, program, times } of programs) {
    if (Result.isFailure(program)) {
      console.log(`   fails  ${line}: ${program.failure.message.slice(0, 200)}`)
      continue
    }
    const problem = Check.difference(wanted, yield* bench.outputs(program.success), Check.tolerancesOf(ast))
    const told = problem === undefined ? "" : `  WRONG: ${problem}`
    console.log(`${Profiler.median(times).toFixed(2).padStart(8)}  ${line || "as it is"}${told}`)
  }
}, Effect.scoped)

const run = Effect.forEach(asked, measured, { discard: true }).pipe(Effect.provideService(Checked, false))

await Effect.runPromise(run.pipe(Effect.provide(deviceGiven(given))))
