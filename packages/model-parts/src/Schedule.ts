/**
 * Schedule annotations: what a model may say about where its values are stored. They change no value, and all families use
 * these; what is not annotated, the compiler places by cost.
 */
import type { Tensor } from "@tg/tensor/Tensor"
import { keep, keepAlways, type Order } from "./Order.ts"

/** How the values of a step lie in memory. */
export interface Laid {
  readonly order: Order
}

/** A value `[T, ..]` that several others read: of many tokens it is stored feature by feature, of a few the compiler decides. */
export const shared = ({ order }: Laid, x: Tensor): Tensor => keep(order, x)

/** A value `[T, ..]` that is stored in any case: a query, which every cached position reads. */
export const stored = ({ order }: Laid, x: Tensor): Tensor => keepAlways(order, x)
