/** A file on disk that is filled chunk by chunk, with its table beside it. Whatever dies meanwhile, the two agree. */
import { Effect, FileSystem, type Scope, Semaphore } from "effect"
import * as Chunks from "./Chunks.ts"
import * as Disk from "./Disk.ts"
import type { StoreError } from "./HubError.ts"

/** Where a file and its table are. */
export interface Place {
  readonly data: string
  readonly table: string
}

/** A file that is open for filling. Chunks that are recorded are on the disk. */
export interface ChunkFile {
  readonly header: Chunks.Header
  readonly hashes: ReadonlyMap<number, string>
  /** Writes a chunk and records it. The same bytes again cost nothing. */
  readonly put: (index: number, bytes: Uint8Array) => Effect.Effect<void, StoreError>
  /** The bytes of a chunk, recorded or not, in `buffer` if there is one; shorter if the file is. */
  readonly get: (index: number, buffer?: Uint8Array) => Effect.Effect<Uint8Array, StoreError>
  /** Takes back what is recorded of a chunk. */
  readonly drop: (index: number) => Effect.Effect<void, StoreError>
  /** Waits until the disk has everything. */
  readonly sync: Effect.Effect<void, StoreError>
}

/** The SHA-256 of a chunk. */
export const hashOf = (bytes: Uint8Array): Effect.Effect<string> =>
  Effect.promise(async () => {
    const digest = await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>)
    return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("")
  })

/** The table of a file; nothing if there is none that can be read. */
export const readTable = (place: Place): Effect.Effect<Chunks.Table | undefined, never, FileSystem.FileSystem> =>
  Effect.flatMap(FileSystem.FileSystem, (files) => files.readFileString(place.table)).pipe(
    Effect.map(Chunks.parse),
    Effect.orElseSucceed(() => undefined)
  )

/** Writes a table in one step. */
export const writeTable = (
  place: Place,
  table: Chunks.Table
): Effect.Effect<void, StoreError, FileSystem.FileSystem> => Disk.replace(place.table, Chunks.print(table))

/** Opens a file of these chunks until the scope closes. Of one that is there, what `table` records is kept. */
export const open: (
  place: Place,
  table: Chunks.Table
) => Effect.Effect<ChunkFile, StoreError, FileSystem.FileSystem | Scope.Scope> = Effect.fn("hub.open")(
  function*(place, { hashes: kept, header }) {
    const files = yield* FileSystem.FileSystem
    const attempt = Disk.orStoreError(place.data)
    const isThere = yield* files.exists(place.data).pipe(attempt)
    const hashes = new Map(isThere ? kept : [])
    const data = yield* files.open(place.data, { flag: isThere ? "r+" : "wx+" }).pipe(attempt)
    yield* data.truncate(header.size).pipe(attempt)
    yield* writeTable(place, { header, hashes })
    const journal = yield* files.open(place.table, { flag: "a" }).pipe(attempt)
    const one = yield* Semaphore.make(1)
    const note = (index: number, hash: string | undefined) =>
      journal.writeAll(new TextEncoder().encode(Chunks.printChunk(index, hash))).pipe(
        Disk.orStoreError(place.table)
      )
    const write = (index: number, bytes: Uint8Array, hash: string) =>
      Effect.gen(function*() {
        yield* data.seek(BigInt(Chunks.rangeOf(header, index).start), "start").pipe(attempt)
        yield* data.writeAll(bytes).pipe(attempt)
        yield* note(index, hash)
        hashes.set(index, hash)
      }).pipe(one.withPermits(1), Effect.uninterruptible)
    return {
      header,
      hashes,
      put: Effect.fnUntraced(function*(index, bytes) {
        const hash = yield* hashOf(bytes)
        if (hashes.get(index) !== hash) yield* write(index, bytes, hash)
      }),
      get: Effect.fnUntraced(function*(index, buffer) {
        const { end, start } = Chunks.rangeOf(header, index)
        const bytes = buffer === undefined ? new Uint8Array(end - start) : buffer.subarray(0, end - start)
        let filled = 0
        while (filled < bytes.length) {
          const count = yield* data.read(bytes.subarray(filled), { position: BigInt(start + filled) }).pipe(attempt)
          if (count === 0) break
          filled += count
        }
        return bytes.subarray(0, filled)
      }),
      drop: (index) =>
        note(index, undefined).pipe(
          Effect.andThen(Effect.sync(() => void hashes.delete(index))),
          one.withPermits(1),
          Effect.uninterruptible
        ),
      sync: data.sync.pipe(attempt)
    }
  }
)

/** Reads all that is recorded, and drops what is no longer what it was. Answers with the chunks dropped. */
export const check = Effect.fn("hub.check")(
  function*(file: ChunkFile, onChecked: (bytes: number) => Effect.Effect<void> = () => Effect.void) {
    let checked = 0
    const damaged: Array<number> = []
    const rest = [...file.hashes].reverse()
    // one reads while the other hashes
    const reader = Effect.gen(function*() {
      const buffer = new Uint8Array(Math.min(file.header.size, file.header.chunkBytes))
      for (let next = rest.pop(); next !== undefined; next = rest.pop()) {
        const [index, hash] = next
        const bytes = yield* file.get(index, buffer)
        if ((yield* hashOf(bytes)) !== hash) {
          damaged.push(index)
          yield* file.drop(index)
        }
        checked += bytes.length
        yield* onChecked(checked)
      }
    })
    yield* Effect.all([reader, reader], { concurrency: "unbounded", discard: true })
    return damaged.toSorted((a, b) => a - b)
  }
)
