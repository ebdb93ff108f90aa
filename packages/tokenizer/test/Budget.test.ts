import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as ChatTemplate from "../src/ChatTemplate.ts"
import { smallCodec } from "./support/files.ts"

const codec = smallCodec({ specials: [["<s>", 3], ["<|end|>", 3]] })
const at = new Date(2026, 2, 7)

const render = (source: string, conversation?: Partial<ChatTemplate.Conversation>) =>
  Result.flatMap(
    ChatTemplate.fromSource(source, codec),
    (self) => self.render({ messages: [{ role: "user", content: "Hi" }], ...conversation }, at)
  )

const megabytes = (): number => {
  const { external, heapUsed } = process.memoryUsage()
  return (heapUsed + external) / 1e6
}

/** The budget that a template uses up; soon, and without much memory. */
const budgetOf = (source: string): string | undefined => {
  const before = megabytes()
  const started = process.cpuUsage()
  const error = Result.getOrThrow(Result.flip(render(source)))
  // of the processor's time: the budget ends what would take hours
  assert.isBelow(process.cpuUsage(started).user, 60e6)
  assert.isBelow(megabytes() - before, 300)
  assert.include(error, { _tag: "TemplateFailed", stage: "budget" })
  assert.isBelow(error.message.length, 400)
  return error.budget
}

const times = (n: number, text: string): string => text.repeat(n)
const doubled = (n: number, kind: string): string => times(n, `{% set a = ${kind} %}`)

it("rendering is given up when the caller has no more time", () => {
  const template = Result.getOrThrow(ChatTemplate.fromSource(times(100, "{{ messages[0].content }}"), codec))
  const renderUntil = (until: number) => template.render({ messages: [{ role: "user", content: "Hi" }] }, at, { until })
  assert.isTrue(Result.isSuccess(renderUntil(Infinity)))
  assert.include(Result.getOrThrow(Result.flip(renderUntil(0))), { stage: "budget", budget: "time" })
})

