/** Code that the processors' instruction cache does not hold any more when it runs again. */
import * as Persist from "@tg/rangeify/Persist"

/** The program of each step's kernel: the bytes of its code, and its number. */
export interface Code {
  readonly bytesOf: (step: number) => number
  readonly kernelOf: (step: number) => number
}

/**
 * Bytes of machine code for each that `PhaseCosts.codeBytes` counts, as drivers unroll loops; and as a phase, with its loop and its copies. What the driver of an H100 reports:
 * 75 KB counted and 121 made of a layer of GLM-4.7-Flash by kernels, 67 and 133 of those that are phases.
 */
const perCounted = 1.6
const asPhase = 1.25
/**
 * Bytes of machine code that are there when they run again. On an H200 a program of 137 KB a layer (as its driver reports) runs in a step of GLM-4.7-Flash Q4_K_M as fast as among its like, one of
 * 155 of which each launch runs 145 loses 0.5 us; two programs of 137 KB in turns lose all of it.
 */
const held = 160_000
/** Microseconds for each byte that is not there: 7.3 for 137 KB, 24 times in a step of GLM-4.7-Flash Q4_K_M (`docs/persistent.md`). */
const byteMicros = 7.3 / 137_000

/** The code of one step in its program. Equal names, the same code. */
interface Piece {
  readonly name: string
  readonly bytes: number
}

/**
 * Microseconds in which the code of launches is fetched again, each launch given by its steps, if the step before was the same: what the cache keeps is what ran last.
 * `merges`: launches that differ in few steps are one program.
 */
export const missedMicros = (launches: ReadonlyArray<ReadonlyArray<number>>, code: Code, merges: boolean): number => {
  const programs = programsOf(launches.map((steps) => steps.map(code.kernelOf)), merges)
  const pieces = launches.flatMap((steps, launch) =>
    steps.map((step, i): Piece => ({
      name: `${programs[launch]} ${i} ${code.kernelOf(step)}`,
      bytes: code.bytesOf(step) * perCounted * (steps.length > 1 ? asPhase : 1)
    }))
  )
  const twice = [...pieces, ...pieces]
  const missed = pieces.map((own, i) => {
    const since = new Map([[own.name, own.bytes]])
    for (let at = i + pieces.length - 1; twice[at]!.name !== own.name; at--) {
      since.set(twice[at]!.name, twice[at]!.bytes)
    }
    return sum(since.values()) > held ? own.bytes : 0
  })
  return byteMicros * sum(missed)
}

const sum = (all: Iterable<number>): number => [...all].reduce((a, b) => a + b, 0)

/** The name of each launch's program, by the kernels of its steps. */
const programsOf = (launches: ReadonlyArray<ReadonlyArray<number>>, merges: boolean): ReadonlyArray<string> => {
  const textOf = (kernels: ReadonlyArray<number>): string => kernels.join(" ")
  const families = merges ? Persist.familiesOf(launches, textOf, (a, b) => areAlike(a, b) ? true : undefined) : []
  // that of the first variant
  const names = new Map(families.flatMap((members) => {
    const [first, ...others] = members.keys()
    return others.map((text) => [text, first!])
  }))
  return launches.map(textOf).map((text) => names.get(text) ?? text)
}

const areAlike = (one: ReadonlyArray<number>, other: ReadonlyArray<number>): boolean =>
  one.length === other.length &&
  Persist.areFew(one.filter((kernel, i) => kernel !== other[i]).length, one.length)
