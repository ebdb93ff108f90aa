/** How launches are divided among threads, and which of them follow one another on one thread. */
import { evaluateIndex, type Program } from "@tg/core-uop/Program"

/** How much of a program there is to do, for one set of variables. */
export interface Work {
  readonly iterations: number
  /** Iterations of a part when it is divided among threads; all of them when it is not. */
  readonly size: number
}

/** Among whom launches are divided, and from how many instructions. */
export interface Sharing {
  readonly count: number
  readonly worthwhile: number
}

/** Instructions from which a launch is divided where nobody says otherwise. */
export const sharedInstructions = 30_000
// Parts of a launch that is just worth it: more of them help if one thread is late, fewer are less work.
const fewestParts = 4
// Parts for each thread, so that one that is late or slow takes less.
const partsPerThread = 4
// As many parts of this size are better still: threads wait for a third of a part at the end, on average, and taking one costs some
// hundred nanoseconds and the begin of each stream of weights.
const roomyInstructions = 100_000
const mostPartsPerThread = 16
// What parts compute again may be this much of them.
const repeated = 1 / 8

const partSize = (
  iterations: number,
  { perIteration, perPart }: { readonly perPart: number; readonly perIteration: number },
  { count, worthwhile }: Sharing
): number => {
  const all = iterations * perIteration
  if (count === 1 || all < worthwhile) return iterations
  const least = Math.max(worthwhile / fewestParts, perPart / repeated)
  const wanted = Math.max(partsPerThread * count, Math.min(mostPartsPerThread * count, all / roomyInstructions))
  const parts = Math.floor(Math.min(iterations, wanted, all / least))
  return parts < 2 ? iterations : Math.ceil(iterations / parts)
}

/** Whether the work of a program is the same in each run. */
export const isFixed = ({ grid, instructions }: Program): boolean =>
  typeof grid[0] === "number" && typeof (instructions?.perIteration ?? 0) === "number" &&
  typeof (instructions?.perPart ?? 0) === "number"

/** What there is to do with these variables. */
export const workOf = (
  { grid, instructions }: Program,
  vars: Readonly<Record<string, number>>,
  sharing: Sharing
): Work => {
  const iterations = evaluateIndex(grid[0], vars)
  if (instructions === undefined || sharing.count === 1) return { iterations, size: iterations }
  const { perIteration, perPart } = instructions
  const cost = { perPart: evaluateIndex(perPart, vars), perIteration: evaluateIndex(perIteration, vars) }
  return { iterations, size: partSize(iterations, cost, sharing) }
}

/** Launches `first` up to `end`: one that is divided into parts, or some that one thread runs in order. */
export interface Phase {
  readonly first: number
  readonly end: number
  readonly parts: number
  readonly size: number
}

/** The phases of launches with so much to do. */
export const phasesOf = (works: ReadonlyArray<Work>, whole: number): ReadonlyArray<Phase> => {
  const phases: Array<Phase> = []
  for (const [first, { iterations, size }] of works.entries()) {
    const last = phases.at(-1)
    const end = first + 1
    if (size < iterations) phases.push({ first, end, parts: Math.ceil(iterations / size), size })
    else if (last?.size === whole) phases[phases.length - 1] = { ...last, end }
    else phases.push({ first, end, parts: 1, size: whole })
  }
  return phases
}
