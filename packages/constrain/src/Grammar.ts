/**
 * Texts that may be generated, as a value: literals, regular expressions, JSON of a schema, special tokens, and what is
 * built of them. A grammar knows no vocabulary; `Matcher.make` joins the two.
 */
import { type Result } from "effect"
import type { UnsupportedRegex, UnsupportedSchema } from "./ConstrainError.ts"
import * as CharDfa from "./internal/charDfa.ts"
import * as Leaf from "./internal/leaf.ts"
import type { Rule } from "./internal/rule.ts"
import { withoutAny } from "./internal/search.ts"
import * as JsonSchema from "./JsonSchema.ts"
import * as Regex from "./Regex.ts"

/** A set of texts. Made by the functions of this module; equal by identity. */
export type Grammar =
  | { readonly _tag: "Bytes"; readonly bytes: Uint8Array }
  | { readonly _tag: "Rule"; readonly rule: Rule }
  | { readonly _tag: "Sequence"; readonly parts: ReadonlyArray<Grammar> }
  | { readonly _tag: "Choice"; readonly parts: ReadonlyArray<Grammar> }
  | { readonly _tag: "Repeat"; readonly part: Grammar; readonly min: number; readonly max: number }
  | { readonly _tag: "Token"; readonly id: number }
  | { readonly _tag: "Lazy"; readonly get: () => Grammar }

const encoder = new TextEncoder()

/** Exactly these bytes, or this text in UTF-8. */
export const literal = (text: string | Uint8Array): Grammar => ({
  _tag: "Bytes",
  bytes: typeof text === "string" ? encoder.encode(text) : text.slice()
})

/** The token of this id, and no other way to spell it. For special tokens, whose texts are not made of other tokens. */
export const token = (id: number): Grammar => ({ _tag: "Token", id })

/** The parts one after the other. */
export const sequence = (...parts: ReadonlyArray<Grammar>): Grammar => ({ _tag: "Sequence", parts })

/** One of the parts. Without any: no text at all. */
export const choice = (...parts: ReadonlyArray<Grammar>): Grammar => ({ _tag: "Choice", parts })

/** The part at least `min` and at most `max` times. */
export const repeat = (part: Grammar, bounds: { readonly min?: number; readonly max?: number } = {}): Grammar => ({
  _tag: "Repeat",
  part,
  min: bounds.min ?? 0,
  max: bounds.max ?? Infinity
})

/** The part, or nothing. */
export const optional = (part: Grammar): Grammar => repeat(part, { max: 1 })

/** A grammar that contains itself: `recursive((self) => choice(literal("x"), sequence(literal("("), self, literal(")"))))`. */
export const recursive = (make: (self: Grammar) => Grammar): Grammar => {
  let made: Grammar | undefined
  const self: Grammar = { _tag: "Lazy", get: () => made ??= make(self) }
  return self
}

/** The texts that the whole regular expression matches, as if it stood between `^` and `$`. */
export const regex = (pattern: string): Result.Result<Grammar, UnsupportedRegex> => Regex.compile(pattern)

/** JSON texts of the values that a schema allows. */
export const json = (schema: unknown): Result.Result<Grammar, UnsupportedSchema> => JsonSchema.compile(schema)

/** Texts in which none of these strings occurs, in any bytes. May end anywhere. */
export const textWithout = (triggers: ReadonlyArray<string>): Grammar => ({
  _tag: "Rule",
  rule: withoutAny(triggers.map((trigger) => encoder.encode(trigger)), "never")
})

/** Any text that ends with the first occurrence of one of these strings. */
export const until = (triggers: ReadonlyArray<string>): Grammar => ({
  _tag: "Rule",
  rule: withoutAny(triggers.map((trigger) => encoder.encode(trigger)), "atEnd")
})

/** Any text at all, as valid UTF-8. */
export const anyText: Grammar = { _tag: "Rule", rule: Leaf.ofText("text", CharDfa.anything)! }
