import { describe } from "@effect/vitest"
import * as Int8 from "./support/int8.ts"
import * as Oracle from "./support/oracle.ts"

describe("the logits of other families on wasm", () => {
  for (const cache of ["f32", "f16"] as const) {
    for (const name of Oracle.families) Oracle.test(name, { cache, device: "wasm" })
  }
  // as a GPU has it
  for (const name of Oracle.families) {
    Oracle.test(name, { cache: "f16", device: "wasm", batchFrom: 2, what: ", in tiles" })
  }
  // by the kernels of decoding: attention in pieces of the cache, of which a window takes the last
  for (const name of Oracle.families) {
    const setting = { cache: "f16", device: "wasm", batchFrom: Infinity, chunk: 1 } as const
    Oracle.test(name, { ...setting, what: ", token by token" })
  }
  for (const [i, name] of Oracle.families.entries()) {
    const size = [16, 2, 4, 8][i % 4]!
    const setting = { cache: "f16", device: "wasm", batchFrom: Infinity, sizes: [size] } as const
    Oracle.test(name, { ...setting, what: `, ${size} at a time` })
  }
})

describe("with activations of 8 bits they are as near to the float ones as llama.cpp's", () => {
  for (const name of Oracle.families) Int8.test(name, { device: "wasm" })
})

describe("prompts in tiles too", () => {
  for (const name of Oracle.families) Int8.test(name, { device: "wasm", order: "features" })
})
