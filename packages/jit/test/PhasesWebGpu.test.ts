import { assert, describe, layer } from "@effect/vitest"
import * as Wgsl from "@tg/codegen-wgsl/Wgsl"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import * as Phases from "@tg/core-uop/Phases"
import { RenderError } from "@tg/core-uop/Program"
import { Device } from "@tg/runtime/Device"
import * as Testing from "@tg/runtime-webgpu/Testing"
import { rendererOptions, WebGpuInfo } from "@tg/runtime-webgpu/WebGpuInfo"
import { Effect } from "effect"
import { argumentsOf, launchOf, length, type Made, random, vars } from "../../devectorize/test/support/phases.ts"

const noGpu = (await Testing.availableAdapter()) === undefined

/** What a device makes of a launch, several times: every argument behind the last time. */
const run = (made: Made, launch: ReturnType<typeof launchOf>, times: number) =>
  Effect.scoped(Effect.gen(function*() {
    const device = yield* Device
    const program = Wgsl.render("phases", launch, Wgsl.caps(rendererOptions(yield* WebGpuInfo, device.profile)))
    if (program instanceof RenderError) return yield* program
    const args = argumentsOf(made)
    const buffers = yield* Effect.forEach(program.bindings, ({ slot }) =>
      Effect.gen(function*() {
        const data = args.get(slot)!
        const buffer = yield* device.allocate(data.byteLength, `slot ${slot}`)
        yield* device.write(buffer, new Uint8Array(data.buffer))
        return buffer
      }))
    const executable = yield* device.load(program)
    const replay = yield* device.plan(Array.from({ length: times }, () => ({ executable, buffers })))
    yield* replay.run(Object.fromEntries(program.vars.map((name) => [name, vars[name as keyof typeof vars]])))
    const found = yield* Effect.forEach(buffers, (buffer) => device.read(buffer))
    return new Map(program.bindings.map(({ slot }, i) => [slot, new Uint32Array(found[i]!.slice().buffer)]))
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
          for (const [slot, words] of yield* run(made, launch, 2)) {
            const expected = new Uint32Array(want.get(slot)!.buffer)
            assert.deepStrictEqual([...words].slice(0, expected.length), [...expected], `seed ${seed}, slot ${slot}`)
          }
        }
      }))

    it.effect("give up where their workgroups do not run at once, and say so", () =>
      Effect.gen(function*() {
        const made = random(0, 3, undefined)
        const launch = launchOf(made, { workgroups: 4096, spins: 1000 })
        const found = yield* run(made, launch, 2)
        const words = found.get(Phases.meetingSlot(made.phases))!
        // it waited at the first barrier, and saw those that ran at once
        assert.strictEqual(words[Phases.meetingWords.gaveUp], 4096)
        assert.isAbove(words[Phases.meetingWords.came]!, 0)
        assert.isBelow(words[Phases.meetingWords.came]!, 4096)
      }))
  })
})
