/** Fills a chunk file from an address, over several connections, whatever happens to them. */
import { Deferred, Effect } from "effect"
import type { ChunkFile } from "./ChunkFile.ts"
import * as Chunks from "./Chunks.ts"
import * as Http from "./Http.ts"
import { type HttpError, type StoreError, TransferError } from "./HubError.ts"
import { Machine } from "./Machine.ts"
import * as Transfer from "./Transfer.ts"

/** How to fill. */
export interface Options {
  readonly connections: number
  /** Bytes that are there, each time that some come. */
  readonly onBytes: (done: number) => Effect.Effect<void>
}

type Failure = HttpError | TransferError | StoreError

/** What all connections share. */
interface Session {
  readonly http: Http.Http["Service"]
  readonly file: ChunkFile
  /** Chunks that nobody fetches. */
  readonly wanted: Set<number>
  readonly arrived: (index: number) => Effect.Effect<void>
  readonly count: (bytes: number) => Effect.Effect<void>
  /** Nothing counts as there. */
  readonly restart: Effect.Effect<void>
  remote: Transfer.Remote
  /** How often the server may still give another validator to a file whose hash is known. */
  patience: number
}

/** A request is for so many chunks at most. */
const mostChunks = 8

/** Fetches what is missing, and answers with the SHA-256 of the whole. */
export const fill = Effect.fn("hub.fill")(function*(file: ChunkFile, remote: Transfer.Remote, options: Options) {
  const http = yield* Http.Http
  const total = Chunks.count(file.header)
  let done = Chunks.bytesDone(file)
  const arrivals = Array.from({ length: total }, () => Deferred.makeUnsafe<void>())
  for (const index of file.hashes.keys()) yield* Deferred.succeed(arrivals[index]!, undefined)
  const session: Session = {
    http,
    file,
    remote,
    wanted: new Set(Array.from(arrivals.keys()).filter((index) => !file.hashes.has(index))),
    arrived: (index) => Effect.asVoid(Deferred.succeed(arrivals[index]!, undefined)),
    count: (bytes) => {
      done += bytes
      return options.onBytes(done)
    },
    restart: Effect.suspend(() => options.onBytes(done = 0)),
    patience: remote.sha256 === undefined ? 0 : http.attempts
  }
  yield* options.onBytes(done)
  if (session.wanted.size === 0) return yield* digest(file, arrivals)
  if (!remote.hasRanges || (remote.validator === undefined && remote.sha256 === undefined)) {
    yield* inOne(session)
    return yield* digest(file, arrivals)
  }
  // hashing follows the front, so that it is done soon after the last byte
  const [, hash] = yield* Effect.all([inParts(session, options.connections), digest(file, arrivals)], {
    concurrency: "unbounded"
  })
  return hash
})

const digest = Effect.fnUntraced(function*(file: ChunkFile, arrivals: ReadonlyArray<Deferred.Deferred<void>>) {
  const { sha256 } = yield* Machine
  const hasher = sha256()
  const buffer = new Uint8Array(Math.min(file.header.size, file.header.chunkBytes))
  for (const [index, arrival] of arrivals.entries()) {
    yield* Deferred.await(arrival)
    hasher.update(yield* file.get(index, buffer))
    yield* Effect.yieldNow
  }
  return hasher.digest()
})

/** Several connections, each with a run of chunks at a time. */
const inParts = (session: Session, connections: number): Effect.Effect<void, Failure> => {
  const most = Math.max(1, Math.min(mostChunks, Math.ceil(session.wanted.size / connections)))
  const connection = Effect.gen(function*() {
    while (true) {
      const run = Chunks.firstRun(session.wanted, most)
      if (run === undefined) return
      for (let index = run.from; index < run.to; index++) session.wanted.delete(index)
      yield* fetchRun(session, run)
    }
  })
  return Effect.forEach(Array.from({ length: connections }), () => connection, {
    concurrency: "unbounded",
    discard: true
  })
}

/** Cuts bytes that come one after the other into chunks. */
class Cutter {
  chunk: number
  filled = 0
  private buffer: Uint8Array | undefined
  private readonly session: Session

  constructor(session: Session, first: number) {
    this.session = session
    this.chunk = first
  }

  private get length(): number {
    const { end, start } = Chunks.rangeOf(this.session.file.header, this.chunk)
    return Math.max(0, end - start)
  }

  /** The place in the file of the next byte. */
  get position(): number {
    const { chunkBytes, size } = this.session.file.header
    return Math.min(size, this.chunk * chunkBytes + this.filled)
  }

  get isFull(): boolean {
    return this.filled > 0 && this.filled === this.length
  }

