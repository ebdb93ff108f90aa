/** What the store needs of the machine beyond files: hashes piece by piece, free space, and who is alive. */
import { Context, type Effect } from "effect"
import type { StoreError } from "./HubError.ts"

/** SHA-256 of bytes that come one after the other. */
export interface Hasher {
  readonly update: (bytes: Uint8Array) => void
  /** In hexadecimal; the end. */
  readonly digest: () => string
}

/** The machine. */
export class Machine extends Context.Service<Machine, {
  readonly sha256: () => Hasher
  /** Bytes that this user may still write to the disk of a folder. */
  readonly freeBytes: (folder: string) => Effect.Effect<number, StoreError>
  readonly processId: number
  readonly host: string
  /** Whether a process of this machine lives. */
  readonly isAlive: (processId: number) => boolean
}>()("@tg/hub/Machine") {}
