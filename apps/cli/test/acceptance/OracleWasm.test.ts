import { describe } from "@effect/vitest"
import * as Oracle from "./support/oracle.ts"

describe("the oracle's logits on wasm", () => {
  for (const cache of ["f32", "f16"] as const) {
    for (const name of Oracle.names) Oracle.test(name, { cache, device: "wasm" })
  }
  // as a GPU has it
  for (const name of Oracle.names) {
    Oracle.test(name, { cache: "f32", device: "wasm", batchFrom: 2, what: ", in tiles" })
  }
  // weights of keys and values in one matrix and in two
  for (const name of ["c01", "c04"] as const) {
    Oracle.test(name, { cache: "f16", device: "wasm", batchFrom: 2, what: ", in tiles" })
  }
  // as a GPU has a few: attention in pieces of the cache, for several tokens
  for (const [i, name] of Oracle.names.entries()) {
    const size = [2, 4, 8, 16][i % 4]!
    const setting = { cache: "f32", device: "wasm", batchFrom: Infinity, sizes: [size] } as const
    Oracle.test(name, { ...setting, what: `, ${size} at a time` })
  }
  // two register tiles of tokens: experts beside a shared one
  Oracle.test("c01", { cache: "f32", device: "wasm", batchFrom: Infinity, sizes: [32], what: ", 32 at a time" })
})
