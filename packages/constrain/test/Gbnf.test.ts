import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { Acceptor, Gbnf } from "../src/index.ts"

const list = `# a list of items
root  ::= "- " item ("\\n- " item)*   # at least one
item  ::= word
        | "(" ws item ws ")"
word  ::= [a-z\\u00e9]{2,4} [^a-z]?
ws    ::= " "?
`

describe("GBNF", () => {
  it.each<readonly [grammar: string, text: string, isValid: boolean]>([
    [list, "- ab", true],
    [list, "- abcde", false],
    [list, "- éé\n- (( ab))", true],
    [list, "- ( ab1 )\n- cd!", true],
    [list, "- a", false],
    [list, "- ab\n\n", false],
    [`root ::= "x" root "y" | ""`, "xxyy", true],
    [`root ::= "x" root "y" | ""`, "xxy", false],
    [`root ::= ( "a" |\n "b" ){2} .`, "ab😀", true],
    [`root ::= "\\x41\\"\\\\"`, "A\"\\", true],
    [`root ::= [\\]\\-]+`, "]-]", true]
  ])("%s has %s: %s", (grammar, text, isValid) => {
    assert.strictEqual(Acceptor.accepts(Result.getOrThrow(Gbnf.compile(grammar)), text), isValid)
  })

  it.each([
    [`root ::= "a`, "line 1, column 10: this is not closed"],
    [`root ::= other`, "line 1, column 10: no rule has the name other"],
    [`start ::= "a"`, "line 1, column 1: no rule has the name root"],
    [`root ::= root "a" | "b"`, "line 1, column 1: recursive can call itself before it has read anything"],
    [`root ::= "a" root`, "line 1, column 1: no text matches it"],
    [`root ::= "a"\nroot ::= "b"`, "line 2, column 1: root has a rule already"],
    [`root ::= "a"{3,1}`, "line 1, column 13: bounds must rise, up to 1000000"],
    [`root ::= [z-a]`, "line 1, column 14: the range is the wrong way round"],
    [`root ::= "\\q"`, "line 1, column 13: \\q is not an escape"],
    [`root ::= <tool>`, "line 1, column 10: expected the name of a rule"]
  ])("%s is refused: %s", (grammar, message) => {
    const found = Gbnf.compile(grammar)
    assert.strictEqual(Result.isFailure(found) ? found.failure.message : "", `grammar, ${message}`)
  })
})
