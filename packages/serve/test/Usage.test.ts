import { assert, describe, it } from "@effect/vitest"
import * as Usage from "../src/Usage.ts"

const begin = { type: "begin", index: 0, promptTokens: 5, cachedTokens: 2 } as const
const token = { id: 7, text: "a", stop: undefined }
const end = { ...token, stop: "length", drafts: { steps: 2, drafted: 6, accepted: 4 } } as const

const usageOf = (...tokens: ReadonlyArray<typeof token | typeof end>): Usage.Usage => {
  const { push, usage } = Usage.counter({ answers: 1, endTokens: new Set([1]) })
  push(begin, false)
  for (const each of tokens) push({ type: "token", index: 0, token: each, parts: [] }, false)
  return usage()
}

describe("usage", () => {
  it("tells drafts that were right and wrong", () => {
    assert.deepStrictEqual(usageOf(token, end), {
      prompt_tokens: 5,
      completion_tokens: 2,
      total_tokens: 7,
      prompt_tokens_details: { cached_tokens: 2 },
      completion_tokens_details: {
        reasoning_tokens: 0,
        accepted_prediction_tokens: 4,
        rejected_prediction_tokens: 2
      }
    })
  })
  it("says nothing of drafts where there are none", () => {
    assert.deepStrictEqual(usageOf(token).completion_tokens_details, { reasoning_tokens: 0 })
  })
})
