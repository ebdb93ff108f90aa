import { describe } from "@effect/vitest"
import { isFull } from "./support/full.ts"
import * as Oracle from "./support/oracle.ts"

describe("the oracle's logits on the reference device", () => {
  for (const cache of ["f32", "f16"] as const) {
    for (const name of isFull || cache === "f16" ? Oracle.names : ["c01", "c04"] as const) {
      Oracle.test(name, { cache, device: "reference" })
    }
  }
})
