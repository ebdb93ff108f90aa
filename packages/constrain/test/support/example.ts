import { JsonSchema, Matcher, TokenTable } from "@tg/constrain"
import { Result } from "effect"

export const example = (vocabulary: TokenTable.Vocabulary, draw: (mask: Uint32Array) => number) =>
  Result.gen(function*() {
    const table = TokenTable.make(vocabulary) // once per model
    const grammar = yield* JsonSchema.compile({ type: "object", properties: { answer: { type: "integer" } } })
    const matcher = yield* Matcher.makeResult(grammar, table)
    const ids: Array<number> = []
    while (!matcher.isFinished()) {
      const id = draw(matcher.mask())
      matcher.accept(id)
      ids.push(id)
    }
    return ids
  })
