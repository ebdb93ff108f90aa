/**
 * Models that a browser keeps for a page, in the origin's private file system: resumed after anything, checked byte by byte, one
 * copy of each content, and safe with several tabs.
 */
import { Context, Effect, Layer, Option, Schema } from "effect"
import { check } from "./ChunkFile.ts"
import * as Chunks from "./Chunks.ts"
import * as Disk from "./Disk.ts"
import * as Download from "./Download.ts"
import * as Http from "./Http.ts"
import * as Hub from "./Hub.ts"
import { type FetchError, StoreError, TransferError, WrongHash } from "./HubError.ts"
import { type Entry, Manifest } from "./Layout.ts"
import { Machine } from "./Machine.ts"
import { type ModelName, print } from "./ModelName.ts"
import * as OpfsChunkFile from "./OpfsChunkFile.ts"
import * as OpfsFolder from "./OpfsFolder.ts"
import * as Transfer from "./Transfer.ts"
import * as WebLock from "./WebLock.ts"

/** Where and how to keep. */
export interface Options {
  /** The folder (default: `tg-models`). */
  readonly folder?: string | undefined
  /** Connections for each file (default: 4). */
  readonly connections?: number | undefined
  /** Bytes of a chunk (default: 1 to 16 MiB, by the size of the file). */
  readonly chunkBytes?: number | undefined
}

/** How far a pull is: all files of the model together. */
export interface Progress {
  readonly doneBytes: number
  readonly totalBytes: number
  /** Whether another tab fetches it, and this one waits. */
  readonly isWaiting: boolean
}

/** A model of the store. */
export interface Model {
  readonly name: string
  readonly totalBytes: number
  /** Bytes that are here. */
  readonly doneBytes: number
  /** Whether all of it is there, and was what it should be. */
  readonly isComplete: boolean
}

/** What a page keeps. */
export class OpfsStore extends Context.Service<OpfsStore, {
  /** Fetches what is missing of a model, and checks what is there. */
  readonly pull: (
    name: ModelName,
    onProgress?: (progress: Progress) => Effect.Effect<void>
  ) => Effect.Effect<Model, FetchError | Hub.LookupError>
  readonly list: Effect.Effect<ReadonlyArray<Model>, StoreError>
  /** The files of a model that is whole, in the order of its parts. Several tabs may read them. */
  readonly files: (name: string) => Effect.Effect<ReadonlyArray<File>, StoreError>
  /** Takes a name away, and every content that has no other; answers with the bytes that are free again. */
  readonly remove: (name: string) => Effect.Effect<number, StoreError>
}>()("@tg/hub/OpfsStore") {
  static readonly layer = (options: Options = {}) => Layer.effect(OpfsStore, make(options))
}

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(Manifest))
const sum = (numbers: ReadonlyArray<number>): number => numbers.reduce((a, b) => a + b, 0)
const partOf = (key: string): string => `${key}.part`

/** Where everything is. */
interface Place {
  readonly root: string
  readonly blobs: OpfsFolder.OpfsFolder
  readonly names: OpfsFolder.OpfsFolder
  readonly options: Options
}

const lockOf = ({ root }: Place, key: string): string => `${root}/${key}`

const make = Effect.fnUntraced(function*(options: Options) {
  const services = yield* Effect.context<Http.Http | Machine>()
  const root = options.folder ?? "tg-models"
  const place: Place = {
    root,
    options,
    blobs: yield* OpfsFolder.make([root, "blobs"]),
    names: yield* OpfsFolder.make([root, "names"])
  }
  const store: OpfsStore["Service"] = {
    pull: (name, onProgress = () => Effect.void) => Effect.provide(pull(place, name, onProgress), services),
    list: Effect.flatMap(manifests(place), (all) => Effect.forEach(all, (each) => describe(place, each))),
    files: (name) => Effect.provide(files(place, name), services),
    remove: (name) => Effect.provide(remove(place, name), services)
  }
  return store
})

const hashed = Effect.fnUntraced(function*(text: string) {
  const { sha256 } = yield* Machine
  const hasher = sha256()
  hasher.update(new TextEncoder().encode(text))
  return hasher.digest()
})

const fileOf = (name: string) => Effect.map(hashed(name), (hash) => `${hash}.json`)

const manifestIn = ({ names }: Place, file: string): Effect.Effect<Manifest | undefined, StoreError> =>
  Effect.map(names.text(file), (text) => text === undefined ? undefined : Option.getOrUndefined(decode(text)))

const manifest = (place: Place, name: string) => Effect.flatMap(fileOf(name), (file) => manifestIn(place, file))

const manifests = (place: Place): Effect.Effect<ReadonlyArray<Manifest>, StoreError> =>
  Effect.gen(function*() {
    const found = yield* Effect.forEach(yield* place.names.names, (file) => manifestIn(place, file))
    return found.flatMap((each) => each ?? []).toSorted((a, b) => a.name < b.name ? -1 : 1)
  })

