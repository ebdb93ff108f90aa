/**
 * Files that commands write. Each is written beside its place under another name, and takes its own when it is complete: who looks
 * meanwhile, and who interrupts, finds the file that was there before or none.
 */
import { basename, dirname, join } from "node:path"
import { Effect, FileSystem } from "effect"
import { Flag } from "effect/cli"
import { UsageError } from "./Report.ts"
import * as Signals from "./Signals.ts"
import * as Words from "./Words.ts"

/** `--force`. */
export const force = Flag.Boolean("force").pipe(
  Flag.withDescription("Overwrite the file of --out if there is one"),
  Flag.withDefault(false)
)

/** A file that is being written. */
export interface OutFile {
  readonly append: (bytes: Uint8Array) => Effect.Effect<void, UsageError>
  /** Closes the file, and gives it its name. */
  readonly finish: Effect.Effect<void, UsageError>
}

const cannotWrite = (path: string) =>
  Effect.mapError((error: { readonly message: string }) =>
    new UsageError({ message: `${path} cannot be written: ${Words.cause(error)}` })
  )

/** What is at a path: a file that would be lost, something to write into, or nothing. */
const lookAt = Effect.fnUntraced(function*(path: string, options: { readonly force: boolean }) {
  const files = yield* FileSystem.FileSystem
  const found = yield* Effect.option(files.stat(path))
  if (found._tag === "None") return { direct: false, target: path }
  const { size, type } = found.value
  if (type === "Directory") {
    return yield* new UsageError({ message: `${path} cannot be written: it is a folder; give the name of a file` })
  }
  // /dev/stdout and the like have nothing that could be lost, and no name to give
  if (type !== "File") return { direct: true, target: path }
  // an empty one is a name that somebody keeps free
  if (!options.force && Number(size) > 0) {
    return yield* new UsageError({
      message: `${path} is there already; give another name, or --force to overwrite it`
    })
  }
  return { direct: false, target: yield* files.realPath(path).pipe(cannotWrite(path)) }
})

/** Refuses now what `open` would refuse, without making anything. */
export const check = (path: string, options: { readonly force: boolean }) => Effect.asVoid(lookAt(path, options))

/** Refuses to write over the file that is read, even by force. */
export const checkApart = Effect.fn("OutFile.checkApart")(function*(path: string, read: string) {
  const files = yield* FileSystem.FileSystem
  const real = (name: string) => Effect.option(files.realPath(name))
  const [out, input] = [yield* real(path), yield* real(read)]
  if (out._tag === "None" || input._tag === "None" || out.value !== input.value) return
  return yield* new UsageError({ message: `${path} is the model itself; give --out another name` })
})

let number = 0

/** Begins a file. What is not finished when the scope closes is removed. */
export const open = Effect.fn("OutFile.open")(function*(path: string, options: { readonly force: boolean }) {
  const files = yield* FileSystem.FileSystem
  const { direct, target } = yield* lookAt(path, options)
  const beside = direct ? target : join(dirname(target), `.${basename(target)}.${process.pid}-${++number}.part`)
  let isFinished = direct
  if (!direct) {
    yield* Signals.unfinished(beside)
    yield* Effect.addFinalizer(() => isFinished ? Effect.void : Effect.ignore(files.remove(beside, { force: true })))
  }
  const file = yield* files.open(beside, { flag: direct ? "w" : "wx" }).pipe(cannotWrite(path))
  const made: OutFile = {
    append: (bytes) => file.writeAll(bytes).pipe(cannotWrite(path)),
    finish: direct ? Effect.void : file.sync.pipe(
      Effect.andThen(files.rename(beside, target)),
      Effect.andThen(Effect.sync(() => {
        isFinished = true
      })),
      cannotWrite(path)
    )
  }
  return made
})

/** Writes a whole text. */
export const writeText = (path: string, text: string, options: { readonly force: boolean }) =>
  Effect.scoped(Effect.gen(function*() {
    const file = yield* open(path, options)
    yield* file.append(new TextEncoder().encode(text))
    yield* file.finish
  }))
