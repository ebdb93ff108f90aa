/** Files that people hand to commands. */
import { Effect, FileSystem, PlatformError, Schema } from "effect"
import { UsageError } from "./Report.ts"
import * as Words from "./Words.ts"

/** The text of bytes in UTF-8; `where` says what they are, for the error. Nothing is replaced. */
export const decodeText = (bytes: Uint8Array, where: string): Effect.Effect<string, UsageError> =>
  Effect.try({
    try: () => new TextDecoder("utf-8", { fatal: true }).decode(bytes),
    catch: () =>
      new UsageError({
        message: `${where} is not text in UTF-8 (byte ${
          firstInvalid(bytes)
        } cannot be read); convert it, with iconv say`
      })
  })

/** Where the first sequence begins that is not UTF-8: as long as what stands before it is valid, it is further on. */
const firstInvalid = (bytes: Uint8Array): number => {
  const isValid = (length: number): boolean => {
    try {
      // a sequence that only ends too early is not wrong yet
      new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(0, length), { stream: true })
      return true
    } catch {
      return false
    }
  }
  let [valid, invalid] = [0, bytes.length + 1]
  while (invalid - valid > 1) {
    const middle = (valid + invalid) >>> 1
    if (middle <= bytes.length && isValid(middle)) valid = middle
    else invalid = middle
  }
  return valid
}

/** The text of a file. */
export const readText = (path: string): Effect.Effect<string, UsageError, FileSystem.FileSystem> =>
  Effect.flatMap(FileSystem.FileSystem, (files) => files.readFile(path)).pipe(
    Effect.mapError((error) => new UsageError({ message: `${path} cannot be read: ${Words.cause(error)}` })),
    Effect.flatMap((bytes) => decodeText(bytes, path))
  )

/** Reads JSON by a schema; `where` says what it is, for the error. What is not in an exact schema is refused: it may be misspelt. */
export const decodeJson = <A>(
  text: string,
  { isExact = false, schema, where }: {
    readonly schema: Schema.Decoder<A>
    readonly where: string
    readonly isExact?: boolean
  }
): Effect.Effect<A, UsageError> =>
  Effect.try({
    try: (): unknown => JSON.parse(text),
    catch: (error) =>
      new UsageError({ message: `${where} is not JSON: ${error instanceof Error ? error.message : error}` })
  }).pipe(
    Effect.flatMap((json) =>
      Schema.decodeUnknownEffect(schema, { onExcessProperty: isExact ? "error" : "ignore" })(json).pipe(
        Effect.mapError((error) =>
          new UsageError({ message: `${where} has another form than expected: ${error.message.replace(/\s+/g, " ")}` })
        )
      )
    )
  )

/** Words for what is no file. */
const kinds: Readonly<Record<Exclude<FileSystem.File.Type, "File" | "SymbolicLink">, string>> = {
  Directory: "a folder",
  BlockDevice: "a device",
  CharacterDevice: "a device",
  FIFO: "a named pipe",
  Socket: "a socket",
  Unknown: "no file"
}

/**
 * Refuses a path that a model cannot be read from: to open a pipe would wait for somebody who writes, and a device has neither
 * size nor places. What is not there at all is refused by whoever opens it.
 */
export const checkModelPath = Effect.fn("cli.checkModelPath")(function*(path: string) {
  const files = yield* FileSystem.FileSystem
  if (/^[a-z][a-z0-9+.-]+:\/\//i.test(path)) {
    return yield* new UsageError({
      message: `${path} is an address and --model takes a file; download it, and give the path of the file`
    })
  }
  const found = yield* Effect.option(files.stat(path))
  if (found._tag === "None" || found.value.type === "File" || found.value.type === "SymbolicLink") return
  return yield* new UsageError({
    message: `${path} is ${kinds[found.value.type]}, and a model is read from a file; give the path of a GGUF file`
  })
})

/** Its message is only why, for errors that say what themselves. */
class Refusal extends PlatformError.SystemError {
  override get message(): string {
    return this.description ?? this._tag
  }
}

/** An error of the file system with words of ours. */
export const refusal = (path: string, description: string): PlatformError.PlatformError =>
  new PlatformError.PlatformError(
    new Refusal({ _tag: "BadResource", module: "FileSystem", method: "open", pathOrDescriptor: path, description })
  )
