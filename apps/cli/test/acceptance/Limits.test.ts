import { describe } from "@effect/vitest"
import * as Oracle from "./support/oracle.ts"

describe("the oracle's logits on wasm, in windows", () => {
  for (const name of Oracle.names) for (const size of [2**20, 65536]) {
    Oracle.test(name, { cache: "f16", device: "wasm", timeout: 600_000, what: ` ${size}`, restrictions: { limits: { maxStorageBufferBindingSize: size }, subgroups: true } })
  }
})
