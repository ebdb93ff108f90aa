/**
 * Schedule annotations: what a model may say about where its values are stored. They change no value, and all families use
 * these; what is not annotated, the compiler places by cost.
 */
import { Tensor } from "@tg/tensor/Tensor"
import { load, type Order, store } from "./Order.ts"

/** How the values of a step lie in memory. */
export interface Laid {
  readonly order: Order
}

/** A value `[T, ..]` that several others read: of many tokens it is stored feature by feature, of a few the compiler decides. */
export const shared = ({ order }: Laid, x: Tensor): Tensor => order === "tokens" || isTiled(x) ? x : load(store(x))

/** A value `[T, ..]` that is stored in any case: a query, which every cached position reads. */
export const stored = (laid: Laid, x: Tensor): Tensor => laid.order === "tokens" ? once(x) : shared(laid, x)

/** A value that is stored as it is, in whatever order: what would be computed again by each of those that read it. */
export const once = (x: Tensor): Tensor => x.node.op === "CONTIGUOUS" ? x : x.contiguous()

/** A value `[groups, tile, n]` of places, stored feature by feature. */
export const tiled = (x: Tensor): Tensor => once(x.permute([2, 0, 1])).permute([1, 2, 0])

/** Whether a value is stored feature by feature, or other axes of one, behind the one of tokens. */
const isTiled = (x: Tensor): boolean => {
  const source = x.node.src[0]
  if (source === undefined) return false
  if (x.node.op === "RESHAPE") {
    const whole = new Tensor(source)
    return whole.rank > 0 && whole.dim(0) === x.dim(0) && isTiled(whole)
  }
  return x.node.op === "PERMUTE" && source.op === "CONTIGUOUS"
}
