/**
 * Plans whose launches share bind groups: all temporaries lie in one block, and slices of one host buffer are bound as that buffer.
 * The offsets of arguments are constants in a program's code. Equal places therefore get equal offsets, so that the blocks of a
 * model share programs.
 *
 * WebGPU rejects a buffer that is writable in one binding and bound in another, even if the kernel uses only one of them. So a
 * buffer that any launch writes has one binding, writable for all. Only read-only buffers beyond the limit of a binding have several,
 * one for each window.
 */
import type { Binding, Placement, Program } from "@tg/core-uop/Program"
import { argOf } from "@tg/core-uop/UOp"
import type { Ref, Schedule, Slice, Step } from "@tg/rangeify/Schedule"
import { Context } from "effect"
import type * as Plan from "./Plan.ts"

/** The granularity of bind groups: one per launch, or one shared by the launches of a block of the model. */
export type BindGroups = "dispatch" | "block"

/** The default for programs of many short launches. */
export const BindGroups = Context.Reference<BindGroups>("@tg/jit/BindGroups", { defaultValue: () => "dispatch" })

/** The programs, host buffers and limits of a plan. */
export interface Setting {
  readonly programOf: (step: Step) => Program
  /** The host's buffers by id. */
  readonly parts: ReadonlyMap<number, Slice>
  readonly place: (program: Program, placement: Placement) => Program | undefined
  readonly maxStorageBuffers: number
  readonly maxBindingBytes: number
}

/** Alignment in bytes of arguments in shared bindings: vectors of four words. */
export const alignment = 16
/** Alignment of temporaries in bytes: whole cache lines. */
const temporaryAlignment = 256
/** Largest growth in the number of programs: beyond it, code costs more than bind groups save. */
const mostCopies = 1.25

/** Launches that bind a buffer in one place before it counts as common to all blocks. */
const fewestCommon = 3

/** An argument of a launch. */
interface Argument {
  /** The program's argument: equal for launches of one program. */
  readonly place: string
  readonly access: Binding["access"]
  readonly ref: Ref
}

interface Launched {
  readonly step: Step
  readonly program: Program
  /** Number of the program. */
  readonly number: number
  readonly args: ReadonlyArray<Argument>
}

const roundUp = (bytes: number, multiple: number): number => Math.ceil(bytes / multiple) * multiple

const launchedOf = ({ steps }: Schedule, programOf: Setting["programOf"]): ReadonlyArray<Launched> => {
  const numbers = new Map<Program, number>()
  return steps.map((step) => {
    const program = programOf(step)
    const number = numbers.get(program) ?? numbers.size
    numbers.set(program, number)
    const args = program.bindings.map(({ access, slot }, i) => ({
      place: `${number}:${i}`,
      access,
      ref: step.args[slot]!
    }))
    return { step, program, number, args }
  })
}

/** Live range of a temporary, and the arguments it is bound to. */
interface Life {
  readonly from: number
  to: number
  readonly places: Array<string>
}

const livesOf = ({ results, steps }: Schedule, launched: ReadonlyArray<Launched>): ReadonlyMap<number, Life> => {
  const lives = new Map<number, Life>()
  const touch = (id: number, step: number): Life => {
    const life = lives.get(id) ?? { from: step, to: step, places: [] }
    life.to = step
    lives.set(id, life)
    return life
  }
  for (const [i, { args, step }] of launched.entries()) {
    for (const ref of step.args) if (ref.kind === "temporary") touch(ref.id, i)
    for (const { place, ref } of args) if (ref.kind === "temporary") touch(ref.id, i).places.push(place)
  }
  for (const id of results) if (lives.has(id)) touch(id, steps.length)
  return lives
}

/** The block of all temporaries, and their offsets. */
interface Arena {
  readonly bytes: number
  readonly offsetOf: ReadonlyMap<number, number>
}

