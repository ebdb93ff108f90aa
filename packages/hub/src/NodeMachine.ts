/** The machine as Node sees it: the only module of the package that needs Node, and not in its index. */
import { createHash } from "node:crypto"
import { statfs } from "node:fs/promises"
import { hostname } from "node:os"
import { Effect, Layer } from "effect"
import { StoreError } from "./HubError.ts"
import { Machine } from "./Machine.ts"

/** This machine. */
export const layer: Layer.Layer<Machine> = Layer.succeed(Machine, {
  sha256: () => {
    const hash = createHash("sha256")
    return { update: (bytes) => void hash.update(bytes), digest: () => hash.digest("hex") }
  },
  freeBytes: (folder) =>
    Effect.tryPromise({
      try: () => statfs(folder),
      catch: (cause) => new StoreError({ path: folder, problem: "io", detail: `no free space is known: ${cause}` })
    }).pipe(Effect.map(({ bavail, bsize }) => bavail * bsize)),
  processId: process.pid,
  host: hostname(),
  isAlive: (processId) => {
    try {
      process.kill(processId, 0)
      return true
    } catch (error) {
      // a process of another user is alive
      return error instanceof Error && "code" in error && error.code === "EPERM"
    }
  }
})
