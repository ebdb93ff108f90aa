import { EqRange, Lattice } from "@tg/core-uop/Bounds"
import { fixpoint } from "@tg/core-uop/Fixpoint"
import type { Range } from "@tg/core-uop/UOp"
import { cheapest } from "./Cost.ts"
import type { Schedule } from "./Schedule.ts"

/** Which block of memory each temporary uses, and the blocks' sizes in bytes. */
export interface MemoryPlan {
  readonly blockOf: ReadonlyArray<number>
  readonly blocks: ReadonlyArray<number>
}

const at = (step: number): Range => ({ min: step, max: step })

/** The live range of each temporary that a step touches, in the order of their numbers. */
const livesOf = ({ kept = [], results, steps }: Schedule): ReadonlyMap<number, Range> => {
  const touches = steps.flatMap(({ args }, i) =>
    args.flatMap((arg) => arg.kind === "temporary" ? [[arg.id, at(i)] as const] : [])
  )
  const touched = new Set(touches.map(([id]) => id))
  const ends = results.flatMap((id) => touched.has(id) ? [[id, at(steps.length)] as const] : [])
  const always = kept.flatMap((id) => [[id, at(0)] as const, [id, at(steps.length)] as const])
  return fixpoint(Lattice, EqRange)([...touches, ...ends, ...always].sort(([a], [b]) => a - b))
}

/**
 * Temporaries whose lives do not overlap share a block. A life runs from the first step that touches the temporary to the
 * last; results live to the end. Best fit: the smallest free block that is large enough, else the largest one grows.
 */
export const planMemory = (schedule: Schedule): MemoryPlan => {
  const lives = livesOf(schedule)
  const blocks: Array<number> = []
  const free = new Set<number>()
  const blockOf: Array<number> = schedule.temporaries.map(() => -1)
  const starting = Map.groupBy(lives.keys(), (id) => lives.get(id)!.min)
  const ending = Map.groupBy(lives.keys(), (id) => lives.get(id)!.max)
  for (let i = 0; i < schedule.steps.length; i++) {
    for (const id of starting.get(i) ?? []) {
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
