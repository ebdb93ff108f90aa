/** The code books of the IQ types. Where the engine is bundled for pages, they are fetched when a model has such a type. */
import { Effect } from "effect"

/** Fetches them. Elsewhere they are there; `NodeStandIns` has what stands here in pages. */
export const fetched: Effect.Effect<void> = Effect.void

/** Types with a code book. */
export const isCoded = (type: string): boolean => /^IQ[123]_/.test(type)
