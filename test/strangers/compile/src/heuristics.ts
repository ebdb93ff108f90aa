import { Profile } from "@tg/core-uop/DeviceProfile"
import { Heuristics } from "@tg/heuristics/Heuristics"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { Effect, Layer } from "effect"

/** Another opinion on kernels: as many threads as divide the last output loop, and nothing else. */
export const layer = Layer.effect(
  Heuristics,
  Effect.map(Profile, (profile) =>
    Heuristics.of({
      choose: (kernel) =>
        Effect.sync(() => {
          const loop = Loops.outputs(kernel).at(-1)
          if (profile.kind !== "gpu" || loop === undefined || loop.isSymbolic) return []
          let threads = Math.min(loop.size, profile.maxWorkgroupThreads)
          while (loop.size % threads !== 0) threads--
          return threads === 1 ? [] : [Opt.local(loop.id, threads)]
        })
    }))
)
