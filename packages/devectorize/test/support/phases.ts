/** Random persistent launches. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import * as Phases from "@tg/core-uop/Phases"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import { type Launch, phases } from "../../src/Phases.ts"
import { gpu, linear } from "./stages.ts"

const { group, local, loop, unroll, upcast } = Opt
/** Elements of every value, and words from one to the next in the arena. */
export const length = 48
export const stride = 64

const param = (arena: Arena, slot: number): UOp => arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot })

const storing = (arena: Arena, value: (i: UOp) => UOp, size: UOp | number = length): UOp => {
  const i = Expr.range(arena, size, 0, "GLOBAL")
  const store = Expr.store(Expr.element(param(arena, 0), i), value(i))
  return arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, i])])
}

const read = (arena: Arena, slot: number, at: UOp): UOp =>
  Expr.load(Expr.element(param(arena, slot), Expr.floormod(at, length)))

/** `out[i] = x[i] / 2 + y[i + 7]`, of the first n elements or of all. */
export const map = (arena: Arena, size?: UOp): UOp =>
  storing(
    arena,
    (i) => Expr.add(Expr.mul(read(arena, 1, i), 0.5), read(arena, 2, Expr.add(i, 7))),
    size
  )

/** `out[i] = x[i] - y[i % 16]`: workgroups of 16 threads read the same of y. */
export const repeat = (arena: Arena): UOp =>
  storing(arena, (i) => Expr.sub(read(arena, 1, i), read(arena, 2, Expr.floormod(i, 16))))

/** `out[i] = sum over k < 16 of x[i + 5 k] / 16 - y[i]` */
export const sum = (arena: Arena): UOp => {
  const k = Expr.range(arena, 16, 1, "REDUCE")
  return storing(arena, (i) => {
    const x = read(arena, 1, Expr.add(i, Expr.mul(k, 5)))
    return Expr.sub(Expr.mul(Expr.reduce("ADD", x, [k]), 1 / 16), read(arena, 2, i))
  })
}

const kernels: ReadonlyArray<(arena: Arena) => readonly [UOp, ReadonlyArray<ReadonlyArray<Opt.Opt>>]> = [
  (arena) => [map(arena), [[], [local(0, 16)], [upcast(0, 4)], [local(0, 4), upcast(0, 2)], [loop(0, 48)]]],
  (arena) => [map(arena, Expr.variable(arena, "n", 1, length)), [[]]],
  (arena) => [sum(arena), [[], [group(1, 16)], [local(0, 2), group(1, 8)], [unroll(1, 4)], [upcast(0, 2), group(1, 4)]]]
]

const randoms = (seed: number): (below: number) => number => {
  let state = seed * 2654435761 >>> 0
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return (state >>> 8) % below
  }
}

/** Kernels, and the phases that they are. */
export interface Made {
  readonly linears: ReadonlyArray<UOp>
  readonly phases: ReadonlyArray<Phases.Phase>
}

/**
 * Phases of which each reads what two before it wrote, or one of two inputs (slots 0 and 1); value i is in the arena (slot 2), or in slot
 * 3 + i.
 */
export const random = (seed: number, count: number, subgroupSize: number | undefined): Made => {
  const pick = randoms(seed)
  const arena = new Arena()
  const place = [...[0, 1].map((slot) => ({ slot, offset: 0 }))]
  const made: Array<Phases.Phase> = []
  const linears: Array<UOp> = []
  for (let i = 0; i < count; i++) {
    const [kernel, all] = kernels[pick(kernels.length)]!(arena)
    const from = [place[pick(place.length)]!, i > 0 && pick(3) > 0 ? place.at(-1)! : place[pick(place.length)]!]
    const to = pick(3) === 0 ? { slot: 3 + i, offset: 0 } : { slot: 2, offset: stride * i }
    const own = [to, ...from]
    made.push({ kernel, slots: own.map(({ slot }) => slot), offsets: own.map(({ offset }) => offset) })
    linears.push(linear(kernel, all[pick(all.length)]!, { ...gpu, subgroupSize }))
    place.push(to)
  }
  return { linears, phases: made }
}

/** The same launch in two variants: each other phase has another kernel in the second one, of the same arguments. */
export const inVariants = ({ linears, phases }: Made): Made => {
  const own = phases.map((phase, i) => {
    if (i % 2 === 0) return [{ phase, linear: linears[i]! }]
    const kernel = repeat(phase.kernel.arena)
    return [
      { phase: { ...phase, variants: [0] }, linear: linears[i]! },
      { phase: { ...phase, kernel, variants: [1], instead: true }, linear: linear(kernel, [local(0, 16)], gpu) }
    ]
  }).flat()
  return { linears: own.map(({ linear }) => linear), phases: own.map(({ phase }) => phase) }
}

/** The slot of a part of the memory of words, and that of the counters of barriers behind them. */
const slotOf = (part: number): number => 2 + part
const counters = slotOf(Phases.waiting.parts)
const parts = Array.from({ length: Phases.waiting.parts }, (_, part) => part)

