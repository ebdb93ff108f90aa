/**
 * A `PrefixStore` in a folder. A file is written under another name, and renamed when it is whole and on the disk; a file that
 * is not what its checksums say is removed. A module of its own, because `FileSystem` is an unstable part of Effect.
 *
 *     bytes 0 .. 7     "tgprefix"
 *     bytes 8 .. 11    length of the header, little endian
 *     bytes 12 .. 75   SHA-256 of the header, hexadecimal
 *     header           JSON: identity, what is forgotten, and of each part that follows its length and SHA-256
 *     parts            the tokens, 4 bytes each; then the rows of each cache
 */
import type { ByteSource } from "@tg/gguf/ByteSource"
import * as FileByteSource from "@tg/gguf/FileByteSource"
import { Clock, Effect, FileSystem, Layer, Option, Path, Schema, Semaphore } from "effect"
import { digest, type Found, PrefixStore } from "./PrefixStore.ts"
import type { Snapshot } from "./Filling.ts"
import { commonPrefix } from "./Tokens.ts"

const magic = "tgprefix"
const suffix = ".tgprefix"
const headerAt = 76
const mostHeaderBytes = 2 ** 20

const Header = Schema.Struct({
  format: Schema.Literal(1),
  identity: Schema.String,
  forgotten: Schema.optionalKey(Schema.Int),
  parts: Schema.Array(Schema.Struct({ bytes: Schema.Int, digest: Schema.String }))
})
type Header = typeof Header.Type
const HeaderText = Schema.fromJsonString(Header)

/** A file that is not what it says. */
export class DamagedPrefix extends Schema.TaggedError<DamagedPrefix>()("DamagedPrefix", {
  file: Schema.String,
  found: Schema.String
}) {
  override get message(): string {
    return `${this.file} is no whole prefix of a conversation: ${this.found}; it is removed, and computed again when it is needed`
  }
}

/** Where prefixes are kept, and how many. */
export interface Options {
  readonly directory: string
  /** What else rows depend on: the version of the program that computes them. Others' are not found. */
  readonly version: string
  /** Bytes of all files; those unused for longest are removed. 4 GiB if not given. */
  readonly maxBytes?: number | undefined
  /** Told of what cannot be read or written; whoever asked goes on without it. */
  readonly onProblem?: ((problem: { readonly message: string }) => Effect.Effect<void>) | undefined
}

/** What is known of a file without its rows. */
interface Entry {
  readonly path: string
  readonly header: Header
  readonly tokens: ReadonlyArray<number>
  readonly bytes: number
  /** Where its rows begin. */
  readonly rowsAt: number
  usedAt: number
}

const text = new TextDecoder()
const utf8 = new TextEncoder()

const tokensOf = (bytes: Uint8Array): ReadonlyArray<number> => {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return Array.from({ length: bytes.length / 4 }, (_, i) => view.getUint32(4 * i, true))
}

const bytesOf = (tokens: ReadonlyArray<number>): Uint8Array => {
  const bytes = new Uint8Array(4 * tokens.length)
  const view = new DataView(bytes.buffer)
  for (const [i, id] of tokens.entries()) view.setUint32(4 * i, id, true)
  return bytes
}

/** A part of the file, if it is what the header says. */
const readPart = Effect.fnUntraced(function*(
  source: ByteSource["Service"],
  at: number,
  part: Header["parts"][number]
) {
  const bytes = yield* source.read(at, part.bytes)
  if ((yield* digest(bytes)) === part.digest) return bytes
  return yield* new DamagedPrefix({
    file: source.name,
    found: `the ${part.bytes} bytes at ${at} have another checksum`
  })
})

/** The header and the tokens of a file, checked. */
const readEntry = Effect.fnUntraced(function*(source: ByteSource["Service"], usedAt: number) {
  const damaged = (found: string) => new DamagedPrefix({ file: source.name, found })
  const start = yield* source.read(0, headerAt)
  if (text.decode(start.subarray(0, 8)) !== magic) return yield* damaged(`it does not begin with ${magic}`)
  const length = new DataView(start.buffer, start.byteOffset).getUint32(8, true)
  if (length > mostHeaderBytes) return yield* damaged(`a header of ${length} bytes`)
  const bytes = yield* source.read(headerAt, length)
  if ((yield* digest(bytes)) !== text.decode(start.subarray(12))) {
    return yield* damaged("its header has another checksum")
  }
  const header = yield* Effect.mapError(
    Schema.decodeUnknownEffect(HeaderText)(text.decode(bytes)),
    (error) => damaged(error.message)
  )
  const at = headerAt + length
  const size = header.parts.reduce((sum, part) => sum + part.bytes, at)
  const [first] = header.parts
  if (first === undefined || size !== source.size) return yield* damaged(`${source.size} bytes instead of ${size}`)
  const tokens = tokensOf(yield* readPart(source, at, first))
  return { path: source.name, header, tokens, bytes: size, rowsAt: at + first.bytes, usedAt } satisfies Entry
})

