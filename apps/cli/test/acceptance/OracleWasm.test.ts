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
})
