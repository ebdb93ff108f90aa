/**
 * Folders of the store. Contents lie in `blobs` under their SHA-256, with the table of their chunks; what is not whole yet
 * ends in `.part`, under the hash that it will have, or under that of its address, which has a note of what was found there. `names` has a folder for each name, with
 * a manifest and a link to each content. `locks` says who works on what.
 */
import { Effect, FileSystem, Option, Path, Schema } from "effect"
import type { Place } from "./ChunkFile.ts"
import * as Disk from "./Disk.ts"
import type { StoreError } from "./HubError.ts"
import { Machine } from "./Machine.ts"

/** A file of a named model. */
export const Entry = Schema.Struct({
  file: Schema.String,
  url: Schema.String,
  /** Under which it is fetched. */
  key: Schema.String.check(Schema.isPattern(/^[a-z0-9-]+$/)),
  size: Schema.Int,
  /** Under which it is kept; unknown until all of it was fetched if the server does not tell. */
  sha256: Schema.optionalKey(Schema.String.check(Schema.isPattern(/^[0-9a-f]{64}$/))),
  validator: Schema.optionalKey(Schema.String)
})

/** A file of a named model. */
export type Entry = typeof Entry.Type

/** What a name stands for. */
export const Manifest = Schema.Struct({
  version: Schema.Literal(1),
  name: Schema.String,
  files: Schema.Array(Entry)
})

/** What a name stands for. */
export type Manifest = typeof Manifest.Type

const decodeEntry = Schema.decodeUnknownOption(Schema.fromJsonString(Entry))
const decode = Schema.decodeUnknownOption(Schema.fromJsonString(Manifest))

/** The folders of a store at `root`. */
export const make = Effect.fnUntraced(function*(root: string) {
  const files = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const { sha256 } = yield* Machine
  const hashOf = (text: string): string => {
    const hasher = sha256()
    hasher.update(new TextEncoder().encode(text))
    return hasher.digest()
  }
  const [blobs, names, locks] = [path.join(root, "blobs"), path.join(root, "names"), path.join(root, "locks")]
  const blob = (hash: string): Place => ({ data: path.join(blobs, hash), table: path.join(blobs, `${hash}.chunks`) })
  const folderOf = (name: string): string =>
    path.join(names, `${name.replace(/[^A-Za-z0-9.-]+/g, "_").slice(-80)}-${hashOf(name).slice(0, 12)}`)
  const manifestOf = (folder: string): string => path.join(folder, "manifest.json")
  const read = (folder: string): Effect.Effect<Manifest | undefined> =>
    files.readFileString(manifestOf(folder)).pipe(
      Effect.map((text) => Option.getOrUndefined(decode(text))),
      Effect.orElseSucceed(() => undefined)
    )
  return {
    root,
    prepare: Effect.forEach(
      [blobs, names, locks],
      (folder) => files.makeDirectory(folder, { recursive: true }).pipe(Disk.orStoreError(folder)),
      { discard: true }
    ),
    /** A content that is whole. */
    blob,
    /** A content that is not. */
    part: (key: string): Place => ({ data: path.join(blobs, `${key}.part`), table: path.join(blobs, `${key}.chunks`) }),
    lock: (key: string): string => path.join(locks, `${key}.lock`),
    keyOf: (url: string): string => `url-${hashOf(url)}`,
    linkOf: (name: string, { file }: Entry): string => path.join(folderOf(name), file),
    manifest: (name: string): Effect.Effect<Manifest | undefined> =>
      Effect.map(read(folderOf(name)), (found) => found?.name === name ? found : undefined),
    manifests: (files.readDirectory(names)).pipe(
      Effect.orElseSucceed((): ReadonlyArray<string> => []),
      Effect.flatMap((folders) => Effect.forEach(folders, (folder) => read(path.join(names, folder)))),
      Effect.map((all) => all.flatMap((each) => each ?? []).toSorted((a, b) => a.name < b.name ? -1 : 1))
    ),
    write: Effect.fnUntraced(function*(manifest: Manifest) {
      const folder = folderOf(manifest.name)
      yield* files.makeDirectory(folder, { recursive: true }).pipe(Disk.orStoreError(folder))
      yield* Disk.replace(manifestOf(folder), `${JSON.stringify(manifest, null, 2)}\n`)
    }),
    /** Gives a content its name: a hard link, or where there are none a symbolic one. */
    link: Effect.fnUntraced(function*(name: string, entry: Entry, hash: string) {
      const target = blob(hash).data
      const to = path.join(folderOf(name), entry.file)
      yield* files.remove(to, { force: true }).pipe(Disk.orStoreError(to))
      yield* files.link(target, to).pipe(
        Effect.catch(() => files.symlink(path.relative(path.dirname(to), target), to)),
        Disk.orStoreError(to)
      )
    }),
    forget: (name: string): Effect.Effect<void, StoreError> =>
      files.remove(folderOf(name), { recursive: true, force: true }).pipe(Disk.orStoreError(folderOf(name))),
    removeContent: Effect.fnUntraced(function*(key: string) {
      for (const end of ["", ".part", ".chunks", ".found"]) {
        const file = path.join(blobs, `${key}${end}`)
        yield* files.remove(file, { force: true }).pipe(Disk.orStoreError(file))
      }
    }),
    /** What was found at the address of an entry, if it is still what is there. */
    known: (entry: Entry): Effect.Effect<Entry> =>
      files.readFileString(path.join(blobs, `${entry.key}.found`)).pipe(
        Effect.map((text) => {
          const found = Option.getOrUndefined(decodeEntry(text))
          const isSame = found !== undefined && entry.validator !== undefined && found.validator === entry.validator &&
            found.size === entry.size
          return isSame ? { ...entry, ...found } : entry
        }),
        Effect.orElseSucceed(() => entry)
      ),
    note: (entry: Entry) => Disk.replace(path.join(blobs, `${entry.key}.found`), JSON.stringify(entry)),
    /** Bytes of a file; nothing if it is not there. */
    sizeOf: (file: string): Effect.Effect<number | undefined> =>
      files.stat(file).pipe(Effect.map(({ size }) => Number(size)), Effect.orElseSucceed(() => undefined))
  }
})

/** The folders of a store. */
export type Layout = Effect.Success<ReturnType<typeof make>>
