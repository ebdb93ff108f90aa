import { DeviceProfile } from "@tg/core-uop"
import { Heuristics } from "@tg/heuristics"
import { Opt } from "@tg/postrange"
import { Effect, Layer } from "effect"
import { matvec } from "./kernel.ts"

const main = Effect.gen(function*() {
  const heuristics = yield* Heuristics.Heuristics
  const opts = yield* heuristics.choose(matvec(64, 4096))
  console.log(`matvec on an H200: ${opts.map(Opt.print).join(" ")}`)
})

const layer = Heuristics.Heuristics.layer.pipe(Layer.provide(DeviceProfile.Profile.layer(DeviceProfile.h200)))

await Effect.runPromise(Effect.provide(main, layer))
