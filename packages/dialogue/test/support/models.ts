/** Vocabularies of the three families, and short templates that write what the families' own do. */
import { ChatTemplate, type Segment } from "@tg/tokenizer"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { Result } from "effect"
import { codecOf, metadataOf, smallCodec } from "../../../tokenizer/test/support/files.ts"
import * as Tokenizer from "@tg/tokenizer/Tokenizer"
import { ReplyStyle } from "../../src/index.ts"

/** GLM-4.7: pairs of keys and values, thinking on unless it is switched off. */
const glm = `[gMASK]<sop>
{%- if tools -%}
<|system|>
# Tools
{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}
Write each call as <tool_call>{name}<arg_key>{key}</arg_key><arg_value>{value}</arg_value></tool_call>
{%- endif -%}
{%- for m in messages -%}
  {%- if m.role == 'user' -%}<|user|>{{ m.content }}
  {%- elif m.role == 'assistant' -%}
    <|assistant|>
    {%- if m.reasoning_content is string -%}<think>{{ m.reasoning_content.strip() }}</think>{%- else -%}</think>{%- endif -%}
    {%- if m.content.strip() -%}{{ m.content.strip() }}{%- endif -%}
    {%- if m.tool_calls -%}
      {%- for tc in m.tool_calls -%}
        {%- if tc.function -%}{%- set tc = tc.function -%}{%- endif -%}
        {{- '<tool_call>' + tc.name -}}
        {%- set args = tc.arguments -%}
        {%- for k, v in args.items() -%}
          <arg_key>{{ k }}</arg_key><arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
        {%- endfor -%}
        {{- '</tool_call>' -}}
      {%- endfor -%}
    {%- endif -%}
  {%- elif m.role == 'tool' -%}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|observation|>' -}}{%- endif -%}
    {{- '<tool_response>' + m.content + '</tool_response>' -}}
  {%- elif m.role == 'system' -%}<|system|>{{ m.content }}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|assistant|>{{- '</think>' if (enable_thinking is defined and not enable_thinking) else '<think>' -}}
{%- endif -%}`

/** Youtu-LLM: an object of JSON between tags. */
const youtu = `{{ bos_token }}
{%- if messages[0].role == 'system' -%}{{ messages[0].content }}{%- endif -%}
{%- if tools is defined and tools is not none -%}
<|begin_of_tool_description|>Functions:
{% for tool in tools %}
{{ tool | tojson }}
{% endfor %}
Call with <tool_call>{"name": "NAME", "arguments": {}}</tool_call><|end_of_tool_description|>
{%- endif -%}
{%- for m in messages -%}
  {%- if m.role == 'user' -%}<|User|>{{ m.content }}
  {%- elif m.role == 'assistant' -%}
    <|Assistant|>{{ m.content }}
    {%- for call in m.tool_calls or [] -%}
      <tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
    {%- endfor -%}<|end_of_text|>
  {%- elif m.role == 'tool' -%}<|User|><tool_response>{{ m.content }}</tool_response>
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|Assistant|>
{%- if enable_thinking is defined and not enable_thinking -%}
{{ '<think>\\n</think>\\n\\n' }}
{%- endif -%}
{%- endif -%}`

/** DeepSeek-V2-Lite-Chat: knows neither thinking nor tools. */
const deepseekV2 = `{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ 'User: ' + m['content'] + '

' }}{% elif m['role'] == 'assistant' %}{{ 'Assistant: ' + m['content'] + eos_token }}
{%- elif m['role'] == 'system' %}{{ m['content'] + '

' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}`

