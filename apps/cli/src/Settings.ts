/**
 * Defaults of flags that the user keeps: environment variables, and a file in the user's folder for configurations. A flag wins over
 * the environment, the environment over the file, the file over what is built in.
 */
import { homedir } from "node:os"
import { Config, ConfigProvider, Context, Effect, FileSystem, Option, Path, Result, Schema } from "effect"
import * as UserDirectories from "effect/persistence/UserDirectories"
import { choices } from "./Devices.ts"

const Count = (maximum: number) => Schema.Int.check(Schema.isBetween({ minimum: 1, maximum }))
const Fraction = Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 1 }))

/** What can be kept, by the name of its flag: what it may be, and what holds without it, in words. */
export const known = {
  model: { schema: Schema.NonEmptyString, expected: "a GGUF file", builtIn: "tg-tiny" },
  device: { schema: Schema.Literals(choices), expected: `one of ${choices.join(", ")}`, builtIn: "auto" },
  threads: { schema: Count(256), expected: "a whole number from 1 to 256", builtIn: "one for each core" },
  context: { schema: Count(2 ** 31 - 1), expected: "a whole number of tokens, 1 or more", builtIn: "grows" },
  kv: { schema: Schema.Literals(["f16", "f32"]), expected: "f16 or f32", builtIn: "f16" },
  activations: { schema: Schema.Literals(["auto", "float", "int8"]), expected: "auto, float or int8", builtIn: "auto" },
  "max-tokens": { schema: Count(2 ** 31 - 1), expected: "a whole number, 1 or more", builtIn: "512" },
  temperature: {
    schema: Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0)),
    expected: "a number, 0 or more",
    builtIn: "0"
  },
  "top-k": {
    schema: Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)),
    expected: "a whole number, 0 or more",
    builtIn: "0"
  },
  "top-p": { schema: Fraction.check(Schema.isGreaterThan(0)), expected: "a number above 0, at most 1", builtIn: "1" },
  "min-p": { schema: Fraction, expected: "a number from 0 to 1", builtIn: "0" }
} as const satisfies Record<
  string,
  { readonly schema: Schema.Top; readonly expected: string; readonly builtIn: string }
>

/** The name of something that can be kept. */
export type Key = keyof typeof known
/** All of them. */
export const keys = Object.keys(known) as ReadonlyArray<Key>

/** A value, and where it was found: the name of a variable, or the path of the file. */
export interface Setting {
  readonly value: string | number
  readonly from: string
}

/** What the user keeps. */
export type Settings = ReadonlyMap<Key, Setting>

/** The settings in force, for those who ask themselves instead of by a flag. */
export const InForce = Context.Reference<Settings>("@tg/cli/Settings/InForce", { defaultValue: () => new Map() })

/** A setting that cannot be used. */
export class InvalidSetting extends Schema.TaggedError<InvalidSetting>()("InvalidSetting", {
  /** The variable, or the file. */
  from: Schema.String,
  /** The key in the file; nothing where the file as a whole is wrong. */
  key: Schema.UndefinedOr(Schema.String),
  message: Schema.String
}) {}

const isKey = (name: string): name is Key => Object.hasOwn(known, name)

/** The variable of a key: `TG_MAX_TOKENS` of `max-tokens`. */
export const variableOf = (key: Key): string => `TG_${key.toUpperCase().replaceAll("-", "_")}`

const shown = (value: unknown): string => {
  const text = JSON.stringify(value) ?? String(value)
  return text.length > 60 ? `${text.slice(0, 57)}...` : text
}

const check = (key: Key, value: unknown, { found, from }: { readonly from: string; readonly found: string }) => {
  const { expected, schema } = known[key]
  const decoded = Schema.decodeUnknownResult(schema as Schema.Codec<string | number>)(value)
  return Result.isSuccess(decoded)
    ? Result.succeed<Setting>({ value: decoded.success, from })
    : Result.fail(new InvalidSetting({ from, key, message: `${found}; it has to be ${expected}` }))
}

