/** Tensors that kernels may have to read window by window. Where the engine is bundled for pages, what cuts kernels so is fetched for a file with one. */
import { Effect } from "effect"

/** Whether a tensor is one: devices of pages bind 2 GiB as a whole, but for GPUs, whose compiler cuts kernels anyway. */
export const isLarge = ({ bytes }: { readonly bytes: number }): boolean => bytes > 2 ** 30

/** Fetches it. Elsewhere it is there; `NodeStandIns` has what stands here in pages. */
export const fetched: Effect.Effect<void> = Effect.void
