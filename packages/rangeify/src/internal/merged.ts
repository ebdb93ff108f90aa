/**
 * Function merging: persistent launches that differ in few phases become variants of one program, which has their common phases once. An instruction cache that holds one of the programs
 * and not two of them in turns then holds what all run.
 */
import * as Phases from "@tg/core-uop/Phases"
import { key } from "@tg/core-uop/UOp"
import type { Ref } from "../Schedule.ts"
import { areFew, familiesOf } from "./families.ts"

/** A launch as a program of its own. */
export interface Whole {
  readonly phases: ReadonlyArray<Phases.Phase>
  /** In the order of the slots; the arena of what the launch computes is not there. */
  readonly args: ReadonlyArray<Ref | undefined>
  readonly launch: Phases.PersistentArg
  /** Whether readers wait for words. */
  readonly awaits: boolean
}

/** The launch of a variant: its slot i is `slots[i]` of the program. */
interface Member {
  readonly own: Whole
  readonly slots: ReadonlyMap<number, number>
}

/** The launches, those that are alike as variants of one program. Launches of a program that runs once stay as they are. */
export const merged = <A extends Whole>(launches: ReadonlyArray<A>): ReadonlyArray<A> => {
  const texts = new Map(launches.map((own) => [own, textOf(own)]))
  const families = familiesOf(launches, (own) => texts.get(own)!, (first, own): Member | undefined => {
    const slots = slotsIn(first, own)
    return slots && { own, slots }
  })
  const made = new Map(
    families.filter(({ size }) => size > 1).flatMap((members) => {
      const program = programOf([...members.values()])
      return [...members].map(([text, { slots }], variant) => [text, { program, slots, variant }] as const)
    })
  )
  return launches.map((own) => {
    const found = made.get(texts.get(own)!)
    if (found === undefined) return own
    const { program, slots, variant } = found
    const args = own.args.slice()
    own.args.forEach((ref, slot) => args[slots.get(slot)!] = ref)
    const { phases, variants, ...shape } = program
    return { ...own, args, phases, launch: { ...own.launch, ...shape, variant: [variant, variants] } }
  })
}

/** Equal texts, equal programs. */
const textOf = ({ args, awaits, launch, phases }: Whole): string =>
  JSON.stringify([phases.map(phaseText), launch, args.length, args.indexOf(undefined), awaits])

const phaseText = ({ kernel, ...arg }: Phases.Phase): string => JSON.stringify([key(kernel), arg])

/** The slots of one launch for those of another one that may be a variant of its program: same phases but for few, of the same arguments. */
const slotsIn = (one: Whole, other: Whole): ReadonlyMap<number, number> | undefined => {
  const count = one.phases.length
  const isAlike = count === other.phases.length && one.args.length === other.args.length &&
    one.awaits === other.awaits && one.launch.threads === other.launch.threads &&
    one.launch.workgroups === other.launch.workgroups && one.launch.stagedBytes === other.launch.stagedBytes
  if (!isAlike) return undefined
  const slots = new Map<number, number>()
  const taken = new Set<number>()
  const pair = (to: number, from: number): boolean => {
    if (slots.get(from) === to) return true
    if (slots.has(from) || taken.has(to) || kindOf(one.args[to]) !== kindOf(other.args[from])) return false
    slots.set(from, to)
    taken.add(to)
    return true
  }
  const differing = one.phases.flatMap((a, i) => key(a.kernel) === key(other.phases[i]!.kernel) ? [] : [i])
  const isCommon = one.phases.every((a, i) => differing.includes(i) || areEqual(a, other.phases[i]!, pair))
  // a phase that forwards, or is forwarded to, runs in all variants
  const isFree = [one, other].every(({ phases }) =>
    phases.every((phase, i) =>
      Phases.forwardsOf(phase).every(({ reader }) => !differing.includes(i) && !differing.includes(reader))
    )
  )
  if (!isCommon || !isFree || !areFew(differing.length, count)) return undefined
  const isWhole = differing.every((i) =>
    usesOf(other.phases[i]!).every((use) =>
      slots.has(use.slot) ||
      usesOf(one.phases[i]!).some(({ kind, slot }) => kind === use.kind && pair(slot, use.slot))
    )
  )
  return isWhole && slots.size === other.args.length ? slots : undefined
}

