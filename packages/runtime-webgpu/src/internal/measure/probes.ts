/** What is run on a device to learn its quantities, one probe for each few of them. */
import type { Program } from "@tg/core-uop/Program"
import type { DeviceBuffer } from "@tg/runtime/Device"
import { Clock, Effect, type Scope } from "effect"
import { type Bench, confirmed, type Failure, Unmeasurable, type Vars } from "./bench.ts"
import * as Fits from "./fits.ts"
import * as Kernels from "./kernels.ts"

/** Quantities that a probe found, or why not. */
export type Findings = ReadonlyArray<Fits.Finding>

const small = 4096

/** The largest number of workgroups that takes hardly longer than `from` of them. */
const mostAtOnce = (
  bench: Bench,
  program: Program,
  { buffers, from, vars = {} }: {
    readonly buffers: ReadonlyArray<DeviceBuffer>
    readonly from: number
    readonly vars?: Vars
  }
): Effect.Effect<number, Failure> =>
  Effect.gen(function*() {
    const prepared = yield* bench.prepare([[program, buffers]])
    const steps = yield* bench.stepsFor(prepared, { ...vars, workgroups: from })
    const sample = (workgroups: number) =>
      Effect.map(
        bench.time(prepared, { ...vars, workgroups, steps }),
        (micros): Fits.Sample => ({ size: workgroups, micros })
      )
    const samples: [Fits.Sample, ...Array<Fits.Sample>] = [yield* sample(from)]
    for (;;) {
      const search = Fits.search(samples, Math.min(Kernels.mostWorkgroups, bench.device.profile.maxGrid))
      if ("next" in search) samples.push(yield* sample(search.next))
      else if (search.found !== undefined) return search.found
      else return yield* new Unmeasurable({ message: "more workgroups never took longer" })
    }
  }).pipe(Effect.scoped)

/** Keeps the device busy, so that its clocks are up when it is measured. */
const warm = (bench: Bench, prepared: Parameters<Bench["time"]>[0], vars: Vars): Effect.Effect<void, Failure> =>
  Effect.gen(function*() {
    const until = (yield* Clock.currentTimeMillis) + warmMillis
    while ((yield* Clock.currentTimeMillis) < until) yield* bench.time(prepared, vars)
  })
const warmMillis = 250

/** Processors: a workgroup more than there are has to share one, where both have arithmetic enough for all of it. */
export const processors = (bench: Bench): Effect.Effect<number, Failure> =>
  Effect.gen(function*() {
    const program = Kernels.spin(bench.threads)
    const out = yield* bench.memory(small)
    const prepared = yield* bench.prepare([[program, [out]]])
    const steps = yield* bench.stepsFor(prepared, { workgroups: 1 })
    yield* warm(bench, prepared, { workgroups: 64, steps })
    return yield* mostAtOnce(bench, program, { buffers: [out], from: 1 })
  }).pipe(Effect.scoped)

/** Workgroups of each processor with which arithmetic is at its best. */
const manyEach = 8

/** Operations in a microsecond, of all processors together. */
const operationsPerMicro = (bench: Bench, count: number): Effect.Effect<number | undefined, Failure> =>
  Effect.gen(function*() {
    const workgroups = Math.min(manyEach * count, bench.device.profile.maxGrid)
    const prepared = yield* bench.prepare([[Kernels.spin(bench.threads), [yield* bench.memory(small)]]])
    const micros = Fits.perUnit(...(yield* bench.twice(prepared, { workgroups })))
    return micros === undefined ? undefined : workgroups * bench.threads * Kernels.spinOperations / micros
  }).pipe(Effect.scoped)

const vectorBytes = 16
const leastWindow = 2 ** 20
/** What runs kernels: a GPU, or a processor that plays one. */
export type Kind = "hardware" | "software"

/** Windows that no cache holds; on a processor that plays a GPU a smaller one has to do. */
const mostWindow = { hardware: 2 ** 29, software: 2 ** 26 } as const

/** A part of memory to read. */
export interface Window {
  readonly buffer: DeviceBuffer
  readonly bytes: number
  readonly kind: Kind
}

