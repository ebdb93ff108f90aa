/**
 * What a self-test found of a device, and what follows from it. Kept for the adapter and its driver, so that whoever starts the
 * device later does without what failed there.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { digest } from "@tg/core-uop/UOp"
import { DeviceError } from "@tg/runtime/Device"
import { Effect, Option, Schema } from "effect"
import type { KeyValueStore } from "effect/persistence/KeyValueStore"

/** What programs can do without. */
export const avoidances = ["subgroups", "packed-dot", "large-workgroups"] as const
/** One of them. */
export type Avoidance = typeof avoidances[number]

/** Kinds of kernels that are tried. */
export const families = ["operations", "weights", "steps"] as const
/** One of them. */
export type Family = typeof families[number]

/** A case that a device got wrong. */
export const Failure = Schema.Struct({
  family: Schema.Literals(families),
  name: Schema.String,
  problem: Schema.String
})
/** A case that a device got wrong. */
export type Failure = typeof Failure.Type

/** What a self-test found. */
export const Verdict = Schema.Struct({
  version: Schema.Literal(1),
  /** The device in words, and what decides which one it is: the adapter and its driver, or what runs WebAssembly. */
  device: Schema.String,
  identity: Schema.String,
  /** When, as ISO 8601 has it. */
  date: Schema.String,
  cases: Schema.Int,
  /** What it got wrong as it is. */
  failures: Schema.Array(Failure),
  /** Without these it got everything right. */
  avoid: Schema.Array(Schema.Literals(avoidances)),
  /** Whether something is wrong whatever is avoided. */
  refused: Schema.Boolean
})
/** What a self-test found. */
export type Verdict = typeof Verdict.Type

const VerdictText = Schema.fromJsonString(Verdict)

const keyOf = (identity: string): string => `self-test-${digest(identity)}`

/** What is kept of a device. What cannot be read is as if it were not there: the test can be run again. */
export const find = (store: KeyValueStore, identity: string): Effect.Effect<Verdict | undefined> =>
  store.get(keyOf(identity)).pipe(
    Effect.flatMap((text) =>
      text === undefined ? Effect.succeedNone : Effect.option(Schema.decodeEffect(VerdictText)(text))
    ),
    Effect.map(Option.getOrUndefined),
    Effect.orElseSucceed(() => undefined)
  )

/** Keeps a verdict; answers with what went wrong if it cannot. */
export const keep = (store: KeyValueStore, verdict: Verdict): Effect.Effect<string | undefined> =>
  Schema.encodeEffect(VerdictText)(verdict).pipe(
    Effect.flatMap((text) => store.set(keyOf(verdict.identity), text)),
    Effect.match({ onFailure: ({ message }) => message, onSuccess: () => undefined })
  )

/** What every WebGPU grants and GPUs of phones run well. */
const smallWorkgroup = { threads: 64, bytes: 16384 }

/** Whether a device has what can be avoided. */
export const isAvoidable = (profile: DeviceProfile, avoidance: Avoidance): boolean => {
  switch (avoidance) {
    case "subgroups":
      return profile.subgroupSize !== undefined
    case "packed-dot":
      return profile.packedDot
    case "large-workgroups":
      return profile.kind === "gpu" && profile.maxWorkgroupThreads > smallWorkgroup.threads
  }
}

/** What a device is planned for that does without these. */
export const without = (profile: DeviceProfile, avoid: ReadonlyArray<Avoidance>): DeviceProfile => ({
  ...profile,
  ...(avoid.includes("subgroups") ? { subgroupSize: undefined, matrixUnits: undefined } : {}),
  ...(avoid.includes("packed-dot") ? { packedDot: false } : {}),
  ...(avoid.includes("large-workgroups")
    ? {
      maxWorkgroupThreads: Math.min(profile.maxWorkgroupThreads, smallWorkgroup.threads),
      maxWorkgroupBytes: Math.min(profile.maxWorkgroupBytes, smallWorkgroup.bytes)
    }
    : {})
})

/** What of a device's verdict is asked of whoever starts it. */
export interface Remembered {
  /** The adapter and its driver. */
  readonly identity: string
  /** Where verdicts are kept; none is looked for if not said. */
  readonly store: KeyValueStore | undefined
  /** What to do without, whatever was found. */
  readonly avoid?: ReadonlyArray<Avoidance> | undefined
}

/** What a device is to do without, by what is kept of it. One that is wrong in all ways is not to be used. */
export const remembered = Effect.fnUntraced(function*({ avoid, identity, store }: Remembered) {
  if (avoid !== undefined) return avoid
  const verdict = store === undefined ? undefined : yield* find(store, identity)
  if (verdict?.refused === true) return yield* refusal(verdict)
  return verdict?.avoid ?? []
})

/** Why a device is not used. */
export const refusal = ({ date, device, failures }: Verdict): DeviceError =>
  new DeviceError({
    reason: "Unavailable",
    message: `${device} computed wrong results in its self-test of ${date.slice(0, 10)} (${failures[0]?.name}); ` +
      "use another device, or update its driver and run the self-test again"
  })

/** The verdict as text for people, to read and to send to whoever mends it. */
export const report = ({ avoid, cases, date, device, failures, identity, refused }: Verdict): ReadonlyArray<string> => [
  `self-test of ${device}, ${date}`,
  `  ${identity.split("\n").filter((part) => part !== "").join("; ")}`,
  failures.length === 0
    ? `  all ${cases} cases are right`
    : `  ${failures.length} of ${cases} cases are wrong:`,
  ...failures.map(({ family, name, problem }) => `    ${family}, ${name}: ${problem}`),
  ...(refused
    ? ["  nothing that can be avoided mends it: the device is not used until a self-test finds it right"]
    : avoid.length === 0
    ? []
    : [`  right without ${avoid.join(" and ")}: avoided from now on`])
]
