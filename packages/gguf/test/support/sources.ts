import { ByteSize, Effect, FileSystem, Layer, PlatformError } from "effect"
import * as fs from "node:fs"
import { fileURLToPath } from "node:url"
import * as ByteSource from "../../src/ByteSource.ts"

/** A file of the repository. */
export const path = (relative: string) => fileURLToPath(new URL(`../../../../${relative}`, import.meta.url))

const list = (directory: string) =>
  fs.readdirSync(path(directory)).filter((name) => name.endsWith(".gguf")).toSorted().map((name) =>
    `${directory}/${name}`
  )

/** Every GGUF file of the repository, relative to its root. */
export const paths = [
  ...list("test/vectors/oracle"),
  ...list("test/vectors/oracle-families"),
  ...list("test/vectors/tokenizer"),
  ...list("apps/cli/models")
]

export const load = (relative: string) => new Uint8Array(fs.readFileSync(path(relative)))

/** Records what a source is asked for. */
export const recorded = (source: ByteSource.ByteSource["Service"]) => {
  const ranges: Array<readonly [offset: number, length: number]> = []
  return {
    ranges,
    source: ByteSource.ByteSource.of({
      ...source,
      read: (offset, length) => {
        ranges.push([offset, length])
        return source.read(offset, length)
      }
    })
  }
}

const systemError = (error: unknown, pathOrDescriptor: string | number) =>
  PlatformError.systemError({
    _tag: "NotFound",
    module: "FileSystem",
    method: "open",
    pathOrDescriptor,
    cause: error
  })

/** As much of a file system as opening and reading takes. `opened` counts the files that are open. */
export const fileSystem = (opened = { count: 0 }) =>
  Layer.succeed(
    FileSystem.FileSystem,
    FileSystem.makeNoop({
      exists: (name) => Effect.sync(() => fs.existsSync(name)),
      open: (name) =>
        Effect.acquireRelease(
          Effect.try({ try: () => fs.openSync(name, "r"), catch: (error) => systemError(error, name) }).pipe(
            Effect.tap(() => Effect.sync(() => opened.count++))
          ),
          (descriptor) =>
            Effect.sync(() => {
              fs.closeSync(descriptor)
              opened.count--
            })
        ).pipe(Effect.map((descriptor) => handle(descriptor)))
    })
  )

const unsupported = () => Effect.die(new Error("not part of the test file system"))

const handle = (descriptor: number): FileSystem.File => ({
  [FileSystem.FileTypeId]: FileSystem.FileTypeId,
  stat: Effect.sync(() => {
    const { size } = fs.fstatSync(descriptor)
    return { size: ByteSize.bytes(size) } as FileSystem.File.Info
  }),
  read: (buffer, options) =>
    Effect.sync(() => fs.readSync(descriptor, buffer, 0, buffer.length, options?.position ?? null)),
  seek: unsupported,
  sync: Effect.void,
  readAlloc: unsupported,
  truncate: unsupported,
  write: unsupported,
  writeAll: unsupported
})