/** The setting in a variable's text. */
export const fromVariable = (key: Key, text: string): Result.Result<Setting, InvalidSetting> => {
  const from = variableOf(key)
  const number = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : text
  const value = textKeys.has(key) ? text : number
  return check(key, value, { from, found: `the environment variable ${from} is ${shown(text)}` })
}

const textKeys: ReadonlySet<Key> = new Set<Key>(["model", "device", "kv", "activations"])

/** The settings in a file's text: one JSON object. */
export const fromText = (text: string, file: string): Result.Result<Settings, InvalidSetting> => {
  const whole = (why: string) =>
    Result.fail(new InvalidSetting({ from: file, key: undefined, message: `${file} ${why}` }))
  let parsed: unknown
  try {
    parsed = JSON.parse(text)
  } catch (error) {
    return whole(`is not JSON: ${error instanceof Error ? error.message : error}`)
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    return whole(`has ${shown(parsed)}; it has to be one object, such as {"model": "~/models/model.gguf"}`)
  }
  const settings = new Map<Key, Setting>()
  for (const [key, value] of Object.entries(parsed)) {
    if (!isKey(key)) {
      const message = `${file} has a key ${shown(key)} that tg does not know; it knows ${keys.join(", ")}`
      return Result.fail(new InvalidSetting({ from: file, key, message }))
    }
    const checked = check(key, value, { from: file, found: `in ${file}, ${key} is ${shown(value)}` })
    if (Result.isFailure(checked)) return Result.fail(checked.failure)
    settings.set(key, checked.success)
  }
  return Result.succeed(settings)
}

/** The file, whether it is there or not. */
export const file = Effect.gen(function*() {
  const path = yield* Path.Path
  return path.join(yield* UserDirectories.make().config("tg"), "config.json")
})

/** In a file, `./` means the folder of the file; `~/` means the user's. */
const resolved = (setting: Setting, folder: string, path: Path.Path): Setting => {
  const { from, value } = setting
  if (typeof value !== "string") return setting
  if (value.startsWith("~/")) return { from, value: path.join(homedir(), value.slice(2)) }
  return /^\.\.?[/\\]/.test(value) ? { from, value: path.join(folder, value) } : setting
}

const read = Effect.fn("Settings.read")(function*(name: string) {
  const files = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const text = yield* files.readFileString(name).pipe(
    Effect.catchIf((error) => error.reason._tag === "NotFound", () => Effect.succeed("{}")),
    Effect.mapError((error) =>
      new InvalidSetting({ from: name, key: undefined, message: `${name} cannot be read: ${error.message}` })
    )
  )
  const settings = yield* Effect.fromResult(fromText(text, name))
  const model = settings.get("model")
  return model === undefined
    ? settings
    : new Map([...settings, ["model", resolved(model, path.dirname(name), path)] as const])
})

/** Everything the user keeps. */
export const load = Effect.gen(function*() {
  const settings = new Map<Key, Setting>(yield* Effect.flatMap(file, read))
  for (const key of keys) {
    const text = yield* Config.option(Config.String(variableOf(key)))
    // an empty variable says nothing, as usual
    if (Option.isSome(text) && text.value !== "") {
      settings.set(key, yield* Effect.fromResult(fromVariable(key, text.value)))
    }
  }
  return settings
})

const root = "@tg/cli"

/** Where a flag finds its setting, for `Flag.withFallbackConfig`. */
export const configOf = <A>(key: Key, make: (name: string) => Config.Config<A>): Config.Config<A> =>
  Config.nested(make(key), root)

/** Runs with these settings behind the flags. */
export const provide = (settings: Settings) => <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.gen(function*() {
    const values = Object.fromEntries([...settings].map(([key, { value }]) => [key, value]))
    const usual = yield* ConfigProvider.ConfigProvider
    const provider = ConfigProvider.orElse(ConfigProvider.fromUnknown({ [root]: values }), usual)
    return yield* effect.pipe(
      Effect.provideService(ConfigProvider.ConfigProvider, provider),
      Effect.provideService(InForce, settings)
    )
  })
