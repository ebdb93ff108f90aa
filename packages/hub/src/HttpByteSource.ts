/** A file at an address as a byte source: only what is read is fetched, in blocks that are kept. Free of Node. */
import { type ByteSource, ByteSourceError, checkRange } from "@tg/gguf/ByteSource"
import { Effect } from "effect"
import * as Http from "./Http.ts"
import { type HttpError, TransferError } from "./HubError.ts"
import * as Transfer from "./Transfer.ts"

/** How to read. */
export interface Options {
  /** Bytes of a block (default: 256 KiB). */
  readonly blockBytes?: number
  /** Blocks that are kept (default: 64). */
  readonly blocks?: number
  /** What the source is called in errors (default: its address). */
  readonly name?: string
}

/** Opens a file at an address. A server that sends no parts of files is refused. */
export const open: (
  url: string,
  options?: Options
) => Effect.Effect<ByteSource["Service"], HttpError | TransferError, Http.Http> = Effect.fn("HttpByteSource.open")(
  function*(url, { blockBytes = 2 ** 18, blocks = 64, name = Http.shown(url) } = {}) {
    const http = yield* Http.Http
    const remote = yield* Transfer.probe(url)
    if (!remote.hasRanges && remote.size > 0) {
      return yield* new TransferError({
        url: Http.shown(url),
        problem: "ignores-ranges",
        detail: `the server sends only the whole file, of ${remote.size} bytes; pull it, and name it then`
      })
    }
    const source = { name, size: remote.size }
    const kept = new Map<number, Effect.Effect<Uint8Array, HttpError | TransferError>>()
    const block = Effect.fnUntraced(function*(index: number) {
      const found = kept.get(index)
      // the last one used is the last one to go
      kept.delete(index)
      const start = index * blockBytes
      const wanted = { start, end: Math.min(remote.size, start + blockBytes) }
      const bytes = found ??
        (yield* Effect.cached(
          Transfer.repeating(http, fetchBlock(http, remote, wanted)).pipe(
            Effect.onError(() => Effect.sync(() => kept.delete(index)))
          )
        ))
      kept.set(index, bytes)
      if (kept.size > blocks) kept.delete(kept.keys().next().value!)
      return yield* bytes
    })
    return {
      ...source,
      read: Effect.fnUntraced(function*(offset, length) {
        const error = checkRange(source, offset, length)
        if (error !== undefined) return yield* error
        const first = Math.floor(offset / blockBytes)
        const last = Math.ceil((offset + length) / blockBytes)
        const bytes = new Uint8Array(length)
        const indices = Array.from({ length: last - first }, (_, i) => first + i)
        yield* Effect.forEach(indices, (index) =>
          Effect.map(block(index), (part) => {
            const start = index * blockBytes
            const from = Math.max(offset, start)
            const to = Math.min(offset + length, start + part.length)
            bytes.set(part.subarray(from - start, to - start), from - offset)
          }), { concurrency: 4, discard: true }).pipe(Effect.mapError(asSourceError(name, offset, length)))
        return bytes
      })
    }
  }
)

const fetchBlock = (http: Http.Http["Service"], remote: Transfer.Remote, wanted: Transfer.Wanted) =>
  Effect.scoped(Effect.gen(function*() {
    const { url } = remote
    const bytes = new Uint8Array(wanted.end - wanted.start)
    let filled = 0
    const { response } = yield* Transfer.range(http, remote, wanted)
    yield* Http.drain<TransferError>({ response, url, stallMillis: http.stallMillis }, (part) => {
      if (filled + part.length > bytes.length) return Effect.fail(Transfer.tooMuch(url, wanted.end))
      bytes.set(part, filled)
      filled += part.length
      return Effect.succeed(true)
    })
    if (filled < bytes.length) return yield* Transfer.tooLittle(url, wanted.start + filled, wanted.end)
    return bytes
  }))

const problems = {
  "ignores-ranges": "no-ranges",
  "wrong-range": "wrong-range",
  "changed": "changed",
  "too-much": "long-read",
  "too-little": "short-read",
  "no-size": "unavailable"
} as const satisfies Record<TransferError["problem"], ByteSourceError["problem"]>

const asSourceError = (source: string, offset: number, length: number) => (error: HttpError | TransferError) =>
  new ByteSourceError({
    source,
    offset,
    length,
    problem: error instanceof TransferError ? problems[error.problem] : "unavailable",
    detail: error.detail
  })
