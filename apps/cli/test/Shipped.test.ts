import { assert, describe, it } from "@effect/vitest"
import { NodeServices } from "@effect/platform-node"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import * as Store from "@tg/tuner/Store"
import * as Tuned from "@tg/tuner/Tuned"
import { Effect, Layer, Option } from "effect"
import * as Kernel from "../src/commands/Kernel.ts"
import * as KernelNames from "@tg/jit/KernelNames"

/** The models that were tuned, and the devices they were tuned on. */
const tuned = ["glm-4.7-flash:q4_0", "glm-4.7-flash:q4_k_m", "deepseek-v2-lite:q4_0", "youtu-llm-2b:q4_0"].map((
  shape
) => ({
  shape,
  profile: DeviceProfile.h200
}))
import * as Profiles from "../src/Profiles.ts"

const kernelsOf = (shape: string, profile: DeviceProfile.DeviceProfile, step: "decode" | "prompt") =>
  Kernel.kernelsOf({
    model: Option.none(),
    shape: Option.some(shape),
    step,
    kv: "f16",
    activations: "auto",
    context: Option.none()
  }).pipe(
    Effect.map((kernels) =>
      [...kernels].flatMap(([name, { ast }]) => KernelNames.membersOf(name, ast)).map(({ ast }) => ast)
    ),
    Effect.provide(Layer.provideMerge(Profiles.pipeline(profile, Store.empty), NodeServices.layer))
  )

describe("the opts that ship", () => {
  it.effect("belong to kernels that there are, and fit them: what a change made stale is tuned again or removed", () =>
    Effect.gen(function*() {
      const used = new Set<string>()
      for (const { profile, shape } of tuned) {
        const kernels = [...yield* kernelsOf(shape, profile, "decode"), ...yield* kernelsOf(shape, profile, "prompt")]
        for (const kernel of kernels) {
          const { origin } = Tuned.choose(kernel, profile, Tuned.shipped)
          assert.notStrictEqual(origin, "stale")
          if (origin === "tuned") used.add(`${profile.adapter}: ${Store.keyOf(kernel)}`)
        }
      }
      const all = [...Tuned.shipped].flatMap(([adapter, kernels]) =>
        [...kernels.keys()].map((key) => `${adapter}: ${key}`)
      )
      assert.deepStrictEqual([...used].toSorted(), all.toSorted())
    }))
})
