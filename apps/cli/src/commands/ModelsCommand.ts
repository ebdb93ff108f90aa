/** `tg models`: what was pulled. */
import { parse, shortOf } from "@tg/hub/ModelName"
import { type Model, Store } from "@tg/hub/Store"
import { Effect, Result } from "effect"
import { Argument, Command } from "effect/cli"
import * as Flags from "../Flags.ts"
import * as Names from "../Names.ts"
import * as Output from "../Output.ts"
import { bytes } from "../Progress.ts"
import { table } from "../Table.ts"

const remove = Command.make(
  "rm",
  { name: Argument.String("name").pipe(Argument.withDescription("The name of a model that was pulled")) },
  Effect.fn("cli.models.rm")(function*({ name }) {
    const wanted = yield* Effect.fromResult(parse(name))
    const { freedBytes } = yield* Effect.flatMap(Store, (store) => store.remove(wanted)).pipe(
      Effect.provide(Names.store())
    )
    yield* Output.note(`${name} is removed; ${bytes(freedBytes)} are free again`)
  })
).pipe(Command.withDescription("Remove a name, and the file if it has no other"))

/** Lists models. */
export const command = Command.make(
  "models",
  { json: Flags.json },
  Effect.fn("cli.models")(function*({ json }) {
    const { models, root } = yield* Effect.flatMap(
      Store,
      ({ list, root }) => Effect.map(list, (models) => ({ models, root }))
    ).pipe(Effect.provide(Names.store()))
    if (json) return yield* Output.printJson(models.map(asJson))
    if (models.length === 0) return yield* Output.note(`no model was pulled yet (${root}); tg pull NAME fetches one`)
    yield* Output.print(`${table([["name", "size", "state", "short name"], ...models.map(rowOf)]).join("\n")}\n`)
  })
).pipe(
  Command.withDescription("List the models that were pulled"),
  Command.withSubcommands([remove])
)

const shortName = ({ name }: Model): string | undefined => Result.getOrUndefined(Result.map(parse(name), shortOf))

const rowOf = (model: Model): ReadonlyArray<string> => [
  model.name,
  bytes(model.totalBytes),
  model.isComplete ? "ready" : `${Math.floor(100 * model.doneBytes / Math.max(1, model.totalBytes))}%`,
  shortName(model) ?? ""
]

const asJson = (model: Model) => ({
  name: model.name,
  shortName: shortName(model),
  bytes: model.totalBytes,
  doneBytes: model.doneBytes,
  state: model.isComplete ? "ready" : "partial",
  ...(model.isComplete ? { path: model.path } : {}),
  files: model.files.map(({ file, sha256, size }) => ({ file, size, sha256 }))
})
