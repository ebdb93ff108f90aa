/**
 * What the host does while work runs on a device: the calls into Dawn, the time inside and outside of them, and what is
 * allocated. Dawn's classes are instrumented while something is profiled and at no other time, so nothing is paid for it then.
 */
import * as Ticks from "@tg/node/Ticks"
import { PerformanceObserver } from "node:perf_hooks"
import { Effect } from "effect"

/** All calls of one method. */
export interface Calls {
  /** As WebGPU calls it: `setBindGroup`. */
  readonly name: string
  readonly calls: number
  readonly micros: number
}

/** What the host did while the work ran. */
export interface HostProfile {
  /** The method that took longest first. */
  readonly calls: ReadonlyArray<Calls>
  /** Of all turns of the event loop in which something was asked of Dawn: those calls, and everything else. */
  readonly hostMicros: number
  /** Of that, Dawn's own work between calls: what it does about commands that are done, before it says that a read is there. */
  readonly eventMicros: number
  /** Of that, what the thread was running: less where others use the processors too. */
  readonly cpuMicros: number
  /** Of all other turns: waiting for the device. */
  readonly waitMicros: number
  /** What was allocated from the first call of a turn to its end: in the JavaScript heap, and as memory of arrays. */
  readonly heapBytes: number
  readonly arrayBytes: number
  /** Garbage collections, and how long the thread stood still for them. */
  readonly collections: number
  readonly collectionMicros: number
}

/** What is asked of while kernels run. */
const instrumented = ["GPUDevice", "GPUQueue", "GPUCommandEncoder", "GPUComputePassEncoder", "GPUBuffer"] as const

type Method = (this: unknown, ...given: ReadonlyArray<unknown>) => unknown

/** A method that can be put in another's place. */
interface Place {
  readonly prototype: object
  readonly name: string
  readonly method: Method
}

const isMethod = (value: unknown): value is Method => typeof value === "function"

const placesOf = (classes: Readonly<Record<string, unknown>>): ReadonlyArray<Place> =>
  instrumented.flatMap((name): ReadonlyArray<Place> => {
    const found = classes[name]
    const prototype: unknown = typeof found === "function" ? found.prototype : undefined
    if (typeof prototype !== "object" || prototype === null) return []
    return Object.entries(Object.getOwnPropertyDescriptors(prototype)).flatMap(([own, { value, writable }]) =>
      own !== "constructor" && writable === true && isMethod(value) ? [{ prototype, name: own, method: value }] : []
    )
  })

const cpuMicros = (): number => {
  const { system, user } = process.threadCpuUsage()
  return system + user
}

/** Sums while something is profiled. */
class Meter {
  readonly calls = new Map<string, { calls: number; millis: number }>()
  count = 0
  hostMillis = 0
  eventMillis = 0
  waitMillis = 0
  cpuMicros = 0
  heapBytes = 0
  arrayBytes = 0
  /** Turns in which something was called, and those of them in which nothing was collected: only they tell what is allocated. */
  turns = 0
  growing = 0
  /** Calls in turns of the event loop that are over. */
  #counted = 0
  #memory = process.memoryUsage()
  #cpu = cpuMicros()
  #last = performance.now()
  /** Milliseconds of Dawn's events in this turn. */
  #events = 0

  /** What Dawn has the event loop run, timed. */
  event(run: () => void): void {
    const before = performance.now()
    run()
    this.#events += performance.now() - before
  }

  /** The method, with its calls counted and timed. */
  timed(name: string, method: Method): Method {
    const own = { calls: 0, millis: 0 }
    this.calls.set(name, own)
    const begin = (): void => {
      if (this.count++ === this.#counted) this.#first()
    }
    return function(...given) {
      begin()
      const before = performance.now()
      try {
        return Reflect.apply(method, this, given)
      } finally {
        own.millis += performance.now() - before
        own.calls++
      }
    }
  }

  /** Looks at the heap in front of the first call of a turn; what that takes is not the host's. */
  #first(): void {
    const [millis, cpu] = [performance.now(), cpuMicros()]
    this.#memory = process.memoryUsage()
    this.cpuMicros -= cpuMicros() - cpu
    this.hostMillis -= performance.now() - millis
  }

