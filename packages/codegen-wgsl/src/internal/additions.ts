import { isCoherent } from "@tg/core-uop/UOp"
import type { Store } from "@tg/core-uop/View"

/** The statement that adds to a place in memory. */
export const addition = (target: string, text: string, { buffer, value: { dtype } }: Store): string => {
  if (!isCoherent(buffer)) return `${target} = ${target} + ${text};`
  if (dtype.scalar !== "f32") return `atomicAdd(&${target}, u32(${text}));`
  // compare-and-swap until no other thread has written in between
  return `{ let p = &${target}; var old = atomicLoad(p); loop { ` +
    `let swap = atomicCompareExchangeWeak(p, old, bitcast<u32>(bitcast<f32>(old) + ${text})); ` +
    "if (swap.exchanged) { break; } old = swap.old_value; } }"
}
