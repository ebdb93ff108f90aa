/** Which part of the memory of words (`Phases.waiting`) each persistent launch writes, and which it clears. */
import * as Phases from "@tg/core-uop/Phases"

/** The part that a launch writes, and the others that it clears: from one on, so many. */
export interface Part {
  readonly part: number
  readonly cleared: number
  readonly parts: number
}

const numbers = Array.from({ length: Phases.waiting.parts }, (_, part) => part)

/**
 * The parts of so many launches: each writes another part than the one before, and clears that one's. The first one has part 0 and clears all others, and the last one another part than 0,
 * as another program may follow.
 */
export const partsOf = (launches: number): ReadonlyArray<Part> => {
  const made: Array<Part> = []
  for (let i = 0; i < launches; i++) {
    const before = made.at(-1)?.part
    const part = numbers.find((own) => own !== before && !(i === launches - 1 && own === 0))!
    made.push(
      before === undefined
        ? { part: 0, cleared: 1, parts: Phases.waiting.parts - 1 }
        : { part, cleared: before, parts: 1 }
    )
  }
  return made
}
