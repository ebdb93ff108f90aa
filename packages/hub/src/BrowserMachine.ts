/** The machine as a browser shows it. */
import { sha256 } from "@noble/hashes/sha2.js"
import { bytesToHex } from "@noble/hashes/utils.js"
import { Effect, Layer } from "effect"
import { Machine } from "./Machine.ts"

/** This browser. The browser's own SHA-256 takes whole contents only. Processes are tabs, which `WebLock` knows about. */
export const layer: Layer.Layer<Machine> = Layer.succeed(Machine, {
  sha256: () => {
    const hash = sha256.create()
    return { update: (bytes) => void hash.update(bytes), digest: () => bytesToHex(hash.digest()) }
  },
  freeBytes: () =>
    Effect.promise(async () => {
      const { quota, usage } = await navigator.storage.estimate()
      return quota === undefined ? Number.MAX_SAFE_INTEGER : Math.max(0, quota - (usage ?? 0))
    }),
  processId: 0,
  host: "browser",
  isAlive: () => true
})
