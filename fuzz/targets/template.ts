/** Chat templates from a grammar. */
import { readFileSync } from "node:fs"
import * as Gguf from "../../packages/gguf/src/Gguf.ts"
import * as ChatTemplate from "../../packages/tokenizer/src/ChatTemplate.ts"
import * as Tokenizer from "../../packages/tokenizer/src/Tokenizer.ts"
import type { Random } from "../Random.ts"
import { accepted, bytes, refused, type Target, text, wrong } from "../Target.ts"

const numbers = ["0", "1", "2", "-1", "7", "30000", "1000000000", "1.5", "(1 // 0)", "(0 // 0)"]
const names = [
  "messages",
  "m",
  "m.content",
  "m['role']",
  "loop.index",
  "ns.a",
  "a",
  "b",
  "bos_token",
  "tools",
  "undefined"
]
const strings = ["'x'", "'<|user|>'", "''", "'\\n'", "'" + "ab".repeat(50) + "'", "'é😀'", "'content'"]
const filters = [
  "length",
  "trim",
  "upper",
  "lower",
  "title",
  "list",
  "first",
  "last",
  "reverse",
  "sort",
  "unique",
  "join",
  "join(a)",
  "tojson",
  "tojson(indent=4)",
  "tojson(indent=99999999)",
  "string",
  "int",
  "float",
  "abs",
  "items",
  "dictsort",
  "indent",
  "indent(100000000)",
  "replace('x', a)",
  "default(a)",
  "map(attribute='content')",
  "selectattr('role', 'equalto', 'user')",
  "sort(attribute='content')"
]
const methods = [
  "strip()",
  "split('x')",
  "split()",
  "replace('x', a)",
  "replace('', a)",
  "startswith(a)",
  "upper()",
  "items()",
  "get('a')"
]
const operators = ["+", "~", "*", "-", "//", "%", "**", "==", "!=", "<", "in", "not in", "and", "or"]

const expression = (random: Random, depth: number): string => {
  const inner = (): string => expression(random, depth - 1)
  if (depth <= 0) return random.pick([...numbers, ...names, ...names, ...strings])
  switch (random.below(12)) {
    case 0:
      return `(${inner()} ${random.pick(operators)} ${inner()})`
    case 1:
      return `(a ~ a)`
    case 2:
      return `(${inner()} | ${random.pick(filters)})`
    case 3:
      return `(${inner()}).${random.pick(methods)}`
    case 4:
      return `[${inner()}, ${inner()}]`
    case 5:
      return `{'a': ${inner()}, 'b': ${inner()}}`
    case 6:
      return `range(${inner()})`
    case 7:
      return `(${inner()} if ${inner()} else ${inner()})`
    case 8:
      return `(${inner()})[${random.oneIn(2) ? inner() : `${random.pick(numbers)}:${random.pick(numbers)}`}]`
    case 9:
      return `f(${inner()})`
    case 10:
      return `(${inner()} is ${random.pick(["defined", "none", "string", "mapping", "iterable", "number", "odd"])})`
    default:
      return random.pick([...numbers, ...names, ...strings])
  }
}

const statement = (random: Random, depth: number): string => {
  const inner = (): string =>
    depth <= 0 ? "x" : Array.from({ length: 1 + random.below(2) }, () => statement(random, depth - 1)).join("")
  const value = (): string => expression(random, 2)
  switch (random.below(11)) {
    case 0:
    case 1:
      return `{% for ${random.pick(["m", "a", "b"])} in ${
        random.pick(["messages", "range(30000)", "range(300)", value()])
      } %}${inner()}{% endfor %}`
    case 2:
      return `{% if ${value()} %}${inner()}{% else %}${inner()}{% endif %}`
    case 3:
      return `{% set ${random.pick(["a", "b", "ns.a"])} = ${value()} %}`
    case 4:
      return `{% set a = a ~ a %}`.repeat(1 + random.below(30))
    case 5:
      return `{% set b = [b, b] %}`.repeat(1 + random.below(40))
    case 6:
      return `{% macro f(x) %}${inner()}${random.oneIn(3) ? "{{ f(x) }}" : ""}{% endmacro %}`
    case 7:
      return `{% set a %}${inner()}{% endset %}`
    case 8:
      return `{% filter ${random.pick(["upper", "trim", "indent(9999999)"])} %}${inner()}{% endfilter %}`
    default:
      return `{{ ${value()} }}`
  }
}

/** A template; some are broken. */
export const template = (random: Random): string => {
  if (random.oneIn(40)) {
    const [open, close] = random.pick([["(", ")"], ["[", "]"], ["{% if 1 %}", "{% endif %}"], ["not ", ""]])
    const times = random.pick([10, 1000, 30000])
    const middle = open!.startsWith("{%") ? "x" : "1"
    const nested = open!.repeat(times) + middle + close!.repeat(times)
    return open!.startsWith("{%") ? nested : `{{ ${nested} }}`
  }
  const made = "{% set ns = namespace(a='x') %}{% set a = 'xy' %}{% set b = ['z'] %}" +
    Array.from({ length: 1 + random.below(5) }, () => statement(random, 3)).join("<|user|>")
  if (!random.oneIn(8)) return made
  const at = random.below(made.length)
  return made.slice(0, at) + random.pick(["{", "%}", "'", "(", "\0", "{#"]) + made.slice(at + random.below(4))
}

const tiny = new URL("../../apps/cli/models/tg-tiny-Q4_0.gguf", import.meta.url)
let codec: Tokenizer.Codec | undefined
const codecOfTiny = (): Tokenizer.Codec => {
  if (codec !== undefined) return codec
  const gguf = Gguf.fromBytes("tg-tiny", new Uint8Array(readFileSync(tiny)))
  if (gguf._tag === "Failure") throw gguf.failure
  const made = Tokenizer.make(gguf.success.metadata)
  if (made._tag === "Failure") throw made.failure
  return codec = made.success
}

const messages = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "Hi <|user|>", tool_calls: [{ name: "f", arguments: { x: 1 } }] }
]

/** Templates, rendered. */
export const templates: Target = {
  name: "template",
  make: (random) => bytes(template(random)),
  run: (input) => {
    const read = ChatTemplate.fromSource(text(input), codecOfTiny())
    if (read._tag === "Failure") return refused(read.failure)
    const rendered = read.success.render({ messages }, new Date(0))
    if (rendered._tag === "Failure") {
      const { budget, stage } = rendered.failure
      return { ...refused(rendered.failure), tag: `TemplateFailed ${stage} ${budget ?? ""}`.trim() }
    }
    const { segments, text: whole } = rendered.success
    return segments.map((segment) => segment.text).join("") === whole ? accepted : wrong("segments are not the text")
  }
}
