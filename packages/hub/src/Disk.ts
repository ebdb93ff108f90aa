/** Errors of the disk, and sizes as people read them. */
import { Effect, FileSystem, type PlatformError } from "effect"
import { StoreError } from "./HubError.ts"

const codeOf = (error: PlatformError.PlatformError): string | undefined => {
  const { cause } = error.reason
  return cause instanceof Error && "code" in cause ? String(cause.code) : undefined
}

/** What an error of the file system means for the store. */
export const storeError = (path: string) => (error: PlatformError.PlatformError | StoreError): StoreError => {
  if (error instanceof StoreError) return error
  const code = codeOf(error)
  return code === "ENOSPC" || code === "EDQUOT" || code === "EFBIG"
    ? new StoreError({
      path,
      problem: "no-space",
      detail: `the disk is full (${code}); make room, or name a folder on another disk in TG_MODELS; what came is kept`
    })
    : new StoreError({ path, problem: "io", detail: error.message })
}

/** Turns errors of the file system into the store's. */
export const orStoreError =
  (path: string) =>
  <A, R>(effect: Effect.Effect<A, PlatformError.PlatformError | StoreError, R>): Effect.Effect<A, StoreError, R> =>
    Effect.mapError(effect, storeError(path))

/** Writes a file in one step: whoever reads meanwhile finds the old one or the new one, and of several writers one wins. */
export const replace = Effect.fnUntraced(function*(path: string, text: string) {
  const files = yield* FileSystem.FileSystem
  const beside = `${path}.${crypto.randomUUID()}.new`
  yield* files.writeFileString(beside, text).pipe(
    Effect.andThen(files.rename(beside, path)),
    Effect.onError(() => Effect.ignore(files.remove(beside, { force: true }))),
    orStoreError(path)
  )
})

const units = ["B", "kB", "MB", "GB", "TB"] as const

/** `17.2 GB` */
export const printBytes = (n: number): string => {
  const power = n < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(n) / 3))
  return `${(n / 1000 ** power).toFixed(power === 0 ? 0 : 1)} ${units[power]}`
}
