/** `tg logits`: the logits after each token, to a file. */
import { Engine } from "@tg/engine/Engine"
import type { ModelFile } from "@tg/engine"
import { InvalidTokens } from "@tg/engine/Session"
import { Clock, Effect, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import { Chosen } from "../Devices.ts"
import * as Flags from "../Flags.ts"
import * as Models from "../Models.ts"
import * as OutFile from "../OutFile.ts"
import * as Output from "../Output.ts"
import { UsageError } from "../Report.ts"

const flags = {
  model: Flags.model,
  tokens: Flag.String("tokens").pipe(Flag.withMetavar("1,2,3"), Flag.withDescription("Token ids, with commas between")),
  out: Flag.String("out").pipe(
    Flag.withMetavar("FILE"),
    Flag.withDescription("Where to write: little-endian float32, [tokens, vocabulary]")
  ),
  force: OutFile.force,
  step: Flag.Literals("step", ["prompt", "decode"]).pipe(
    Flag.withDescription(
      "Whose kernels compute them: a prompt's (default), or those of decoding, one token after the other"
    ),
    Flag.withDefault("prompt" as const)
  ),
  ...Models.runFlags,
  json: Flags.json
} as const

/** Writes logits. */
export const command = Command.make(
  "logits",
  flags,
  Effect.fn("cli.logits")(function*(given) {
    const tokens = parseTokens(given.tokens)
    if (tokens instanceof UsageError) return yield* tokens
    // all that can be wrong is told before weights are read
    yield* OutFile.check(given.out, given)
    const opened = yield* Models.open(given.model)
    yield* OutFile.checkApart(given.out, opened.source.name)
    const refusal = refusalOf(tokens, opened.file) ??
      Models.checkLength(opened.file, { asked: tokens.length, context: given.context })
    if (refusal !== undefined) return yield* refusal
    const file = yield* OutFile.open(given.out, given)
    yield* Models.withModel(
      given,
      { prepare: ["all"], oneByOne: given.step === "decode", opened },
      run(tokens, { ...given, file })
    )
  }, Effect.scoped)
).pipe(Command.withDescription("Write the logits after each token to a file"))

/** `1,2,3` as numbers. */
export const parseTokens = (text: string): ReadonlyArray<number> | UsageError => {
  const parts = text.split(",").map((part) => part.trim())
  const bad = parts.find((part) => !/^\d{1,15}$/.test(part))
  return bad === undefined
    ? parts.map(Number)
    : new UsageError({ message: `--tokens has ${JSON.stringify(bad)}; give token ids with commas between: 1,2,3` })
}

/** What the engine would say of tokens, before it is there. */
const refusalOf = (tokens: ReadonlyArray<number>, { config }: ModelFile.ModelFile): InvalidTokens | undefined => {
  const bad = tokens.find((id) => id >= config.vocabulary)
  return bad === undefined ? undefined : new InvalidTokens({
    message: `token ${bad} was given; ${config.name} has the tokens 0 to ${config.vocabulary - 1}`
  })
}

const run = Effect.fn("cli.logits.run")(function*(
  tokens: ReadonlyArray<number>,
  { file, json, out }: { readonly file: OutFile.OutFile; readonly out: string; readonly json: boolean }
) {
  const engine = yield* Engine
  const chosen = yield* Chosen
  const started = yield* Clock.currentTimeMillis
  yield* engine.logits(tokens).pipe(Stream.runForEach((rows) => file.append(littleEndian(rows))))
  yield* file.finish
  const millis = (yield* Clock.currentTimeMillis) - started
  const shape = [tokens.length, engine.model.config.vocabulary]
  if (json) yield* Output.printJson({ out, shape, device: chosen.name, millis })
  yield* Output.note(`${out}: float32 [${shape.join(", ")}] from ${chosen.name} in ${millis} ms`)
})

const littleEndian = (rows: Float32Array): Uint8Array => {
  const bytes = new Uint8Array(4 * rows.length)
  const view = new DataView(bytes.buffer)
  for (let i = 0; i < rows.length; i++) view.setFloat32(4 * i, rows[i]!, true)
  return bytes
}