/** The content of a file if all of it is there. */
const whole = ({ blobs }: Place, { sha256, size }: Entry): Effect.Effect<File | undefined, StoreError> =>
  sha256 === undefined
    ? Effect.succeed(undefined)
    : Effect.map(blobs.file(sha256), (file) => file?.size === size ? file : undefined)

const doneBytes = Effect.fnUntraced(function*(place: Place, entry: Entry) {
  if ((yield* whole(place, entry)) !== undefined) return entry.size
  const table = yield* OpfsChunkFile.readTable(place.blobs, partOf(entry.key))
  return table === undefined || table.header.size !== entry.size ? 0 : Chunks.bytesDone(table)
})

const describe = Effect.fnUntraced(function*(place: Place, { files, name }: Manifest) {
  const done = yield* Effect.forEach(files, (entry) => doneBytes(place, entry))
  const found = yield* Effect.forEach(files, (entry) => whole(place, entry))
  const model: Model = {
    name,
    totalBytes: sum(files.map(({ size }) => size)),
    doneBytes: sum(done),
    isComplete: found.every((each) => each !== undefined)
  }
  return model
})

const files = Effect.fnUntraced(function*(place: Place, name: string) {
  const found = yield* manifest(place, name)
  const contents = yield* Effect.forEach(found?.files ?? [], (entry) => whole(place, entry))
  const all = contents.flatMap((each) => each ?? [])
  if (all.length > 0 && all.length === contents.length) return all
  return yield* new StoreError({
    path: name,
    problem: "unknown-name",
    detail: found === undefined ? "this browser does not keep it" : "not all of it is here; download it again"
  })
})

/** What is known of a file before it is fetched. One at an address is asked for its size and whether it is still the same. */
const entryOf = Effect.fnUntraced(function*({ file, sha256, size, url }: Hub.ModelFile, before: Manifest | undefined) {
  if (sha256 !== undefined && size !== undefined) return { file, url, size, sha256, key: sha256 } satisfies Entry
  const remote = yield* Transfer.probe(url)
  const base = { file, url, size: remote.size }
  if (remote.sha256 !== undefined) return { ...base, sha256: remote.sha256, key: remote.sha256 } satisfies Entry
  const known = before?.files.find((entry) => entry.url === url)
  const isSame = known !== undefined && known.size === remote.size && known.validator !== undefined &&
    known.validator === remote.validator
  if (isSame) return known
  const { validator } = remote
  const entry: Entry = { ...base, key: `url-${yield* hashed(url)}`, ...validator === undefined ? {} : { validator } }
  return entry
})

const pull = Effect.fn("hub.opfs.pull")(
  function*(place: Place, name: ModelName, onProgress: (progress: Progress) => Effect.Effect<void>) {
    const told = print(name)
    const before = yield* manifest(place, told)
    const entries = yield* Effect.forEach(yield* Hub.lookup(name), (file) => entryOf(file, before))
    const done = new Map<string, number>()
    for (const entry of entries) done.set(entry.file, yield* doneBytes(place, entry))
    const totalBytes = sum(entries.map(({ size }) => size))
    const { freeBytes } = yield* Machine
    const missing = totalBytes - sum([...done.values()])
    const free = yield* freeBytes(place.root)
    const given = Disk.printBytes(free)
    if (missing > free) return yield* noSpace(place, told, missing, `gives this page ${given} more`)
    let found: Manifest = { version: 1, name: told, files: entries }
    // Chromium reports 10 GiB free whatever the disk and the quota are, and refuses only what is written
    const refused = Effect.suspend(() => describe(place, found)).pipe(
      Effect.flatMap(({ doneBytes }) =>
        noSpace(place, told, totalBytes - doneBytes, `keeps no more, though it reported ${given} free`)
      )
    )
    const say = (entry: Entry, isWaiting: boolean) => (bytes: number) => {
      done.set(entry.file, bytes)
      return onProgress({ doneBytes: sum([...done.values()]), totalBytes, isWaiting })
    }
    return yield* Effect.gen(function*() {
      yield* keep(place, found)
      for (const entry of entries) {
        const waiting = doneBytes(place, entry).pipe(Effect.flatMap(say(entry, true)), Effect.ignore)
        // told while it is locked: whoever waits for it finds it
        const making = Effect.gen(function*() {
          const fetched = yield* one(place, entry, say(entry, false))
          found = { ...found, files: found.files.map((each) => each === entry ? fetched : each) }
          yield* keep(place, found)
        })
        yield* WebLock.withLock(lockOf(place, entry.key), waiting, making)
      }
      return yield* describe(place, found)
    }).pipe(Effect.catchIf(isNoSpace, () => refused))
  }
)

const isNoSpace = (error: FetchError): boolean => error instanceof StoreError && error.problem === "no-space"

const keep = (place: Place, found: Manifest) =>
  Effect.flatMap(fileOf(found.name), (file) => place.names.replace(file, `${JSON.stringify(found, null, 2)}\n`))

