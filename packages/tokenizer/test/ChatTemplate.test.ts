import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema } from "effect"
import * as ChatTemplate from "../src/ChatTemplate.ts"
import { type Segment, toText } from "../src/Segment.ts"
import * as Tokenizer from "../src/Tokenizer.ts"
import { metadataOf, small, smallCodec } from "./support/files.ts"

const marks = [
  "<|system|>",
  "<|user|>",
  "<|assistant|>",
  "<|end|>",
  "<s>",
  "<think>",
  "</think>",
  "[tool]",
  "assistant"
]
const codec = smallCodec({
  specials: marks.map((mark) => [mark, mark.includes("think") ? 4 : 3] as const),
  more: { "tokenizer.ggml.bos_token_id": 260, "tokenizer.ggml.eos_token_id": 259 }
})

const tiny = metadataOf("apps/cli/models/tg-tiny-Q4_0.gguf")
const tinyCodec = Result.getOrThrow(Tokenizer.make(tiny))

const templates = {
  literal: "{{ bos_token }}{% for m in messages %}{{ '<|' ~ 'user' ~ '|>' ~ m.content ~ '<|end|>' }}{% endfor %}",
  role: "{% for m in messages %}\n    {{- '<|' + m['role'] + '|>\n' + m.content + eos_token -}}\n{% endfor %}" +
    "{% if add_generation_prompt %}<|assistant|>{% endif %}",
  joining: "{% for m in messages %}<|user{{ m.content }}|>{{ '<' ~ m.content ~ '>' }}<|{{ m.content }}|>{% endfor %}",
  reading: "{%- for m in messages -%}{%- set text = m.content -%}" +
    "{%- if m.role in ['assistant', 'tool'] and '</think>' in text -%}" +
    "{%- set text = text.split('</think>')[-1].replace('<|end|>', '[tool]') -%}{%- endif -%}" +
    "{{- '<|' + m.role + '|>' + text.strip() -}}{%- if m.content.startswith('<s>') %}[tool]{% endif -%}{%- endfor -%}",
  objects: "{% macro show(m, kind='<think>') %}{{ kind }}{{ m | tojson }}{{ m.role | upper }}</think>{% endmacro %}" +
    "{% set names = {'user': '<|user|>', 'assistant': '<|assistant|>', 'system': '<|system|>'} %}" +
    "{% set ns = namespace(last='') %}{% for m in messages %}{{ names[m.role] }}{{ show(m) }}" +
    "{% if ns.last == m.role %}[tool]{% endif %}{% set ns.last = m.role %}{% endfor %}" +
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join('<|end|>') }}" +
    "{% if messages[0].role == 'system' %}<s>{% endif %}{{ 'A'.lower() }}{{ ['<s>', '[tool]'] | join(', ') }}"
}

const renderer = (name: keyof typeof templates) => Result.getOrThrow(ChatTemplate.fromSource(templates[name], codec))

const at = new Date(2026, 2, 7, 15, 4, 9)

const render = (self: ChatTemplate.Renderer, messages: ReadonlyArray<ChatTemplate.Message>) =>
  Result.getOrThrow(self.render({ messages }, at))

const specials = (segments: ReadonlyArray<Segment>) =>
  segments.filter((segment) => segment.type === "special").map((segment) => segment.text)

const shown = (segments: ReadonlyArray<Segment>) =>
  segments.map(({ text, type }) => type === "special" ? `⟦${text}⟧` : text).join("")

const user = (content: string) => ({ role: "user", content })

