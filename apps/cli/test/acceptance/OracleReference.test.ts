import { describe } from "@effect/vitest"
import { isFull } from "./support/full.ts"
import * as Oracle from "./support/oracle.ts"

// all of them go through the evaluator of tensors in `@tg/models-deepseek2`
const usual = { f32: ["c04"], f16: ["c01", "c05"] } as const

describe("the oracle's logits on the reference device", () => {
  for (const cache of ["f32", "f16"] as const) {
    for (const name of isFull ? Oracle.names : usual[cache]) {
      Oracle.test(name, { cache, device: "reference" })
    }
  }
})