/** As large a window as there is room for. */
export const window = (
  bench: Bench,
  kind: Kind
): Effect.Effect<Window, Failure, Scope.Scope> => {
  const { maxBindingBytes, maxBufferBytes, memoryBytes = Infinity } = bench.device.profile
  const of = (bytes: number): Effect.Effect<Window, Failure, Scope.Scope> =>
    bytes < leastWindow
      ? Effect.fail(new Unmeasurable({ message: `${leastWindow} bytes in one binding are needed` }))
      : Effect.map(bench.memory(bytes), (buffer): Window => ({ buffer, bytes, kind })).pipe(
        Effect.catchIf(
          (error) => error._tag === "DeviceError" && error.reason === "OutOfMemory",
          () => of(bytes / 2)
        )
      )
  return of(2 ** Math.floor(Math.log2(Math.min(mostWindow[kind], maxBindingBytes, maxBufferBytes, memoryBytes / 4))))
}

const ringGroups = 256

/** Lays a ring through the first bytes of a buffer. */
const layRing = (bench: Bench, buffer: DeviceBuffer, bytes: number): Effect.Effect<void, Failure> =>
  Effect.gen(function*() {
    const { replay } = yield* bench.prepare([[Kernels.ring, [buffer]]])
    yield* replay.run({ workgroups: ringGroups, lines: bytes / Kernels.lineBytes })
  }).pipe(Effect.scoped)

/** Vectors that a thread of `read` asks for at once. */
const loads = 4
/** Windows that all workgroups of a launch read again: one that a processor's own cache holds, if it has one, larger ones, and one that is left to the shared cache. */
const ownWindow = 2 ** 15
const largerWindows = [2 ** 16, 2 ** 17, 2 ** 18, 2 ** 19]
const sharedWindow = 2 ** 22
/** A processor's own cache is faster by this factor at least. */
const isNoticed = 1.5
/** So many times the shortest run that tells anything: then what any launch takes is no part of it. */
const longer = 8

/** Cores of a processor have caches of their own, so each likes places in a row. */
const isAlone = ({ kind }: Window): boolean => kind === "software"

/** Bytes in a microsecond, with so many workgroups on each processor that read around a window. */
const readingSpeed = (
  bench: Bench,
  from: DeviceBuffer,
  { count, ...how }: Omit<Kernels.Reading, "threads"> & { readonly count: number }
) =>
  Effect.gen(function*() {
    const program = Kernels.read({ ...how, threads: bench.threads })
    const prepared = yield* bench.prepare([[program, [from, yield* bench.memory(small)]]])
    return Effect.fnUntraced(function*(each: number, window: number) {
      const workgroups = Math.min(each * count, bench.device.profile.maxGrid)
      const perStep = workgroups * bench.threads * how.loads * vectorBytes
      const vars = { workgroups, mask: window / vectorBytes - 1, zero: 0 }
      // around the whole window at least
      const steps = Math.max(longer * (yield* bench.stepsFor(prepared, vars)), Math.round(window / perStep))
      return steps * perStep / (yield* bench.time(prepared, { ...vars, steps }))
    })
  })

/** What is read again, by the speeds of both caches: half of it from each. A cache is no slower than what it caches. */
const ofCaches = (own: number, shared: number, memory: number): number =>
  Math.max(1, 2 / (1 / own + 1 / shared) / memory)

/** Speed of memory, with as many threads as there is room for; of arithmetic beside it. */
export const throughput = (bench: Bench, memory: Window, count: number): Effect.Effect<Findings, Failure> =>
  Effect.gen(function*() {
    const speed = yield* readingSpeed(bench, memory.buffer, { alone: isAlone(memory), loads, waits: false, count })
    const bytesPerMicro = Math.max(
      ...yield* Effect.forEach([4, manyEach, 2 * manyEach], (each) => speed(each, memory.bytes))
    )
    const operations = yield* operationsPerMicro(bench, count)
    return [
      Fits.finding("bytesPerMicro", bytesPerMicro),
      Fits.finding("operationsPerByte", operations === undefined ? undefined : operations / bytesPerMicro)
    ]
  }).pipe(Effect.scoped)

