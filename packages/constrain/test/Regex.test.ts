import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { Acceptor, JsonSchema, Regex } from "../src/index.ts"
import { type Random, randomFrom } from "./support/randomSchemas.ts"

const alphabet = ["a", "b", "c", "1", "_", "-", " ", "\n", "\"", "\\", "é", "😀", "\u2028", "K"]
const atoms = [
  "a",
  "b",
  ".",
  "\\d",
  "\\w",
  "\\W",
  "\\s",
  "[ab]",
  "[^a-c]",
  "[\\w-]",
  "\\u{1F600}",
  "é",
  "\\x61",
  "\\\\",
  "\\p{L}",
  "\\P{L}",
  "[^\\s\\S]"
]

const expression = (random: Random, depth: number): string => {
  const kind = random(depth > 0 ? 9 : 3)
  if (kind < 3) return atoms[random(atoms.length)]!
  const inner = (): string => expression(random, depth - 1)
  if (kind < 5) return inner() + inner()
  if (kind === 5) return `(?:${inner()}|${inner()})`
  if (kind === 6) return `(${inner()})${["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"][random(7)]}`
  return ["^", "$", "\\b", "\\B"][random(4)]! + inner()
}

const string = (random: Random): string =>
  Array.from({ length: random(7) }, () => alphabet[random(alphabet.length)]).join("")

describe("regular expressions", () => {
  it("find what those of JavaScript find, in any string", () => {
    let found = 0
    for (let seed = 1; seed <= 400; seed++) {
      const random = randomFrom(seed)
      const pattern = expression(random, 4)
      const [search, whole] = [new RegExp(pattern, "u"), new RegExp(`^(?:${pattern})$`, "u")]
      const schema = JsonSchema.compile({ type: "string", pattern })
      const regex = Regex.compile(pattern)
      for (let i = 0; i < 25; i++) {
        const text = string(random)
        const inSchema = Result.isSuccess(schema) && Acceptor.accepts(schema.success, JSON.stringify(text))
        assert.strictEqual(inSchema, search.test(text), `/${pattern}/ in ${JSON.stringify(text)}`)
        const inRegex = Result.isSuccess(regex) && Acceptor.accepts(regex.success, text)
        assert.strictEqual(inRegex, whole.test(text), `/^${pattern}$/ on ${JSON.stringify(text)}`)
        found += Number(inSchema)
      }
    }
    assert.isAbove(found, 1000)
  })

  it.each([
    ["(?=a)", "look-around is not supported"],
    ["(?<!a)b", "look-around is not supported"],
    ["(a)\\1", "references to groups are not supported"],
    ["a{1000000}", "needs more than 20000 states; shorten its repetitions"],
    ["(?:a{200}){200}", "needs more than 20000 states; shorten its repetitions"],
    ["(?:a|b)*a(?:a|b){30}", "needs more than 8192 states; shorten its repetitions"],
    ["(", "Unterminated group"]
  ])("%s is refused: %s", (pattern, reason) => {
    const found = Regex.compile(pattern)
    assert.isTrue(Result.isFailure(found))
    if (Result.isFailure(found)) assert.include(found.failure.message, reason)
  })
})
