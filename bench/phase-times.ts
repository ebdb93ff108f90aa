/**
 * What the phases of a model's persistent launches take: of each launch its first phase, its first two, and so on, among their like of all layers, with workgroups of so many
 * threads. On the device's clock.
 *
 *     node bench/phase-times.ts model.gguf [--threads 512,1024] [--words 8,0] [--context 512] [--depth 100] [--profile H100.json]
 *
 * `--words` are words loaded ahead of each phase, at most. Values are of no meaning in these orders.
 */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { parseArgs } from "node:util"
import * as Phases from "../packages/core-uop/src/Phases.ts"
import { codeBytes, wordsInUse } from "../packages/devectorize/src/PhaseCosts.ts"
import * as Launches from "../packages/devectorize/src/Phases.ts"
import * as Opt from "../packages/postrange/src/Opt.ts"
import { members } from "../packages/rangeify/src/Horizontal.ts"
import { argOf, type UOp } from "../packages/core-uop/src/UOp.ts"
import { fromModel } from "../packages/engine/src/Engine.ts"
import * as ModelFile from "../packages/engine/src/ModelFile.ts"
import * as Sampler from "../packages/engine/src/Sampler.ts"
import * as GgufFile from "../packages/gguf/src/GgufFile.ts"
import { Pipeline } from "../packages/jit/src/Pipeline.ts"
import * as Profiler from "../packages/jit/src/Profiler.ts"
import * as Stages from "../packages/jit/src/Stages.ts"
import { known } from "../packages/models/src/Models.ts"
import * as Devices from "../packages/node/src/Devices.ts"
import { Device, type Dispatch } from "../packages/runtime/src/Device.ts"
import { Effect } from "effect"
import { sampled } from "../packages/tuner/src/Workbench.ts"
import { profileGiven } from "./support/given.ts"

const { positionals: [path], values: given } = parseArgs({
  allowPositionals: true,
  options: {
    context: { type: "string", default: "512" },
    depth: { type: "string", default: "100" },
    device: { type: "string", default: "webgpu" },
    profile: { type: "string" },
    threads: { type: "string", default: "0" },
    words: { type: "string", default: "8" },
    mode: { type: "string", default: "on" },
    change: { type: "string", multiple: true, default: [] },
    only: { type: "string", default: "" }
  }
})
if (path === undefined) throw new Error("which model?")
const [context, depth] = [Number(given.context), Number(given.depth)]
const numbers = (list: string): ReadonlyArray<number> => list.split(",").map(Number)
const rounds = 15

