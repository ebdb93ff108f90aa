import { assert, describe, layer } from "@effect/vitest"
import { Device } from "@tg/runtime/Device"
import { Effect, Layer } from "effect"
import { DeviceMeasure, measure } from "../src/DeviceMeasure.ts"
import { make } from "../src/internal/measure/bench.ts"
import * as Probes from "../src/internal/measure/probes.ts"
import * as Testing from "../src/Testing.ts"

const noGpu = (await Testing.availableAdapter()) === undefined
const measuring = Layer.provideMerge(DeviceMeasure.layer, Testing.layer)
const ample = Date.now() + 1e9

describe.skipIf(noGpu)("DeviceMeasure", () => {
  layer(measuring, { excludeTestServices: true })((it) => {
    it.effect("finds quantities that a device can have, or says of each why not, and gives everything back", () =>
      Effect.gen(function*() {
        const { allocatedBytes, profile } = yield* Device
        const before = allocatedBytes()
        const measured = yield* (yield* DeviceMeasure).measure({ seconds: 4 })
        assert.strictEqual(allocatedBytes(), before)
        for (const { problem, quantity, value } of measured.findings) {
          assert.strictEqual(value === undefined, problem !== undefined)
          if (value !== undefined) assert.strictEqual(measured.profile[quantity], value)
        }
        // the first of them no machine is too slow for
        assert.isAtLeast(measured.profile.processors ?? 0, 1)
        assert.isAbove(measured.profile.dispatchMicros, 0)
        const { maxBindingBytes, name, subgroupSize } = measured.profile
        assert.deepStrictEqual(
          { maxBindingBytes, name, subgroupSize },
          { maxBindingBytes: profile.maxBindingBytes, name: profile.name, subgroupSize: profile.subgroupSize }
        )
      }))

    it.effect("leaves unknown what there was no time for", () =>
      Effect.gen(function*() {
        const { findings, litmus, profile } = yield* (yield* DeviceMeasure).measure({ seconds: 0 })
        for (const { problem } of findings) assert.match(problem!, /no time left/)
        assert.isAtLeast(findings.length, 15)
        assert.deepStrictEqual(litmus, [])
        assert.isUndefined(profile.gridBarrierHolds)
      }))

    it.effect("ends where workgroups wait for one that never runs beside them, and says so", () =>
      Effect.gen(function*() {
        // far more than a processor or a GPU of today holds
        const bench = make(yield* Device, ample)
        const many = { kind: "hardware", processors: 16384, residentThreads: 2 * bench.threads } as const
        const { findings, tried } = yield* Probes.gridBarriers(bench, many)
        assert.isTrue(tried.at(-1)!.gaveUp)
        if (tried.length === 1) assert.match(findings[0]!.problem!, /no barrier held/)
      }))

    it.effect("stays within lower limits than the device has", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const profile = { ...device.profile, maxWorkgroupThreads: 32, maxWorkgroupBytes: 0, maxBindingBytes: 2 ** 16 }
        const kind = { isSoftware: true, hasSubgroups: false }
        const { findings } = yield* measure({ ...device, profile }, kind, { seconds: 1 })
        const why = (name: string) => findings.find(({ quantity }) => quantity === name)?.problem
        assert.match(why("bytesPerMicro")!, /1048576 bytes in one binding are needed|no time left/)
        assert.match(why("barrierMicros")!, /not enough workgroup memory|no time left/)
      }))
  })
})
