/** Models on this machine by their names: one copy of each content, however many names it has. */
import { Context, Effect, type FileSystem, Layer, type Path } from "effect"
import * as ChunkFile from "./ChunkFile.ts"
import * as Chunks from "./Chunks.ts"
import type * as Http from "./Http.ts"
import * as Hub from "./Hub.ts"
import { type FetchError, StoreError } from "./HubError.ts"
import * as Layout from "./Layout.ts"
import * as Lock from "./Lock.ts"
import { Machine } from "./Machine.ts"
import { type ModelName, print } from "./ModelName.ts"
import * as Pull from "./Pull.ts"
import * as Transfer from "./Transfer.ts"

/** Where and how to keep. */
export interface Options {
  /** The folder. */
  readonly root: string
  /** Connections for each file (default: 4). */
  readonly connections?: number | undefined
  /** Bytes of a chunk (default: 1 to 16 MiB, by the size of the file). */
  readonly chunkBytes?: number | undefined
  /** Whether files that the hub keeps as Xet are fetched so (default: no, as they are). */
  readonly xet?: boolean | undefined
  readonly patience?: Lock.Patience | undefined
}

/** How far a pull is: all files of the model together. */
export interface Progress {
  readonly doneBytes: number
  readonly totalBytes: number
}

/** Who wants to know. */
export interface Listener {
  readonly onEvent?: (event: Pull.Event) => Effect.Effect<void>
  readonly onProgress?: (progress: Progress) => Effect.Effect<void>
}

/** A model of the store. */
export interface Model {
  readonly name: string
  readonly totalBytes: number
  readonly doneBytes: number
  /** Whether all of it is there. */
  readonly isComplete: boolean
  /** The file to open; of several the first. */
  readonly path: string
  readonly files: ReadonlyArray<Layout.Entry>
}

/** What a removal left. */
export interface Removed {
  /** Bytes that are free again. */
  readonly freedBytes: number
}

/** The models of this machine. */
export class Store extends Context.Service<Store, {
  readonly root: string
  /** Fetches what is missing of a model, and checks what is there. */
  readonly pull: (name: ModelName, listener?: Listener) => Effect.Effect<Model, FetchError | Hub.LookupError>
  readonly list: Effect.Effect<ReadonlyArray<Model>>
  /** A model of this machine; nothing if it was never asked for. */
  readonly find: (name: ModelName) => Effect.Effect<Model | undefined, StoreError>
  /** Takes a name away, and every content that has no other. */
  readonly remove: (name: ModelName) => Effect.Effect<Removed, StoreError>
}>()("@tg/hub/Store") {
  static readonly layer = (options: Options) => Layer.effect(Store, make(options))
}

type Services = FileSystem.FileSystem | Path.Path | Machine | Http.Http

const make = Effect.fnUntraced(function*(options: Options) {
  const services = yield* Effect.context<Services>()
  const layout = yield* Layout.make(options.root)
  const store: Store["Service"] = {
    root: options.root,
    pull: (name, listener = {}) => Effect.provide(pull(layout, options, { name, listener }), services),
    list: Effect.flatMap(layout.manifests, (all) => Effect.forEach(all, (each) => describe(layout, each))).pipe(
      Effect.provide(services)
    ),
    find: (name) => Effect.provide(find(layout, name), services),
    remove: (name) => Effect.provide(remove(layout, options, name), services)
  }
  return store
})

/** Bytes of a file that are there. */
const doneBytes = Effect.fnUntraced(function*(layout: Layout.Layout, { key, sha256, size }: Layout.Entry) {
  if (sha256 !== undefined && (yield* layout.sizeOf(layout.blob(sha256).data)) === size) return size
  const part = layout.part(key)
  if ((yield* layout.sizeOf(part.data)) === undefined) return 0
  const table = yield* ChunkFile.readTable(part)
  return table === undefined || table.header.size !== size ? 0 : Chunks.bytesDone(table)
})

const isWhole = (layout: Layout.Layout, { sha256, size }: Layout.Entry): Effect.Effect<boolean> =>
  sha256 === undefined
    ? Effect.succeed(false)
    : Effect.map(layout.sizeOf(layout.blob(sha256).data), (found) => found === size)

const sum = (numbers: ReadonlyArray<number>): number => numbers.reduce((a, b) => a + b, 0)

const describe = Effect.fnUntraced(function*(layout: Layout.Layout, { files, name }: Layout.Manifest) {
  const done = yield* Effect.forEach(files, (entry) => doneBytes(layout, entry))
  const whole = yield* Effect.forEach(files, (entry) => isWhole(layout, entry))
  const model: Model = {
    name,
    files,
    totalBytes: sum(files.map(({ size }) => size)),
    doneBytes: sum(done),
    isComplete: whole.every((each) => each),
    path: layout.linkOf(name, files[0]!)
  }
  return model
})

const find = Effect.fnUntraced(function*(layout: Layout.Layout, name: ModelName) {
  const manifest = yield* layout.manifest(print(name))
  if (manifest === undefined) return undefined
  const model = yield* describe(layout, manifest)
  if (model.isComplete) {
    for (const entry of manifest.files) {
      const isLinked = (yield* layout.sizeOf(layout.linkOf(model.name, entry))) === entry.size
      if (!isLinked) yield* layout.link(model.name, entry, entry.sha256!)
    }
  }
  return model
})

interface Wish {
  readonly name: ModelName
  readonly listener: Listener
}