const readRows = Effect.fnUntraced(function*(source: ByteSource["Service"], { header, rowsAt, tokens }: Entry) {
  const rows: Array<Uint8Array> = []
  let at = rowsAt
  for (const part of header.parts.slice(1)) {
    rows.push(yield* readPart(source, at, part))
    at += part.bytes
  }
  return { tokens, rows, forgotten: header.forgotten ?? 0 } satisfies Snapshot
})

/** The pieces of a file. */
const encode = Effect.fnUntraced(function*(identity: string, { forgotten, rows, tokens }: Snapshot) {
  const parts = [bytesOf(tokens), ...rows]
  const digests = yield* Effect.forEach(parts, digest)
  const described = parts.map((part, i) => ({ bytes: part.length, digest: digests[i]! }))
  const header: Header = { format: 1, identity, forgotten, parts: described }
  const bytes = utf8.encode(JSON.stringify(header))
  const start = new Uint8Array(headerAt)
  start.set(utf8.encode(magic))
  new DataView(start.buffer).setUint32(8, bytes.length, true)
  start.set(utf8.encode(yield* digest(bytes)), 12)
  return { header, pieces: [start, bytes, ...parts], rowsAt: headerAt + bytes.length + parts[0]!.length }
})

/** Tokens of the file that a conversation begins with. Rows that were forgotten cannot be gone back to: then all of them, or none. */
const sharedWith = ({ header, tokens }: Entry, conversation: ReadonlyArray<number>): number => {
  const shared = commonPrefix(tokens, conversation)
  return (header.forgotten ?? 0) === 0 || shared === tokens.length ? shared : 0
}

/** A folder of prefixes: what is known of its files. */
interface Folder {
  readonly fs: FileSystem.FileSystem
  readonly path: Path.Path
  readonly options: { readonly [K in keyof Options]-?: Exclude<Options[K], undefined> }
  readonly entries: Set<Entry>
}

/** Uses the bytes of a file while it is open. */
const withFile = <A, E>({ fs }: Folder, file: string, use: (source: ByteSource["Service"]) => Effect.Effect<A, E>) =>
  Effect.scoped(Effect.flatMap(FileByteSource.open(file), use)).pipe(
    Effect.provideService(FileSystem.FileSystem, fs)
  )

const forget = ({ entries, fs }: Folder, entry: Entry): Effect.Effect<void> =>
  Effect.suspend(() => {
    entries.delete(entry)
    return Effect.ignore(fs.remove(entry.path, { force: true }))
  })

/** What is known of a file that may be a prefix; one that is none goes. */
const scanFile = Effect.fnUntraced(function*(folder: Folder, file: string, usedAt: number) {
  const { entries, fs, options } = folder
  const entry = yield* Effect.result(withFile(folder, file, (source) => readEntry(source, usedAt)))
  if (entry._tag === "Success") {
    entries.add(entry.success)
    return
  }
  yield* options.onProblem(entry.failure)
  if (entry.failure._tag === "DamagedPrefix" || entry.failure.problem !== "unavailable") {
    yield* Effect.ignore(fs.remove(file, { force: true }))
  }
})

/** Every file is read as far as it is needed to find it. Others' unfinished files are left alone for an hour. */
const scan = Effect.fnUntraced(function*(folder: Folder) {
  const { fs, options: { directory }, path } = folder
  yield* fs.makeDirectory(directory, { recursive: true })
  const now = yield* Clock.currentTimeMillis
  for (const name of yield* fs.readDirectory(directory)) {
    const file = path.join(directory, name)
    if (!name.includes(suffix)) continue
    const { mtime } = yield* fs.stat(file)
    const usedAt = Option.getOrElse(mtime, () => new Date(0)).getTime()
    if (name.endsWith(suffix)) yield* scanFile(folder, file, usedAt)
    else if (usedAt < now - 3_600_000) yield* Effect.ignore(fs.remove(file, { force: true }))
  }
})