const run = Effect.gen(function*() {
  const { gguf, source } = yield* GgufFile.open(path)
  const file = yield* ModelFile.ofGguf(gguf, known)
  const { session } = yield* fromModel(source, file, { context, prepare: ["last", Sampler.greedy] })
  yield* session.advance(Array.from({ length: depth }, (_, i) => i % session.vocabulary))
  const prepared = yield* session.decodeStep(depth)
  const device = yield* Device
  const pipeline = yield* Pipeline
  const vars = { T: 1, startPos: depth }
  const { steps } = yield* prepared.schedule
  yield* Profiler.warm(prepared, vars)
  const wait = yield* Effect.succeed(Effect.provideService(Profiler.settle(prepared), Device, device))
  /** Microseconds of these launches, one after the other, behind as much of the same work as has the device at its clock. */
  const timed = Effect.fnUntraced(function*(dispatches: ReadonlyArray<Dispatch>) {
    const replay = yield* device.plan(dispatches)
    const sample = sampled(replay, vars, wait, device.profile.kind)
    yield* sample
    return Profiler.median(yield* Effect.replicateEffect(sample, rounds))
  }, Effect.scoped)

  const all = prepared.dispatches
  console.log(`whole step ${(yield* timed(all)).toFixed(1)} us, ${all.length} launches`)
  const groups = [...Map.groupBy(all.keys(), (i) => prepared.plan.launches[i]!.program).values()]
  for (const group of groups.filter((own) => own.length > 4)) {
    const step = steps[group[0]!]!
    if (step.kind === "custom" || !Phases.isPersistent(step.ast)) {
      console.log(
        `${((yield* timed(group.map((i) => all[i]!))) / group.length).toFixed(2).padStart(7)} us  ${step.name}`
      )
      continue
    }
    const phases = Phases.phasesOf(step.ast)
    const launch = argOf(step.ast, "PERSISTENT")
    if (!step.name.startsWith(given.only)) continue
    const made = yield* Effect.forEach(phases, ({ kernel }) => Stages.ofKernel(pipeline, step.name, kernel))
    const changed = yield* Effect.forEach(
      ["", ...given.change],
      (change) =>
        Effect.forEach(phases, ({ kernel }, phase) =>
          Effect.gen(function*() {
            const parts = yield* Effect.forEach(members(kernel), ({ ast, slots }, member) =>
              Effect.map(
                Stages.ofMember(pipeline, step.name, ast, changedBy(change, phase, member, made[phase]!.opts[member]!)),
                ({ linear }) => ({ linear, slots })
              ))
            return { linear: yield* pipeline.join(step.name, parts) }
          }))
    )
    for (const [i, own] of changed[0]!.entries()) {
      const sides = [256, 384, 512, 640, 768, 1024].map((threads) =>
        Launches.besideOf(own.linear, { threads, workgroups: launch.workgroups })
      )
      console.log(
        `  phase ${i}: ${codeBytes(own.linear)} bytes of code, ${
          wordsInUse(own.linear)
        } words in use, side by side with 256, 384, .. threads ${sides.join(" ")}`
      )
    }
    console.log(`\n${step.name}: chosen ${JSON.stringify(launch)}`)
    for (const [i, own] of made.entries()) console.log(`  phase ${i}: ${Stages.printOpts(own).join(", ")}`)
    const rows: Array<{ readonly name: string; readonly prefixes: ReadonlyArray<ReadonlyArray<Dispatch>> }> = []
    for (const [variant, linears] of changed.entries()) {
      for (const threads of numbers(given.threads)) {
        for (const words of numbers(given.words)) {
          const prefixes = yield* Effect.forEach(phases.keys(), (last) =>
            Effect.gen(function*() {
              const own = phases.slice(0, last + 1)
              const ast: UOp = Phases.persistent(step.ast.arena, own, {
                ...launch,
                threads: threads === 0 ? launch.threads : threads,
                ahead: launch.ahead.slice(0, last + 1).map((n) => Math.min(n, words))
              })
              const linear = yield* pipeline.phases(ast, linears.slice(0, last + 1).map((one) => one.linear))
              const executable = yield* device.load(yield* pipeline.render(step.name, linear))
              return group.map((i): Dispatch => {
                const { buffers, executable: { program } } = all[i]!
                const bySlot = new Map(program.bindings.map(({ slot }, k) => [slot, buffers[k]!]))
                const meeting = Phases.meetingSlot(phases)
                const wanted = executable.program.bindings.map(({ slot }) =>
                  bySlot.get(slot === Phases.meetingSlot(own) ? meeting : slot)!
                )
                return { executable, buffers: wanted }
              })
            }))
          rows.push({ name: `variant ${variant} ${threads} threads, ${words} words ahead`, prefixes })
        }
      }
    }
    for (const { name, prefixes } of rows) {
      const times = yield* Effect.forEach(prefixes, (dispatches) => timed(dispatches))
      const cells = times.map((micros) => (micros / group.length).toFixed(2).padStart(6))
      console.log(`${cells.join(" ")}  ${name}`)
    }
  }
}).pipe(Effect.scoped)

/** Opts of a member of a phase with one of another amount, by `phase/member/opt/amount`. */
const changedBy = (change: string, phase: number, member: number, opts: ReadonlyArray<Opt.Opt>) => {
  const own = change.split(";").map((one) => one.split("/")).filter(([p, m]) =>
    Number(p) === phase && Number(m) === member + 1
  )
  return opts.flatMap((opt) => {
    const found = own.find(([, , text]) => Opt.print(opt) === text)
    if (found === undefined) return opt
    const amount = Number(found[3])
    return amount === 0 ? [] : [new Opt.Opt({ ...opt, amount })]
  })
}

await Effect.runPromise(
  run.pipe(
    Effect.provide([
      Devices.layer(given.device as Devices.Choice, {
        persistent: given.mode as "on",
        profiles: { given: profileGiven(given.profile) }
      }),
      NodeServices.layer
    ])
  )
)