  /** A turn of the event loop is over. */
  turn(): void {
    const now = performance.now()
    const cpu = cpuMicros()
    if (this.count === this.#counted) this.waitMillis += now - this.#last
    else {
      this.hostMillis += now - this.#last
      this.eventMillis += this.#events
      this.cpuMicros += cpu - this.#cpu
      const { arrayBuffers, heapUsed } = process.memoryUsage()
      this.turns++
      if (heapUsed >= this.#memory.heapUsed && arrayBuffers >= this.#memory.arrayBuffers) {
        this.growing++
        this.heapBytes += heapUsed - this.#memory.heapUsed
        this.arrayBytes += arrayBuffers - this.#memory.arrayBuffers
      }
      this.#counted = this.count
    }
    this.#events = 0
    this.#cpu = cpuMicros()
    this.#last = performance.now()
  }
}

/** What a counted call takes more than one that is not: of its own time, and in all; and the bytes that counting it allocates. */
const overhead = (): { readonly inside: number; readonly all: number; readonly bytes: number } => {
  const rounds = 20_000
  const meter = new Meter()
  const nothing = meter.timed("nothing", () => undefined)
  // the first half lets the engine compile it
  for (let i = 0; i < rounds; i++) nothing()
  const own = meter.calls.get("nothing")!
  own.millis = 0
  const { heapUsed } = process.memoryUsage()
  const before = performance.now()
  for (let i = 0; i < rounds; i++) nothing()
  const all = (performance.now() - before) / rounds
  return { all, inside: own.millis / rounds, bytes: Math.max(0, process.memoryUsage().heapUsed - heapUsed) / rounds }
}

const microsPerMilli = 1000

/** Watches garbage collections; the effect in it says what there were. */
const collecting = Effect.acquireRelease(
  Effect.sync(() => {
    const found = { collections: 0, micros: 0 }
    const add = (durations: ReadonlyArray<number>): void => {
      found.collections += durations.length
      found.micros += durations.reduce((a, b) => a + b, 0) * microsPerMilli
    }
    const observer = new PerformanceObserver((list) => add(list.getEntries().map(({ duration }) => duration)))
    observer.observe({ entryTypes: ["gc"] })
    const end = (): typeof found => {
      add(observer.takeRecords().map(({ duration }) => duration))
      observer.disconnect()
      return found
    }
    return { end, observer }
  }),
  ({ observer }) => Effect.sync(() => observer.disconnect())
)

const profileOf = (
  meter: Meter,
  { all, bytes, inside }: ReturnType<typeof overhead>,
  collected: { readonly collections: number; readonly micros: number }
): HostProfile => ({
  calls: [...meter.calls]
    .filter(([, { calls }]) => calls > 0)
    .map(([name, { calls, millis }]) => ({
      name,
      calls,
      micros: Math.max(0, millis - calls * inside) * microsPerMilli
    }))
    .toSorted((a, b) => b.micros - a.micros),
  hostMicros: Math.max(0, meter.hostMillis - meter.count * all) * microsPerMilli,
  eventMicros: meter.eventMillis * microsPerMilli,
  cpuMicros: Math.max(0, meter.cpuMicros - meter.count * all * microsPerMilli),
  waitMicros: meter.waitMillis * microsPerMilli,
  heapBytes: Math.max(0, meter.heapBytes * meter.turns / Math.max(1, meter.growing) - meter.count * bytes),
  arrayBytes: meter.arrayBytes * meter.turns / Math.max(1, meter.growing),
  collections: collected.collections,
  collectionMicros: collected.micros
})

type Later = (run: () => void) => NodeJS.Immediate

/** Dawn asks for a turn of the event loop as long as something is awaited. */
const withEvents = (meter: Meter, later: Later): Later => (run) =>
  later(Ticks.isTick(run) ? Ticks.asTick(() => meter.event(run)) : run)

/** Runs the work, and tells what the host did for it. One at a time. */
export const profile = Effect.fn("HostCalls.profile")(
  function*<A, E, R>(work: Effect.Effect<A, E, R>) {
    const { classes } = yield* Effect.promise(() => import("@tg/runtime-webgpu/Node"))
    const places = placesOf(yield* classes)
    const cost = overhead()
    const meter = new Meter()
    let isOver = false
    const later = globalThis.setImmediate
    const turn = (): void => {
      if (isOver) return
      meter.turn()
      later(turn)
    }
    const put = Effect.sync(() => {
      for (const { method, name, prototype } of places) Reflect.set(prototype, name, meter.timed(name, method))
      Reflect.set(globalThis, "setImmediate", withEvents(meter, later))
      later(turn)
    })
    const takeBack = Effect.sync(() => {
      isOver = true
      meter.turn()
      Reflect.set(globalThis, "setImmediate", later)
      for (const { method, name, prototype } of places) Reflect.set(prototype, name, method)
    })
    const { end } = yield* collecting
    const made = yield* Effect.acquireUseRelease(put, () => work, () => takeBack)
    return [made, profileOf(meter, cost, end())] as const
  },
  Effect.scoped
)
