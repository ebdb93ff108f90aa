/** The counters of grid barriers, words that phases await, and whether somebody gave up. */
import { meetingWords, noBarrier, waiting } from "@tg/core-uop/Phases"
import { type DeviceBuffer, DeviceError, type DeviceShape, type Span } from "@tg/runtime/Device"
import { Effect, Scope, Semaphore } from "effect"
import type { Settling } from "./Jit.ts"
import { refuse, type Service } from "./Persistent.ts"

const wordBytes = 4

/** One buffer for all programs of a device: they run one after the other. */
export interface Meeting {
  /** Allocated on first use. */
  readonly buffer: Effect.Effect<DeviceBuffer, DeviceError>
  /** The code of persistent launches that were tried, and are as they should be. */
  readonly trusted: Set<unknown>
  /** Why launches cannot meet here: which barrier timed out in a run so far. `undefined` where none did. */
  readonly timeout: Effect.Effect<string | undefined, DeviceError>
  /** Forgets timeouts, and what persistent launches that were run by themselves left for each other. */
  readonly clear: Effect.Effect<void, DeviceError>
  readonly settle: Settling
}

/** Why launches could not meet, by the words that say so. */
const whyOf = (words: Uint8Array): string | undefined => {
  const view = new DataView(words.buffer, words.byteOffset)
  const at = (word: number): number => view.getUint32(wordBytes * word, true)
  const wanted = at(meetingWords.gaveUp)
  if (wanted === 0) return undefined
  const came = at(meetingWords.came)
  return "workgroups of a persistent launch did not all run at once: " +
    (came === noBarrier
      ? "a word of what they tell each other was waited for in vain"
      : `a barrier that waited for ${wanted} arrivals saw ${came}`)
}

/** The buffer of a device, for the lifetime of the Scope. */
export const make = (device: DeviceShape, persistent: Service): Effect.Effect<Meeting, never, Scope.Scope> =>
  Effect.gen(function*() {
    const scope = yield* Effect.scope
    let made: DeviceBuffer | undefined
    // programs that are bound at once have the one whose flag is read
    const lock = yield* Semaphore.make(1)
    const buffer = Effect.suspend(() =>
      made === undefined
        ? device.allocate(wordBytes * waiting.count, "meeting of workgroups").pipe(
          Scope.provide(scope),
          Effect.tap((buffer) => Effect.sync(() => made = buffer))
        )
        : Effect.succeed(made)
    ).pipe(lock.withPermits(1))
    const spanOf = (): Span | undefined =>
      made === undefined ? undefined : { buffer: made, offset: 0, bytes: wordBytes * meetingWords.count }
    const timeout = Effect.suspend(() => {
      const span = spanOf()
      return span === undefined
        ? Effect.undefined
        : Effect.map(device.read(span.buffer, span.offset, span.bytes), whyOf)
    })
    const check = (words: Uint8Array): Effect.Effect<void, DeviceError> => {
      const why = whyOf(words)
      return why === undefined ? Effect.void : Effect.andThen(
        refuse(persistent, why),
        new DeviceError({
          reason: "BarriersFailed",
          message:
            `${why} on ${device.profile.name}; kernels are launched one by one from now on: ask again, or use --no-persistent`
        })
      )
    }
    const clear = Effect.suspend(() =>
      made === undefined ? Effect.void : device.write(made, new Uint8Array(wordBytes * waiting.count))
    )
    return { buffer, clear, trusted: new Set<unknown>(), timeout, settle: { span: spanOf, check } }
  })
