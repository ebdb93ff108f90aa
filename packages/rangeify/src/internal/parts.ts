/** Which part of the memory of words (`Phases.waiting`) each persistent launch writes, and what it clears. */
import * as Phases from "@tg/core-uop/Phases"
import type { UOp } from "@tg/core-uop/UOp"

/** What a launch writes, and which words of others it clears. */
type Part = readonly [part: number, clearedFrom: number, clearedWords: number]

const numbers = Array.from({ length: Phases.waiting.parts }, (_, part) => part)

/**
 * Of the launches that are not `undefined`, each writes another part than the one before, and clears that one's words, `most` at most. The first one has part 0 and clears all others, and the
 * last one another part than 0, as another program may follow. Equal launches have the same part where that is possible, because each part is another program.
 */
export const partsOf = (
  launches: ReadonlyArray<UOp | undefined>,
  most: number
): ReadonlyArray<Part | undefined> => {
  const preferred = new Map<UOp, number>()
  const last = launches.findLastIndex((launch) => launch !== undefined)
  let before: number | undefined
  return launches.map((launch, i): Part | undefined => {
    if (launch === undefined) return undefined
    const cleared = before === undefined
      ? [Phases.beginOf(1), (Phases.waiting.parts - 1) * Phases.waiting.part] as const
      : [Phases.beginOf(before), most] as const
    const free = before === undefined ? [0] : numbers.filter((part) => part !== before && !(i === last && part === 0))
    const known = preferred.get(launch)
    const part = known !== undefined && free.includes(known) ? known : leastUsed(free, [...preferred.values()])
    if (known === undefined) preferred.set(launch, part)
    before = part
    return [part, ...cleared]
  })
}

const leastUsed = (free: ReadonlyArray<number>, taken: ReadonlyArray<number>): number => {
  const uses = (part: number): number => taken.filter((own) => own === part).length
  return free.reduce((a, b) => uses(b) < uses(a) ? b : a)
}