/** The same for launches whose words are awaited: each value is written whole, in a part of the memory of words, and some of them as they are, too, each in a slot of its own. Slot 0 has both inputs. */
export const randomAwaited = (
  seed: number,
  count: number,
  { part, subgroupSize }: { readonly part: number; readonly subgroupSize: number | undefined }
): Made => {
  const pick = randoms(seed)
  const arena = new Arena()
  // both inputs lie in one buffer
  const place = [0, stride].map((offset) => ({ slot: 0, offset }))
  const whole = [kernels[0]!, kernels[2]!]
  const made = Array.from({ length: count }, (_, i) => {
    const [kernel, all] = whole[pick(whole.length)]!(arena)
    const from = [place[pick(place.length)]!, i > 0 ? place.at(-1)! : place[pick(place.length)]!]
    const own = [{ slot: slotOf(part), offset: stride * i }, ...from]
    place.push(own[0]!)
    const phase = { kernel, slots: own.map(({ slot }) => slot), offsets: own.map(({ offset }) => offset) }
    return {
      linear: linear(kernel, all[pick(all.length)]!, { ...gpu, subgroupSize }),
      phase: pick(3) === 0 ? { ...phase, copies: [counters + 1 + i, -1, -1] } : phase
    }
  })
  return { linears: made.map(({ linear }) => linear), phases: made.map(({ phase }) => phase) }
}

/** The launch of `randomAwaited`, which clears the part behind its own. */
export const awaitedLaunchOf = (made: Made, part: number, options: Parameters<typeof launchOf>[1] = {}): UOp =>
  launchOf(made, { ...options, awaited: awaitedIn(part), meeting: counters, stagedBytes: 4 * length })

/** The slot of a part, of which the words of the next one are cleared. */
export const awaitedIn = (part: number): Phases.Awaited => [
  slotOf(part),
  slotOf((part + 1) % Phases.waiting.parts),
  Phases.waiting.part
]

/** The arguments of a launch that has a part: inputs, the memory of words, where other launches left some in other parts, and the counters of barriers. */
export const awaitedArguments = (made: Made, part: number): Map<number, Uint32Array> => {
  const inputs = argumentsOf(made)
  const words = parts.map((own) => new Uint32Array(Phases.waiting.part).map((_, i) => own === part ? 0 : i + 1))
  const both = new Uint32Array(2 * stride)
  for (const slot of [0, 1]) both.set(wordsOf(inputs.get(slot)!), stride * slot)
  const all = [
    both,
    new Uint32Array(length),
    ...words,
    new Uint32Array(Phases.meetingWords.count),
    ...made.phases.map(() => new Uint32Array(length))
  ]
  return new Map(all.entries())
}

/** What phases wrote as it is, beside the words of each value that is; none of others. */
export const copiesIn = (
  { phases }: Made,
  args: ReadonlyMap<number, Uint32Array>
): ReadonlyArray<Float32Array | undefined> =>
  phases.map(({ copies: [slot] = [] }) =>
    slot === undefined ? undefined : new Float32Array(args.get(slot)!.slice().buffer)
  )

/** The words of a part. */
export const partIn = (args: ReadonlyMap<number, Uint32Array>, part: number): Uint32Array => args.get(slotOf(part))!

/** What barriers count. */
export const countersIn = (args: ReadonlyMap<number, Uint32Array>): Uint32Array => args.get(counters)!

/** Values of a launch, from the words of its part. */
export const awaitedValues = (made: Made, words: Uint32Array): ReadonlyArray<Float32Array> =>
  made.phases.map(({ offsets: [first] }) =>
    new Float32Array(words.slice(first, first! + length).map((word) => word ^ Phases.veil).buffer)
  )

const wordsOf = ({ buffer, byteOffset, length }: Float32Array): Uint32Array =>
  new Uint32Array(buffer, byteOffset, length)

/** The launch of its phases, with as many words loaded ahead in front of each. */
export const launchOf = (
  made: Made,
  { ahead = 0, ...options }: Partial<Omit<Launch, "ahead">> & { readonly ahead?: number } = {}
): UOp =>
  phases(made.phases.map((phase, i) => ({ ...phase, linear: made.linears[i]! })), {
    caps: gpu,
    workgroups: 3,
    threads: 1,
    spins: 1000,
    coherent: Phases.crossing(made.phases),
    meeting: Phases.meetingSlot(made.phases),
    stagedBytes: 0,
    ahead: made.phases.map(() => ahead),
    ...options
  })

/** Inputs, and room for what is computed. */
export const argumentsOf = ({ phases }: Made): Map<number, Float32Array> => {
  const slots = [...Array(Phases.meetingSlot(phases) + 1).keys()]
  return new Map(slots.map((slot) => [
    slot,
    Float32Array.from(
      { length: slot === 2 ? stride * phases.length : length },
      (_, i) => slot < 2 ? (i * 13 + slot * 7) % 29 - 14 : 0
    )
  ]))
}

/** Values of what the kernels take. */
export const vars = { n: 29 }
