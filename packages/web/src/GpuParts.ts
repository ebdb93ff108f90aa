/** Parts of the compiler for GPUs alone. Where the engine is bundled for pages, they are fetched with the compiler for one. */
import { Effect } from "effect"

/** Fetches them. Elsewhere they are there; `NodeStandIns` has what stands here in pages. */
export const fetched: Effect.Effect<void> = Effect.void
