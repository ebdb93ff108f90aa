import { type Grammar, Matcher, TokenTable } from "@tg/constrain"
import { Messages, Reply, ReplyStyle, type Tool, ToolGrammar } from "@tg/dialogue"
import type { ChatTemplate, Tokenizer } from "@tg/tokenizer"
import { Result } from "effect"

const add: Tool.Tool = {
  type: "function",
  function: {
    name: "add",
    parameters: { type: "object", properties: { a: { type: "integer" }, b: { type: "integer" } }, required: ["a", "b"] }
  }
}

/** A reply that has to call `add`: `draw` takes a prompt and says which token comes next, among those of the mask. */
export const call = (
  template: ChatTemplate.Renderer,
  codec: Tokenizer.Codec,
  draw: (tokens: ReadonlyArray<number>, mask: Uint32Array) => number
) =>
  Result.gen(function*() {
    const style = ReplyStyle.of(template, codec)
    const messages = [{ role: "user", content: "What is 17 + 25?" }]
    const taken = yield* Messages.make(template, style).write({ messages, tools: [add] })
    const prompt = yield* template.render({ ...taken, variables: { enable_thinking: false } }, new Date())
    const thinkingOpen = ReplyStyle.isThinkingOpen(style, prompt)

    const grammar: Grammar.Grammar = yield* ToolGrammar.toolGrammar(style, [add], { name: "add" }, { thinkingOpen })
    const matcher = Matcher.make(grammar, TokenTable.make(ToolGrammar.vocabularyOf(codec)))
    const reply = Reply.make(style, { toolsGiven: [add], thinkingOpen })
    const ids: Array<number> = []
    const parts: Array<Reply.Part> = []
    while (!matcher.isFinished()) {
      const id = draw([...codec.encodeSegments(prompt.segments), ...ids], matcher.mask())
      matcher.accept(id)
      ids.push(id)
      parts.push(...reply.push({ id, text: codec.decode([id]) }))
    }
    return [...parts, ...reply.end()]
  })
