import type { UOp } from "@tg/core-uop/UOp"

/** Makes something of each instruction in order, with its operands as what was made of them. */
export const remade = (instructions: ReadonlyArray<UOp>, make: (own: UOp, node: UOp) => UOp): void => {
  const done = new Map<UOp, UOp>()
  for (const node of instructions) done.set(node, make(node.with(node.src.map((s) => done.get(s) ?? s)), node))
}