describe("a template that asks for too much is refused", () => {
  const cases: ReadonlyArray<readonly [what: string, source: string, budget: string | ReadonlyArray<string>]> = [
    [
      "nested loops",
      "{% for i in range(30000) %}{% for j in range(30000) %}{% endfor %}{% endfor %}",
      ["steps", "time", "text"]
    ],
    [
      "nested loops that print",
      "{% for i in range(30000) %}{% for j in range(30000) %}x{% endfor %}{% endfor %}",
      ["steps", "time", "text"]
    ],
    ["a long range", "{{ range(1000000000) | length }}", "text"],
    ["an endless range", "{% for i in range(1 // 0) %}{% endfor %}", "text"],
    ["25 doublings of a text", `{% set a = 'x' %}${doubled(25, "a ~ a")}{{ a }}`, "text"],
    ["25 doublings by blocks", `{% set a = 'x' %}${times(25, "{% set a %}{{ a }}{{ a }}{% endset %}")}{{ a }}`, "text"],
    ["60 doublings of a list", `{% set a = [1] %}${doubled(60, "a + a")}{{ a | length }}`, "text"],
    ["a list of lists, printed", `{% set a = ['x'] %}${doubled(60, "[a, a]")}{{ a }}`, "work"],
    ["a list of lists as JSON", `{% set a = ['x'] %}${doubled(60, "[a, a]")}{{ a | tojson }}`, "work"],
    ["a list of lists added to a text", `{% set a = ['x'] %}${doubled(60, "[a, a]")}{{ '' + a }}`, "work"],
    ["a list of lists compared with a text", `{% set a = ['x'] %}${doubled(60, "[a, a]")}{{ a == 'x' }}`, "work"],
    ["JSON with a wide indent", "{{ [[1]] | tojson(indent=100000000) }}", "text"],
    ["a wide indent", "{{ 'a\\nb' | indent(1000000000) }}", "text"],
    [
      "replacing much by much",
      `{% set a = 'xxxxxxxx' %}${doubled(16, "a ~ a")}{{ a.replace('x', a) | length }}`,
      "text"
    ],
    [
      "replacing by a filter",
      `{% set a = 'xxxxxxxx' %}${doubled(16, "a ~ a")}{{ (a | replace('x', a)) | length }}`,
      "text"
    ],
    [
      "replacing by a method with a computed name",
      `{% set a = 'xxxxxxxx' %}${doubled(16, "a ~ a")}{{ a['replace']('x', a) | length }}`,
      "text"
    ],
    ["joining with a long text", `{% set a = 'xxxxxxxx' %}${doubled(16, "a ~ a")}{{ range(9999) | join(a) }}`, "text"],
    [
      "joining one long text many times",
      `{% set a = 'xxxxxxxx' %}${doubled(16, "a ~ a")}{% set b = [a] %}${
        times(12, "{% set b = b + b %}")
      }{{ b | join }}`,
      ["text", "work"]
    ],
    ["splitting a long text", `{% set a = 'xxxxxxxx' %}${doubled(18, "a ~ a")}{{ a.split('x') | length }}`, "text"],
    [
      "searching a long text in a long text",
      `{% set a = 'xxxxxxxx' %}${doubled(17, "a ~ a")}{{ ('y' ~ a) in (a ~ a) }}`,
      "work"
    ],
    [
      "a macro that calls itself",
      "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
      "depth"
    ],
    [
      "a macro that calls itself twice",
      "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
      [
        "steps",
        "time",
        "text"
      ]
    ],
    ["deep parentheses", `{{ ${times(20000, "(")}1${times(20000, ")")} }}`, "depth"],
    ["deep lists", `{{ ${times(20000, "[")}1${times(20000, "]")} }}`, "depth"],
    ["deep conditions", `${times(20000, "{% if true %}")}${times(20000, "{% endif %}")}`, "depth"],
    ["a long sum", `{{ 1${times(20000, " + 1")} }}`, "depth"],
    ["a source of megabytes", times(5_000_000, "x"), "source"]
  ]
  it.each(cases)("%s", (_, source, budget) => {
    const found = budgetOf(source)
    if (typeof budget === "string") assert.strictEqual(found, budget)
    else assert.include(budget, found)
  })

  it("a list of lists where a number or a text is due is an error of the template", () => {
    const lists = `{% set a = ['x'] %}${doubled(60, "[a, a]")}`
    for (const use of ["range(a)", "raise_exception(a)"]) {
      assert.include(Result.getOrThrow(Result.flip(render(`${lists}{{ ${use} }}`))), { stage: "render" })
    }
  })
})

describe("a refusal of the template", () => {
  it("says that it is one, and is short", () => {
    const error = Result.getOrThrow(Result.flip(render(`{{ raise_exception('${"x".repeat(100_000)}') }}`)))
    assert.include(error, { stage: "render", isRefusal: true })
    assert.isBelow(error.message.length, 400)
    assert.isUndefined(Result.getOrThrow(Result.flip(render("{{ 1 | nonsense }}"))).isRefusal)
  })
})

describe("conversations of thousands of messages", () => {
  const long = Array.from({ length: 5000 }, (_, i) => ({
    role: i % 2 === 0 ? "user" : "assistant",
    content: `message ${i}: ${"some words ".repeat(20)}`
  }))
  it.each([
    ["a plain loop", "{% for m in messages %}<s>{{ m.role }}\n{{ m.content | trim }}<|end|>{% endfor %}"],
    [
      "with a look at the others",
      "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}" +
      "{% endif %}{% endfor %}{% for m in messages[::-1] %}{% set i = messages | length - 1 - loop.index0 %}" +
      "{% if i > ns.last and '</think>' in m.content %}<s>{{ m.content.split('</think>')[-1].lstrip('\n') }}" +
      "{% else %}<s>{{ m.content.replace('wordz', 'b') }}{% endif %}{% endfor %}"
    ],
    [
      "with the rest of them",
      "{% for m in messages %}{{ messages[loop.index0:] | length }}<s>{{ m.content }}{% endfor %}"
    ]
  ])("fit: %s", (_, source) => {
    const prompt = Result.getOrThrow(render(source, { messages: long }))
    assert.include(prompt.text, "message 4999")
  })
})