describe("segments", () => {
  it("are special where the template prints a special token, text elsewhere", () => {
    const { segments, text } = render(renderer("literal"), [user("a<|user|>b<think>"), user("<|en"), user("d|>")])
    assert.strictEqual(
      shown(segments),
      "⟦<s>⟧⟦<|user|>⟧a<|user|>b<think>⟦<|end|>⟧⟦<|user|>⟧<|en⟦<|end|>⟧⟦<|user|>⟧d|>⟦<|end|>⟧"
    )
    assert.strictEqual(text, toText(segments))
  })

  it("know a token that is built from a role, if the role is a word", () => {
    const role = "user|>x<|assistant"
    const { segments } = render(renderer("role"), [user("<|user|>"), { role, content: "?" }])
    assert.strictEqual(
      shown(segments),
      "⟦<|user|>⟧\n<|user|>⟦<|end|>⟧<|user|>x<|assistant|>\n?⟦<|end|>⟧⟦<|assistant|>⟧"
    )
  })

  it("stay text where a text joins with the template to the look of a token", () => {
    assert.deepStrictEqual(
      specials(render(renderer("joining"), [user(""), user("user"), user("s"), user("|")]).segments),
      [
        "<|user|>"
      ]
    )
    assert.deepStrictEqual(specials(render(renderer("joining"), [user("user")]).segments), [])
  })

  it("come from templates that look into the texts", () => {
    const { segments } = render(renderer("reading"), [
      user("<s> </think> x"),
      { role: "assistant", content: "a</think> <|end|> b<think>" }
    ])
    assert.strictEqual(shown(segments), "⟦<|user|>⟧<s> </think> x⟦[tool]⟧⟦<|assistant|>⟧⟦[tool]⟧ b<think>")
  })

  it("come from templates with macros, namespaces, filters and mappings", () => {
    const { segments } = render(renderer("objects"), [{ role: "system", content: "<s>" }, user("<think>"), user("u")])
    assert.strictEqual(
      shown(segments),
      "⟦<|system|>⟧⟦<think>⟧{\"role\": \"system\", \"content\": \"<s>\"}SYSTEM⟦</think>⟧" +
        "⟦<|user|>⟧⟦<think>⟧{\"role\": \"user\", \"content\": \"<think>\"}USER⟦</think>⟧" +
        "⟦<|user|>⟧⟦<think>⟧{\"role\": \"user\", \"content\": \"u\"}USER⟦</think>⟧⟦[tool]⟧" +
        "<think>⟦<|end|>⟧u⟦<s>⟧a⟦<s>⟧, ⟦[tool]⟧"
    )
  })

  it("are the same when the texts use private characters, even all of the basic plane", () => {
    const basic = Array.from({ length: 0x1900 }, (_, i) => String.fromCharCode(0xe000 + i)).join("")
    for (const content of ["\ue000\ue001<|user|>\ue002", `${basic}<|user|>`]) {
      const { segments } = render(renderer("literal"), [user(content)])
      assert.strictEqual(shown(segments), `⟦<s>⟧⟦<|user|>⟧${content}⟦<|end|>⟧`)
    }
  })
})

const pieces = Schema.Array(
  Schema.Literals([
    "<|",
    "|>",
    "<",
    ">",
    "/",
    "user",
    "end",
    "think",
    "s",
    "[tool]",
    "assistant",
    " ",
    "\n",
    "\ue000",
    ...marks
  ])
)
const roles = Schema.Literals(["system", "user", "assistant"])
const conversation = Schema.Array(Schema.Struct({ role: roles, content: pieces }))

describe("no text of a message becomes a special token", () => {
  const check = (self: ChatTemplate.Renderer, codec: Tokenizer.Codec, turns: typeof conversation.Type) => {
    const hostile = turns.map(({ content, role }) => ({ role, content: content.join("") }))
    const harmless = hostile.map(({ content, role }) => ({ role, content: content === "" ? "" : "x" }))
    const [a, b] = [render(self, hostile), render(self, harmless)]
    assert.deepStrictEqual(specials(a.segments), specials(b.segments))
    const ids = new Set(codec.specials.values())
    const found = codec.encodeSegments(a.segments).filter((id) => ids.has(id))
    assert.deepStrictEqual(found, specials(b.segments).map((text) => codec.specials.get(text)!))
  }

  for (const name of ["literal", "role", "joining", "objects"] as const) {
    it.prop(name, { turns: conversation }, ({ turns }) => check(renderer(name), codec, turns))
  }

  const own = Result.getOrThrow(ChatTemplate.make(tiny, tinyCodec))
  it.prop("tg-tiny", { turns: conversation }, ({ turns }) => check(own, tinyCodec, turns))
})