/** Speed of caches beside that of memory, in bytes a microsecond, and what a processor's own one holds: every workgroup reads the whole of a window. */
export const caches = (
  bench: Bench,
  { bytesPerMicro, count }: { readonly bytesPerMicro: number; readonly count: number }
): Effect.Effect<Findings, Failure> =>
  Effect.gen(function*() {
    const speed = yield* readingSpeed(bench, yield* bench.memory(sharedWindow), {
      alone: true,
      loads,
      waits: false,
      count
    })
    const of = (window: number) => speed(manyEach, window)
    const [own, shared] = [yield* of(ownWindow), yield* of(sharedWindow)]
    // the geometric mean of both speeds tells which of the caches gives what is read
    const larger = own < isNoticed * shared
      ? []
      : yield* Effect.filter(largerWindows, (window) => Effect.map(of(window), (found) => found * found > own * shared))
    return [
      Fits.finding("cachedPerByte", ofCaches(own, shared, bytesPerMicro)),
      Fits.finding("ownCacheBytes", Math.max(ownWindow, ...larger))
    ]
  }).pipe(Effect.scoped)

/** Vectors that each thread waits for at once while threads are counted: as many as usual code has. */
const usualLoads = 2
const eachProcessor = [1, 2, 4, 8]

/** Threads with which memory is busy, each of which waits for few loads at a time. */
export const saturation = (bench: Bench, memory: Window, count: number): Effect.Effect<Findings, Failure> =>
  Effect.gen(function*() {
    const speed = yield* readingSpeed(bench, memory.buffer, {
      alone: isAlone(memory),
      loads: usualLoads,
      waits: true,
      count
    })
    const curve = yield* Effect.forEach(
      eachProcessor,
      (each) =>
        Effect.map(
          speed(each, memory.bytes),
          (bytesPerMicro) => ({ threads: each * count * bench.threads, bytesPerMicro })
        )
    )
    return [Fits.finding("saturatingThreads", Fits.saturation(curve))]
  }).pipe(Effect.scoped)

/** Sizes of windows for latencies, in powers of two. */
const leastCached = 2 ** 16
/** How long a load takes whose place another load tells, around windows of all sizes. */
export const chase = (bench: Bench, { buffer, bytes }: Window): Effect.Effect<Findings, Failure> =>
  Effect.gen(function*() {
    const prepared = yield* bench.prepare([[Kernels.chase, [buffer, yield* bench.memory(small)]]])
    const curve: Array<Fits.Sample> = []
    for (let size = leastCached; size <= bytes; size *= 2) {
      yield* layRing(bench, buffer, size)
      const micros = Fits.perUnit(...(yield* bench.twice(prepared)))
      if (micros !== undefined) curve.push({ size, micros })
    }
    const [first, ...rest] = curve
    if (first === undefined) return [Fits.finding("loadMicros", undefined)]
    const found = Fits.latencies([first, ...rest])
    const flat = "memory was not slower than caches"
    return [
      Fits.finding("loadMicros", found.loadMicros),
      Fits.finding("cachedLoadMicros", found.cachedLoadMicros, flat),
      Fits.finding("cacheBytes", found.cacheBytes, flat)
    ]
  }).pipe(Effect.scoped)

const links = { few: 16, many: 144 } as const
const linkBuffers = 4

/** Launches that wait for each other: on the device, and on the host that encodes them, each with its own pipeline and bind group. */
export const launches = (bench: Bench, count: number): Effect.Effect<Findings, Failure> =>
  Effect.gen(function*() {
    const workgroups = Math.min(count, bench.device.profile.maxGrid)
    const buffers = Math.min(linkBuffers, bench.device.profile.maxStorageBuffers)
    const held = yield* Effect.replicateEffect(bench.memory(workgroups * 128), buffers)
    const [first, second, ...others] = held as [DeviceBuffer, DeviceBuffer, ...Array<DeviceBuffer>]
    const there = [Kernels.link("there", buffers), [first, second, ...others]] as const
    const back = [Kernels.link("back", buffers), [second, first, ...others]] as const
    const chain = (length: number) => bench.prepare(Array.from({ length }, (_, i) => i % 2 === 0 ? there : back))
    const [few, many] = [yield* chain(links.few), yield* chain(links.many)]
    const slope = (a: number, b: number) =>
      Fits.perUnit({ size: links.few, micros: a }, { size: links.many, micros: b })
    const vars = { workgroups }
    return [
      Fits.finding("dispatchMicros", slope(yield* bench.time(few, vars), yield* bench.time(many, vars))),
      Fits.finding("encodeMicros", slope(yield* bench.encode(few, vars), yield* bench.encode(many, vars)))
    ]
  }).pipe(Effect.scoped)

