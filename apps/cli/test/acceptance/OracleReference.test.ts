import { describe } from "@effect/vitest"
import * as Oracle from "./support/oracle.ts"

describe("the oracle's logits on the reference device", () => {
  for (const cache of ["f32", "f16"] as const) {
    for (const name of Oracle.names) Oracle.test(name, { cache, device: "reference" })
  }
})
