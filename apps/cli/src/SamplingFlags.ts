/** Flags that say how tokens are drawn. */
import * as Sampler from "@tg/engine/Sampler"
import { Config, Effect, Option, Random } from "effect"
import { Flag } from "effect/cli"
import { UsageError } from "./Report.ts"
import * as Settings from "./Settings.ts"

/** The flags. */
export const flags = {
  temperature: Flag.Finite("temperature").pipe(
    Flag.withDescription("0 takes the likeliest token (default); 1 draws as the model says"),
    Flag.withFallbackConfig(Settings.configOf("temperature", Config.Finite)),
    Flag.optional
  ),
  topK: Flag.Int("top-k").pipe(
    Flag.withDescription("With --temperature: draw among this many (default: 0, all)"),
    Flag.withFallbackConfig(Settings.configOf("top-k", Config.Int)),
    Flag.optional
  ),
  topP: Flag.Finite("top-p").pipe(
    Flag.withDescription("With --temperature: draw among the likeliest with this total probability (default: 1, all)"),
    Flag.withFallbackConfig(Settings.configOf("top-p", Config.Finite)),
    Flag.optional
  ),
  minP: Flag.Finite("min-p").pipe(
    Flag.withDescription(
      "With --temperature: draw among those at least this likely relative to the likeliest (default: 0, all)"
    ),
    Flag.withFallbackConfig(Settings.configOf("min-p", Config.Finite)),
    Flag.optional
  ),
  seed: Flag.Int("seed").pipe(
    Flag.withDescription("With --temperature: equal seeds draw equal texts (default: a new one)"),
    Flag.optional
  )
} as const

/** What was given for them, checked; a seed is drawn if there is none. */
export const settingsOf = Effect.fn("cli.sampling")(function*(given: {
  readonly temperature: Option.Option<number>
  readonly topK: Option.Option<number>
  readonly topP: Option.Option<number>
  readonly minP: Option.Option<number>
  readonly seed: Option.Option<number>
}) {
  const settings: Sampler.Settings = {
    temperature: Option.getOrElse(given.temperature, () => 0),
    topK: Option.getOrElse(given.topK, () => 0),
    topP: Option.getOrElse(given.topP, () => 1),
    minP: Option.getOrElse(given.minP, () => 0),
    seed: Option.isSome(given.seed) ? given.seed.value : yield* Random.nextIntBetween(0, 2 ** 32)
  }
  const invalid = Sampler.validate(settings)
  if (invalid !== undefined) return yield* invalid
  const { minP, seed, topK, topP } = given
  // a default that the user keeps may wait for a temperature
  const kept = yield* Settings.InForce
  const idle = Object.entries({ "top-k": topK, "top-p": topP, "min-p": minP, seed })
    .filter(([name, value]) => Option.isSome(value) && kept.get(name as Settings.Key)?.value !== value.value)
    .map(([name]) => `--${name}`)
  if (idle.length > 0 && Option.isNone(given.temperature)) {
    return yield* new UsageError({
      message: `${idle.join(", ")} ${idle.length === 1 ? "decides" : "decide"} how tokens are drawn, and without ` +
        `--temperature the likeliest one is taken; give --temperature 1 to draw as the model says`
    })
  }
  return settings
})
