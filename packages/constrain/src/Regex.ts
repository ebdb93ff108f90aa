/** Regular expressions of ECMA-262, in Unicode mode, as far as an automaton can match them. */
import { Result } from "effect"
import { UnsupportedRegex } from "./ConstrainError.ts"
import type { Grammar } from "./Grammar.ts"
import type * as CharDfa from "./internal/charDfa.ts"
import * as Leaf from "./internal/leaf.ts"
import { regexDfa } from "./internal/regexDfa.ts"
import { parse } from "./internal/regexParse.ts"

/** The texts that the whole expression matches, as if it stood between `^` and `$`. */
export const compile = (pattern: string): Result.Result<Grammar, UnsupportedRegex> =>
  Result.flatMap(language(pattern, "whole"), (dfa) => {
    const rule = Leaf.ofText(`/${pattern}/`, dfa)
    return rule === undefined
      ? Result.fail(new UnsupportedRegex({ pattern, offset: 0, reason: "no text matches it" }))
      : Result.succeed<Grammar>({ _tag: "Rule", rule })
  })

const languages = new Map<string, Result.Result<CharDfa.CharDfa, UnsupportedRegex>>()
const maxKept = 512

/** The language of an expression: of whole texts, or of texts in which it is found somewhere. */
export const language = (
  pattern: string,
  extent: "whole" | "search"
): Result.Result<CharDfa.CharDfa, UnsupportedRegex> => {
  const key = `${extent}:${pattern}`
  const known = languages.get(key)
  if (known !== undefined) return known
  const made = Result.flatMap(parse(pattern), (expression) => regexDfa(pattern, expression, extent))
  if (languages.size >= maxKept) languages.clear()
  languages.set(key, made)
  return made
}
