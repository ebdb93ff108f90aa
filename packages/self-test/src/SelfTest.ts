/** Runs the cases on a device; where some fail, looks for what to do without. */
import { Device, type DeviceError } from "@tg/runtime/Device"
import { Cause, Clock, Effect, Exit, Layer } from "effect"
import type { Bench, Case } from "./Case.ts"
import * as Operations from "./Operations.ts"
import * as Steps from "./Steps.ts"
import type { Vectors } from "./Vectors.ts"
import { type Avoidance, type Failure, families, type Family, isAvoidable, type Verdict } from "./Verdict.ts"
import * as Weights from "./Weights.ts"

/** The cases of some families, of all if not said. */
export const cases = (vectors: Vectors, of: ReadonlyArray<Family> = families): ReadonlyArray<Case> =>
  [...Operations.cases, ...Weights.cases(vectors), ...Steps.cases(vectors)].filter(({ family }) => of.includes(family))

/** What is tested. */
export interface Subject {
  /** Starts the device anew, without some of what it has. */
  readonly layer: (avoid: ReadonlyArray<Avoidance>) => Layer.Layer<Bench, DeviceError>
  /** The device in words. */
  readonly device: string
  /** The adapter and its driver. */
  readonly identity: string
}

/** How far a test is. */
export interface Progress {
  readonly done: number
  readonly of: number
  /** What is done without. */
  readonly avoid: ReadonlyArray<Avoidance>
}

/** How to test. */
export interface Options {
  /** All of them, if it is not said. */
  readonly cases?: ReadonlyArray<Case> | undefined
  readonly onProgress?: ((progress: Progress) => Effect.Effect<unknown>) | undefined
}

/** A problem for each case; none where it is right. */
type Findings = ReadonlyArray<string | undefined>

const problemOf = (exit: Exit.Exit<void, { readonly message: string }>): string | undefined => {
  if (Exit.isSuccess(exit)) return undefined
  const error = Cause.squash(exit.cause)
  return error instanceof Error ? error.message : String(error)
}

const isLost = (exit: Exit.Exit<unknown, unknown>): boolean => {
  if (Exit.isSuccess(exit)) return false
  const error = Cause.squash(exit.cause)
  return typeof error === "object" && error !== null && "reason" in error && error.reason === "DeviceLost"
}

/** Cases on one device, up to one that it does not survive. */
const whileAlive = Effect.fnUntraced(function*(some: ReadonlyArray<Case>, onDone: () => Effect.Effect<unknown>) {
  const findings: Array<string | undefined> = []
  for (const { check } of some) {
    const exit = yield* Effect.exit(Effect.scoped(check))
    if (isLost(exit)) return { findings, lost: problemOf(exit) }
    findings.push(problemOf(exit))
    yield* onDone()
    // the page that waits hears of it
    yield* Effect.yieldNow
  }
  return { findings, lost: undefined }
})

/**
 * All cases, on as many devices as it takes. One that does not start fails them all. A device may be lost for reasons of its own, as
 * when a computer goes to sleep: only who loses two of them is at fault.
 */
const attempt = Effect.fnUntraced(
  function*(subject: Subject, avoid: ReadonlyArray<Avoidance>, { cases, onProgress }: Required<Options>) {
    const all = cases ?? []
    const findings: Array<string | undefined> = []
    const onDone = (): Effect.Effect<unknown> => onProgress?.({ done: ++done, of: all.length, avoid }) ?? Effect.void
    let done = 0
    let lostAt = -1
    while (findings.length < all.length) {
      const rest = all.slice(findings.length)
      const found = yield* whileAlive(rest, onDone).pipe(
        Effect.provide(Layer.fresh(subject.layer(avoid))),
        Effect.catch(({ message }) => Effect.succeed({ findings: rest.map(() => message), lost: undefined }))
      )
      findings.push(...found.findings)
      if (found.lost === undefined) continue
      if (lostAt === findings.length) {
        findings.push(found.lost)
        yield* onDone()
      } else lostAt = findings.length
    }
    return findings
  }
)

const failuresOf = (cases: ReadonlyArray<Case>, findings: Findings): ReadonlyArray<Failure> =>
  cases.flatMap(({ family, name }, i) => {
    const problem = findings[i]
    return problem === undefined ? [] : [{ family, name, problem }]
  })

/** What may be worth doing without, the least first. */
const candidates: ReadonlyArray<ReadonlyArray<Avoidance>> = [
  ["subgroups"],
  ["packed-dot"],
  ["large-workgroups"],
  ["subgroups", "packed-dot"],
  ["subgroups", "large-workgroups"],
  ["subgroups", "packed-dot", "large-workgroups"]
]

/** The first candidate without which everything is right. */
const search = Effect.fnUntraced(
  function*(subject: Subject, all: ReadonlyArray<Case>, { failed, onProgress }: {
    readonly failed: ReadonlyArray<Case>
    readonly onProgress: Options["onProgress"]
  }) {
    const profile = yield* Effect.map(Device, (device) => device.profile).pipe(
      Effect.provide(Layer.fresh(subject.layer([]))),
      Effect.orElseSucceed(() => undefined)
    )
    if (profile === undefined) return undefined
    for (const avoid of candidates) {
      if (!avoid.every((each) => isAvoidable(profile, each))) continue
      const isRight = (cases: ReadonlyArray<Case>) =>
        Effect.map(attempt(subject, avoid, { cases, onProgress }), (found) => found.every((each) => each === undefined))
      if ((yield* isRight(failed)) && (yield* isRight(all))) return avoid
    }
    return undefined
  }
)

/** Tests a device. */
export const run = Effect.fn("SelfTest.run")(
  function*(subject: Subject, vectors: Vectors, { cases: asked, onProgress }: Options = {}) {
    const all = asked ?? cases(vectors)
    const failures = failuresOf(all, yield* attempt(subject, [], { cases: all, onProgress }))
    const failed = all.filter(({ name }) => failures.some((failure) => failure.name === name))
    const avoid = failures.length === 0 ? [] : yield* search(subject, all, { failed, onProgress })
    const verdict: Verdict = {
      version: 1,
      device: subject.device,
      identity: subject.identity,
      date: new Date(yield* Clock.currentTimeMillis).toISOString(),
      cases: all.length,
      failures,
      avoid: avoid ?? [],
      refused: avoid === undefined
    }
    return verdict
  }
)
