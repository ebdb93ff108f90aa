/** A file of the browser that is filled chunk by chunk, with its table beside it, as `ChunkFile` is one on disk. */
import { Effect, type Scope, Semaphore } from "effect"
import { type ChunkFile, hashOf } from "./ChunkFile.ts"
import * as Chunks from "./Chunks.ts"
import type { StoreError } from "./HubError.ts"
import { attempt, type OpfsFolder } from "./OpfsFolder.ts"

/** What a table is called. */
export const tableOf = (name: string): string => `${name}.chunks`

/** The table of a file; nothing if there is none that can be read. */
export const readTable = (folder: OpfsFolder, name: string): Effect.Effect<Chunks.Table | undefined, StoreError> =>
  Effect.gen(function*() {
    const file = yield* folder.file(tableOf(name))
    if (file === undefined) return undefined
    return Chunks.parse(yield* attempt(tableOf(name), () => file.text()))
  })

/** Opens a file of these chunks until the scope closes. Of one that is there, what `table` records is kept. */
export const open: (
  folder: OpfsFolder,
  name: string,
  table: Chunks.Table
) => Effect.Effect<ChunkFile, StoreError, Scope.Scope> = Effect.fn("hub.opfs.open")(
  function*(folder, name, { hashes: kept, header }) {
    const isThere = (yield* folder.file(name)) !== undefined
    const hashes = new Map(isThere ? kept : [])
    const data = yield* folder.open(name)
    yield* attempt(name, () => data.truncate(header.size))
    const journal = yield* folder.open(tableOf(name))
    const encoder = new TextEncoder()
    let end = 0
    const note = (text: string): void => {
      end += journal.write(encoder.encode(text), { at: end })
      journal.flush()
    }
    yield* attempt(tableOf(name), () => {
      journal.truncate(0)
      note(Chunks.print({ header, hashes }))
    })
    const one = yield* Semaphore.make(1)
    const change = (write: () => void) => attempt(name, write).pipe(one.withPermits(1), Effect.uninterruptible)
    return {
      header,
      hashes,
      put: Effect.fnUntraced(function*(index, bytes) {
        const hash = yield* hashOf(bytes)
        if (hashes.get(index) === hash) return
        yield* change(() => {
          data.write(bytes as Uint8Array<ArrayBuffer>, { at: Chunks.rangeOf(header, index).start })
          data.flush()
          note(Chunks.printChunk(index, hash))
          hashes.set(index, hash)
        })
      }),
      get: (index, buffer) =>
        attempt(name, () => {
          const { end, start } = Chunks.rangeOf(header, index)
          const bytes = buffer === undefined ? new Uint8Array(end - start) : buffer.subarray(0, end - start)
          return bytes.subarray(0, data.read(bytes as Uint8Array<ArrayBuffer>, { at: start }))
        }),
      drop: (index) =>
        change(() => {
          note(Chunks.printChunk(index, undefined))
          hashes.delete(index)
        }),
      sync: attempt(name, () => data.flush())
    }
  }
)