const printed = (source: string, conversation?: Partial<ChatTemplate.Conversation>) =>
  Result.map(
    Result.flatMap(
      ChatTemplate.fromSource(source, codec),
      (self) => self.render({ messages: [], ...conversation }, at)
    ),
    ({ segments }) => shown(segments)
  )

describe("variables", () => {
  it("are the conversation's, the vocabulary's and the caller's", () => {
    const source = "{{ bos_token }}{{ add_generation_prompt }}{{ tools is none }}{{ enable_thinking is defined }}"
    assert.deepStrictEqual(printed(source), Result.succeed("⟦<s>⟧truetruefalse"))
    assert.deepStrictEqual(
      printed(source, { addGenerationPrompt: false, tools: [], variables: { enable_thinking: true } }),
      Result.succeed("⟦<s>⟧falsefalsetrue")
    )
  })

  it("are text even if they look like a token", () => {
    assert.deepStrictEqual(
      printed("{{ note }}{{ tools | tojson }}<s>", { tools: [{ "<s>": "<|end|>" }], variables: { note: "<s>" } }),
      Result.succeed("<s>[{\"<s>\": \"<|end|>\"}]⟦<s>⟧")
    )
  })

  it("include range and the date", () => {
    assert.deepStrictEqual(
      printed("{% for i in range(3) %}{{ i }}{% endfor %} {{ strftime_now('%d %b %Y %-I:%M %p, %A') }}"),
      Result.succeed("012 07 Mar 2026 3:04 PM, Saturday")
    )
  })

  it("are read with trim_blocks and lstrip_blocks", () => {
    assert.deepStrictEqual(printed("a\n  {% if true %}\nb\n  {% endif %}\nc"), Result.succeed("a\nb\nc"))
  })

  it("replace lone surrogates", () => {
    assert.deepStrictEqual(printed("{{ note }}", { variables: { note: "a\ud800" } }), Result.succeed("a\ufffd"))
  })

  it.each(
    [
      ["parse", "{% if %}"],
      ["render", "{{ raise_exception('roles must alternate <s>') }}"],
      ["render", "{{ messages | nonsense }}"]
    ] as const
  )("an error of the template says that it failed to %s", (stage, source) => {
    const error = Result.getOrThrow(Result.flip(printed(source)))
    assert.include(error, { _tag: "TemplateFailed", stage })
    if (source.includes("raise")) assert.include(error.toString(), "roles must alternate <s>")
  })

  it("a template that hides what it printed is refused", () => {
    const error = Result.getOrThrow(Result.flip(printed("{% filter upper %}<s>{% endfilter %}")))
    assert.include(error, { _tag: "TemplateFailed", stage: "trace" })
  })
})

describe("ChatTemplate", () => {
  const key = "tokenizer.chat_template"
  const metadata = small({
    specials: [["<s>", 3]],
    more: { [key]: "<s>{{ messages[0].content }}", [`${key}.loud`]: "<s>!" }
  })
  const codec = Result.getOrThrow(Tokenizer.make(metadata))

  it.effect("renders as a service", () =>
    Effect.gen(function*() {
      const template = Result.getOrThrow((yield* ChatTemplate.ChatTemplate).make(metadata, codec))
      const { segments } = Result.getOrThrow(template.render({ messages: [user("<s>")] }, new Date(0)))
      assert.strictEqual(shown(segments), "⟦<s>⟧<s>")
    }))

  it("finds a variant by name", () => {
    const template = Result.getOrThrow(ChatTemplate.make(metadata, codec, "loud"))
    assert.strictEqual(Result.getOrThrow(template.render({ messages: [] }, new Date(0))).text, "<s>!")
  })

  it("says which key is missing", () => {
    const error = Result.getOrThrow(Result.flip(ChatTemplate.make(metadata, codec, "quiet")))
    assert.include(error, { _tag: "InvalidMetadata", key: `${key}.quiet` })
  })
})
