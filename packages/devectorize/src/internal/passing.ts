/** Which workgroups of a persistent launch wait behind a phase, where all that crosses the barrier is awaited word by word. */
import { slotOf } from "@tg/core-uop/UOp"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import type { Side } from "../Beside.ts"
import * as Concatenate from "../Concatenate.ts"
import type { Launch, Placed } from "./launching.ts"

/**
 * Who has at least this part of the work of those who have the most in a phase passes the barrier behind it. On an H200 steps of GLM-4.7-Flash Q4_0 take 1.8% less time then, of Q4_K_M 2.9%, of
 * Youtu-LLM-2B 0.3%. With all who pass it is 3.6%, 5.1% and -11%: who is done early looks for words in the shared cache while others work (docs/persistent.md).
 */
const enough = 7 / 8

/**
 * How many workgroups go on behind each phase but the last without waiting for others, the first ones; none where all have to wait: where coherent memory other than awaited words is touched
 * in front of the barrier and behind it, other barriers that are passed in between included.
 */
export const passing = (
  stretches: ReadonlyArray<ReadonlyArray<Placed>>,
  { awaited, coherent, workgroups }: Pick<Launch, "awaited" | "coherent" | "workgroups">
): ReadonlyArray<number | undefined> => {
  if (awaited === undefined) return stretches.slice(1).map(() => undefined)
  const [words] = awaited
  let since: ReadonlySet<number> = new Set()
  return stretches.slice(1).map((next, i) => {
    const before = new Set([...since, ...stretches[i]!.flatMap((member) => touched(member, coherent))])
    const own = next.flatMap((member) => touched(member, coherent))
    const crosses = own.some((slot) => slot !== words && before.has(slot))
    const passes = crosses ? undefined : fewest(stretches[i]!.map((member) => busy(member, workgroups)))
    since = passes === undefined ? new Set() : before
    return passes
  })
}

/** The coherent slots of a launch that a phase touches. */
const touched = ({ copies, linear, slots }: Placed, coherent: ReadonlySet<number>): ReadonlyArray<number> => {
  const params = linear.src.filter(({ op }) => op === "PARAM").map(slotOf)
  const all = params.flatMap((slot) => [slots[slot]!, copies?.[slot] ?? -1])
  return all.filter((slot) => coherent.has(slot))
}

/** The least of these, if all are known. */
const fewest = (counts: ReadonlyArray<number | undefined>): number | undefined =>
  counts.reduce((a, b) => a === undefined || b === undefined ? undefined : Math.min(a, b))

/** How many workgroups of the launch have about as much to do in a phase as any has; undefined where variables decide how many workgroups the phase has. */
const busy = (member: Placed, workgroups: number): number | undefined => {
  const count = Symbolic.simplify(Concatenate.workgroupsOf(member))
  if (count.op !== "CONST") return undefined
  const shares = Array.from(
    { length: workgroups },
    (_, i) => partOf(i, Number(count.arg), { ...member.side, workgroups })
  )
  const most = Math.max(...shares)
  const first = shares.findIndex((share) => share < enough * most)
  return first === -1 ? workgroups : first
}

/** How many of `count` workgroups of a phase one of the launch runs, as `Shares` divides them. */
const partOf = (
  number: number,
  count: number,
  { beside, isAdjacent, workgroups }: Side & { readonly workgroups: number }
): number => {
  const among = (n: number): number => Math.max(0, Math.ceil((n - number) / workgroups))
  if (!isAdjacent) return among(count)
  const whole = Math.floor(count / beside)
  return beside * among(whole) + (whole % workgroups === number ? count % beside : 0)
}
