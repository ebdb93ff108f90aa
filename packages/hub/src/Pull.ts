/** Fetching one content into the store: whole, of the right hash, from wherever an earlier attempt ended. */
import { Effect, FileSystem } from "effect"
import * as ChunkFile from "./ChunkFile.ts"
import * as Chunks from "./Chunks.ts"
import * as Disk from "./Disk.ts"
import * as Download from "./Download.ts"
import { HttpError, StoreError, TransferError, WrongHash } from "./HubError.ts"
import type { Entry, Layout } from "./Layout.ts"
import * as Transfer from "./Transfer.ts"
import * as Xet from "./Xet.ts"

/** What happens meanwhile. */
export type Event =
  /** Bytes of this file that are there. */
  | { readonly type: "progress"; readonly file: string; readonly doneBytes: number }
  /** Bytes of this file that were there before, and were read again. */
  | { readonly type: "checked"; readonly file: string; readonly checkedBytes: number }
  /** Chunks were no longer what they were, and are fetched again. */
  | { readonly type: "damaged"; readonly file: string; readonly chunks: ReadonlyArray<number> }
  /** Another process fetches this file. */
  | { readonly type: "waiting"; readonly file: string; readonly owner: string; readonly doneBytes: number }
  /** The file changed at its address, and is fetched from the beginning. */
  | { readonly type: "restarted"; readonly file: string; readonly detail: string }
  /** The file does not come as Xet, and is fetched as it is. */
  | { readonly type: "plain"; readonly file: string; readonly detail: string }
  /** Nobody tells the hash of this file, so it could not be compared with anything. */
  | { readonly type: "unverified"; readonly file: string; readonly sha256: string }

/** How to fetch. */
export interface Options {
  readonly connections: number
  /** Bytes of a chunk (default: by the size of the file). */
  readonly chunkBytes?: number | undefined
  /** Whether a file that the hub keeps as Xet is fetched so. */
  readonly xet?: boolean | undefined
  readonly onEvent: (event: Event) => Effect.Effect<void>
}

/** How often a file may change at its address while it is fetched. */
const mostRestarts = 3

/** Makes a content whole; answers with its hash and what the server told last. To be called with the lock of its key. */
export const content = Effect.fn("hub.content")(function*(layout: Layout, entry: Entry, options: Options) {
  if (entry.sha256 !== undefined && (yield* isWhole(layout, entry, options))) {
    return { ...entry, sha256: entry.sha256 }
  }
  for (let restarts = 0;; restarts++) {
    const result = yield* Effect.result(fetched(layout, entry, options))
    if (result._tag === "Success") return result.success
    const error = result.failure
    const isChanged = error instanceof TransferError && error.problem === "changed"
    if (!isChanged || isHashKnown(entry) || restarts >= mostRestarts) return yield* Effect.fail(error)
    yield* options.onEvent({ type: "restarted", file: entry.file, detail: error.message })
    yield* layout.removeContent(entry.key)
  }
})

/** A key that is a hash says what has to come. */
const isHashKnown = ({ key, sha256 }: Entry): boolean => key === sha256

/** Whether a content is there as it should be. If it is damaged it becomes one to be fetched, without what is damaged. */
const isWhole = Effect.fnUntraced(function*(layout: Layout, entry: Entry, { onEvent }: Options) {
  const files = yield* FileSystem.FileSystem
  const { file, sha256, size } = entry
  if (sha256 === undefined) return false
  const place = layout.blob(sha256)
  const found = yield* layout.sizeOf(place.data)
  if (found === undefined) return false
  const table = yield* ChunkFile.readTable(place)
  const known = table !== undefined && table.header.size === size ? table : undefined
  const damaged = known === undefined
    ? undefined
    : yield* Effect.scoped(Effect.gen(function*() {
      const opened = yield* ChunkFile.open(place, known)
      const damaged = yield* ChunkFile.check(opened, (checkedBytes) => onEvent({ type: "checked", file, checkedBytes }))
      return opened.hashes.size === Chunks.count(opened.header) ? [] : damaged
    }))
  if (damaged?.length === 0 && found === size) return true
  yield* onEvent({ type: "damaged", file, chunks: damaged ?? [] })
  const part = layout.part(entry.key)
  yield* files.rename(place.data, part.data).pipe(Disk.orStoreError(place.data))
  if (entry.key !== sha256) yield* Effect.ignore(files.rename(place.table, part.table))
  return false
})