  /** Takes what fits into the chunk; answers with the rest. */
  push(bytes: Uint8Array): Uint8Array {
    const { chunkBytes, size } = this.session.file.header
    // for all chunks, one after the other: large buffers that come and go are a third of the time
    this.buffer ??= new Uint8Array(Math.min(size, chunkBytes))
    const taken = bytes.subarray(0, this.length - this.filled)
    this.buffer.set(taken, this.filled)
    this.filled += taken.length
    return bytes.subarray(taken.length)
  }

  /** Begins with another chunk; what came of this one is not kept. */
  goTo(chunk: number): void {
    this.chunk = chunk
    this.filled = 0
  }

  /** Writes the chunk if it is full, and begins the next one. */
  readonly keep = Effect.suspend(() => {
    const { buffer, chunk, length, session: { arrived, file } } = this
    if (!this.isFull || buffer === undefined) return Effect.void
    return file.put(chunk, buffer.subarray(0, length)).pipe(
      Effect.andThen(Effect.suspend(() => {
        this.goTo(chunk + 1)
        return arrived(chunk)
      }))
    )
  })

  /** Forgets what came of the chunk. */
  readonly forget = Effect.suspend(() => {
    const lost = this.filled
    this.goTo(this.chunk)
    return this.session.count(-lost)
  })
}

/** Counts attempts that brought nothing new. */
const patiently = (
  session: Session,
  cutter: Cutter,
  { attempt, isDone }: { readonly attempt: Effect.Effect<void, Failure>; readonly isDone: () => boolean }
): Effect.Effect<void, Failure> =>
  Effect.gen(function*() {
    let failures = 0
    let reached = cutter.position
    while (!isDone()) {
      const result = yield* Effect.result(attempt)
      const at = cutter.position
      if (result._tag === "Success") continue
      const error = result.failure
      failures = at > reached ? 1 : failures + 1
      reached = Math.max(reached, at)
      if (!Transfer.isWorthRepeating(error) && !(yield* adopt(session, error))) return yield* Effect.fail(error)
      if (failures >= session.http.attempts) return yield* Effect.fail(error)
      yield* session.http.pause(error, failures)
    }
  })

/**
 * A file whose hash is known may get another validator, as from another machine behind the same address: the hash tells in
 * the end whether it was the same file. One of another size is another file.
 */
const adopt = Effect.fnUntraced(function*(session: Session, error: Failure) {
  if (!(error instanceof TransferError) || error.problem !== "changed" || session.patience === 0) return false
  session.patience--
  const found = yield* Effect.option(Transfer.probe(session.remote.url))
  if (found._tag === "None" || found.value.size !== session.remote.size) return false
  session.remote = { ...session.remote, validator: found.value.validator }
  return true
}, (effect, session) => Effect.provideService(effect, Http.Http, session.http))

const fetchRun = (session: Session, run: Chunks.Run): Effect.Effect<void, Failure> => {
  const { file, http } = session
  const end = Chunks.rangeOf(file.header, run.to - 1).end
  const cutter = new Cutter(session, run.from)
  const attempt = Effect.gen(function*() {
    const { remote } = session
    // of a connection that broke where it should have ended
    yield* cutter.keep
    const start = cutter.position
    if (start >= end) return
    const coming = yield* Transfer.range(http, remote, { start, end })
    yield* take(session, cutter, { response: coming.response, end: coming.end })
  })
  return patiently(session, cutter, { attempt: Effect.scoped(attempt), isDone: () => cutter.chunk >= run.to })
}

/** All of the file over one connection: from the beginning after each break. */
const inOne = (session: Session): Effect.Effect<void, Failure> => {
  const { file, http, remote } = session
  const cutter = new Cutter(session, 0)
  const total = Chunks.count(file.header)
  // chunks that are there are compared with what comes again, and written where they differ
  const attempt = Effect.gen(function*() {
    cutter.goTo(0)
    yield* session.restart
    const { response } = yield* http.request({ url: remote.url })
    yield* take(session, cutter, { response, end: remote.size })
  })
  return patiently(session, cutter, { attempt: Effect.scoped(attempt), isDone: () => cutter.chunk >= total })
}

/**
 * Takes a body that is to end at `end`. Its last chunk is kept only when the body has ended there: what goes on is not what
 * it says it is.
 */
const take = Effect.fnUntraced(function*(
  session: Session,
  cutter: Cutter,
  { end, response }: { readonly response: Response; readonly end: number }
) {
  const { http, remote: { url } } = session
  yield* Http.drain<Failure>({ response, url, stallMillis: http.stallMillis }, (bytes) =>
    Effect.gen(function*() {
      if (cutter.position + bytes.length > end) {
        yield* cutter.forget
        return yield* Transfer.tooMuch(url, end)
      }
      yield* session.count(bytes.length)
      let rest = bytes
      while (rest.length > 0) {
        yield* cutter.keep
        rest = cutter.push(rest)
      }
      return true
    }))
  yield* cutter.keep
  if (cutter.position < end) return yield* Transfer.tooLittle(url, cutter.position, end)
})
