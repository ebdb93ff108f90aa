/** A script that cuts a kernel over a buffer that is larger than a binding, for a test of bundles. */
import { Arena } from "@tg/core-uop/UOp"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { fit } from "@tg/rangeify/Fit"
import { Effect } from "effect"
import * as LargeTensors from "../../src/LargeTensors.ts"

/** Fetches what it takes. */
export const fetchWindows = (): Promise<void> => Effect.runPromise(LargeTensors.fetched)

/** How many kernels a copy of so many words takes where a binding has 256. */
export const kernelsOf = (words: number): number | undefined => {
  const arena = new Arena()
  const param = (slot: number) => arena.make("PARAM", DType.f32, [Expr.int(arena, words)], { slot })
  const loop = Expr.range(arena, words, 0, "GLOBAL")
  const stored = arena.make("STORE", DType.none, [
    Expr.element(param(0), loop),
    Expr.load(Expr.element(param(1), loop))
  ])
  const ast = arena.make("SINK", DType.none, [arena.make("END", DType.none, [stored, loop])])
  const args = [0, 1].map((slot) => ({ kind: "param" as const, slot }))
  return fit({ ast, args }, { maxStorageBuffers: 8, maxBindingBytes: 1024 }, () => args[0]!)?.length
}
