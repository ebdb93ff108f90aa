import * as DType from "@tg/core-uop/DType"
import { isCoherent, type UOp } from "@tg/core-uop/UOp"
import { storeOf } from "@tg/core-uop/View"
import { type Body, combine } from "./elementwise.ts"
import { type ValueType, valueType } from "./value.ts"

/** The statements of a STORE that adds; `address` is code. */
export const additionOf = (
  store: UOp,
  { address, offset }: { readonly address: string; readonly offset: number },
  body: Body
): ReadonlyArray<string> => {
  const { buffer, value } = storeOf(store)
  const type = valueType(value.dtype)
  const lines: Array<string> = []
  const kept = (code: string, type: ValueType): string => {
    const [first, again] = body.twice(code, type)
    if (first !== again) lines.push(`(drop ${first})`)
    return again
  }
  const place = `offset=${offset} ${kept(address, "i32")}`
  if (!isCoherent(buffer)) {
    const sum = combine("ADD", value.dtype, `(${type}.load ${place})`, body.value(value), body)
    return [...lines, `(${type}.store ${place} ${sum})`]
  }
  if (!DType.isFloat(value.dtype)) return [...lines, `(drop (i32.atomic.rmw.add ${place} ${body.value(value)}))`]
  // compare-and-swap until no other thread has written in between
  const term = kept(body.value(value), "f32")
  const [read, old] = body.twice(`(i32.atomic.load ${place})`, "i32")
  const sum = `(i32.reinterpret_f32 (f32.add (f32.reinterpret_i32 ${old}) ${term}))`
  const found = `(i32.atomic.rmw.cmpxchg ${place} ${read} ${sum})`
  return [...lines, `(loop $again (br_if $again (i32.ne ${found} ${old})))`]
}
