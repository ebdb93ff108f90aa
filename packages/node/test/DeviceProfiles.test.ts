import { assert, describe, it } from "@effect/vitest"
import { h200, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { Device, type DeviceShape } from "@tg/runtime/Device"
import * as Reference from "@tg/runtime/Reference"
import type { Measured } from "@tg/runtime-webgpu/DeviceMeasure"
import { facts } from "@tg/runtime-webgpu/Testing"
import { Effect } from "effect"
import { KeyValueStore, KeyValueStoreError, layerMemory } from "effect/persistence/KeyValueStore"
import * as DeviceProfiles from "../src/DeviceProfiles.ts"

const { adapter } = facts
const measured: Measured = {
  profile: { ...webgpuDefault, name: "acme", processors: 24, bytesPerMicro: 300_000, gridBarrierHolds: true },
  findings: [
    { quantity: "processors", value: 24 },
    { quantity: "bytesPerMicro", value: 300_000 },
    { quantity: "cacheBytes", problem: "memory was not slower than caches" }
  ],
  litmus: [{ workgroups: 24, values: 1e9, stale: 0, gaveUp: false }],
  seconds: 1.5
}

/** A device that says that it is this. */
const device = (profile = webgpuDefault): Effect.Effect<DeviceShape> =>
  Effect.map(Device, (device) => ({ ...device, profile })).pipe(Effect.provide(Reference.layer))

/** A store, and what people were told. */
const keeping = Effect.gen(function*() {
  const told: Array<string> = []
  const tell = (message: string) => Effect.sync(() => void told.push(message))
  return { store: yield* KeyValueStore, tell, told }
}).pipe(Effect.provide(layerMemory))

describe("DeviceProfiles", () => {
  it.effect("finds what was measured of an adapter again, until its driver is another", () =>
    Effect.gen(function*() {
      const kept = yield* keeping
      yield* DeviceProfiles.keep(kept, adapter, measured)
      const { profile } = yield* DeviceProfiles.settle(yield* device(), facts, { keeping: kept })
      assert.deepStrictEqual([profile.processors, profile.bytesPerMicro, profile.gridBarrierHolds], [24, 300_000, true])
      assert.isUndefined(yield* DeviceProfiles.find(kept, { ...adapter, description: "driver 1.1" }))
      assert.deepStrictEqual(kept.told, [])
    }))

  it.effect("believes speeds that are kept or given, and limits of the device itself", () =>
    Effect.gen(function*() {
      const { profile } = yield* DeviceProfiles.settle(yield* device(), facts, { given: h200 })
      assert.deepStrictEqual([profile.name, profile.processors, profile.bytesPerMicro], ["h200", 132, 4_600_000])
      assert.strictEqual(profile.maxWorkgroupThreads, webgpuDefault.maxWorkgroupThreads)
      assert.strictEqual(profile.maxBindingBytes, webgpuDefault.maxBindingBytes)
      assert.isUndefined(profile.subgroupSize)
    }))

  it.effect("takes a given profile before one that is kept, and refuses one of another kind", () =>
    Effect.gen(function*() {
      const kept = yield* keeping
      yield* DeviceProfiles.keep(kept, adapter, measured)
      const settled = DeviceProfiles.settle(yield* device(), facts, { given: h200, keeping: kept })
      assert.strictEqual((yield* settled).profile.name, "h200")
      const cpu = { ...webgpuDefault, name: "here", kind: "cpu" as const }
      const error = yield* Effect.flip(DeviceProfiles.settle(yield* device(cpu), facts, { given: h200 }))
      assert.strictEqual(error.reason, "BadArgument")
      assert.match(error.message, /the profile h200 is one of a gpu, and here is a cpu/)
    }))

  it.effect("measures a processor that plays a GPU only where somebody asks for it", () =>
    Effect.gen(function*() {
      const kept = yield* keeping
      const software = { ...facts, adapter: { ...adapter, software: true } }
      assert.strictEqual(
        (yield* DeviceProfiles.settle(yield* device(), software, { keeping: kept })).profile,
        webgpuDefault
      )
    }))

  it.effect("leaves the figures of a name in force where only barriers were tried", () =>
    Effect.gen(function*() {
      const kept = yield* keeping
      const barriers: Measured = {
        ...measured,
        findings: [{ quantity: "gridBarrierMicros", value: 2 }],
        profile: { ...measured.profile, gridBarrierWorkgroups: 24, gridBarrierMicros: 2 }
      }
      yield* DeviceProfiles.keep(kept, adapter, barriers)
      const { profile } = yield* DeviceProfiles.settle(yield* device(h200), { ...facts, named: true }, {
        keeping: kept
      })
      assert.deepStrictEqual(profile, {
        ...h200,
        gridBarrierHolds: true,
        gridBarrierMicros: 2,
        gridBarrierWorkgroups: 24
      })
    }))

  it.effect("remembers that barriers failed while a device was used, until it is measured again", () =>
    Effect.gen(function*() {
      const kept = yield* keeping
      const holds = Effect.gen(function*() {
        return (yield* DeviceProfiles.settle(yield* device(), facts, { keeping: kept })).profile.gridBarrierHolds
      })
      const failed = { profile: measured.profile, why: "a wait was given up" }
      yield* DeviceProfiles.refuseBarriers(kept, adapter, failed)
      assert.isFalse(yield* holds)
      yield* DeviceProfiles.keep(kept, adapter, measured)
      assert.isTrue(yield* holds)
      yield* DeviceProfiles.refuseBarriers(kept, adapter, failed)
      yield* DeviceProfiles.refuseBarriers(kept, adapter, failed)
      assert.isFalse(yield* holds)
      const found = yield* DeviceProfiles.find(kept, adapter)
      assert.deepStrictEqual(found!.problems.slice(1), [{
        quantity: "gridBarrierHolds",
        problem: "a wait was given up"
      }])
      assert.strictEqual(found!.profile.bytesPerMicro, 300_000)
    }))

  it.effect("keeps no limits: those of the device itself are in force", () =>
    Effect.gen(function*() {
      const kept = yield* keeping
      yield* DeviceProfiles.keep(kept, adapter, { ...measured, profile: { ...measured.profile, maxBufferBytes: 4096 } })
      const { profile } = yield* DeviceProfiles.settle(yield* device(), facts, { keeping: kept })
      assert.strictEqual(profile.maxBufferBytes, webgpuDefault.maxBufferBytes)
    }))

  it.effect("takes damaged files for none, and says when nothing can be kept", () =>
    Effect.gen(function*() {
      const kept = yield* keeping
      yield* Effect.orDie(kept.store.set(DeviceProfiles.keyOf(adapter), "{"))
      assert.isUndefined(yield* DeviceProfiles.find(kept, adapter))
      const full = new KeyValueStoreError({ method: "set", message: "the disk is full" })
      const store = { ...kept.store, set: () => Effect.fail(full) }
      yield* DeviceProfiles.keep({ ...kept, store }, adapter, measured)
      assert.deepStrictEqual(kept.told, ["warning: what was measured of the device is not kept: the disk is full"])
    }))
})
