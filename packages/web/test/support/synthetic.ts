/** Files of known shapes with random weights. */
import * as Synthetic from "@tg/engine/Synthetic"
import { known } from "@tg/models/Models"
import { Result } from "effect"

/** The bytes of one. */
export const synthetic = (shape: string): ArrayBuffer => {
  const { pieces, size } = Result.getOrThrow(Synthetic.make(shape, { families: known, seed: 1 }))
  const bytes = new Uint8Array(size)
  let at = 0
  for (const piece of pieces()) {
    bytes.set(piece, at)
    at += piece.length
  }
  return bytes.buffer
}
