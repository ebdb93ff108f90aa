/** Whether a grammar has a text, byte by byte, without a vocabulary. */
import { Result } from "effect"
import type { InvalidGrammar } from "./ConstrainError.ts"
import type { Grammar } from "./Grammar.ts"
import { compile } from "./internal/compile.ts"
import * as Machine from "./internal/machine.ts"

/** Reads bytes as far as the grammar has them. */
export interface Acceptor {
  /** Takes more bytes: false, now and later, if no text of the grammar begins so. */
  readonly push: (bytes: Uint8Array | string) => boolean
  /** Whether what was taken is a whole text of the grammar. */
  readonly isComplete: () => boolean
}

const encoder = new TextEncoder()
const machines = new WeakMap<Grammar, Machine.Machine>()

/** Memoised states beyond which they are dropped between texts. */
const maxStates = 20_000

/** An acceptor at the beginning of a text. */
export const make = (grammar: Grammar): Result.Result<Acceptor, InvalidGrammar> =>
  Result.map(compile(grammar), (rule) => {
    const machine = machines.get(grammar) ?? Machine.make(rule)
    machines.set(grammar, machine)
    let state: Machine.State | null = machine.start
    return {
      push: (bytes) => {
        for (const byte of typeof bytes === "string" ? encoder.encode(bytes) : bytes) {
          state = state === null ? null : machine.step(state, byte)
        }
        if (machine.size() > maxStates) machine.forget()
        return state !== null
      },
      isComplete: () => state?.accepting === true
    }
  })

/** Whether the grammar has the whole text. Lone surrogates become U+FFFD, as everywhere in UTF-8. */
export const accepts = (grammar: Grammar, text: Uint8Array | string): boolean =>
  Result.match(make(grammar), {
    onFailure: () => false,
    onSuccess: (acceptor) => acceptor.push(text) && acceptor.isComplete()
  })
