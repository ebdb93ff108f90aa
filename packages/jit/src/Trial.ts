/**
 * The trial of persistent launches: before one is used, it has to leave in memory what its phases leave as launches of their own. WGSL promises no order across workgroups, and drivers
 * compile such kernels with few registers left; a wrong value would be a wrong token, which nobody sees.
 */
import * as Phases from "@tg/core-uop/Phases"
import { argOf, slotOf, toposort, type UOp, type VarArg, varArg } from "@tg/core-uop/UOp"
import type { KernelStep } from "@tg/rangeify/Schedule"
import { type Binding, bufferOf, type DeviceError, type DeviceShape, type Dispatch } from "@tg/runtime/Device"
import { accessOf } from "@tg/core-uop/View"
import { Effect, type Scope } from "effect"
import type { Compiler } from "./Compiler.ts"
import type * as Plan from "./Plan.ts"

/** What compiles and runs. */
export interface Means {
  readonly device: DeviceShape
  readonly compiler: Compiler["Service"]
}

/** A persistent launch of a plan, the step that it was, and bound to memory. */
export interface Tried {
  readonly step: KernelStep
  readonly launch: Plan.Launch
  readonly dispatch: Dispatch
}

const wordBytes = 4
/**
 * Floats that count as the same, relative to the larger one: compilers contract products and sums as they like, and differently in a launch of several phases.
 */
const tolerance = 2e-3
/** Parts of the words that are written of a value that may differ: packed bytes, where such a float was between two of them. A place that was computed wrong had two thirds of its words wrong. */
const mostDiffering = 0.05

/** A value that phases write: its launch slot, its first word there, and its length in words. */
interface Place {
  readonly slot: number
  readonly offset: number
  readonly words: number
  /** The place of the same value that kernels one by one write. */
  readonly of?: Pick<Place, "slot" | "offset">
}

/**
 * Why a persistent launch is not to be used: it computes something else than its kernels one by one, or cannot be tried. `undefined` where it is as it should be.
 * It reads what it is bound to, and values of its own where other launches would have written; of the host's buffers it writes copies.
 */
export const failure = Effect.fn("Trial.failure")(
  (means: Means, tried: Tried) => Effect.scoped(failureOf(means, tried)),
  Effect.catchIf(
    (error) => error._tag === "CompileError" || !fatal.has(error.reason),
    (error) => Effect.succeed(`a persistent launch could not be tried: ${error.message}`)
  )
)

/** What is wrong with the device itself, or with what else is on it. */
const fatal: ReadonlySet<DeviceError["reason"]> = new Set(["DeviceLost", "OutOfMemory", "Unavailable"])

/** Why a launch is not to be used. */
const failureOf = Effect.fnUntraced(function*(means: Means, tried: Tried) {
  const { device } = means
  const phases = Phases.runningIn(tried.step.ast)
  const places = placesOf(phases, tried)
  const vars = middles(tried.step.ast)
  yield* fillInputs(device, phases, tried)
  const dispatch = yield* withoutHost(device, phases, tried)
  const read = Effect.forEach(places, (place) => readPlace(device, dispatch, place))
  const before = yield* read
  yield* run(device, [dispatch], vars)
  const found = (yield* read).map((words, i) => unveiled(tried, places[i]!.slot, words))
  const all = yield* oneByOne(means, { before, dispatch, name: tried.step.name, phases, places, vars })
  for (const [i, place] of places.entries()) {
    const want = all[places.indexOf(sourceOf(places, place))]!
    // a row of a cache is a small part of it
    const written = want.filter((word, at) => word !== before[i]![at] || found[i]![at] !== before[i]![at]).length
    const part = written === 0 ? 0 : differing(want, found[i]!).length / written
    if (part <= mostDiffering) continue
    return `${tried.step.name}, a persistent launch, left other values than its kernels do one by one: ` +
      `${(100 * part).toFixed(0)}% of the ${written} words of one of them differ`
  }
  return undefined
})

/** The place of what a place has, which is another one for a copy. */
const sourceOf = (places: ReadonlyArray<Place>, place: Place): Place =>
  places.find(({ offset, slot }) => slot === place.of?.slot && offset === place.of.offset) ?? place