const pull = Effect.fn("hub.pull")(
  function*(layout: Layout.Layout, options: Options, { listener, name }: Wish) {
    const told = print(name)
    yield* layout.prepare
    const before = yield* layout.manifest(told)
    const entries = yield* Effect.forEach(yield* Hub.lookup(name), (file) => entryOf(layout, file))
    const done = new Map<string, number>()
    for (const entry of entries) done.set(entry.file, yield* doneBytes(layout, entry))
    const totalBytes = sum(entries.map(({ size }) => size))
    const { freeBytes } = yield* Machine
    yield* Pull.checkSpace(layout.root, yield* freeBytes(layout.root), totalBytes - sum([...done.values()]))
    // a model that is whole keeps its name until the one that comes in its place is
    const isReplaced = before !== undefined && (yield* describe(layout, before)).isComplete
    if (!isReplaced) yield* layout.write({ version: 1, name: told, files: entries })
    const onEvent = (event: Pull.Event): Effect.Effect<void> => {
      if (event.type === "progress" || event.type === "waiting") done.set(event.file, event.doneBytes)
      return Effect.andThen(
        listener.onEvent?.(event) ?? Effect.void,
        listener.onProgress?.({ doneBytes: sum([...done.values()]), totalBytes }) ?? Effect.void
      )
    }
    const fetched: Array<Layout.Entry> = []
    for (const entry of entries) fetched.push(yield* one(layout, options, { entry, onEvent }))
    yield* publish(layout, options, { before, manifest: { version: 1, name: told, files: fetched } })
    return yield* describe(layout, { version: 1, name: told, files: fetched })
  }
)

/** What is known of a file before it is fetched. One at an address is asked for its size and whether it is still the same. */
const entryOf = Effect.fnUntraced(function*(layout: Layout.Layout, { file, sha256, size, url }: Hub.ModelFile) {
  if (sha256 !== undefined && size !== undefined) return { file, url, size, sha256, key: sha256 }
  const remote = yield* Transfer.probe(url)
  if (remote.sha256 !== undefined) return { file, url, size: remote.size, sha256: remote.sha256, key: remote.sha256 }
  const validator = remote.validator === undefined ? {} : { validator: remote.validator }
  return yield* layout.known({ file, url, key: layout.keyOf(url), size: remote.size, ...validator })
})

const one = Effect.fnUntraced(
  function*(layout: Layout.Layout, options: Options, { entry, onEvent }: {
    readonly entry: Layout.Entry
    readonly onEvent: (event: Pull.Event) => Effect.Effect<void>
  }) {
    const services = yield* Effect.context<FileSystem.FileSystem>()
    const onWait = (owner: string) =>
      Effect.flatMap(
        doneBytes(layout, entry),
        (bytes) => onEvent({ type: "waiting", file: entry.file, owner, doneBytes: bytes })
      ).pipe(Effect.provide(services))
    const { chunkBytes, connections = 4, patience = {}, xet } = options
    const fetched = yield* Lock.withLock(
      layout.lock(entry.key),
      { onWait, patience },
      // whoever had the lock may have found what is at the address
      Effect.flatMap(
        layout.known(entry),
        (known) => Pull.content(layout, known, { connections, chunkBytes, xet, onEvent })
      )
    )
    yield* onEvent({ type: "progress", file: entry.file, doneBytes: fetched.size })
    return fetched
  }
)

/** Names change one after the other. */
const withNames = <A, E, R>(layout: Layout.Layout, { patience = {} }: Options, use: Effect.Effect<A, E, R>) =>
  Lock.withLock(layout.lock("names"), { patience }, use)

const publish = (
  layout: Layout.Layout,
  options: Options,
  { before, manifest }: { readonly before: Layout.Manifest | undefined; readonly manifest: Layout.Manifest }
) =>
  withNames(
    layout,
    options,
    Effect.gen(function*() {
      yield* layout.write(manifest)
      // whoever else has one of these contents gets the copy that was just checked
      const hashes = new Set(manifest.files.map(({ sha256 }) => sha256))
      for (const { files, name } of yield* layout.manifests) {
        for (const entry of files) {
          if (entry.sha256 !== undefined && hashes.has(entry.sha256)) yield* layout.link(name, entry, entry.sha256)
        }
      }
      yield* sweep(layout, before)
    })
  )

const keysOf = ({ files }: Layout.Manifest): ReadonlyArray<string> =>
  files.flatMap(({ key, sha256 }) => sha256 === undefined || sha256 === key ? [key] : [key, sha256])

/** Removes contents that had a name and have none any more; answers with their bytes. */
const sweep = Effect.fnUntraced(function*(layout: Layout.Layout, gone: Layout.Manifest | undefined) {
  const used = new Set((yield* layout.manifests).flatMap(keysOf))
  let freedBytes = 0
  for (const key of new Set(gone === undefined ? [] : keysOf(gone))) {
    if (used.has(key)) continue
    const sizes = yield* Effect.forEach([layout.blob(key).data, layout.part(key).data], layout.sizeOf)
    freedBytes += sum(sizes.map((size) => size ?? 0))
    yield* layout.removeContent(key)
  }
  return freedBytes
})

const remove = Effect.fn("hub.remove")(function*(layout: Layout.Layout, options: Options, name: ModelName) {
  const told = print(name)
  if ((yield* layout.manifest(told)) === undefined) {
    return yield* new StoreError({ path: told, problem: "unknown-name", detail: "there is no model of this name here" })
  }
  return yield* withNames(
    layout,
    options,
    Effect.gen(function*() {
      const manifest = yield* layout.manifest(told)
      for (const key of manifest === undefined ? [] : keysOf(manifest)) {
        const owner = yield* Lock.ownerOf(layout.lock(key))
        if (owner === undefined) continue
        return yield* new StoreError({
          path: told,
          problem: "in-use",
          detail: `process ${owner.split(" ")[1]} is fetching it; end that one first`
        })
      }
      yield* layout.forget(told)
      const removed: Removed = { freedBytes: yield* sweep(layout, manifest) }
      return removed
    })
  )
})
