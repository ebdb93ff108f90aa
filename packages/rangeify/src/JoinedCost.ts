/** What the kernels of a body cost in the launches that they share. */
import type { LevelsOf } from "./BodyGraph.ts"
import { chain, cheapest } from "./Cost.ts"
import { addedMicros, type KernelMicros, launchOf } from "./Fusion.ts"

/** The cost of kernels in a launch each. */
export const apartMicros = (kernels: ReadonlyArray<KernelMicros>): number =>
  chain(kernels.map((kernel) => launchOf([kernel])))

/**
 * The cost of kernels that are joined: as many launches as the critical path has kernels, and each kernel off it joins the launch
 * to which it adds least, of those that the launches of others leave to it (`BodyGraph.levelsOf`). None runs beside a kernel that it needs: the
 * matrices of chosen experts would be read while they are chosen.
 */
export const joinedMicros = (
  kernels: ReadonlyArray<KernelMicros>,
  levelsOf: LevelsOf
): number => {
  const launches: Array<Array<KernelMicros>> = []
  const placed = new Map<number, number>()
  const put = (i: number, level: number): void => {
    ;(launches[level] ??= []).push(kernels[i]!)
    placed.set(i, level)
  }
  const levels = levelsOf(placed)
  for (const [i, { first, last }] of levels.entries()) if (first === last) put(i, first)
  const free = [...levels.keys()].filter((i) => !placed.has(i))
  for (const i of free.sort((a, b) => kernels[b]!.work - kernels[a]!.work || a - b)) {
    const { first, last } = levelsOf(placed)[i]!
    const open = Array.from({ length: last - first + 1 }, (_, k) => first + k)
    const [level] = cheapest(open, (at) => addedMicros(launches[at]!, kernels[i]!))
    put(i, level!)
  }
  return chain(launches.map((members) => launchOf(members)))
}