/** Lines of the ring that waiting workgroups follow, which the shared cache holds. */
const heldLines = 4096
const heldThreads = 64
const heldBytes = 16384
const heldValues = 96
const smallThreads = 32

/** How much of a processor's threads, workgroups, workgroup memory and registers there is, by how many workgroups run at once. */
export const residency = (bench: Bench, count: number): Effect.Effect<Findings, Failure> =>
  Effect.gen(function*() {
    const { maxWorkgroupBytes, maxWorkgroupThreads } = bench.device.profile
    const ring = yield* bench.memory(heldLines * Kernels.lineBytes)
    yield* layRing(bench, ring, heldLines * Kernels.lineBytes)
    const buffers = [ring, yield* bench.memory(small)]
    /** Workgroups of one processor at a time. */
    const each = (held: Kernels.Held): Effect.Effect<number | string, Failure> =>
      mostAtOnce(bench, Kernels.resident(held), { buffers, from: count, vars: { mask: heldLines - 1 } }).pipe(
        Effect.map((found): number | string => Math.max(1, Math.round(found / count))),
        Effect.catchTag("Unmeasurable", ({ message }) => Effect.succeed(message))
      )
    const sized = (quantity: Fits.Measurable, found: number | string, size: number): Fits.Finding =>
      typeof found === "string" ? { quantity, problem: found } : Fits.finding(quantity, found * size)
    const threads = Math.min(heldThreads, maxWorkgroupThreads)
    const workgroupBytes = Math.min(heldBytes, maxWorkgroupBytes)
    const findings: Array<Fits.Finding> = [
      sized("residentThreads", yield* each({ threads: bench.threads }), bench.threads),
      sized("residentWorkgroups", yield* each({ threads: Math.min(smallThreads, maxWorkgroupThreads) }), 1),
      sized("registerBytes", yield* each({ threads, values: heldValues }), threads * heldValues * 4)
    ]
    if (workgroupBytes >= heldBytes) {
      findings.push(sized("residentBytes", yield* each({ threads, workgroupBytes }), workgroupBytes))
    }
    return findings
  }).pipe(Effect.scoped)

/** What threads of a workgroup take to wait for each other, and of a subgroup to add up. */
export const together = (bench: Bench, hasSubgroups: boolean): Effect.Effect<Findings, Failure> =>
  Effect.gen(function*() {
    const out = yield* bench.memory(small)
    const each = Effect.fnUntraced(function*(program: Program) {
      return Fits.perUnit(...(yield* bench.twice(yield* bench.prepare([[program, [out]]]))))
    })
    const fits = bench.device.profile.maxWorkgroupBytes >= 4 * bench.threads
    const none = "the device has not enough workgroup memory"
    return [
      Fits.finding(
        "barrierMicros",
        fits ? yield* each(Kernels.barriers(bench.threads)) : undefined,
        fits ? undefined : none
      ),
      Fits.finding(
        "stageMicros",
        fits ? yield* each(Kernels.stages(bench.threads)) : undefined,
        fits ? undefined : none
      ),
      hasSubgroups
        ? Fits.finding("subgroupReduceMicros", yield* each(Kernels.subgroupSums))
        : Fits.finding("subgroupReduceMicros", undefined, "the device has no subgroups")
    ]
  }).pipe(Effect.scoped)

/**
 * Waits that a workgroup gives up after: some hundredths of a second, far below what a driver takes for a hang. A processor waits for less
 * at a time, and has other programs to run meanwhile.
 */
const spins = { hardware: 100_000, software: 2_000_000 } as const
/** Values to read behind barriers in all, and how long that may take. */
const litmusValues = { hardware: 1e9, software: 1e6 } as const
const litmusMicros = 200_000
const fewRounds = 64

