/** Files that people hand to commands. */
import { Effect, FileSystem, Schema } from "effect"
import { UsageError } from "./Report.ts"

/** The text of a file. */
export const readText = (path: string): Effect.Effect<string, UsageError, FileSystem.FileSystem> =>
  Effect.flatMap(FileSystem.FileSystem, (files) => files.readFileString(path)).pipe(
    Effect.mapError((error) => new UsageError({ message: `${path} cannot be read: ${error.message}` }))
  )

/** Writes a file. */
export const writeText = (path: string, text: string): Effect.Effect<void, UsageError, FileSystem.FileSystem> =>
  Effect.flatMap(FileSystem.FileSystem, (files) => files.writeFileString(path, text)).pipe(
    Effect.mapError((error) => new UsageError({ message: `${path} cannot be written: ${error.message}` }))
  )

/** Reads JSON by a schema; `where` says what it is, for the error. */
export const decodeJson = <A>(
  text: string,
  { schema, where }: { readonly schema: Schema.Decoder<A>; readonly where: string }
): Effect.Effect<A, UsageError> =>
  Effect.try({
    try: (): unknown => JSON.parse(text),
    catch: (error) =>
      new UsageError({ message: `${where} is not JSON: ${error instanceof Error ? error.message : error}` })
  }).pipe(
    Effect.flatMap((json) =>
      Schema.decodeUnknownEffect(schema)(json).pipe(
        Effect.mapError((error) =>
          new UsageError({ message: `${where} has another form than expected: ${error.message.replace(/\s+/g, " ")}` })
        )
      )
    )
  )
