/** What holds an answer to a form: the client's JSON schema, behind the model's thinking. */
import * as Grammar from "@tg/constrain/Grammar"
import * as JsonSchema from "@tg/constrain/JsonSchema"
import * as Matcher from "@tg/constrain/Matcher"
import * as TokenTable from "@tg/constrain/TokenTable"
import type { Constraint } from "@tg/engine/Constraint"
import type { ReplyStyle, Tag } from "@tg/dialogue/ReplyStyle"
import type { Codec } from "@tg/tokenizer/Tokenizer"
import { isSpecial } from "@tg/tokenizer/Vocabulary"
import { Result } from "effect"
import * as ApiError from "./ApiError.ts"
import type { ChatRequest } from "./ChatRequest.ts"

/** Makes constraints for one model. */
export interface Constraints {
  /** Something that makes a constraint for each answer; nothing where the answer is free. */
  readonly of: (
    format: ChatRequest["response_format"],
    reply: { readonly style: ReplyStyle; readonly thinkingOpen: boolean }
  ) => Result.Result<(() => Constraint) | undefined, ApiError.ApiError>
}

/** Schemas whose automata are kept. */
const kept = 64

/** Constraints over a vocabulary. The table of its tokens is made when it is first needed. */
export const make = (codec: Codec): Constraints => {
  let table: TokenTable.TokenTable | undefined
  const grammars = new Map<string, Grammar.Grammar>()

  const compile = (schema: unknown): Result.Result<Grammar.Grammar, ApiError.ApiError> => {
    const key = JSON.stringify(schema)
    const known = grammars.get(key)
    const grammar = known === undefined ? compiled(schema) : Result.succeed(known)
    if (Result.isFailure(grammar)) return grammar
    grammars.delete(key)
    grammars.set(key, grammar.success)
    for (const oldest of grammars.keys()) {
      if (grammars.size <= kept) break
      grammars.delete(oldest)
    }
    return grammar
  }

  const matching = (grammar: Grammar.Grammar): Result.Result<() => Constraint, ApiError.ApiError> => {
    table ??= TokenTable.make({
      size: codec.vocabulary.tokens.length,
      bytesOf: (id) => isSpecial(codec.vocabulary.kinds[id]!) ? undefined : codec.bytesOf(id),
      endTokens: codec.vocabulary.eog
    })
    return Result.mapBoth(Matcher.makeResult(grammar, table), {
      // a matcher is at one place: each answer has its own
      onSuccess: (matcher) => () => matcher.clone(),
      onFailure: ({ message }) => invalidSchema(message)
    })
  }

  return {
    of: (format, { style, thinkingOpen }) => {
      if (format === null || format === undefined || format.type === "text") return Result.succeed(undefined)
      const schema = format.type === "json_object" ? { type: "object" } : format.json_schema.schema
      return Result.flatMap(
        compile(schema),
        (grammar) => matching(thinkingOpen ? thinkingThen(style, grammar) : grammar)
      )
    }
  }
}

const compiled = (schema: unknown): Result.Result<Grammar.Grammar, ApiError.ApiError> =>
  Result.mapError(JsonSchema.compile(schema), ({ message }) => invalidSchema(message))

const invalidSchema = (message: string): ApiError.ApiError =>
  ApiError.invalid(`response_format.json_schema.schema: ${message}`, {
    param: "response_format.json_schema.schema",
    code: "unsupported_schema"
  })

/** Thoughts until the tag that ends them, then the answer. */
const thinkingThen = ({ thinking }: ReplyStyle, answer: Grammar.Grammar): Grammar.Grammar =>
  thinking === undefined ? answer : Grammar.sequence(untilTag(thinking.close), lineEnds, answer)

const untilTag = ({ id, text }: Tag): Grammar.Grammar =>
  id === undefined ? Grammar.until([text]) : Grammar.sequence(Grammar.anyText, Grammar.token(id))

const lineEnds = Grammar.repeat(Grammar.literal("\n"), { max: 2 })