/** The rows of a file, which is used with that. A file that is damaged goes. */
const load = (folder: Folder, entry: Entry): Effect.Effect<Snapshot | undefined> =>
  withFile(folder, entry.path, (source) => readRows(source, entry)).pipe(
    Effect.tap(() =>
      Effect.gen(function*() {
        entry.usedAt = yield* Clock.currentTimeMillis
        yield* Effect.ignore(folder.fs.utimes(entry.path, new Date(entry.usedAt), new Date(entry.usedAt)))
      })
    ),
    Effect.catch((problem) =>
      Effect.andThen(folder.options.onProblem(problem), Effect.as(forget(folder, entry), undefined))
    )
  )

/** Makes room for so many bytes: what is unused for longest goes. */
const makeRoom = Effect.fnUntraced(function*(folder: Folder, bytes: number) {
  const byAge = [...folder.entries].sort((a, b) => a.usedAt - b.usedAt)
  let total = byAge.reduce((sum, entry) => sum + entry.bytes, bytes)
  for (const entry of byAge) {
    if (total <= folder.options.maxBytes) break
    total -= entry.bytes
    yield* forget(folder, entry)
  }
})

/** Writes it whole, or not at all. */
const write = Effect.fnUntraced(function*(folder: Folder, identity: string, snapshot: Snapshot) {
  const { entries, fs, options: { directory, maxBytes }, path } = folder
  const { header, pieces, rowsAt } = yield* encode(identity, snapshot)
  const bytes = pieces.reduce((sum, piece) => sum + piece.length, 0)
  if (bytes > maxBytes) return
  yield* makeRoom(folder, bytes)
  const name = (yield* digest(utf8.encode(`${identity} ${header.parts[0]!.digest}`))).slice(0, 32)
  const file = path.join(directory, name + suffix)
  const unfinished = `${file}.${crypto.randomUUID()}`
  yield* Effect.scoped(Effect.gen(function*() {
    const out = yield* fs.open(unfinished, { flag: "wx" })
    for (const piece of pieces) yield* out.writeAll(piece)
    yield* out.sync
  })).pipe(
    Effect.andThen(fs.rename(unfinished, file)),
    Effect.onError(() => Effect.ignore(fs.remove(unfinished, { force: true })))
  )
  const usedAt = yield* Clock.currentTimeMillis
  entries.add({ path: file, header, tokens: snapshot.tokens, bytes, rowsAt, usedAt })
})

/** What is a beginning of the snapshot, and so not needed beside it. One that has forgotten rows stands for itself alone. */
const covered = ({ entries }: Folder, identity: string, { forgotten, tokens }: Snapshot): ReadonlyArray<Entry> =>
  [...entries].filter((entry) =>
    entry.header.identity === identity && commonPrefix(entry.tokens, tokens) === entry.tokens.length &&
    (forgotten === 0 || entry.tokens.length === tokens.length)
  )

/** What shares most with these tokens. */
const find = (folder: Folder, identity: string, tokens: ReadonlyArray<number>): Found | undefined => {
  const known = [...folder.entries].filter(({ header }) => header.identity === identity)
    .map((entry) => ({ entry, shared: sharedWith(entry, tokens) }))
    .sort((a, b) => b.shared - a.shared)[0]
  return known === undefined || known.shared === 0
    ? undefined
    : { shared: known.shared, load: load(folder, known.entry) }
}

/** Keeps it, unless it is there, in place of its beginnings. */
const keep = Effect.fnUntraced(function*(folder: Folder, identity: string, snapshot: Snapshot) {
  const before = covered(folder, identity, snapshot)
  if (before.some((entry) => entry.tokens.length === snapshot.tokens.length)) return
  yield* write(folder, identity, snapshot)
  yield* Effect.forEach(before, (entry) => forget(folder, entry), { discard: true })
})

/** The store over a folder, which is made if it is not there. */
const make = Effect.fn("PrefixFiles.make")(function*(options: Options) {
  const { maxBytes = 4 * 2 ** 30, onProblem = () => Effect.void } = options
  const folder: Folder = {
    fs: yield* FileSystem.FileSystem,
    path: yield* Path.Path,
    options: { ...options, maxBytes, onProblem },
    entries: new Set()
  }
  const writing = yield* Semaphore.make(1)
  yield* Effect.catch(scan(folder), onProblem)
  const own = (identity: string): string => `${options.version} ${identity}`
  return PrefixStore.of({
    find: (identity, tokens) => Effect.sync(() => find(folder, own(identity), tokens)),
    keep: (identity, snapshot) =>
      keep(folder, own(identity), snapshot).pipe(writing.withPermits(1), Effect.catch(onProblem))
  })
})

/** The store as a service. */
export const layer = (options: Options): Layer.Layer<PrefixStore, never, FileSystem.FileSystem | Path.Path> =>
  Layer.effect(PrefixStore, make(options))
