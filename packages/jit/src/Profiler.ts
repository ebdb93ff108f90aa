/**
 * Time of each kernel of a prepared program: by timestamps of the device where it has them, else by the host's clock.
 *
 * A kernel alone would see other values in temporary memory, and values may be indices. So launches are timed only in place:
 * after all launches before them, on their real inputs.
 */
import { type Binding, bufferOf, Device, type DeviceError, type Dispatch, type Replay } from "@tg/runtime/Device"
import { Duration, Effect, Fiber } from "effect"
import { ownOf, type Prepared } from "./Jit.ts"

/** Values of the symbolic variables. */
export type Vars = Readonly<Record<string, number>>

/**
 * `each`: every launch alone, in program order, on a synchronous device. The others difference two runs, the program with the
 * kernel's launches repeated in place and the program itself, and divide by the extra launches: the time a launch adds, with the
 * wait for the one before it. `clock` uses the device's timestamps, `extra` the host's clock, so that encoding time counts
 * where it exceeds the device's.
 */
export type Method = "clock" | "each" | "extra"

/** All launches of one program. */
export interface KernelTime {
  /** Their numbers in the plan. */
  readonly launches: ReadonlyArray<number>
  /** Of one launch. */
  readonly micros: number
}

/** Where the time of a program goes. */
export interface Profile {
  readonly method: Method
  /** In the order of their first launch. */
  readonly kernels: ReadonlyArray<KernelTime>
  /** Per run, of many submitted without waiting. */
  readonly stepMicros: number
  /** One run by the device's timestamps. Only with `clock`. */
  readonly deviceMicros?: number
}

/** Pipelined runs: submitted one after the other, awaited once. */
export interface BackToBack {
  /** From the first call to the last result, per run. */
  readonly micros: number
  /** Host time to submit, per run. 0 on a synchronous device, whose calls are the work. */
  readonly encodeMicros: number
}

/** The mean of the middle two for an even count. */
export const median = (values: ReadonlyArray<number>): number => {
  const sorted = values.toSorted((a, b) => a - b)
  const half = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2
}

/** Waits for all submitted work, by a read of 4 bytes. */
export const settle = (
  { device, dispatches }: Pick<Prepared, "device" | "dispatches">
): Effect.Effect<void, DeviceError, Device> =>
  Effect.gen(function*() {
    const first = dispatches[0]?.buffers[0]
    if (first !== undefined) yield* (device ?? (yield* Device)).read(bufferOf(first), 0, 4)
  })

const micros = <A, E, R>(work: Effect.Effect<A, E, R>): Effect.Effect<number, E, R> =>
  Effect.map(Effect.timed(work), ([time]) => Duration.toMillis(time) * 1000)

/** The throughput of runs: the device's queue never drains. */
export const backToBack = Effect.fn("Profiler.backToBack")(function*(prepared: Prepared, given: Vars, runs: number) {
  const { profile } = yield* Device
  const vars = ownOf(prepared, given)
  yield* settle(prepared)
  let encoding = 0
  const all = yield* micros(Effect.gen(function*() {
    encoding = yield* micros(Effect.replicateEffect(prepared.run(vars), runs, { discard: true }))
    yield* settle(prepared)
  }))
  const made: BackToBack = { micros: all / runs, encodeMicros: profile.kind === "cpu" ? 0 : encoding / runs }
  return made
})

/** Runs in flight while decoding runs ahead. */
const inFlight = 3

/**
 * Host time in microseconds to submit a run, per run, while as many are in flight as in decoding. `backToBack` waits for none, and submits slower where the host is
 * ahead of the GPU: 429 launches of GLM took an H200's host 1.7 ms so, and 1.2 with three in flight (`docs/encoding.md`). 0 on a synchronous device, whose calls are the work.
 */