/** What an argument is bound to: memory of its own, or the arena. */
const kindOf = (ref: Ref | undefined): string =>
  ref === undefined ? "arena" : `${ref.kind} ${ref.kind === "buffer" && ref.whole === true ? "whole" : ""}`

/** Whether two phases of one kernel touch the same arguments, at the same places. */
const areEqual = (one: Phases.Phase, other: Phases.Phase, pair: (to: number, from: number) => boolean): boolean => {
  const forwards = [one, other].map(Phases.forwardsOf)
  const places = ({ offsets, copies = [] }: Phases.Phase, own: ReadonlyArray<Phases.Forward>): string =>
    JSON.stringify([offsets, copies.map((slot) => slot < 0), own.map(({ to: _, ...forward }) => forward)])
  return places(one, forwards[0]!) === places(other, forwards[1]!) &&
    one.slots.every((slot, i) => pair(slot, other.slots[i]!)) &&
    (one.copies ?? []).every((slot, i) => slot < 0 || pair(slot, other.copies![i]!)) &&
    forwards[0]!.every(({ to }, i) => pair(to, forwards[1]![i]!.to))
}

/** The slots that a phase touches, and how. */
const usesOf = ({ copies = [], kernel, slots }: Phases.Phase): ReadonlyArray<{ slot: number; kind: string }> => {
  const dtypes = Phases.dtypes(kernel)
  return [...Phases.touched(kernel)].flatMap(([own, access]) => {
    const kind = `${access} ${dtypes.get(own)}`
    const copy = copies[own] ?? -1
    return [{ slot: slots[own]!, kind }, ...copy < 0 ? [] : [{ slot: copy, kind: `copy ${kind}` }]]
  })
}

/** The phases of all members, in their order; those that not all have run instead of each other. */
const programOf = (members: ReadonlyArray<Member>) => {
  const count = members[0]!.own.phases.length
  const places = Array.from({ length: count }, (_, i) => {
    const phases = members.map(({ own, slots }) => moved(own.phases[i]!, slots))
    return [...Map.groupBy(phases.keys(), (m) => phaseText(phases[m]!)).values()].map((variants) => ({
      phase: phases[variants[0]!]!,
      variants
    }))
  })
  const first = places.map((_, i) => places.slice(0, i).reduce((sum, { length }) => sum + length, 0))
  const phases = places.flatMap((alternatives) =>
    alternatives.map(({ phase, variants }, i): Phases.Phase => {
      const forwards = Phases.forwardsOf(phase).map((own) => ({ ...own, reader: first[own.reader]! }))
      return {
        ...phase,
        ...forwards.length === 0 ? {} : { forwards: Phases.numbersOf(forwards) },
        ...alternatives.length === 1 ? {} : { variants },
        ...i === 0 ? {} : { instead: true }
      }
    })
  )
  const launches = members.map(({ own: { launch } }) => launch)
  const ahead = places.flatMap((alternatives, i) =>
    alternatives.map(() => Math.min(...launches.map((launch) => launch.ahead[i] ?? 0)))
  )
  return { phases, ahead, variants: members.length }
}

/** A phase with the slots of the program. */
const moved = (phase: Phases.Phase, slots: ReadonlyMap<number, number>): Phases.Phase => {
  const { copies } = phase
  const forwards = Phases.forwardsOf(phase).map((own) => ({ ...own, to: slots.get(own.to)! }))
  return {
    ...phase,
    slots: phase.slots.map((slot) => slots.get(slot)!),
    ...copies === undefined ? {} : { copies: copies.map((slot) => slot < 0 ? slot : slots.get(slot)!) },
    ...forwards.length === 0 ? {} : { forwards: Phases.numbersOf(forwards) }
  }
}