/** Words as values: those that readers await are stored combined with another one. */
const unveiled = ({ step: { ast } }: Tried, slot: number, words: Uint32Array): Uint32Array => {
  const { awaited } = argOf(ast, "PERSISTENT")
  return slot === awaited?.[0] ? words.map((word) => word ^ Phases.veil) : words
}

/** The binding of a launch's slot. */
const bindingOf = ({ buffers, executable: { program } }: Dispatch, slot: number): Binding =>
  buffers[program.bindings.findIndex((binding) => binding.slot === slot)]!

/** Where a launch's values lie that its phases write, each once. */
const placesOf = (phases: ReadonlyArray<Phases.Phase>, { dispatch }: Tried): ReadonlyArray<Place> => {
  const written = Phases.written(phases)
  const found = new Map<string, Place>()
  for (const { copies, kernel, offsets, slots } of phases) {
    const sizes = Phases.sizes(kernel)
    for (const own of Phases.touched(kernel).keys()) {
      const [slot, offset] = [slots[own]!, offsets[own]!]
      if (!written.has(slot)) continue
      const key = `${slot} ${offset}`
      const bytes = sizes.get(own) ?? bindingOf(dispatch, slot).bytes - wordBytes * offset
      const words = Math.max(bytes / wordBytes, found.get(key)?.words ?? 0)
      found.set(key, { slot, offset, words })
      const copy = copies?.[own] ?? -1
      if (copy >= 0) found.set(`${copy} 0`, { slot: copy, offset: 0, words, of: { slot, offset } })
    }
  }
  return [...found.values()]
}

/** The variables of a kernel, each in the middle of its bounds. */
const middles = (ast: UOp): Readonly<Record<string, number>> =>
  Object.fromEntries(
    toposort(ast).flatMap((node): ReadonlyArray<readonly [string, number]> => {
      if (node.op !== "VAR") return []
      const { max, min, name }: VarArg = varArg(node)
      return [[name, Math.floor((min + max) / 2)]]
    })
  )

/** Words that are finite as floats and as halves, between 0.5 and 1 as these: the same for the same seed. */
export const wordsOf = (count: number, seed = 12345): Uint32Array => {
  let state = seed
  return new Uint32Array(count).map(() => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return (state & 0x83ff83ff) | 0x38003800
  })
}

const offsetOf = (place: Binding): number => "buffer" in place ? place.offset : 0

const write = (device: DeviceShape, place: Binding, words: Uint32Array): Effect.Effect<void, DeviceError> =>
  device.write(bufferOf(place), new Uint8Array(words.buffer, words.byteOffset, words.byteLength), offsetOf(place))

const readPlace = (device: DeviceShape, dispatch: Dispatch, { offset, slot, words }: Place) => {
  const place = bindingOf(dispatch, slot)
  return device.read(bufferOf(place), offsetOf(place) + wordBytes * offset, wordBytes * words).pipe(
    Effect.map((bytes) => new Uint32Array(bytes.slice().buffer))
  )
}

/** Slots of a kernel whose values say where it reads or writes: what is out of bounds there is not the same in a launch that binds more. */
export const placing = (kernel: UOp): ReadonlyArray<number> =>
  toposort(kernel).flatMap((node) =>
    node.op !== "INDEX" ? [] : toposort(accessOf(node).at).flatMap((value) => {
      const buffer = value.op === "LOAD" ? accessOf(value).buffer : undefined
      return buffer?.op === "PARAM" ? [slotOf(buffer)] : []
    })
  )

/** Fills the plan's blocks, where the launch reads what others write or phases write: what is places in memory with 0. */
const fillInputs = (
  device: DeviceShape,
  phases: ReadonlyArray<Phases.Phase>,
  { dispatch, launch, step }: Tried
): Effect.Effect<void, DeviceError> => {
  const written = Phases.written(phases)
  const places = new Set(phases.flatMap(({ kernel, slots }) => placing(kernel).map((own) => slots[own]!)))
  const numbers = dispatch.executable.program.bindings.map(({ slot }) => slot)
  const counters = Phases.meetingSlot(Phases.phasesOf(step.ast), argOf(step.ast, "PERSISTENT"))
  const meeting = launch.slots[numbers.indexOf(counters)]!
  const isMeeting = (slot: Plan.Slot): boolean =>
    slot.kind === "block" && meeting.kind === "block" && slot.block === meeting.block
  return Effect.forEach(numbers, (slot, i) => {
    const place = dispatch.buffers[i]!
    const own = launch.slots[i]!
    // counters and words that readers await are 0
    if (own.kind !== "block" || isMeeting(own)) return Effect.void
    const count = place.bytes / wordBytes
    return write(device, place, places.has(slot) && !written.has(slot) ? new Uint32Array(count) : wordsOf(count))
  }, { discard: true })
}

