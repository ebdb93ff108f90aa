/** `tg pull`: a model onto this machine. */
import { parse, print } from "@tg/hub/ModelName"
import { Store } from "@tg/hub/Store"
import { Effect, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import * as Flags from "../Flags.ts"
import * as Names from "../Names.ts"
import * as Output from "../Output.ts"
import * as PullProgress from "../PullProgress.ts"

const flags = {
  name: Argument.String("name").pipe(Argument.withDescription(`${Flags.names}`)),
  connections: Flag.Int("connections").pipe(
    Flag.withMetavar("N"),
    Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 32 }))),
    Flag.withDescription("Connections at once (default: 4)"),
    Flag.withDefault(4)
  ),
  xet: Flag.Boolean("xet").pipe(
    Flag.withDescription("Fetch by the Xet protocol what the hub keeps so (default: over HTTP)"),
    Flag.withDefault(false)
  ),
  json: Flags.json
} as const

/** Fetches a model, or what is missing or damaged of it. */
export const command = Command.make(
  "pull",
  flags,
  Effect.fn("cli.pull")(function*({ connections, json, name, xet }) {
    const wanted = yield* Effect.fromResult(parse(name))
    const pulled = yield* Effect.flatMap(
      Store,
      ({ pull }) => PullProgress.tell(print(wanted), (listener) => pull(wanted, listener))
    ).pipe(
      Effect.provide(Names.store({ connections, xet }))
    )
    if (json) {
      yield* Output.printJson({
        name: pulled.name,
        path: pulled.path,
        bytes: pulled.totalBytes,
        files: pulled.files.map(({ file, sha256, size }) => ({ file, size, sha256 }))
      })
    } else yield* Output.print(`${pulled.path}\n`)
  })
).pipe(
  Command.withDescription("Fetch a model, or what is missing or damaged of it; goes on where it ended"),
  Command.withExamples([
    { command: "tg pull glm-4.7-flash" },
    { command: "tg pull hf:owner/repo:Q4_K_M", description: "The model of a repository with this quantisation" },
    { command: "tg pull https://host/model.gguf", description: "A file at an address" }
  ])
)
