import type { UOp } from "@tg/core-uop/UOp"

/** Which instructions a kernel needs, how often each text is used, and where each value is visible. */
export interface Usage {
  readonly isLive: (node: UOp) => boolean
  /** True when the value is used once, in the block where it stands: then it can be part of its user's text. */
  readonly isInlinable: (node: UOp) => boolean
  /** The RANGE or IF whose body holds the instruction; undefined at the top. */
  readonly blockOf: (node: UOp) => UOp | undefined
}

const effects: ReadonlySet<string> = new Set(["STORE", "ACCUMULATE", "BARRIER", "RANGE", "END", "IF", "ENDIF"])

/** `inputs` gives the instructions whose text an instruction contains. */
export const of = (linear: UOp, inputs: (node: UOp) => ReadonlyArray<UOp>): Usage => {
  const block = new Map<UOp, UOp | undefined>()
  const open: Array<UOp> = []
  for (const node of linear.src) {
    if (node.op === "END" || node.op === "ENDIF") open.pop()
    block.set(node, open[open.length - 1])
    if (node.op === "RANGE" || node.op === "IF") open.push(node)
  }
  const uses = new Map<UOp, number>()
  const user = new Map<UOp, UOp>()
  const live = new Set<UOp>()
  for (let i = linear.src.length - 1; i >= 0; i--) {
    const node = linear.src[i]!
    if (!effects.has(node.op) && !uses.has(node)) continue
    live.add(node)
    for (const input of inputs(node)) {
      uses.set(input, (uses.get(input) ?? 0) + 1)
      user.set(input, node)
    }
  }
  return {
    isLive: (node) => live.has(node),
    isInlinable: (node) => uses.get(node) === 1 && block.get(user.get(node)!) === block.get(node),
    blockOf: (node) => block.get(node)
  }
}
