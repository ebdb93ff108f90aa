import { describe, expect, it } from "@effect/vitest"
import { type DeviceProfile, Profile, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import * as Spec from "@tg/core-uop/Spec"
import { Heuristics } from "@tg/heuristics/Heuristics"
import * as Opt from "@tg/postrange/Opt"
import * as Postrange from "@tg/postrange/Postrange"
import { Effect, Layer } from "effect"
import { matvec } from "../src/kernel.ts"

/** A device that does not exist: 64 threads, little memory. */
const toy: DeviceProfile = { ...webgpuDefault, name: "toy", maxWorkgroupThreads: 64, maxWorkgroupBytes: 1024 }
const scalar: DeviceProfile = { ...toy, name: "scalar", kind: "cpu" }

const on = (profile: DeviceProfile) => Heuristics.layer.pipe(Layer.provide(Layer.mock(Profile, profile)))
const choose = Effect.flatMap(Heuristics, (heuristics) => heuristics.choose(matvec(64, 4096)))

describe("Heuristics with a mocked profile", () => {
  it.effect("groups a long reduction, within the threads of the device", () =>
    Effect.gen(function*() {
      const opts = yield* choose
      const threads = opts.filter((o) => o.kind === "GROUP" || o.kind === "LOCAL").reduce((n, o) => n * o.amount, 1)
      expect(opts.some((o) => o.kind === "GROUP")).toBe(true)
      expect(threads).toBeLessThanOrEqual(toy.maxWorkgroupThreads)
    }).pipe(Effect.provide(on(toy))))

  it.effect("chooses what postrange accepts", () =>
    Effect.gen(function*() {
      const opted = Postrange.apply("matvec", matvec(64, 4096), yield* choose, toy)
      if (opted instanceof Postrange.IllegalOpt) return yield* opted
      expect(Spec.check("opted", opted)).toEqual([])
    }).pipe(Effect.provide(on(toy))))

  it.effect("makes no threads where there are none", () =>
    Effect.gen(function*() {
      const kinds = (yield* choose).map((o) => o.kind)
      expect(kinds).not.toContain("GROUP")
      expect(kinds).not.toContain("LOCAL")
    }).pipe(Effect.provide(on(scalar))))

  it.effect("chooses the same twice", () =>
    Effect.gen(function*() {
      expect((yield* choose).map(Opt.print)).toEqual((yield* choose).map(Opt.print))
    }).pipe(Effect.provide(on(toy))))

  it.effect("chooses nothing when told so", () =>
    Effect.gen(function*() {
      expect(yield* choose).toEqual([])
    }).pipe(Effect.provide(Heuristics.layerNone)))
})