/** A temporary takes the offset that an equal place had first, if that is free over its live range; else the end of the block. */
const arenaOf = (schedule: Schedule, launched: ReadonlyArray<Launched>): Arena => {
  const lives = livesOf(schedule, launched)
  const known = new Map<string, number>()
  const offsetOf = new Map<number, number>()
  let placed: Array<{ readonly to: number; readonly offset: number; readonly end: number }> = []
  let bytes = 0
  for (const [id, { from, places, to }] of [...lives].sort(([, a], [, b]) => a.from - b.from)) {
    const size = roundUp(schedule.temporaries[id]!.bytes, temporaryAlignment)
    placed = placed.filter((other) => other.to >= from)
    const isFree = (offset: number): boolean =>
      placed.every((other) => offset + size <= other.offset || other.end <= offset)
    const offset = places.map((place) => known.get(place)).find((at) => at !== undefined && isFree(at)) ?? bytes
    bytes = Math.max(bytes, offset + size)
    for (const place of places) if (!known.has(place)) known.set(place, offset)
    offsetOf.set(id, offset)
    placed.push({ to, offset, end: offset + size })
  }
  return { bytes, offsetOf }
}

/** The binding of an argument, and its offset in it in bytes. */
interface Bound {
  readonly key: string
  readonly slot: Plan.Slot
  readonly offset: number
}

const arenaKey = "arena"

/** Numbers of the device's buffers that launches write. */
const writtenIn = (launched: ReadonlyArray<Launched>, { parts }: Setting): ReadonlySet<number | undefined> =>
  new Set(
    launched.flatMap(({ args }) =>
      args.flatMap(({ access, ref }) =>
        access === "write" && ref.kind === "buffer" ? [parts.get(argOf(ref.node, "BUFFER").id)?.whole] : []
      )
    )
  )

/**
 * The window of a read-only buffer that exceeds the limit of a binding as a whole: several windows are several bindings.
 */
const windowOf = (id: number, window: Ref["window"]): Bound => {
  const slot = window === undefined ? { kind: "buffer", id } as const : { kind: "buffer", id, window } as const
  return { key: `${id}+${window?.offset ?? 0}:${window?.bytes ?? ""}`, slot, offset: 0 }
}

/** What is bound for an argument, or why it cannot be shared. */
const boundOf = (
  ref: Ref,
  { arena, written }: { readonly arena: Arena; readonly written: ReturnType<typeof writtenIn> },
  { maxBindingBytes, parts }: Setting
): Bound | string => {
  const shift = ref.window?.offset ?? 0
  if (ref.kind === "temporary") {
    const slot = { kind: "block", block: 0 } as const
    return arena.bytes > maxBindingBytes
      ? `temporary memory takes ${arena.bytes} bytes, and a binding ${maxBindingBytes}`
      : { key: arenaKey, slot, offset: arena.offsetOf.get(ref.id)! + shift }
  }
  if (ref.kind === "param") throw new Error(`parameter ${ref.slot} of a function has no argument`)
  const { id } = argOf(ref.node, "BUFFER")
  const part = parts.get(id)
  if (part === undefined) return `buffer ${id} is not there`
  if (part.bytes > maxBindingBytes) {
    return written.has(part.whole)
      ? `buffer ${id} is written and takes ${part.bytes} bytes, and a binding ${maxBindingBytes}`
      : windowOf(id, ref.window)
  }
  if ((part.offset + shift) % alignment !== 0) return `buffer ${id} begins at ${part.offset + shift}`
  return { key: `${part.whole}`, slot: { kind: "buffer", id, whole: true }, offset: part.offset + shift }
}

/** Binding numbers of the buffers (`numberOf`), and the access of each binding (`group`). */
interface Numbers {
  readonly group: ReadonlyArray<Binding["access"]>
  readonly numberOf: ReadonlyMap<string, number>
}

/** Buffers that most launches of some program bind in one place: not private to a block. */
const commonOf = (
  launched: ReadonlyArray<Launched>,
  bound: ReadonlyArray<ReadonlyArray<Bound>>
): ReadonlySet<string> => {
  const inPlaces = launched.flatMap(({ args }, i) => args.map(({ place }, j) => ({ place, key: bound[i]![j]!.key })))
  const common = new Set<string>()
  for (const all of Map.groupBy(inPlaces, ({ place }) => place).values()) {
    for (const [key, own] of Map.groupBy(all, (each) => each.key)) {
      if (own.length >= fewestCommon && own.length > all.length / 2) common.add(key)
    }
  }
  return common
}

