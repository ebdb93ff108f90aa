/** Words that are awaited (`meeting.ts`). */
import type { UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { bufferName } from "./access.ts"
import { atom } from "./text.ts"
import type { Usage } from "./usage.ts"
import type { Writer } from "./writer.ts"

/** Readings of words between looks at whether somebody has given up. */
const looksApart = 1024

/** The AWAITs that follow each other: each row by the place of its first one. */
export const rows = (linear: UOp, usage: Usage): ReadonlyMap<number, ReadonlyArray<UOp>> => {
  const found = new Map<number, Array<UOp>>()
  let open: Array<UOp> | undefined
  linear.src.forEach((node, place) => {
    if (node.op !== "AWAIT") open = undefined
    else if (!usage.isLive(place)) return
    else if (open === undefined) found.set(place, open = [node])
    else open.push(node)
  })
  return found
}

/**
 * Waits for a row of words: those that their loads have found to be 0 are read again, all of them at once, until none is. A word of a closed gate is any but 0.
 */
export const write = (writer: Writer, row: ReadonlyArray<UOp>): void => {
  if (row.length === 0) return
  if (writer.later !== undefined) writer.line(writer.later)
  writer.later = undefined
  const words = row.map((node) => {
    const load = node.src[0]!
    const { at, buffer, gate } = accessOf(load)
    const found = writer.text(load).code
    const name = writer.fresh("w")
    writer.line(`var ${name} = ${gate === undefined ? found : `select(1u, ${found}, ${writer.text(gate).code})`};`)
    writer.set(node, atom(name))
    return { name, place: `${bufferName(buffer)}[${writer.text(at).code}]` }
  })
  const looks = writer.fresh("looks")
  writer.line(`var ${looks} = 0u;`)
  writer.line(`while (${words.map(({ name }) => `${name} == 0u`).join(" || ")}) {`)
  for (const { name, place } of words) writer.line(`  if (${name} == 0u) { ${name} = atomicLoad(&${place}); }`)
  writer.line(`  ${looks}++;`)
  writer.line(`  if (${looks} % ${looksApart}u == 0u && is_in_vain(${looks})) { break; }`)
  writer.line("}")
}
