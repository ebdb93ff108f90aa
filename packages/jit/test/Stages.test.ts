import { assert, describe, it } from "@effect/vitest"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import * as Heuristics from "@tg/heuristics/Heuristics"
import { kernels, type Limits } from "@tg/rangeify/Rangeify"
import type { Schedule } from "@tg/rangeify/Schedule"
import type { RandomProgram } from "@tg/tensor/Random"
import { Effect } from "effect"
import { forAll } from "./support/search.ts"
import {
  type Contents,
  difference,
  type Execute,
  randomOpts,
  runSchedule,
  runTensor,
  scheduled,
  stageAll,
  type StageOptions,
  stages
} from "./support/stages.ts"

const programs = 200

const gpu = (kernel: Parameters<StageOptions["choose"]>[0]) => Heuristics.choose(kernel, DeviceProfile.webgpuDefault)
const cpu = (kernel: Parameters<StageOptions["choose"]>[0]) => Heuristics.choose(kernel, DeviceProfile.wasm)

/** Opts and hardware under which a program passes through the stages; random opts differ from program to program. */
const settings: Readonly<Record<string, (seed: number) => StageOptions>> = {
  "heuristics for a GPU": () => ({ choose: gpu, hasGrid: true }),
  "heuristics for a GPU with subgroups of 8": () => ({ choose: gpu, hasGrid: true, subgroupSize: 8 }),
  "heuristics for a CPU": () => ({ choose: cpu, hasGrid: false }),
  "random legal opts for a GPU": (seed) => ({ choose: randomOpts(seed, DeviceProfile.webgpuDefault), hasGrid: true }),
  "random legal opts for a GPU with subgroups of 8": (seed) => ({
    choose: randomOpts(seed + 1, DeviceProfile.webgpuDefault),
    hasGrid: true,
    subgroupSize: 8
  }),
  "random legal opts for a CPU": (seed) => ({ choose: randomOpts(seed + 2, DeviceProfile.wasm), hasGrid: false }),
  "no opts on a GPU": () => ({ choose: () => [], hasGrid: true }),
  "heuristics for a GPU, joined kernels on a grid of several rows": () => ({ choose: gpu, hasGrid: true, maxGrid: 7 })
}

/** With so many, five rows or more are added atomically where their order is free. */
const atomicThreads = (seed: number): number | undefined => seed % 4 < 2 ? 4096 : undefined

/** The truth and the schedules of programs, for all settings that they are tried under. */
const known = new Map<string, { readonly want: Contents; readonly schedule: Schedule }>()

/** What does not depend on the setting. By the program's text: one that is shrunk is another. */
const begun = (random: RandomProgram, limits: Partial<Limits>) => {
  if (limits.fusion !== undefined) return { want: runTensor(random), schedule: scheduled(random, limits) }
  const key = `${limits.joinsKernels} ${limits.atomicThreads} ${JSON.stringify(random.steps)}`
  const found = known.get(key) ?? { want: runTensor(random), schedule: scheduled(random, limits) }
  known.set(key, found)
  return found
}

const compare = (
  random: RandomProgram,
  executes: Readonly<Record<string, Execute>>,
  limits: Partial<Limits> = {}
): string | undefined => {
  const { schedule, want } = begun(random, limits)
  for (const [stage, execute] of Object.entries(executes)) {
    const problem = difference(random, want, runSchedule(random, schedule, execute))
    if (problem !== undefined) return `${stage}: ${problem}`
  }
  return undefined
}

// every stage's input and output is checked against its spec on the way
describe("a random program gives equal results at every stage", () => {
  it.effect("tensor and kernel", () =>
    Effect.gen(function*() {
      const noOpts = settings["no opts on a GPU"]!(0)
      const count = yield* forAll(
        { runs: 2 * programs, size: 20 },
        (random) => Effect.sync(() => compare(random, { kernel: stages.kernel(noOpts) }, { joinsKernels: true }))
      )
      assert.isAbove(count, 0)
    }))

  it.effect("with everything staged in workgroup memory that may be", () =>
    Effect.gen(function*() {
      let staged = 0
      const count = yield* forAll({ runs: programs / 4, size: 20, kept: [3013] }, (random, seed) =>
        Effect.sync(() => {
          const limits = { fusion: stageAll, joinsKernels: seed % 2 === 0, atomicThreads: atomicThreads(seed) }
          staged += kernels(scheduled(random, limits)).filter((step) => step.ast.src.length > 1).length
          const { expanded, kernel, linear, opted } = stages
          return [
            "heuristics for a GPU",
            "random legal opts for a GPU",
            "random legal opts for a GPU with subgroups of 8"
          ]
            .map((name) => settings[name]!(seed))
            .map((options) =>
              compare(random, {
                kernel: kernel(options),
                opted: opted(options),
                expanded: expanded(options),
                linear: linear(options)
              }, limits)
            ).find((problem) => problem !== undefined)
        }))
      assert.isAbove(count, 0)
      assert.isAbove(staged, programs / 16)
    }))

  for (const [name, setting] of Object.entries(settings)) {
    it.effect(`opted, expanded and linear: ${name}`, () =>
      Effect.gen(function*() {
        const count = yield* forAll({ runs: programs }, (random, seed) =>
          Effect.sync(() => {
            const options = setting(seed)
            const { expanded, linear, opted } = stages
            const executes = { opted: opted(options), expanded: expanded(options), linear: linear(options) }
            return compare(random, executes, { joinsKernels: options.hasGrid, atomicThreads: atomicThreads(seed) })
          }))
        assert.isAbove(count, 0)
      }))
  }
})
