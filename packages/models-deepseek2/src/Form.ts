/** The two forms of attention over latents: programs of equal results (`Attend.ts` says which one takes less time). */
import type { ReaderOf } from "@tg/model-parts/CachedAttention"
import type { Tensor } from "@tg/tensor/Tensor"

/** How queries `[T, H, plain]` meet a cache of latents, and what becomes of what they mix. */
export interface Form {
  readonly query: (plain: Tensor) => Tensor
  readonly reader: ReaderOf
  /** To `[T, H, value]`. */
  readonly output: (mixed: Tensor) => Tensor
}