/** DeepSeek's later form: a fenced block between tokens of its own, arguments as text. */
const deepseekV3 = `{{ bos_token }}
{%- for m in messages -%}
  {%- if m.role == 'system' -%}{{ m.content }}
  {%- elif m.role == 'user' -%}{{ '<｜User｜>' + m.content }}
  {%- elif m.role == 'assistant' and m.content is none -%}
    {{- '<｜Assistant｜><｜tool▁calls▁begin｜>' -}}
    {%- for call in m.tool_calls -%}
      {{- '<｜tool▁call▁begin｜>' + call.type + '<｜tool▁sep｜>' + call.function.name + '\\n\`\`\`json\\n' + call.function.arguments + '\\n\`\`\`<｜tool▁call▁end｜>' -}}
    {%- endfor -%}
    {{- '<｜tool▁calls▁end｜>' + eos_token -}}
  {%- elif m.role == 'assistant' -%}{{ '<｜Assistant｜>' + m.content + eos_token }}
  {%- elif m.role == 'tool' -%}{{ '<｜tool▁outputs▁begin｜>' + m.content + '<｜tool▁outputs▁end｜>' }}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<｜Assistant｜>' }}{%- endif -%}`

/** DeepSeek-V3.1: the name and the arguments, without a fence. */
const deepseekV31 = deepseekV3
  .replace(
    "call.type + '<｜tool▁sep｜>' + call.function.name + '\\n```json\\n' + ",
    "call.function.name + '<｜tool▁sep｜>' + "
  )
  .replace(" + '\\n```<｜tool▁call▁end｜>'", " + '<｜tool▁call▁end｜>'")

const deepseekCodec = smallCodec({
  pre: "deepseek-v3",
  specials: [
    ["<｜begin▁of▁sentence｜>", 3],
    ["<｜end▁of▁sentence｜>", 3],
    ["<｜User｜>", 3],
    ["<｜Assistant｜>", 3],
    ...[
      "<｜tool▁calls▁begin｜>",
      "<｜tool▁calls▁end｜>",
      "<｜tool▁call▁begin｜>",
      "<｜tool▁call▁end｜>",
      "<｜tool▁sep｜>"
    ]
      .map((text) => [text, 3] as const)
  ],
  more: { "tokenizer.ggml.bos_token_id": 256, "tokenizer.ggml.eos_token_id": 257 }
})

const tinyMetadata = metadataOf("apps/cli/models/tg-tiny-Q4_0.gguf")
const tinyCodec = Result.getOrThrow(Tokenizer.make(tinyMetadata))

/** A template with a vocabulary. */
export interface Model {
  readonly codec: Codec
  readonly template: ChatTemplate.Renderer
  readonly style: ReplyStyle.ReplyStyle
}

const model = (source: string, codec: Codec): Model => {
  const template = Result.getOrThrow(ChatTemplate.fromSource(source, codec))
  return { codec, template, style: ReplyStyle.of(template, codec) }
}

/** A vocabulary without any of the tags. */
const plainCodec = smallCodec({ merges: ["< t", "h i", "t o"], specials: [["<s>", 3]] })

/** All of them. */
export const models = {
  glm: model(glm, codecOf("glm4")),
  youtu: model(youtu, codecOf("youtu")),
  deepseekV2: model(deepseekV2, codecOf("deepseek-llm")),
  deepseekV3: model(deepseekV3, deepseekCodec),
  deepseekV31: model(deepseekV31, deepseekCodec),
  /** The tags of GLM where none of them is a token. */
  letters: model(glm, plainCodec),
  tiny: model(Result.getOrThrow(ChatTemplate.make(tinyMetadata, tinyCodec)).source, tinyCodec)
} as const

/** A model's name. */
export type Name = keyof typeof models

/** Tokens with the text that each of them completes. */
export const tokensOf = (codec: Codec, segments: ReadonlyArray<Segment.Segment>) => {
  let text = ""
  const ids: Array<number> = []
  return codec.encodeSegments(segments).map((id) => {
    ids.push(id)
    // an incomplete character at the end is not printed
    const all = codec.decode(ids).replace(/\ufffd$/u, "")
    const piece = all.slice(text.length)
    text = all
    return { id, text: piece }
  })
}
