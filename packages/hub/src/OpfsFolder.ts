/** A folder of the origin's private file system, and what goes wrong in it. In a worker: only there files can be written in place. */
import { Effect, type Scope } from "effect"
import { StoreError } from "./HubError.ts"

/** What browsers have and the types do not know. */
interface Movable {
  readonly move: (to: FileSystemDirectoryHandle, name: string) => Promise<void>
}

const isNamed = (cause: unknown, name: string): boolean => cause instanceof DOMException && cause.name === name

/** What a refusal of the browser means. */
const errorOf = (path: string) => (cause: unknown): StoreError => {
  if (cause instanceof StoreError) return cause
  if (isNamed(cause, "QuotaExceededError")) {
    return new StoreError({ path, problem: "no-space", detail: "the browser gives this page no more room" })
  }
  if (isNamed(cause, "NoModificationAllowedError")) {
    return new StoreError({ path, problem: "in-use", detail: "another tab writes it; close that tab, or wait for it" })
  }
  const detail = cause instanceof Error ? cause.message : String(cause)
  return new StoreError({ path, problem: "io", detail: `the browser's file system refuses: ${detail}` })
}

/** How Chromium names what is being written in front of what is there (`createWritable`): it is gone at any moment. */
const swapFile = ".crswap"

/** A file that is replaced between its being opened and read is no longer there, or refuses. So many times in a row it is not. */
const mostReads = 16

/** Nothing, where it is not there (any more). */
const orNothing = (cause: unknown): undefined => {
  if (isNamed(cause, "NotFoundError")) return undefined
  throw cause
}

/** Asks the browser. */
export const attempt = <A>(path: string, ask: () => Promise<A> | A): Effect.Effect<A, StoreError> =>
  Effect.tryPromise({ try: async () => ask(), catch: errorOf(path) })

/** A folder. */
export interface OpfsFolder {
  readonly names: Effect.Effect<ReadonlyArray<string>, StoreError>
  /** A file as it is now; nothing if there is none. */
  readonly file: (name: string) => Effect.Effect<File | undefined, StoreError>
  /** What a small file says, before another tab replaces it or after; nothing if there is none. */
  readonly text: (name: string) => Effect.Effect<string | undefined, StoreError>
  /** Writes a small file in one step: readers find the old one or the new one. */
  readonly replace: (name: string, text: string) => Effect.Effect<void, StoreError>
  /** Gives a file another name. What has that name is gone. */
  readonly rename: (from: string, to: string) => Effect.Effect<void, StoreError>
  readonly remove: (name: string) => Effect.Effect<void, StoreError>
  /** A file to read and write in place, which nobody else can meanwhile. */
  readonly open: (name: string) => Effect.Effect<FileSystemSyncAccessHandle, StoreError, Scope.Scope>
}

/** A folder inside of the origin's file system, made if it is missing. */
export const make = (path: ReadonlyArray<string>): Effect.Effect<OpfsFolder, StoreError> =>
  Effect.gen(function*() {
    const at = path.join("/")
    const folder = yield* attempt(at, async () => {
      let handle = await navigator.storage.getDirectory()
      for (const name of path) handle = await handle.getDirectoryHandle(name, { create: true })
      return handle
    })
    const remove = (name: string) => attempt(`${at}/${name}`, () => folder.removeEntry(name).catch(orNothing))
    return {
      names: attempt(at, async () => {
        const names: Array<string> = []
        for await (const name of folder.keys()) if (!name.endsWith(swapFile)) names.push(name)
        return names
      }),
      // another tab may take it away in between
      file: (name) =>
        attempt(`${at}/${name}`, () => folder.getFileHandle(name).then((handle) => handle.getFile()).catch(orNothing)),
      text: (name) =>
        attempt(`${at}/${name}`, async () => {
          for (let reads = 1;; reads++) {
            const handle = await folder.getFileHandle(name).catch(orNothing)
            if (handle === undefined) return undefined
            try {
              return await (await handle.getFile()).text()
            } catch (cause) {
              const isReplaced = isNamed(cause, "NotFoundError") || isNamed(cause, "NotReadableError")
              if (!isReplaced || reads === mostReads) throw cause
            }
          }
        }),
      replace: (name, text) =>
        attempt(`${at}/${name}`, async () => {
          const handle = await folder.getFileHandle(name, { create: true })
          const writing = await handle.createWritable()
          await writing.write(text)
          await writing.close()
        }),
      rename: (from, to) =>
        Effect.andThen(
          remove(to),
          attempt(`${at}/${from}`, async () => {
            const handle = await folder.getFileHandle(from)
            await (handle as FileSystemFileHandle & Movable).move(folder, to)
          })
        ),
      remove,
      open: (name) =>
        Effect.acquireRelease(
          attempt(`${at}/${name}`, async () => {
            const handle = await folder.getFileHandle(name, { create: true })
            return handle.createSyncAccessHandle()
          }),
          (handle) => Effect.sync(() => handle.close())
        )
    }
  })