/** Says what could be deleted, after what the browser does. */
const noSpace = Effect.fnUntraced(
  function*(place: Place, name: string, missing: number, browserDoes: string) {
    const all = yield* Effect.forEach(yield* manifests(place), (each) => describe(place, each))
    const others = all.filter((each) => each.name !== name && each.doneBytes > 0)
      .toSorted((a, b) => b.doneBytes - a.doneBytes).slice(0, 3)
      .map((each) => `${each.name} (${Disk.printBytes(each.doneBytes)})`)
    return yield* new StoreError({
      path: name,
      problem: "no-space",
      detail: `${Disk.printBytes(missing)} are missing, and the browser ${browserDoes}; ` +
        (others.length === 0
          ? "make room on the disk, or load the model without keeping it"
          : `delete a model that is kept: ${others.join(", ")}`)
    })
  }
)

/** Makes a content whole. To be called with the lock of its key. */
const one = Effect.fnUntraced(
  function*(place: Place, asked: Entry, onBytes: (done: number) => Effect.Effect<void>) {
    // whoever had the lock may have fetched it
    const known = (yield* manifests(place)).flatMap((each) => each.files)
      .find((each) => each.key === asked.key && each.sha256 !== undefined && each.validator === asked.validator)
    const entry = known ?? asked
    if ((yield* whole(place, entry)) !== undefined) {
      yield* onBytes(entry.size)
      return entry
    }
    const hash = yield* filled(place, entry, onBytes)
    const { blobs } = place
    const part = partOf(entry.key)
    if ((yield* whole(place, { ...entry, sha256: hash })) === undefined) yield* blobs.rename(part, hash)
    else yield* blobs.remove(part)
    yield* blobs.remove(OpfsChunkFile.tableOf(part))
    const found: Entry = { ...entry, sha256: hash }
    yield* onBytes(found.size)
    return found
  }
)

/** Fetches what is missing, and answers with the hash of all: the one that it should be, if that is known. */
const filled = Effect.fnUntraced(
  function*(place: Place, entry: Entry, onBytes: (done: number) => Effect.Effect<void>) {
    const { blobs, options } = place
    const { file, key, size, url } = entry
    const part = partOf(key)
    const remote = yield* Transfer.probe(url)
    if (remote.size !== size) {
      return yield* new TransferError({
        url: Http.shown(url),
        problem: "changed",
        detail: `the file had ${size} bytes, and has ${remote.size} now; download it again`
      })
    }
    const expected = entry.sha256 ?? remote.sha256
    const before = yield* OpfsChunkFile.readTable(blobs, part)
    const isSame = before !== undefined && before.header.size === size && before.header.url === url &&
      (expected !== undefined || (remote.validator !== undefined && before.header.validator === remote.validator))
    const header: Chunks.Header = {
      version: 1,
      url,
      size,
      chunkBytes: options.chunkBytes ?? Chunks.chunkBytesFor(size),
      ...remote.validator === undefined ? {} : { validator: remote.validator }
    }
    const hash = yield* Effect.scoped(Effect.gen(function*() {
      const opened = yield* OpfsChunkFile.open(blobs, part, isSame ? before : { header, hashes: new Map() })
      yield* check(opened)
      return yield* Download.fill(opened, { ...remote, sha256: expected }, {
        connections: options.connections ?? 4,
        onBytes
      })
    }))
    if (expected === undefined || expected === hash) return hash
    yield* removeContent(place, key)
    return yield* new WrongHash({ file, expected, found: hash })
  }
)

const removeContent = Effect.fnUntraced(function*({ blobs }: Place, key: string) {
  for (const name of [key, partOf(key), OpfsChunkFile.tableOf(partOf(key))]) yield* blobs.remove(name)
})

const remove = Effect.fn("hub.opfs.remove")(function*(place: Place, name: string) {
  const found = yield* manifest(place, name)
  if (found === undefined) {
    return yield* new StoreError({ path: name, problem: "unknown-name", detail: "this browser does not keep it" })
  }
  for (const { key } of found.files) {
    if (!(yield* WebLock.isHeld(lockOf(place, key)))) continue
    return yield* new StoreError({ path: name, problem: "in-use", detail: "a tab is downloading it; stop that first" })
  }
  const freed = yield* Effect.forEach(found.files, (entry) => doneBytes(place, entry))
  yield* place.names.remove(yield* fileOf(name))
  const used = new Set((yield* manifests(place)).flatMap(({ files }) => files.flatMap(keysOf)))
  let freedBytes = 0
  for (const [i, entry] of found.files.entries()) {
    const unused = keysOf(entry).filter((key) => !used.has(key))
    for (const key of unused) yield* removeContent(place, key)
    if (unused.includes(entry.sha256 ?? entry.key)) freedBytes += freed[i]!
  }
  return freedBytes
})

const keysOf = ({ key, sha256 }: Entry): ReadonlyArray<string> => sha256 === undefined ? [key] : [key, sha256]
