/** The body of `POST /v1/chat/completions`. */
import { Schema } from "effect"

/** A field that may be left out, which `null` also says. */
export const given = <S extends Schema.Constraint>(schema: S) => Schema.optional(Schema.NullOr(schema))

const between = (minimum: number, maximum: number) => Schema.Finite.check(Schema.isBetween({ minimum, maximum }))
const atLeast = (minimum: number) => Schema.Int.check(Schema.isGreaterThanOrEqualTo(minimum))

/** How to draw, when to end: what chats and completions have in common. */
export const drawing = {
  /** The model that is loaded, or one of its aliases. */
  model: given(Schema.String),
  max_tokens: given(atLeast(1)),
  temperature: given(between(0, 2)),
  top_p: given(between(0, 1)),
  top_k: given(atLeast(0)),
  min_p: given(between(0, 1)),
  seed: given(Schema.Int),
  presence_penalty: given(between(-2, 2)),
  frequency_penalty: given(between(-2, 2)),
  repeat_penalty: given(Schema.Finite.check(Schema.isGreaterThan(0), Schema.isLessThanOrEqualTo(10))),
  /** From token ids, written as text, to what is added to their logits. */
  logit_bias: given(Schema.Record(Schema.String, between(-100, 100))),
  stop: given(Schema.Union([
    Schema.NonEmptyString,
    Schema.Array(Schema.NonEmptyString).check(Schema.isMaxLength(16))
  ])),
  n: given(atLeast(1)),
  stream: given(Schema.Boolean),
  stream_options: given(Schema.Struct({
    include_usage: given(Schema.Boolean),
    /** Accepted without effect: nothing is added to hide lengths. */
    include_obfuscation: given(Schema.Boolean)
  })),
  /** Who asks: requests of different users take turns. */
  user: given(Schema.String)
}

/** What is accepted and changes nothing. */
const harmless = {
  metadata: given(Schema.Record(Schema.String, Schema.Unknown)),
  store: given(Schema.Boolean),
  service_tier: given(Schema.String),
  safety_identifier: given(Schema.String),
  prompt_cache_key: given(Schema.String),
  prompt_cache_retention: given(Schema.String),
  modalities: given(Schema.Array(Schema.Literal("text")))
}

/** Text, or parts of text. */
export const Content = Schema.Union([
  Schema.String,
  Schema.Array(Schema.Struct({ type: Schema.Literal("text"), text: Schema.String }))
])

// a literal role each: by it the schema of a message is chosen, and its errors are those of one role
const said = <const Role extends string>(role: Role) =>
  Schema.Struct({ role: Schema.Literal(role), content: Content, name: given(Schema.String) })

/** A call that the model has made. */
export const ToolCall = Schema.Struct({
  id: Schema.String,
  type: Schema.Literal("function"),
  function: Schema.Struct({
    name: Schema.String,
    /** JSON. */
    arguments: Schema.String
  }),
  index: given(Schema.Int)
})

const Assistant = Schema.Struct({
  role: Schema.Literal("assistant"),
  content: given(Content),
  reasoning_content: given(Schema.String),
  tool_calls: given(Schema.Array(ToolCall)),
  refusal: given(Schema.String),
  annotations: given(Schema.Array(Schema.Unknown)),
  name: given(Schema.String)
})

const ToolResult = Schema.Struct({
  role: Schema.Literal("tool"),
  tool_call_id: Schema.String,
  content: Content,
  name: given(Schema.String)
})

/** A message of a conversation. */
export const Message = Schema.Union([
  said("system"),
  said("developer"),
  said("user"),
  Assistant,
  ToolResult
]).annotate({ expected: "a message whose role is system, developer, user, assistant or tool" })
/** A message of a conversation. */
export type Message = typeof Message.Type

/** What the model may call. */
export const Tool = Schema.Struct({
  type: Schema.Literal("function"),
  function: Schema.Struct({
    name: Schema.String.check(Schema.isPattern(/^[a-zA-Z0-9_.-]{1,64}$/)),
    description: given(Schema.String),
    /** JSON Schema of the arguments. */
    parameters: given(Schema.Record(Schema.String, Schema.Unknown)),
    /** Accepted: arguments are always held to their schema. */
    strict: given(Schema.Boolean)
  })
})
/** What the model may call. */
export type Tool = typeof Tool.Type

const ToolChoice = Schema.Union([
  Schema.Literals(["none", "auto", "required"]),
  Schema.Struct({ type: Schema.Literal("function"), function: Schema.Struct({ name: Schema.String }) })
])

const ResponseFormat = Schema.Union([
  Schema.Struct({ type: Schema.Literal("text") }),
  Schema.Struct({ type: Schema.Literal("json_object") }),
  Schema.Struct({
    type: Schema.Literal("json_schema"),
    json_schema: Schema.Struct({
      name: Schema.String,
      description: given(Schema.String),
      schema: Schema.Union([Schema.Record(Schema.String, Schema.Unknown), Schema.Boolean]),
      /** Accepted: the answer is always held to the schema. */
      strict: given(Schema.Boolean)
    })
  })
])

/** The body of `POST /v1/chat/completions`. */
export const ChatRequest = Schema.Struct({
  ...drawing,
  ...harmless,
  messages: Schema.NonEmptyArray(Message),
  max_completion_tokens: given(atLeast(1)),
  logprobs: given(Schema.Boolean),
  top_logprobs: given(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 20 }))),
  tools: given(Schema.Array(Tool).check(Schema.isMaxLength(128))),
  tool_choice: given(ToolChoice),
  /** `false` ends an answer after its first call. */
  parallel_tool_calls: given(Schema.Boolean),
  response_format: given(ResponseFormat),
  /** `none` asks the template for an answer without thinking, anything else for one with. */
  reasoning_effort: given(Schema.Literals(["none", "minimal", "low", "medium", "high", "xhigh"])),
  /** Variables of the model's chat template, such as `enable_thinking`. */
  chat_template_kwargs: given(Schema.Record(Schema.String, Schema.Unknown))
}).annotate({ identifier: "CreateChatCompletionRequest" })
/** The body of `POST /v1/chat/completions`. */
export type ChatRequest = typeof ChatRequest.Type
