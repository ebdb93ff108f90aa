/**
 * One process at a time, by a file. Its owner writes its time every few seconds: a file whose owner is dead, or that
 * nobody has written for a while, belongs to whoever comes next.
 */
import { Clock, Effect, FileSystem, Option, type PlatformError } from "effect"
import * as Disk from "./Disk.ts"
import { StoreError } from "./HubError.ts"
import { Machine } from "./Machine.ts"

/** How patient everyone is. */
export interface Patience {
  /** Between signs of life (default: 2 s). */
  readonly beatMillis?: number | undefined
  /** Without a sign of life, an owner is taken for dead (default: 20 s). */
  readonly staleMillis?: number | undefined
  /** Between looks at a file that another one owns (default: 200 ms). */
  readonly pollMillis?: number | undefined
}

/** Called again and again while another process has the lock. */
export type OnWait = (owner: string) => Effect.Effect<void>

/** Runs alone among all that use this file. Fails if the lock was taken away, as after a long sleep of the machine. */
export const withLock = <A, E, R>(
  file: string,
  { onWait = () => Effect.void, patience = {} }: { readonly onWait?: OnWait; readonly patience?: Patience },
  use: Effect.Effect<A, E, R>
): Effect.Effect<A, E | StoreError, R | FileSystem.FileSystem | Machine> =>
  Effect.scoped(Effect.gen(function*() {
    const own = yield* Effect.acquireRelease(acquire(file, onWait, patience), (own) => release(file, own), {
      interruptible: true
    })
    return yield* Effect.raceFirst(use, beat(file, own, patience))
  }))

const acquire = Effect.fnUntraced(function*(file: string, onWait: OnWait, patience: Patience) {
  const { pollMillis = 200, staleMillis = 20_000 } = patience
  const { host, processId } = yield* Machine
  const own = `${crypto.randomUUID()} ${processId} ${host}`
  let seen = ""
  let seenAt = 0
  while (!(yield* create(file, own))) {
    const found = yield* look(file)
    const now = yield* Clock.currentTimeMillis
    if (found === undefined) continue
    const sign = `${found.owner} ${found.time}`
    if (sign !== seen) {
      seen = sign
      seenAt = now
    }
    if ((yield* isDead(found.owner)) || now - seenAt > staleMillis) yield* takeAway(file, found.owner)
    else {
      yield* onWait(found.owner)
      yield* Effect.sleep(pollMillis)
    }
  }
  return own
})

/** Makes the file with its text in one step; false if there is one. */
const create = Effect.fnUntraced(function*(file: string, own: string) {
  const files = yield* FileSystem.FileSystem
  const beside = `${file}.${own.split(" ")[0]}`
  const isThere = (error: PlatformError.PlatformError) =>
    error.reason._tag === "AlreadyExists" ? Effect.succeed(false) : Effect.fail(error)
  return yield* files.writeFileString(beside, own).pipe(
    Effect.andThen(files.link(beside, file)),
    Effect.as(true),
    // where there are no links, in two steps
    Effect.catch((error) =>
      error.reason._tag === "AlreadyExists"
        ? Effect.succeed(false)
        : Effect.as(files.writeFileString(file, own, { flag: "wx" }), true)
    ),
    Effect.catch(isThere),
    Effect.ensuring(Effect.ignore(files.remove(beside, { force: true }))),
    Disk.orStoreError(file)
  )
})

/** Whose it is, and when there was the last sign of life. Nothing if it went away. */
const look = Effect.fnUntraced(function*(file: string) {
  const files = yield* FileSystem.FileSystem
  return yield* Effect.all([files.readFileString(file), files.stat(file)]).pipe(
    Effect.map(([owner, { mtime }]) => ({ owner, time: Option.getOrElse(mtime, () => new Date(0)).getTime() })),
    Effect.orElseSucceed(() => undefined)
  )
})

/** Whose a file is; nothing if it is nobody's, or that of a dead process. */
export const ownerOf = Effect.fnUntraced(function*(file: string) {
  const found = yield* look(file)
  return found === undefined || (yield* isDead(found.owner)) ? undefined : found.owner
})

const isDead = (owner: string): Effect.Effect<boolean, never, Machine> =>
  Effect.map(Machine, ({ host, isAlive }) => {
    const [, processId, ...where] = owner.split(" ")
    return processId !== undefined && where.join(" ") === host && !isAlive(Number(processId))
  })

/** Removes the file of a dead owner, and of no other: whoever was quicker gets its file back. */
const takeAway = Effect.fnUntraced(function*(file: string, owner: string) {
  const files = yield* FileSystem.FileSystem
  const aside = `${file}.${crypto.randomUUID()}`
  yield* Effect.gen(function*() {
    yield* files.rename(file, aside)
    if ((yield* files.readFileString(aside)) !== owner) yield* files.link(aside, file)
    yield* files.remove(aside)
  }).pipe(Effect.ignore)
})

const release = Effect.fnUntraced(function*(file: string, own: string) {
  const files = yield* FileSystem.FileSystem
  const found = yield* look(file)
  if (found?.owner === own) yield* Effect.ignore(files.remove(file))
})

const beat = Effect.fnUntraced(function*(file: string, own: string, { beatMillis = 2000 }: Patience) {
  const files = yield* FileSystem.FileSystem
  while (true) {
    yield* Effect.sleep(beatMillis)
    const found = yield* look(file)
    if (found?.owner !== own) {
      return yield* new StoreError({
        path: file,
        problem: "in-use",
        detail: "another process went on with this, because nothing was heard of this one; run it again"
      })
    }
    const now = new Date(yield* Clock.currentTimeMillis)
    yield* Effect.ignore(files.utimes(file, now, now))
  }
})
