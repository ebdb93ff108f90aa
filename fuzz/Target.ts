/** What is fed with damaged input. */
import type { Random } from "./Random.ts"

/** What became of a case. `refused` and `accepted` are both right; anything else is a finding. */
export interface Outcome {
  readonly result: "accepted" | "refused"
  /** Which error, for the counts. */
  readonly tag?: string
  /** What is wrong with it, if something is: the message of a finding. */
  readonly finding?: string | undefined
}

/** Something that takes input from outside. */
export interface Target {
  readonly name: string
  /** The input of a case; it is kept if it is a finding. */
  readonly make: (random: Random) => Uint8Array
  readonly run: (input: Uint8Array) => Outcome | Promise<Outcome>
}

/** Messages are read by people: none is as long as a file. */
const longestMessage = 6000

/** The outcome of something that was refused with a typed error. */
export const refused = (error: { readonly _tag: string; readonly message: string }): Outcome => ({
  result: "refused",
  tag: error._tag,
  finding: error.message.length > longestMessage
    ? `the message of ${error._tag} has ${error.message.length} characters`
    : /\bat .*:\d+:\d+\)?$/m.test(error.message)
    ? `the message of ${error._tag} has a stack trace`
    : undefined
})

/** It was accepted. */
export const accepted: Outcome = { result: "accepted" }

/** It was accepted, and is wrong. */
export const wrong = (finding: string): Outcome => ({ result: "accepted", finding })

const encoder = new TextEncoder()
const decoder = new TextDecoder()

/** A text as input. */
export const bytes = (text: string): Uint8Array => encoder.encode(text)
/** An input as text. */
export const text = (input: Uint8Array): string => decoder.decode(input)

/** Runs a case; what is thrown is a finding. */
export const run = async (target: Target, input: Uint8Array): Promise<Outcome> => {
  try {
    return await target.run(input)
  } catch (error) {
    const trace = error instanceof Error ? error.stack ?? error.message : String(error)
    return { result: "refused", finding: `a defect: ${trace.slice(0, 1500)}` }
  }
}