/**
 * A colouring: buffers of one launch get different numbers. Common buffers get numbers of their own while there are any, so that
 * they never force another bind group. Others take the number that their place had before, or the first free one.
 */
const numbersOf = (
  launched: ReadonlyArray<Launched>,
  bound: ReadonlyArray<ReadonlyArray<Bound>>,
  most: number
): Numbers => {
  const written = new Set(
    launched.flatMap(({ args }, i) => args.flatMap(({ access }, j) => access === "write" ? [bound[i]![j]!.key] : []))
  )
  const beside = new Map<string, Set<string>>()
  const places = new Map<string, Set<string>>()
  for (const [i, { args }] of launched.entries()) {
    for (const [j, { key }] of bound[i]!.entries()) {
      const all = beside.get(key) ?? new Set()
      for (const other of bound[i]!) all.add(other.key)
      beside.set(key, all)
      places.set(key, (places.get(key) ?? new Set()).add(args[j]!.place))
    }
  }
  const common = commonOf(launched, bound)
  const group: Array<Binding["access"]> = ["write"]
  const numberOf = new Map([[arenaKey, 0]])
  const ofCommon = new Set<number>()
  const known = new Map<string, number>()
  for (const [key, own] of places) {
    if (key === arenaKey) continue
    const access = written.has(key) ? "write" : "read"
    const taken = new Set([0, ...[...beside.get(key)!].map((other) => numberOf.get(other))])
    const isFree = (number: number): boolean => group[number] === access && !taken.has(number)
    const isAlone = common.has(key) && group.length < most
    const hints = [...own].flatMap((place) => known.get(place) ?? [])
    const choices = isAlone ? [] : [...hints, ...group.keys()].filter(isFree)
    const number = choices.find((each) => !ofCommon.has(each)) ??
      (group.length < most ? undefined : choices[0]) ?? group.push(access) - 1
    numberOf.set(key, number)
    if (isAlone) ofCommon.add(number)
    for (const place of own) if (!known.has(place)) known.set(place, number)
  }
  return { group, numberOf }
}

/** The plan of a schedule with shared bindings, or why there is none: limits of the device, or a program's code. */
export const plan = (schedule: Schedule, setting: Setting): Plan.ExecutionPlan | string => {
  const launched = launchedOf(schedule, setting.programOf)
  const arena = arenaOf(schedule, launched)
  const written = writtenIn(launched, setting)
  const bound: Array<ReadonlyArray<Bound>> = []
  for (const { args } of launched) {
    const own: Array<Bound> = []
    for (const { ref } of args) {
      const found = boundOf(ref, { arena, written }, setting)
      if (typeof found === "string") return found
      own.push(found)
    }
    bound.push(own)
  }
  const { group, numberOf } = numbersOf(launched, bound, setting.maxStorageBuffers)
  if (group.length > setting.maxStorageBuffers) {
    return `a group has ${group.length} buffers, and the device binds ${setting.maxStorageBuffers}`
  }
  const vars = [...new Set(launched.flatMap(({ program }) => program.vars))].sort()
  const programs: Array<Program> = []
  const copies = new Map<string, number>()
  const launches: Array<Plan.Launch> = []
  for (const [i, { number: original, program, step }] of launched.entries()) {
    const own = bound[i]!
    const places = own.map(({ key, offset }) => ({ at: numberOf.get(key)!, offset }))
    const copy = JSON.stringify([original, places])
    if (!copies.has(copy)) {
      const placed = setting.place(program, { group, places, vars })
      if (placed === undefined) return `${step.name} does not say where its arguments are used`
      copies.set(copy, programs.push(placed) - 1)
    }
    const number = copies.get(copy)!
    const slots = programs[number]!.bindings.map(({ at }) => own[places.findIndex((each) => each.at === at)]!.slot)
    launches.push({ name: step.name, program: number, slots })
  }
  const before = new Set(launched.map(({ program }) => program)).size
  return programs.length > mostCopies * before
    ? `${before} programs become ${programs.length}`
    : { programs, launches, blocks: [Math.max(arena.bytes, 16)] }
}