/** A program of barriers with its buffers, which are empty when a run of it begins: microseconds, and what it left in `litmusWords`. */
const barrierProgram = (bench: Bench, program: Program, workgroups: number, kind: Kind) =>
  Effect.gen(function*() {
    const state = yield* bench.memory(4 * Kernels.litmusWords.count)
    const stored = yield* bench.memory(2 * 4 * workgroups * bench.threads)
    const prepared = yield* bench.prepare([[program, [stored, state]]])
    return Effect.fnUntraced(function*(steps: number) {
      yield* bench.device.write(state, new Uint8Array(4 * Kernels.litmusWords.count))
      const micros = yield* bench.once(prepared, { workgroups, steps, spins: spins[kind] })
      const bytes = yield* bench.device.read(state)
      const words = new Uint32Array(bytes.slice().buffer)
      return { micros, stale: words[Kernels.litmusWords.stale]!, gaveUp: words[Kernels.litmusWords.gaveUp] !== 0 }
    })
  })

/** Runs the litmus program with a number of workgroups. */
const litmus = (
  bench: Bench,
  workgroups: number,
  { kind, values }: { readonly kind: Kind; readonly values: number }
): Effect.Effect<Fits.Litmus, Failure> =>
  Effect.gen(function*() {
    const run = yield* barrierProgram(bench, Kernels.litmus(bench.threads), workgroups, kind)
    const perStep = workgroups * bench.threads * Kernels.litmusReads
    const found = Effect.fnUntraced(function*(steps: number) {
      return { ...(yield* run(steps)), workgroups, values: steps * perStep }
    })
    // the first run compiles, and shows whether it is safe to run longer
    const { micros: _, ...first } = yield* found(fewRounds)
    if (first.gaveUp || first.stale > 0) return first
    const { micros } = yield* found(fewRounds)
    const affordable = litmusMicros / Math.max(1, micros) * fewRounds
    const { micros: __, ...long } = yield* found(
      Math.max(2 * fewRounds, Math.round(Math.min(values / perStep, affordable)))
    )
    return long
  }).pipe(Effect.scoped)

/** Rounds of barriers that are timed, beside `fewRounds`. */
const manyRounds = { hardware: 1024, software: 256 } as const

/** Microseconds of one barrier among so many workgroups; none where they did not all run at once. */
const meeting = (bench: Bench, workgroups: number, kind: Kind): Effect.Effect<number | undefined, Failure> =>
  Effect.gen(function*() {
    const run = yield* barrierProgram(bench, Kernels.meetings(bench.threads), workgroups, kind)
    const first = yield* run(fewRounds)
    if (first.gaveUp) return undefined
    const sample = (size: number) =>
      Effect.map(confirmed(Effect.map(run(size), ({ micros }) => micros)), (micros): Fits.Sample => ({ size, micros }))
    return Fits.perUnit(yield* sample(fewRounds), yield* sample(manyRounds[kind]))
  }).pipe(Effect.scoped)

/** What the litmus program found. */
export interface GridBarriers {
  readonly tried: ReadonlyArray<Fits.Litmus>
  readonly findings: Findings
}

/** Workgroups of each processor in a launch of several phases, at the most. */
const mostBeside = 2

/**
 * Tries barriers across the grid: two workgroups, one for each processor, and as many as half of what processors hold. What one takes is
 * measured without the reads of the litmus program, among as many workgroups as kernels have.
 */
export const gridBarriers = (
  bench: Bench,
  { kind, processors, residentThreads }: {
    readonly kind: Kind
    readonly processors: number
    readonly residentThreads: number
  }
): Effect.Effect<GridBarriers, Failure> =>
  Effect.gen(function*() {
    const beside = Math.max(1, Math.floor(residentThreads / bench.threads / 2))
    const counts = [...new Set([2, processors, 2 * processors, beside * processors])]
      .filter((count) => count >= 2 && count <= bench.device.profile.maxGrid && count <= beside * processors)
      .toSorted((a, b) => a - b)
    const tried: Array<Fits.Litmus> = []
    const micros: Array<number> = []
    for (const count of counts) {
      // the largest number is the one that kernels would take
      const values = count === counts.at(-1) ? litmusValues[kind] : litmusValues[kind] / counts.length
      const result = yield* litmus(bench, count, { kind, values })
      tried.push(result)
      if (result.gaveUp || result.stale > 0) break
      const each = count <= mostBeside * processors ? yield* meeting(bench, count, kind) : undefined
      if (each !== undefined) micros.push(each)
    }
    const why = tried.length === 0 ? "only one workgroup runs at a time" : "no barrier held"
    const found = micros.length === 0 ? undefined : Math.max(...micros)
    return { tried, findings: [Fits.finding("gridBarrierMicros", found, why)] }
  })
