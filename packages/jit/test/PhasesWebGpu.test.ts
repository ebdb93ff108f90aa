import { assert, describe, layer } from "@effect/vitest"
import * as Wgsl from "@tg/codegen-wgsl/Wgsl"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import * as Phases from "@tg/core-uop/Phases"
import { RenderError } from "@tg/core-uop/Program"
import { Device, type DeviceBuffer } from "@tg/runtime/Device"
import * as Testing from "@tg/runtime-webgpu/Testing"
import { rendererOptions, WebGpuInfo } from "@tg/runtime-webgpu/WebGpuInfo"
import { Effect } from "effect"
import {
  argumentsOf,
  awaitedArguments,
  awaitedLaunchOf,
  awaitedValues,
  copiesIn,
  countersIn,
  launchOf,
  length,
  partIn,
  random,
  randomAwaited,
  stride,
  vars
} from "../../devectorize/test/support/phases.ts"

const noGpu = (await Testing.availableAdapter()) === undefined

type Arguments = ReadonlyMap<number, Float32Array | Uint32Array>

/** What a device makes of launches, one after the other: every argument behind the last one. */
const run = (args: Arguments, launches: ReadonlyArray<ReturnType<typeof launchOf>>) =>
  Effect.scoped(Effect.gen(function*() {
    const device = yield* Device
    const caps = Wgsl.caps(rendererOptions(yield* WebGpuInfo, device.profile))
    const buffers = new Map<number, DeviceBuffer>()
    for (const [slot, data] of args) {
      const buffer = yield* device.allocate(data.byteLength, `slot ${slot}`)
      yield* device.write(buffer, new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
      buffers.set(slot, buffer)
    }
    const dispatches = yield* Effect.forEach(launches, (launch) =>
      Effect.gen(function*() {
        const program = Wgsl.render("phases", launch, caps)
        if (program instanceof RenderError) return yield* program
        const executable = yield* device.load(program)
        return { executable, buffers: program.bindings.map(({ slot }) => buffers.get(slot)!) }
      }))
    const replay = yield* device.plan(dispatches)
    yield* replay.run(vars)
    const found = yield* Effect.forEach(
      [...buffers],
      ([slot, buffer]) =>
        Effect.map(device.read(buffer), (bytes) => [slot, new Uint32Array(bytes.slice().buffer)] as const)
    )
    return new Map(found)
  }))

describe.skipIf(noGpu)("persistent launches on a GPU", () => {
  layer(Testing.layer)((it) => {
    const count = process.env["TG_FULL"] === "1" ? 100 : 4
    it.effect("keep the values of random programs, and leave the counter as it was", () =>
      Effect.gen(function*() {
        const { subgroupSize } = (yield* Device).profile
        for (let seed = 0; seed < count; seed++) {
          const made = random(seed, 2 + seed % 5, subgroupSize)
          const odd = seed % 2
          const launch = launchOf(made, {
            workgroups: 2,
            // more than a phase has, so that some run several workgroups side by side and others leave threads out
            threads: 1 + 79 * odd,
            spins: 1e8,
            stagedBytes: odd * 4 * length,
            ahead: 8 - 4 * odd
          })
          const want = argumentsOf(made)
          evaluateLinear(launch, want, vars)
          for (const [slot, words] of yield* run(argumentsOf(made), [launch, launch])) {
            const expected = new Uint32Array(want.get(slot)!.buffer)
            assert.deepStrictEqual([...words].slice(0, expected.length), [...expected], `seed ${seed}, slot ${slot}`)
          }
        }
      }))

    it.effect("keep them where words are awaited, launch behind launch", () =>
      Effect.gen(function*() {
        const { subgroupSize } = (yield* Device).profile
        for (let seed = 0; seed < count / 2; seed++) {
          // the first part again behind another launch, which has cleared it
          const all = [0, 2, 1, 0].map((part) => {
            const made = randomAwaited(seed, 2 + seed % 5, { part, subgroupSize })
            const shape = { workgroups: 2, threads: 1 + 79 * (seed % 2), spins: 1e8, ahead: 4 }
            return { made, launch: awaitedLaunchOf(made, part, shape) }
          })
          const { launch, made } = all[0]!
          const args = awaitedArguments(made, 0)
          const want = awaitedArguments(made, 0)
          evaluateLinear(launch, want, vars)
          const found = yield* run(args, all.map((own) => own.launch))
          const [words, expected] = [found, want].map((own) => awaitedValues(made, partIn(own, 0)))
          assert.deepStrictEqual(words, expected, `seed ${seed}`)
          assert.deepStrictEqual(copiesIn(made, found), copiesIn(made, want), `seed ${seed}`)
          assert.deepStrictEqual([...countersIn(found)], [0, 0, 0, 0])
        }
      }))

    it.effect("give up where a word is what stands for none", () =>
      Effect.gen(function*() {
        const made = randomAwaited(0, 3, { part: 0, subgroupSize: undefined })
        const args = awaitedArguments(made, 0)
        // x / 2 + y is y
        args.get(0)!.fill(0).fill(Phases.veil, stride)
        const found = countersIn(yield* run(args, [awaitedLaunchOf(made, 0, { workgroups: 2, spins: 1e6 })]))
        assert.deepStrictEqual(
          [found[Phases.meetingWords.gaveUp]! > 0, found[Phases.meetingWords.came]],
          [true, Phases.noBarrier]
        )
      }))

    it.effect("give up where their workgroups do not run at once, and say so", () =>
      Effect.gen(function*() {
        const made = random(0, 3, undefined)
        const launch = launchOf(made, { workgroups: 4096, spins: 1000 })
        const found = yield* run(argumentsOf(made), [launch, launch])
        const words = found.get(Phases.meetingSlot(made.phases))!
        // it waited at the first barrier, and saw those that ran at once
        assert.strictEqual(words[Phases.meetingWords.gaveUp], 4096)
        assert.isAbove(words[Phases.meetingWords.came]!, 0)
        assert.isBelow(words[Phases.meetingWords.came]!, 4096)
      }))
  })
})
