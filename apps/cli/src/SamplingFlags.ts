/** Flags that say how tokens are drawn. */
import * as Sampler from "@tg/engine/Sampler"
import { Config, Effect, Option, Random } from "effect"
import { Flag } from "effect/cli"
import * as Settings from "./Settings.ts"

/** The flags. */
export const flags = {
  temperature: Flag.Finite("temperature").pipe(
    Flag.withDescription("0 takes the likeliest token (default); 1 draws as the model says"),
    Flag.withFallbackConfig(Settings.configOf("temperature", Config.Finite)),
    Flag.withDefault(0)
  ),
  topK: Flag.Int("top-k").pipe(
    Flag.withDescription("Draw among this many (default: 0, all)"),
    Flag.withFallbackConfig(Settings.configOf("top-k", Config.Int)),
    Flag.withDefault(0)
  ),
  topP: Flag.Finite("top-p").pipe(
    Flag.withDescription("Draw among the likeliest with this total probability (default: 1, all)"),
    Flag.withFallbackConfig(Settings.configOf("top-p", Config.Finite)),
    Flag.withDefault(1)
  ),
  minP: Flag.Finite("min-p").pipe(
    Flag.withDescription("Draw among those at least this likely relative to the likeliest (default: 0, all)"),
    Flag.withFallbackConfig(Settings.configOf("min-p", Config.Finite)),
    Flag.withDefault(0)
  ),
  seed: Flag.Int("seed").pipe(Flag.withDescription("Equal seeds draw equal texts (default: a new one)"), Flag.optional)
} as const

/** What was given for them, checked; a seed is drawn if there is none. */
export const settingsOf = Effect.fn("cli.sampling")(function*(given: {
  readonly temperature: number
  readonly topK: number
  readonly topP: number
  readonly minP: number
  readonly seed: Option.Option<number>
}) {
  const { minP, temperature, topK, topP } = given
  const seed = Option.isSome(given.seed) ? given.seed.value : yield* Random.nextIntBetween(0, 2 ** 32)
  const settings: Sampler.Settings = { temperature, topK, topP, minP, seed }
  const invalid = Sampler.validate(settings)
  return invalid === undefined ? settings : yield* invalid
})
