import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { UOp } from "@tg/core-uop/UOp"
import { accessOf, storeOf } from "@tg/core-uop/View"
import type { Code, Scope } from "./code.ts"

/** Adds to elements. Those of one gate are in one branch. */
export const addIn = (code: Code, body: Scope, stores: ReadonlyArray<UOp>): void => {
  const push = (node: UOp): UOp => code.push(body, node)
  for (const [gate, group] of Map.groupBy(stores, (store) => accessOf(store).gate)) {
    const branch = gate === undefined ? undefined : push(code.arena.make("IF", DType.none, [gate]))
    for (const store of group) {
      const { at, buffer, value } = storeOf(store)
      push(store.with([push(Expr.element(buffer, at)), value]))
    }
    if (branch !== undefined) push(code.arena.make("ENDIF", DType.none, [branch]))
  }
}
