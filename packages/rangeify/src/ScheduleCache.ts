/** Schedules of function bodies by their structure, and a count of what they save: equal blocks are scheduled once. */
import { type Clock, Context, Effect } from "effect"
import type { Schedule } from "./Schedule.ts"

/** A body that has been scheduled. */
export interface Known {
  readonly schedule: Schedule
  /** What it took, with the bodies that it calls. */
  readonly millis: number
}

/** By structure and limits. A cache belongs to one set of rules and passes. */
export type ScheduleCache = Map<string, Known>

/** A call of a function asked for the schedule of its body. */
export interface Lookup {
  /** The function's name. */
  readonly name: string
  /** Equal for bodies that share a schedule. */
  readonly key: string
  readonly isHit: boolean
  /** What a miss took, and what a hit would have taken. */
  readonly millis: number
}

/** Is told of every lookup; nobody is unless one is provided. */
export const Listener = Context.Reference<((lookup: Lookup) => void) | undefined>(
  "@tg/rangeify/ScheduleCache/Listener",
  { defaultValue: () => undefined }
)

/** What makes schedules tells who listens, by this clock. */
export interface Told {
  readonly clock: Pick<Clock.Clock, "currentTimeNanosUnsafe">
  readonly listener: ((lookup: Lookup) => void) | undefined
}

/** The schedule of a body: as it is known, or made and kept. */
export const lookUp = (
  cache: ScheduleCache,
  asked: Pick<Lookup, "key" | "name">,
  make: () => Schedule,
  told: Told | undefined
): Schedule => {
  const known = cache.get(asked.key)
  if (known !== undefined) {
    told?.listener?.({ ...asked, isHit: true, millis: known.millis })
    return known.schedule
  }
  const start = told?.clock.currentTimeNanosUnsafe() ?? 0n
  const schedule = make()
  const millis = Number((told?.clock.currentTimeNanosUnsafe() ?? 0n) - start) / 1e6
  cache.set(asked.key, { schedule, millis })
  told?.listener?.({ ...asked, isHit: false, millis })
  return schedule
}

/** What a cache did. */
export interface Counts {
  /** Different ones that were asked for. */
  readonly bodies: number
  readonly hits: number
  readonly misses: number
  /** What the hits would have taken. A body called by one that was a hit is not asked for: its time is in that one's. */
  readonly savedMillis: number
}

/** The sums of some lookups. */
export const countsOf = (lookups: ReadonlyArray<Lookup>): Counts => {
  const hits = lookups.filter(({ isHit }) => isHit)
  return {
    bodies: new Set(lookups.map(({ key }) => key)).size,
    hits: hits.length,
    misses: lookups.length - hits.length,
    savedMillis: hits.reduce((sum, { millis }) => sum + millis, 0)
  }
}

/** `4 bodies, 90 hits, 4 misses, 1200 ms saved` */
export const print = ({ bodies, hits, misses, savedMillis }: Counts): string =>
  `${bodies} ${bodies === 1 ? "body" : "bodies"}, ${hits} hits, ${misses} misses, ${savedMillis.toFixed(0)} ms saved`

/** Runs work that can ask, at any time, what the schedule cache did for it so far. */
export const counting = <A, E, R>(work: (counts: Effect.Effect<Counts>) => Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const heard: Array<Lookup> = []
    return work(Effect.sync(() => countsOf(heard))).pipe(
      Effect.provideService(Listener, (lookup) => void heard.push(lookup))
    )
  })
