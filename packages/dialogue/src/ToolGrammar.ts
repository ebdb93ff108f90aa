/** Grammars of replies whose calls are valid: of given tools, with arguments that their schemas allow. */
import { ConstrainError, Grammar, JsonSchema, type TokenTable } from "@tg/constrain"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { isSpecial } from "@tg/tokenizer/Vocabulary"
import { Result, Schema } from "effect"
import { closedBy, pairs, tag } from "./internal/pairGrammar.ts"
import type { Calls, ReplyStyle } from "./ReplyStyle.ts"
import { type Choice, parametersOf, type Tool } from "./Tool.ts"

/** A tool whose arguments cannot be held to its schema. */
export class UnsupportedTool extends Schema.TaggedError<UnsupportedTool>()("UnsupportedTool", {
  tool: Schema.String,
  reason: ConstrainError.UnsupportedSchema
}) {
  override get message(): string {
    return `tool ${this.tool}: parameters ${this.reason.message}`
  }
}

/** A choice of a tool that is not there. */
export class UnknownTool extends Schema.TaggedError<UnknownTool>()("UnknownTool", {
  name: Schema.String,
  tools: Schema.Array(Schema.String)
}) {
  override get message(): string {
    const known = this.tools.length === 0 ? "no tools were given" : `the tools are ${this.tools.join(", ")}`
    return `the tool ${JSON.stringify(this.name)} has to be called, and ${known}`
  }
}

/** The further freedom of a reply. */
export interface Options {
  /** Whether the prompt ends inside of the thinking section. */
  readonly thinkingOpen: boolean
  /** Whether it may begin to think where the prompt has not begun it. Default: yes. */
  readonly mayThink?: boolean | undefined
  /** How many calls there may be at most; 1 for a tool that is chosen by name, else as many as the model likes. */
  readonly maxCalls?: number | undefined
}

/** The vocabulary of a tokenizer, as grammars see it: special tokens stand for no text. */
export const vocabularyOf = ({ bytesOf, vocabulary }: Codec): TokenTable.Vocabulary => ({
  size: vocabulary.tokens.length,
  bytesOf: (id) => isSpecial(vocabulary.kinds[id]!) || vocabulary.kinds[id] === "unused" ? undefined : bytesOf(id),
  endTokens: vocabulary.eog
})

/**
 * The grammar of replies with valid calls. With `auto` text may come first, and there may be no call; with `required` or a tool's name
 * only thinking comes in front of the first call.
 */
export const toolGrammar = (
  style: ReplyStyle,
  tools: ReadonlyArray<Tool>,
  choice: Choice,
  options: Options
): Result.Result<Grammar.Grammar, UnsupportedTool | UnknownTool> =>
  Result.gen(function*() {
    const { calls } = style
    const name = typeof choice === "object" ? choice.name : undefined
    const chosen = name === undefined ? tools : tools.filter((tool) => tool.function.name === name)
    if (choice === "none") return withThinking(style, options, Grammar.anyText)
    if (chosen.length === 0) {
      if (choice === "auto") return withThinking(style, options, Grammar.anyText)
      return yield* Result.fail(
        new UnknownTool({ name: name ?? "any", tools: tools.map((tool) => tool.function.name) })
      )
    }
    const bodies: Array<Grammar.Grammar> = []
    for (const tool of chosen) {
      bodies.push(
        yield* Result.mapError(
          body(calls, tool),
          (reason) => new UnsupportedTool({ tool: tool.function.name, reason })
        )
      )
    }
    const call = Grammar.choice(...bodies)
    const max = options.maxCalls ?? (name === undefined ? Infinity : 1)
    return withThinking(style, options, choice === "auto" ? afterText(calls, call, max) : series(calls, call, max))
  })

/** Calls behind each other, the first one with its opening tag. */
const series = (calls: Calls, call: Grammar.Grammar, max: number): Grammar.Grammar =>
  Grammar.sequence(tag(firstTag(calls)), afterFirstTag(calls, call, max))

/** The tag that begins calls. */
const firstTag = (calls: Calls) => calls.form === "function" ? calls.all.open : calls.open

/** What follows that tag: the rest of the first call, and more of them. */
const afterFirstTag = (calls: Calls, call: Grammar.Grammar, max: number): Grammar.Grammar => {
  const next = Grammar.sequence(Grammar.optional(Grammar.literal("\n")), tag(calls.open), call)
  const more = Grammar.repeat(next, { max: max - 1 })
  return calls.form === "function"
    ? Grammar.sequence(tag(calls.open), call, more, tag(calls.all.close))
    : Grammar.sequence(call, more)
}

/** Any text, optionally followed by calls. */
const afterText = (calls: Calls, call: Grammar.Grammar, max: number): Grammar.Grammar => {
  const first = firstTag(calls)
  const rest = afterFirstTag(calls, call, max)
  return first.id === undefined
    ? Grammar.choice(Grammar.textWithout([first.text]), Grammar.sequence(Grammar.until([first.text]), rest))
    : Grammar.sequence(Grammar.anyText, Grammar.optional(Grammar.sequence(tag(first), rest)))
}

/** Thinking first: the rest of it if the prompt opens it, else optional. */
const withThinking = (
  { thinking }: ReplyStyle,
  { mayThink = true, thinkingOpen }: Options,
  reply: Grammar.Grammar
): Grammar.Grammar => {
  if (thinking === undefined || !(thinkingOpen || mayThink)) return reply
  const breaks = Grammar.repeat(Grammar.literal("\n"), { max: 2 })
  const rest = Grammar.sequence(closedBy(thinking.close), breaks)
  const all = thinkingOpen ? rest : Grammar.optional(Grammar.sequence(tag(thinking.open), rest))
  return Grammar.sequence(all, reply)
}

/** A call behind its opening tag. */
const body = (calls: Calls, tool: Tool): Result.Result<Grammar.Grammar, ConstrainError.UnsupportedSchema> => {
  const { name } = tool.function
  const parameters = parametersOf(tool)
  if (calls.form === "pairs") {
    return Result.map(
      pairs(calls, parameters),
      (pairs) => Grammar.sequence(Grammar.literal(name), pairs, tag(calls.close))
    )
  }
  return Result.map(JsonSchema.compile({ type: "object", ...parameters }), (json) => {
    if (calls.form === "json") {
      const lineBreak = Grammar.optional(Grammar.literal("\n"))
      const head = Grammar.literal(`{"name": ${JSON.stringify(name)}, "arguments": `)
      return Grammar.sequence(lineBreak, head, json, Grammar.literal("}"), lineBreak, tag(calls.close))
    }
    return calls.isFenced
      ? Grammar.sequence(
        Grammar.literal("function"),
        tag(calls.separator),
        Grammar.literal(`${name}\n\`\`\`json\n`),
        json,
        Grammar.literal("\n```"),
        tag(calls.close)
      )
      : Grammar.sequence(Grammar.literal(name), tag(calls.separator), json, tag(calls.close))
  })
}
