/**
 * Conversations to prompts, by the Jinja template in a model file.
 *
 * A prompt comes out as segments: special where the template prints a special token, text elsewhere. What a message, a
 * tool or a variable says is always text, whatever it looks like and wherever the template puts it.
 */
import { Context, Result } from "effect"
import * as Alphabet from "./internal/alphabet.ts"
import { Bounded } from "./internal/bounded.ts"
import { type Machine, type Node, parse, Raised, type Scope, scope } from "./internal/jinja.ts"
import { budgetFor, maxSource, Meter, OverBudget } from "./internal/meter.ts"
import { trace, tracingMachine } from "./internal/provenance.ts"
import { cut, type Segment } from "./Segment.ts"
import type { Codec } from "./Tokenizer.ts"
import { clip, type InvalidMetadata, TemplateFailed } from "./TokenizerError.ts"
import { type Metadata, required, string } from "./Vocabulary.ts"

/** One message. Templates read `content` and fields of their own, such as `tool_calls` or `reasoning_content`. */
export interface Message {
  readonly role: string
  readonly content?: unknown
  readonly [field: string]: unknown
}

/** What to render. */
export interface Conversation {
  readonly messages: ReadonlyArray<Message>
  readonly tools?: ReadonlyArray<unknown> | undefined
  /** End with the beginning of an answer. Default: yes. */
  readonly addGenerationPrompt?: boolean | undefined
  /** Further variables of the template, such as `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined
}

/** A rendered conversation: its text, and the same text as segments to encode. */
export interface Prompt {
  readonly text: string
  readonly segments: ReadonlyArray<Segment>
}

/** A limit of rendering beside its budget. */
export interface Limit {
  /** The deadline, in milliseconds as `Date.now` gives them. */
  readonly until: number
}

/** A parsed template. */
export interface Renderer {
  readonly source: string
  /** `now` is what a template that prints the date sees. */
  readonly render: (conversation: Conversation, now: Date, limit?: Limit) => Result.Result<Prompt, TemplateFailed>
}

/** Reads the template of a model file: `tokenizer.chat_template`, or the variant with a name. */
export const make = (
  metadata: Metadata,
  codec: Codec,
  variant?: string
): Result.Result<Renderer, InvalidMetadata | TemplateFailed> => {
  const key = variant === undefined ? "tokenizer.chat_template" : `tokenizer.chat_template.${variant}`
  return Result.flatMap(required(metadata, key, string), (source) => fromSource(source, codec))
}

/** Reads a template. Rendering it has a budget that grows with the conversation. */
export const fromSource = (source: string, codec: Codec): Result.Result<Renderer, TemplateFailed> =>
  Result.gen(function*() {
    if (source.length > maxSource) {
      const reason = `it has ${source.length} characters, at most ${maxSource} are read`
      return yield* Result.fail(new TemplateFailed({ stage: "budget", budget: "source", reason }))
    }
    const program = yield* attempt("parse", () => parse(source))
    const specials = [...codec.specials.keys()]
    const own = new Set([source, ...specials].flatMap(Alphabet.privateIn))
    const usual = yield* traced({ source, specials, taken: own })
    const { bos, eos, tokens } = codec.vocabulary
    const names = { bos_token: bos === undefined ? "" : tokens[bos]!, eos_token: eos === undefined ? "" : tokens[eos]! }

    const render: Renderer["render"] = (conversation, now, limit): Result.Result<Prompt, TemplateFailed> =>
      Result.gen(function*() {
        const { given, letters, size } = yield* attempt("render", () => variablesOf(conversation))
        const meter = new Meter(budgetFor(size), limit?.until)
        const run = (machine: (scope: Scope) => Machine, node: Node, alter: (text: string) => string) =>
          attempt("render", () => {
            meter.startRun()
            const messages = given.messages.map((message) => alterRole(message, alter))
            const variables = {
              ...given,
              messages,
              bos_token: alter(names.bos_token),
              eos_token: alter(names.eos_token)
            }
            return String(machine(scope(variables, now, meter)).run(node).value)
          })
        const text = yield* run((scope) => new Bounded(scope, meter), program, (text) => text)
        const mine = usual.alphabet.touches([...letters].join(""))
          ? yield* traced({ source, specials, taken: new Set([...own, ...letters]) })
          : usual
        const { alphabet } = mine
        const marked = yield* run((scope) => tracingMachine(scope, alphabet, meter), mine.program, alphabet.mark)
        if (alphabet.unmark(marked) !== text) {
          const reason = "it decides by the look of a text it printed, so that special tokens cannot be told from text"
          return yield* Result.fail(new TemplateFailed({ stage: "trace", reason }))
        }
        const segments = cut(marked, mine.marks)
        return { text, segments: segments.map(({ text, type }) => ({ type, text: alphabet.unmark(text) })) }
      })
    return { source, render }
  })

/** The service that makes templates. */
export interface Making {
  /** The template of a model file, or its variant with a name. */
  readonly make: (
    metadata: Metadata,
    codec: Codec,
    variant?: string
  ) => Result.Result<Renderer, InvalidMetadata | TemplateFailed>
}

/** The maker of chat templates: `make`, unless a Layer replaces it. */
export const ChatTemplate = Context.Reference<Making>("@tg/tokenizer/ChatTemplate", {
  defaultValue: () => ({ make })
})

interface Traced {
  readonly alphabet: Alphabet.Alphabet
  readonly program: Node
  /** The special tokens as the program prints them. */
  readonly marks: ReadonlyArray<string>
}

const traced = ({ source, specials, taken }: {
  readonly source: string
  readonly specials: ReadonlyArray<string>
  readonly taken: ReadonlySet<string>
}): Result.Result<Traced, TemplateFailed> => {
  const alphabet = Alphabet.make(specials.join(""), taken)
  if (alphabet === undefined) {
    return Result.fail(
      new TemplateFailed({ stage: "trace", reason: "the texts use all private characters of Unicode" })
    )
  }
  const marks = specials.map(alphabet.mark)
  return attempt("parse", () => ({ alphabet, marks, program: trace(parse(source), alphabet) }))
}

const attempt = <A>(stage: "parse" | "render", run: () => A): Result.Result<A, TemplateFailed> =>
  Result.try({ try: run, catch: (cause) => failed(stage, cause) })

const failed = (stage: "parse" | "render", cause: unknown): TemplateFailed => {
  const reason = clip(cause instanceof Error ? cause.message : String(cause))
  if (cause instanceof OverBudget) return new TemplateFailed({ stage: "budget", budget: cause.budget, reason })
  if (cause instanceof Raised) return new TemplateFailed({ stage, reason, isRefusal: true })
  // limits of the host: its stack, or its longest string
  if (cause instanceof RangeError || (cause instanceof Error && cause.name === "InternalError")) {
    const budget = /stack|recursion/i.test(reason) ? "depth" : "text"
    const what = budget === "depth" ? "its parts lie too deep in one another" : `it makes too much text (${reason})`
    return new TemplateFailed({ stage: "budget", budget, reason: what })
  }
  return new TemplateFailed({ stage, reason })
}

// Some templates build a token from a role, `'<|' + role + '|>'`: a role that is a plain word counts as theirs.
const alterRole = (message: Message, alter: (text: string) => string): Message => {
  const role: unknown = message.role // a client's JSON may lack it
  return typeof role === "string" && /^[\p{L}\p{N}_-]+$/u.test(role) ? { ...message, role: alter(role) } : message
}

/** The variables with well-formed strings only, the private characters in them, and how much they are. */
const variablesOf = ({ addGenerationPrompt, messages, tools, variables }: Conversation) => {
  const letters = new Set<string>()
  const size = { characters: 0, values: 0 }
  const clean = (value: unknown): unknown => {
    size.values++
    if (typeof value === "string") {
      size.characters += value.length
      const text = value.toWellFormed()
      for (const letter of Alphabet.privateIn(text)) letters.add(letter)
      return text
    }
    if (Array.isArray(value)) return value.map(clean)
    if (typeof value !== "object" || value === null) return value
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [clean(key), clean(item)]))
  }
  const given = {
    ...(clean(variables ?? {}) as Record<string, unknown>),
    messages: clean(messages) as ReadonlyArray<Message>,
    tools: clean(tools ?? null),
    add_generation_prompt: addGenerationPrompt ?? true
  }
  return { given, letters, size }
}
