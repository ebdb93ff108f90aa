import { assert, describe, it } from "@effect/vitest"
import { webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { Arena } from "@tg/core-uop/UOp"
import { choose, Heuristics } from "@tg/heuristics/Heuristics"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import * as Opt from "@tg/postrange/Opt"
import { Effect, Layer, Result } from "effect"
import * as Store from "../src/Store.ts"
import * as Tuned from "../src/Tuned.ts"
import * as Kernels from "./support/kernels.ts"

const [small, large] = [Kernels.product(4, 64), Kernels.product(64, 1024)]
const entry = (name: string, ...opts: ReadonlyArray<Opt.Opt>): Store.Entry => ({
  name,
  opts,
  micros: 1.5,
  usualMicros: 2.25
})
const store = Store.merge(
  Store.of("b", large, entry("large", Opt.unroll(1, 4), Opt.group(1, 64))),
  Store.merge(Store.of("b", small, entry("small")), Store.of("a", small, entry("small", Opt.local(0, 2))))
)

describe("Store", () => {
  it("survives its text", () => {
    assert.deepStrictEqual(Result.getOrThrow(Store.decode(Store.encode(store), "here")), store)
    assert.deepStrictEqual(Result.getOrThrow(Store.decode(Store.encode(Store.empty), "here")), Store.empty)
  })

  it("has one text, whatever the order of what was added", () => {
    const again = Store.merge(
      Store.of("a", small, entry("small", Opt.local(0, 2))),
      Store.merge(
        Store.of("b", small, entry("small")),
        Store.of("b", large, entry("large", Opt.unroll(1, 4), Opt.group(1, 64)))
      )
    )
    assert.strictEqual(Store.encode(again), Store.encode(store))
  })

  it("knows a kernel in any arena, and no other one", () => {
    const kernels = Store.forAdapter(store, "b")
    assert.strictEqual(kernels.get(Store.keyOf(Kernels.product(64, 1024, new Arena())))?.name, "large")
    assert.isUndefined(kernels.get(Store.keyOf(Kernels.product(64, 512))))
    assert.strictEqual(Store.forAdapter(store, "c").size + Store.forAdapter(store, undefined).size, 0)
  })

  it("prefers what is merged over it", () => {
    const merged = Store.merge(store, Store.of("b", small, entry("other")))
    assert.strictEqual(Store.forAdapter(merged, "b").get(Store.keyOf(small))?.name, "other")
    assert.strictEqual(Store.forAdapter(merged, "b").size, 2)
  })

  const refused = (text: string): string => Result.getOrThrow(Result.flip(Store.decode(text, "tuned.json"))).message

  it("says what is wrong with a file", () => {
    assert.match(refused("{"), /tuned.json is not JSON: .*; remove it, or tune again/)
    assert.match(refused("{\"version\": 2, \"adapters\": {}}"), /holds no tuned opts of version 1: .*remove it/)
    const text = Store.encode(Store.of("a", small, entry("small", Opt.local(0, 2))))
    for (const wrong of [text.replace("LOCAL", "LOCALS"), text.replace(",2]", ",0]"), text.replace("1.5", "-1")]) {
      assert.notStrictEqual(wrong, text)
      assert.match(refused(wrong), /holds no tuned opts/)
    }
  })
})

describe("Tuned", () => {
  const profile = { ...webgpuDefault, adapter: "b" }

  it("takes the opts that are known", () => {
    assert.deepStrictEqual(Tuned.choose(large, profile, store), {
      opts: [Opt.unroll(1, 4), Opt.group(1, 64)],
      origin: "tuned"
    })
  })

  it("asks the heuristics about other kernels and other devices", () => {
    for (const [kernel, device] of [[Kernels.symbolic(), profile], [large, webgpuDefault]] as const) {
      assert.deepStrictEqual(Tuned.choose(kernel, device, store), {
        opts: choose(kernel, device),
        origin: "heuristics"
      })
    }
  })

  it("passes over opts that the kernel or the device does not allow", () => {
    const stale = Store.of("b", large, entry("large", Opt.group(1, 3)))
    const opts = choose(large, profile)
    assert.deepStrictEqual(Tuned.choose(large, profile, stale), { opts, origin: "stale" })
    const small = { ...profile, maxWorkgroupThreads: 32 }
    assert.deepStrictEqual(Tuned.choose(large, small, store), { opts: choose(large, small), origin: "stale" })
  })

  it.effect("is a Heuristics service, whose phases of persistent launches have what is usual", () =>
    Effect.gen(function*() {
      const heuristics = yield* Heuristics
      for (const place of [undefined, "launch"] as const) {
        assert.deepStrictEqual(yield* heuristics.choose(large, place), [Opt.unroll(1, 4), Opt.group(1, 64)])
      }
      assert.deepStrictEqual(yield* heuristics.choose(large, "phase"), choose(large, profile, { place: "phase" }))
      // microseconds of a launch, of what was tuned alone
      assert.deepStrictEqual([large, Kernels.symbolic()].map((kernel) => heuristics.gain?.(kernel)), [0.75, 0])
    }).pipe(
      Effect.provide(
        Tuned.layer(store).pipe(Layer.provide(Heuristics.layer), Layer.provide(DeviceProfile.Profile.layer(profile)))
      )
    ))

  it("has entries of its own that can be read", () => assert.instanceOf(Tuned.shipped, Map))
})
