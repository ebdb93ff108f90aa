/**
 * The prompt: an argument, `-p`, or stdin. Stdin is read where it is asked for with `-`, and where there is no other prompt and no
 * person at it. It is not read beside a prompt: who starts tg from a program often leaves a stdin open that never ends.
 */
import { Effect, Option, Stdio, Stream } from "effect"
import * as Files from "./Files.ts"
import * as Flags from "./Flags.ts"
import { UsageError } from "./Report.ts"
import * as Words from "./Words.ts"

/** The prompt's text. `-p TEXT -` is the text, an empty line, and what comes from stdin. */
export const of = Effect.fn("cli.stdinPrompt")(function*(
  given: { readonly argument: Option.Option<string>; readonly flag: Option.Option<string> },
  { isNeeded }: { readonly isNeeded: boolean }
) {
  const { argument, flag } = given
  if (Option.isSome(argument) && argument.value === "-" && Option.isSome(flag)) {
    return `${flag.value}\n\n${yield* asked}`
  }
  const prompt = Option.getOrUndefined(yield* Flags.promptOf(given))
  if (prompt === "-") return yield* asked
  const { stdinIsTerminal } = yield* Stdio.Stdio
  if (prompt !== undefined || !isNeeded || (yield* stdinIsTerminal)) return prompt
  const text = yield* stdinText
  return text === "" ? undefined : text
})

const stdinText = Effect.gen(function*() {
  const { stdin } = yield* Stdio.Stdio
  const parts = yield* Stream.runCollect(stdin).pipe(
    Effect.mapError((error) => new UsageError({ message: `stdin cannot be read: ${Words.cause(error)}` }))
  )
  return (yield* Files.decodeText(Buffer.concat(parts), "stdin")).replace(/\n$/, "")
})

/** All of stdin. Nothing there is no prompt: it is what a closed one looks like, and one that is a folder. */
const asked = Effect.gen(function*() {
  const text = yield* stdinText
  if (text === "") {
    return yield* new UsageError({ message: "- reads the prompt from stdin, and nothing came from there" })
  }
  return text
})
