/** Opts that were tuned: those that come with tg, and those of this user on top. */
import * as Store from "@tg/tuner/Store"
import { shipped } from "@tg/tuner/Tuned"
import { Effect, FileSystem, Path } from "effect"
import { Flag } from "effect/cli"
import * as UserDirectories from "effect/persistence/UserDirectories"
import * as Output from "./Output.ts"
import { UsageError } from "./Report.ts"

/** `--no-tune`. */
export const noTune = Flag.Boolean("no-tune").pipe(
  Flag.withDescription("Use the heuristics alone, without tuned opts"),
  Flag.withDefault(false)
)

/** Where `tune` keeps what it finds: in the user's folder for caches. */
export const userFile = Effect.gen(function*() {
  const path = yield* Path.Path
  return path.join(yield* UserDirectories.make().cache("tg"), "tuned.json")
})

/** What a file has; nothing if there is none. */
export const read = Effect.fn("TunedFiles.read")(function*(file: string) {
  const files = yield* FileSystem.FileSystem
  if (!(yield* files.exists(file))) return Store.empty
  return yield* Effect.fromResult(Store.decode(yield* files.readFileString(file), file))
})

/** The opts to use. A file of the user's that cannot be used is told on stderr, and left out. */
export const load = (options: { readonly noTune: boolean }) =>
  options.noTune
    ? Effect.succeed(Store.empty)
    : Effect.flatMap(userFile, read).pipe(
      Effect.map((own) => Store.merge(shipped, own)),
      Effect.catch((error) => Effect.as(Output.note(`warning: tuned opts are not used: ${error.message}`), shipped))
    )

/** Adds to a file. */
export const add = Effect.fn("TunedFiles.add")(function*(file: string, found: Store.Store) {
  const files = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const text = Store.encode(Store.merge(yield* read(file), found))
  // whoever reads meanwhile finds the old file or the new one
  const beside = `${file}.${process.pid}.new`
  yield* files.makeDirectory(path.dirname(path.resolve(file)), { recursive: true })
  yield* files.writeFileString(beside, text)
  yield* files.rename(beside, file)
}, (adding, file) =>
  Effect.catchTag(
    adding,
    "PlatformError",
    (error) => Effect.fail(new UsageError({ message: `${file} cannot be written: ${error.message}` }))
  ))
