/** Compiled programs, kept in the user's folder for caches: a file for each, the least recently used ones dropped. */
import { Context, Effect, FileSystem, Layer, Option, Path, Stdio } from "effect"
import { Flag } from "effect/cli"
import { KeyValueStore, KeyValueStoreError, layerFileSystem } from "effect/persistence/KeyValueStore"
import * as UserDirectories from "effect/persistence/UserDirectories"
import { identity } from "./Build.ts"
import type { Keeping } from "./Devices.ts"
import * as Output from "./Output.ts"

/** `--no-cache`. */
export const noCache = Flag.Boolean("no-cache").pipe(
  Flag.withDescription("Compile everything, and keep nothing of it"),
  Flag.withDefault(false)
)

/** What all files together may take; GLM-4.7-Flash takes 1 MB. */
const mostBytes = 64 * 2 ** 20
/** Files that were begun by a process that has ended are as old as this, in milliseconds. */
const staleMillis = 60 * 60 * 1000
const begun = ".new"

/** Where programs are kept. */
export const folder = Effect.gen(function*() {
  const path = yield* Path.Path
  return path.join(yield* UserDirectories.make().cache("tg"), "programs")
})

interface Kept {
  readonly file: string
  readonly bytes: number
  /** When it was last used, in milliseconds. */
  readonly used: number
}

/** What a folder has. Files that go away meanwhile are not in it. */
const filesOf = Effect.fnUntraced(function*(folder: string) {
  const files = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  if (!(yield* files.exists(folder))) return []
  const found = yield* Effect.forEach(yield* files.readDirectory(folder), (name) => {
    const file = path.join(folder, name)
    return files.stat(file).pipe(
      Effect.map(({ mtime, size }): Kept => ({
        file,
        bytes: Number(size),
        used: Option.getOrElse(mtime, () => new Date(0)).getTime()
      })),
      Effect.option
    )
  })
  return found.flatMap(Option.toArray)
})

/** What is kept. */
export interface Usage {
  readonly folder: string
  readonly programs: number
  /** Of all of them. */
  readonly bytes: number
}

/** What is kept for this user. */
export const usage = Effect.gen(function*() {
  const where = yield* folder
  const kept = yield* filesOf(where)
  const usage: Usage = { folder: where, programs: kept.length, bytes: kept.reduce((sum, { bytes }) => sum + bytes, 0) }
  return usage
})

/** Removes what was begun and never finished, and then the least recently used files, until the rest is small enough. */
const sweep = Effect.fnUntraced(
  function*(folder: string, { most, now }: { readonly most: number; readonly now: number }) {
    const files = yield* FileSystem.FileSystem
    const kept = (yield* filesOf(folder)).toSorted((a, b) => b.used - a.used)
    let bytes = 0
    for (const { bytes: own, file, used } of kept) {
      const isStale = file.endsWith(begun) && now - used > staleMillis
      if (!isStale) bytes += own
      if (isStale || bytes > most) yield* files.remove(file, { force: true })
    }
  }
)

/** A folder as a store. Whoever reads a file meanwhile finds the old one or the new one; it is swept in the end. */
export const layer = (folder: string, most = mostBytes) =>
  Layer.effect(
    KeyValueStore,
    Effect.gen(function*() {
      const files = yield* FileSystem.FileSystem
      const path = yield* Path.Path
      const store = yield* KeyValueStore
      let hasWritten = false
      yield* Effect.addFinalizer(() =>
        hasWritten ? Effect.ignore(sweep(folder, { most, now: Date.now() })) : Effect.void
      )
      return {
        ...store,
        get: (key) =>
          Effect.tap(store.get(key), (text) => {
            if (text === undefined) return Effect.void
            const now = new Date()
            // where nothing can be written, what is there is read all the same
            return Effect.ignore(files.utimes(path.join(folder, key), now, now))
          }),
        set: (key, value) =>
          Effect.gen(function*() {
            const file = path.join(folder, key)
            const beside = `${file}.${crypto.randomUUID()}${begun}`
            hasWritten = true
            yield* typeof value === "string" ? files.writeFileString(beside, value) : files.writeFile(beside, value)
            yield* files.rename(beside, file)
          }).pipe(
            Effect.mapError((cause) => new KeyValueStoreError({ method: "set", key, message: cause.message, cause }))
          )
      }
    })
  ).pipe(Layer.provide(layerFileSystem(folder)))

/** The user's store. If it cannot be used, that is said once on stderr, and nothing is kept. */
export const open = Effect.gen(function*() {
  const stdio = yield* Stdio.Stdio
  let isTold = false
  const tell = (message: string) =>
    Effect.suspend(() => {
      if (isTold) return Effect.void
      isTold = true
      return Output.note(`warning: compiled programs are not kept: ${message}`)
    }).pipe(Effect.provideService(Stdio.Stdio, stdio))
  return yield* Effect.flatMap(folder, (where) => Layer.build(layer(where))).pipe(
    Effect.map(Context.get(KeyValueStore)),
    Effect.map((store): Keeping => ({
      compiler: identity(),
      store,
      onProblem: ({ _tag, message }) => _tag === "DamagedPlan" ? Effect.void : tell(message)
    })),
    Effect.catch(({ message }) => Effect.as(tell(message), undefined))
  )
})
