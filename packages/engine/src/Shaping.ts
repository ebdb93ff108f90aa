/** What a request changes in a row of logits, and what it wants to know of it: pure functions of the row. */
import * as Constraint from "./Constraint.ts"
import type { Likelihood, Request } from "./Request.ts"

/** Tokens that `repeat` looks at if the request does not say. */
export const usualLastTokens = 64

/** The logits to draw from: first the bias, then the penalties, then what a mask leaves. Gives another row. */
export const shape = (
  logits: Float32Array,
  { bias, penalties = {} }: Pick<Request, "bias" | "penalties">,
  { mask, prompt, tokens }: {
    /** The prompt and what was generated. */
    readonly tokens: ReadonlyArray<number>
    /** Tokens of the prompt. */
    readonly prompt: number
    readonly mask: Uint32Array | undefined
  }
): Float32Array => {
  const row = logits.slice()
  for (const [id, by] of bias ?? []) row[id]! += by
  const { frequency = 0, lastTokens = usualLastTokens, presence = 0, repeat = 1 } = penalties
  if (repeat !== 1 && lastTokens > 0) {
    for (const id of new Set(tokens.slice(-lastTokens))) row[id]! *= row[id]! > 0 ? 1 / repeat : repeat
  }
  if (presence !== 0 || frequency !== 0) {
    const times = new Map<number, number>()
    for (const id of tokens.slice(prompt)) times.set(id, (times.get(id) ?? 0) + 1)
    for (const [id, count] of times) row[id]! -= presence + frequency * count
  }
  return mask === undefined ? row : masked(row, mask)
}

/** The row with what a mask allows, and `-Infinity` elsewhere. */
export const masked = (logits: Float32Array, mask: Uint32Array): Float32Array =>
  logits.map((logit, id) => Constraint.isAllowed(mask, id) ? logit : -Infinity)

/** How likely the token is, and the likeliest `count` of the row: natural logarithms of the softmax. */
export const likelihoods = (
  logits: Float32Array,
  id: number,
  count: number
): { readonly logprob: number; readonly top: ReadonlyArray<Likelihood> } => {
  const top = likeliest(logits, Math.max(1, count))
  const largest = logits[top[0]!]!
  let sum = 0
  for (const logit of logits) sum += Math.exp(logit - largest)
  const logprobOf = (id: number): number => logits[id]! - largest - Math.log(sum)
  return { logprob: logprobOf(id), top: top.slice(0, count).map((id) => ({ id, logprob: logprobOf(id) })) }
}

/** Ids of the largest logits, the largest first, of equal ones the lower id first. */
const likeliest = (logits: Float32Array, count: number): ReadonlyArray<number> => {
  const found: Array<number> = []
  for (let id = 0; id < logits.length; id++) {
    if (found.length === count && !(logits[id]! > logits[found.at(-1)!]!)) continue
    let at = found.length
    while (at > 0 && logits[found[at - 1]!]! < logits[id]!) at--
    found.splice(at, 0, id)
    if (found.length > count) found.pop()
  }
  return found
}