/** The launch with copies of the host's buffers that it writes. */
const withoutHost = Effect.fnUntraced(function*(
  device: DeviceShape,
  phases: ReadonlyArray<Phases.Phase>,
  { dispatch, launch }: Tried
) {
  const written = Phases.written(phases)
  const buffers = yield* Effect.forEach(dispatch.buffers, (place, i) => {
    const isWritten = written.has(dispatch.executable.program.bindings[i]!.slot)
    return launch.slots[i]!.kind === "buffer" && isWritten ? copyOf(device, place) : Effect.succeed(place)
  })
  return { ...dispatch, buffers }
})

const copyOf = Effect.fnUntraced(function*(device: DeviceShape, place: Binding) {
  const copy = yield* device.allocate(place.bytes, "trial")
  yield* device.write(copy, yield* device.read(bufferOf(place), offsetOf(place), place.bytes))
  return copy
})

const run = (
  device: DeviceShape,
  dispatches: ReadonlyArray<Dispatch>,
  vars: Readonly<Record<string, number>>
): Effect.Effect<void, DeviceError, Scope.Scope> =>
  Effect.flatMap(device.plan(dispatches), (replay) => replay.run(vars))

/** What lies behind so many bytes of a binding. */
const behind = (place: Binding, bytes: number): Binding =>
  bytes === 0 ? place : { buffer: bufferOf(place), offset: offsetOf(place) + bytes, bytes: place.bytes - bytes }

/** What the phases leave as launches of their own, each value in memory of its own: WebGPU binds no buffer as written and as read at once. */
const oneByOne = Effect.fnUntraced(function*(
  { compiler, device }: Means,
  { before, dispatch, name, phases, places, vars }: {
    readonly name: string
    readonly phases: ReadonlyArray<Phases.Phase>
    readonly places: ReadonlyArray<Place>
    readonly before: ReadonlyArray<Uint32Array>
    readonly dispatch: Dispatch
    readonly vars: Readonly<Record<string, number>>
  }
) {
  const own = yield* Effect.forEach(
    places,
    ({ words }, i) =>
      Effect.tap(device.allocate(wordBytes * words, "trial"), (buffer) => write(device, buffer, before[i]!))
  )
  const alone = yield* Effect.forEach(phases, ({ kernel, offsets, slots }) =>
    Effect.gen(function*() {
      const executable = yield* device.load(yield* compiler.compile(name, kernel))
      const buffers = executable.program.bindings.map(({ slot }) => {
        const at = places.findIndex((place) => place.slot === slots[slot] && place.offset === offsets[slot])
        return own[at] ?? behind(bindingOf(dispatch, slots[slot]!), wordBytes * offsets[slot]!)
      })
      return { executable, buffers }
    }))
  yield* run(device, alone, vars)
  return yield* Effect.forEach(
    own,
    (buffer) => Effect.map(device.read(buffer), (bytes) => new Uint32Array(bytes.slice().buffer))
  )
})

/** The places of words that differ: by more than floats of another contraction do. */
export const differing = (want: Uint32Array, found: Uint32Array): ReadonlyArray<number> => {
  const [a, b] = [want, found].map((words) => new Float32Array(words.buffer, words.byteOffset, words.length))
  const places: Array<number> = []
  want.forEach((word, at) => {
    if (word === found[at]) return
    const [x, y] = [a![at]!, b![at]!]
    // NaN is near nothing
    if (!(Math.abs(x - y) <= tolerance * Math.max(Math.abs(x), Math.abs(y)))) places.push(at)
  })
  return places
}
