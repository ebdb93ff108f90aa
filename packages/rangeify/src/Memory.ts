import { cheapest } from "./Cost.ts"
import type { Schedule } from "./Schedule.ts"

/** Which block of memory each temporary uses, and the blocks' sizes in bytes. */
export interface MemoryPlan {
  readonly blockOf: ReadonlyArray<number>
  readonly blocks: ReadonlyArray<number>
}

/**
 * Temporaries whose lives do not overlap share a block. A life runs from the first step that touches the temporary to the
 * last; results live to the end. Best fit: the smallest free block that is large enough, else the largest one grows.
 */
export const planMemory = (schedule: Schedule): MemoryPlan => {
  const first = schedule.temporaries.map(() => Infinity)
  const last = schedule.temporaries.map(() => -1)
  schedule.steps.forEach((step, i) => {
    for (const arg of step.args) {
      if (arg.kind !== "temporary") continue
      first[arg.id] = Math.min(first[arg.id]!, i)
      last[arg.id] = i
    }
  })
  for (const id of schedule.results) last[id] = schedule.steps.length

  const blocks: Array<number> = []
  const free = new Set<number>()
  const blockOf: Array<number> = schedule.temporaries.map(() => -1)
  const starting = (i: number): ReadonlyArray<number> => byStep.get(i) ?? []
  const byStep = new Map<number, Array<number>>()
  first.forEach((step, id) => {
    if (step !== Infinity) byStep.set(step, [...byStep.get(step) ?? [], id])
  })
  const ending = new Map<number, Array<number>>()
  last.forEach((step, id) => {
    if (step >= 0) ending.set(step, [...ending.get(step) ?? [], id])
  })
  for (let i = 0; i < schedule.steps.length; i++) {
    for (const id of starting(i)) {
      const bytes = schedule.temporaries[id]!.bytes
      const leastGrowth = cheapest([...free], (b) => Math.max(0, bytes - blocks[b]!))
      const [block] = cheapest(leastGrowth, (b) => blocks[b]!)
      if (block === undefined) {
        blockOf[id] = blocks.length
        blocks.push(bytes)
      } else {
        free.delete(block)
        blocks[block] = Math.max(blocks[block]!, bytes)
        blockOf[id] = block
      }
    }
    for (const id of ending.get(i) ?? []) free.add(blockOf[id]!)
  }
  return { blockOf, blocks }
}