export const encoding = Effect.fn("Profiler.encoding")(function*(
  prepared: Pick<Prepared, "device" | "dispatches" | "run" | "vars">,
  given: Vars,
  runs: number
) {
  const { profile } = yield* Device
  if (profile.kind === "cpu") return 0
  const vars = ownOf(prepared, given)
  yield* settle(prepared)
  const reads: Array<Fiber.Fiber<void, DeviceError>> = []
  let total = 0
  for (let i = 0; i < inFlight + runs; i++) {
    if (reads.length === inFlight) yield* Fiber.join(reads.shift()!)
    const own = yield* micros(prepared.run(vars))
    if (i >= inFlight) total += own
    reads.push(yield* Effect.forkChild(settle(prepared), { startImmediately: true }))
  }
  yield* Effect.forEach(reads, (read) => Fiber.join(read), { discard: true })
  return total / runs
})

/** An idle H200 runs at a sixth of its clock frequency, and boosts it within half a second of work. */
const idleMicros = 1_000_000
/** Duration of the runs queued at once. */
const queuedMicros = 20_000

/** Warms up a GPU until its clock frequency is that of sustained load. Afterwards the program's outputs are those of a run with these variables. */
export const warm = Effect.fn("Profiler.warm")(function*(prepared: Prepared, given: Vars) {
  const { profile } = yield* Device
  if (profile.kind === "cpu") return
  const queued = (stepMicros: number): number => Math.max(1, Math.floor(queuedMicros / stepMicros))
  let runs = 1
  for (let spent = 0; spent < idleMicros;) {
    const step = (yield* backToBack(prepared, given, runs)).micros
    spent += step * runs
    runs = queued(step)
  }
})

// Samples of a short program, whose median counts.
const rounds = 7
const fewRounds = 3
/** From here on programs are long: relative noise is small, so fewer samples do. */
const longMicros = 20_000
/** From here on one sample of the device's timestamps is enough. */
const veryLongMicros = 60_000
/** The least total time of extra launches: well above the jitter of the clock and of waiting. */
const extraMicros = { host: 20_000, device: 1000 }
/** A GPU that idles no longer than this keeps its clock frequency. */
const awakeMicros = 4000
/** So many make a kernel of a microsecond measurable. */
const mostExtra = 400

/** Times every kernel. Afterwards the program's outputs are those of a run with these variables. */
export const profile = Effect.fn("Profiler.profile")(function*(prepared: Prepared, given: Vars) {
  const device = yield* Device
  const vars = ownOf(prepared, given)
  const { plan } = prepared
  yield* prepared.run(vars)
  const first = (yield* backToBack(prepared, vars, 2)).micros
  const count = first > longMicros ? fewRounds : rounds
  const groups = [...Map.groupBy(plan.launches.keys(), (i) => plan.launches[i]!.program).values()]
  const job: Job = { groups, count, stepMicros: first }
  const method = methodFor(prepared, device.profile.kind)
  const times = yield* (method === "each" ? timeEach : timeExtra)(prepared, vars, job)
  const steps = yield* Effect.replicateEffect(backToBack(prepared, vars, first > longMicros ? 2 : 16), fewRounds)
  const made: Profile = {
    method,
    kernels: groups.map((launches, i) => ({ launches, micros: times[i]! })),
    stepMicros: median(steps.map((step) => step.micros)),
    ...(prepared.timed === undefined || method !== "clock"
      ? {}
      : { deviceMicros: median(yield* Effect.replicateEffect(awake(prepared, vars, job), count)) })
  }
  return made
})

interface Job {
  /** Time of one run of the program. */
  readonly stepMicros: number
  /** Numbers of the launches of each program. */
  readonly groups: ReadonlyArray<ReadonlyArray<number>>
  readonly count: number
}

const methodFor = ({ timed }: Prepared, kind: "gpu" | "cpu"): Method =>
  kind === "cpu" ? "each" : timed === undefined ? "extra" : "clock"

/** The mean over the launches of a group of the median over the rounds. */
const meansOf = (rounds: ReadonlyArray<ReadonlyArray<number>>, { groups }: Job): ReadonlyArray<number> =>
  groups.map((group) => group.reduce((sum, i) => sum + median(rounds.map((round) => round[i]!)), 0) / group.length)

/** A run by the device's timestamps. An idle device lowers its clock frequency: warm-up runs precede the timed one. */
const awake = Effect.fnUntraced(function*(
  { run, timed }: Replay,
  vars: Vars,
  { stepMicros }: Pick<Job, "stepMicros">
) {
  yield* Effect.replicateEffect(run(vars), Math.round(awakeMicros / stepMicros), { discard: true })
  return yield* timed!(vars)
})