const fetched = Effect.fnUntraced(function*(layout: Layout, entry: Entry, options: Options) {
  const files = yield* FileSystem.FileSystem
  const { file, key, url } = entry
  const probed = yield* Transfer.probe(url)
  if (isHashKnown(entry) && probed.size !== entry.size) {
    return yield* new TransferError({
      url,
      problem: "changed",
      detail: `the hub tells of ${entry.size} bytes, and the server has ${probed.size}; pull it again later`
    })
  }
  const expected = isHashKnown(entry) ? entry.sha256 : probed.sha256
  const parts = options.xet === true && expected !== undefined ? yield* Xet.open(url) : undefined
  const remote = { ...probed, sha256: expected, parts }
  const place = layout.part(key)
  const hash = yield* filled(place, remote, { ...options, file })
  if (expected !== undefined && expected !== hash) {
    yield* layout.removeContent(key)
    return yield* new WrongHash({ file, expected, found: hash })
  }
  if (expected === undefined) yield* options.onEvent({ type: "unverified", file, sha256: hash })
  const blob = layout.blob(hash)
  const table = yield* ChunkFile.readTable(place)
  if (table !== undefined) {
    yield* ChunkFile.writeTable(blob, { ...table, header: { ...table.header, sha256: hash } })
  }
  yield* files.rename(place.data, blob.data).pipe(Disk.orStoreError(blob.data))
  if (place.table !== blob.table) yield* Effect.ignore(files.remove(place.table, { force: true }))
  const { validator } = remote
  const found = { ...entry, size: remote.size, sha256: hash, ...(validator === undefined ? {} : { validator }) }
  if (key !== hash) yield* layout.note(found)
  return found
})

/** Fills a place from an address, going on with what is there if it is of the same file. */
const filled = Effect.fnUntraced(
  function*(place: ChunkFile.Place, remote: Transfer.Remote, options: Options & { readonly file: string }) {
    const { connections, file, onEvent } = options
    const { sha256, size, url, validator } = remote
    const found = yield* ChunkFile.readTable(place)
    const isSame = found !== undefined && found.header.size === size &&
      (sha256 === undefined
        ? validator !== undefined && found.header.validator === validator
        : found.header.sha256 === sha256)
    const header: Chunks.Header = {
      version: 1,
      url: urlWithoutQuery(url),
      size,
      chunkBytes: isSame ? found.header.chunkBytes : options.chunkBytes ?? Chunks.chunkBytesFor(size),
      ...(validator === undefined ? {} : { validator }),
      ...(sha256 === undefined ? {} : { sha256 })
    }
    const opened = yield* ChunkFile.open(place, { header, hashes: isSame ? found.hashes : new Map() })
    const damaged = yield* ChunkFile.check(opened, (checkedBytes) => onEvent({ type: "checked", file, checkedBytes }))
    if (damaged.length > 0) yield* onEvent({ type: "damaged", file, chunks: damaged })
    const fill = (remote: Transfer.Remote) =>
      Download.fill(opened, remote, {
        connections,
        onBytes: (doneBytes) => onEvent({ type: "progress", file, doneBytes })
      })
    const isXet = remote.parts !== undefined
    const hash = yield* fill(remote).pipe(
      Effect.catchIf(
        (error) => isXet && error instanceof HttpError,
        (error) =>
          Effect.andThen(
            onEvent({ type: "plain", file, detail: error.message }),
            fill({ ...remote, parts: undefined })
          )
      ),
      // a server that sent a part once and sends everything since
      Effect.catchIf(
        (error) => error instanceof TransferError && error.problem === "ignores-ranges",
        () => fill({ ...remote, hasRanges: false, parts: undefined })
      )
    )
    yield* opened.sync
    return hash
  },
  Effect.scoped
)

// what follows a question mark may be a secret
const urlWithoutQuery = (url: string): string => url.replace(/[?#].*$/s, "")

/** Fails if the disk has no room for so many bytes. */
export const checkSpace = (folder: string, free: number, needed: number): Effect.Effect<void, StoreError> =>
  needed <= free ? Effect.void : Effect.fail(
    new StoreError({
      path: folder,
      problem: "no-space",
      detail:
        `${Disk.printBytes(needed)} are still to come, and ${Disk.printBytes(free)} are free; make room, or name a ` +
        "folder on another disk in TG_MODELS; what came is kept"
    })
  )
