import type { UOp } from "@tg/core-uop/UOp"

/**
 * Liveness and use counts of instructions, by their places in the list: a node may stand in several, and a user means the latest
 * one.
 */
export interface Usage {
  readonly isLive: (place: number) => boolean
  /** True when the value is used once, in the block where it stands: then it can be part of its user's text. */
  readonly isInlinable: (place: number) => boolean
}

const effects: ReadonlySet<string> = new Set([
  "STORE",
  "ACCUMULATE",
  "FRAGMENT_MULACC",
  "FRAGMENT_STORE",
  "AWAIT",
  "BARRIER",
  "GRID_BARRIER",
  "RANGE",
  "END",
  "IF",
  "ENDIF"
])

/** `inputs` gives the instructions whose text an instruction contains. */
export const of = (linear: UOp, inputs: (node: UOp) => ReadonlyArray<UOp>): Usage => {
  const block: Array<UOp | undefined> = []
  const sources: Array<ReadonlyArray<number>> = []
  const open: Array<UOp> = []
  const latest = new Map<UOp, number>()
  linear.src.forEach((node, place) => {
    if (node.op === "END" || node.op === "ENDIF") open.pop()
    block.push(open[open.length - 1])
    if (node.op === "RANGE" || node.op === "IF") open.push(node)
    sources.push(inputs(node).flatMap((input) => latest.get(input) ?? []))
    latest.set(node, place)
  })
  const uses = linear.src.map(() => 0)
  const user = linear.src.map(() => 0)
  const isLive = linear.src.map(({ op }) => effects.has(op))
  for (let place = linear.src.length - 1; place >= 0; place--) {
    if (!isLive[place]!) continue
    for (const input of sources[place]!) {
      isLive[input] = true
      uses[input]!++
      user[input] = place
    }
  }
  return {
    isLive: (place) => isLive[place]!,
    isInlinable: (place) => uses[place] === 1 && block[user[place]!] === block[place]
  }
}