/** Microseconds of one run by the device's timestamps, the median of several; nothing where it has none. */
export const onDevice = Effect.fn("Profiler.onDevice")(function*(prepared: Prepared, given: Vars, count: number) {
  if (prepared.timed === undefined) return undefined
  const vars = ownOf(prepared, given)
  const { micros: stepMicros } = yield* backToBack(prepared, vars, 2)
  const times = yield* Effect.replicateEffect(awake(prepared, vars, { stepMicros }), count)
  return median(times)
})

const timeEach = Effect.fnUntraced(function*({ dispatches }: Prepared, vars: Vars, job: Job) {
  const device = yield* Device
  const singles = yield* Effect.forEach(dispatches, (dispatch) => device.plan([dispatch]))
  const round = Effect.forEach(singles, (single) => micros(single.run(vars)))
  return meansOf(yield* Effect.replicateEffect(round, job.count), job)
}, Effect.scoped)

const timeExtra = Effect.fnUntraced(function*(prepared: Prepared, vars: Vars, job: Job) {
  const { count, groups, stepMicros } = job
  const device = yield* Device
  const hasClock = prepared.timed !== undefined
  const isSure = hasClock && stepMicros > veryLongMicros
  const run = (replay: Replay) =>
    hasClock ? awake(replay, vars, job) : micros(Effect.andThen(replay.run(vars), settle(prepared)))
  if (hasClock) yield* warm(prepared, vars)
  const goal = hasClock ? extraMicros.device : Math.max(extraMicros.host, yield* run(prepared))
  return yield* Effect.forEach(
    groups,
    Effect.fnUntraced(function*(group) {
      const most = Math.ceil(mostExtra / group.length)
      for (let copies = 1;; copies = Math.min(most, 4 * copies)) {
        const longer = yield* device.plan(withExtra(prepared, group, copies))
        yield* run(longer)
        /** Total time of the copies. The device's frequency drifts, so the two runs are timed in alternation. */
        const difference = Effect.map(
          Effect.replicateEffect(
            Effect.zipWith(run(prepared), run(longer), (without, all) => all - without),
            isSure ? 1 : count
          ),
          median
        )
        // a second sample guards against an outlier from other load
        const found = yield* difference
        if (copies < most && found < goal) continue
        const again = copies < most && !isSure ? yield* difference : found
        if (copies < most && again < goal / 2) continue
        return Math.max(0, (found + again) / 2) / (copies * group.length)
      }
    }, Effect.scoped)
  )
})

/**
 * The program with `copies` more launches in front of each one of the group. Each copy reads the weights of another member in
 * rotation, because its own would be cached. Temporaries and outputs stay its own, and the original launch comes last, so the
 * program's values are right.
 */
export const withExtra = (
  { dispatches, plan }: Pick<Prepared, "dispatches" | "plan">,
  group: ReadonlyArray<number>,
  copies: number
): ReadonlyArray<Dispatch> => {
  const members = new Set(group)
  let next = group.length >> 1
  return dispatches.flatMap((own, i) => {
    if (!members.has(i)) return [own]
    const extra = Array.from({ length: copies }, () => {
      const to = group[next++ % group.length]!
      return borrow({ plan, dispatches }, i, to)
    })
    return [...extra, own]
  })
}

/** Launch `from` with the read-only host buffers of launch `to`, of the same program. */
const borrow = (
  { dispatches, plan }: Pick<Prepared, "dispatches" | "plan">,
  from: number,
  to: number
): Dispatch => {
  const own = dispatches[from]!
  const { bindings } = own.executable.program
  const isShared = (launch: number, at: number): boolean => plan.launches[launch]!.slots[at]!.kind === "buffer"
  const buffers = own.buffers.map((buffer, at): Binding =>
    bindings[at]!.access === "read" && isShared(from, at) && isShared(to, at) ? dispatches[to]!.buffers[at]! : buffer
  )
  const different = (bindings: ReadonlyArray<Binding>): number => new Set(bindings.map(bufferOf)).size
  // a device may refuse one buffer in two bindings: then an exact copy
  return different(buffers) < different(own.buffers) ? own : { executable: own.executable, buffers }
}
