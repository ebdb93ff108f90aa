import { assert, describe, it } from "@effect/vitest"
import { Ajv2020 } from "ajv/dist/2020.js"
import addFormats from "ajv-formats"
import { Result } from "effect"
import { JsonSchema, Matcher, TokenTable } from "../src/index.ts"
import { type Random, randomDocument, randomFrom } from "./support/randomSchemas.ts"
import { tiny } from "./support/vocabularies.ts"

const table = TokenTable.make(tiny())
const decoder = new TextDecoder("utf-8", { fatal: true })

const allowed = (mask: Uint32Array): Array<number> => {
  const ids: Array<number> = []
  mask.forEach((word, i) => {
    for (let bits = word; bits !== 0; bits &= bits - 1) ids.push(32 * i + 31 - Math.clz32(bits & -bits))
  })
  return ids
}

/** Tokens drawn from all that the mask allows; the end, quotes and brackets are favoured more and more. */
const generate = (matcher: Matcher.Matcher, random: Random, limit: number, what: string): string | undefined => {
  const bytes: Array<number> = []
  for (let step = 0; step < limit; step++) {
    const ids = allowed(matcher.mask())
    assert.isAbove(
      ids.length,
      0,
      `a state without any token after ${JSON.stringify(String.fromCharCode(...bytes))} of ${what}`
    )
    const ending = ids.filter((id) => table.endTokens.includes(id))
    if (ending.length > 0 && (matcher.isFinished() || random(4) === 0)) {
      matcher.accept(ending[0]!)
      assert.isTrue(matcher.isFinished())
      return decoder.decode(Uint8Array.from(bytes))
    }
    const plain = ids.filter((id) => !table.endTokens.includes(id))
    const closing = plain.filter((id) => [0x22, 0x5d, 0x7d].includes(table.bytesOf(id)?.at(-1) ?? 0))
    const from = closing.length > 0 && random(limit) < 5 + step ? closing : plain
    const id = from[random(from.length)]!
    matcher.accept(id)
    bytes.push(...table.bytesOf(id)!)
  }
  return undefined
}

describe("random walks by the mask", () => {
  it("validate with ajv, for 300 random schemas", () => {
    let [texts, refused, unfinished] = [0, 0, 0]
    for (let seed = 1; texts < 300; seed++) {
      const random = randomFrom(seed)
      const schema = randomDocument(random)
      const ajv = addFormats.default(new Ajv2020({ strict: false, allErrors: false }))
      const validate = ajv.compile(schema)
      const grammar = JsonSchema.compile(schema)
      if (Result.isFailure(grammar)) {
        refused++
        continue
      }
      const text = generate(Matcher.make(grammar.success, table), random, 400, JSON.stringify(schema))
      if (text === undefined) {
        unfinished++
        continue
      }
      texts++
      const value: unknown = JSON.parse(text)
      assert.isTrue(
        validate(value),
        `seed ${seed}: ${text} under ${JSON.stringify(schema)}: ${ajv.errorsText(validate.errors)}`
      )
    }
    console.log(`${texts} texts validate; ${refused} schemas refused, ${unfinished} texts too long`)
    assert.isBelow(refused + unfinished, 300)
  })
})
