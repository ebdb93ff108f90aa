/** A blob as a byte source: a file that was picked or dropped, say. Only what is read comes into memory. */
import { type ByteSource, ByteSourceError, checkRange } from "@tg/gguf/ByteSource"
import { Effect } from "effect"

/** A source over a blob. `name` is what errors call it. */
export const make = (name: string, blob: Blob): ByteSource["Service"] => {
  const source = { name, size: blob.size }
  return {
    ...source,
    read: (offset, length) =>
      Effect.suspend(() => {
        const error = checkRange(source, offset, length)
        if (error !== undefined) return Effect.fail(error)
        return Effect.tryPromise({
          try: async () => new Uint8Array(await blob.slice(offset, offset + length).arrayBuffer()),
          catch: (cause) =>
            new ByteSourceError({
              source: name,
              offset,
              length,
              problem: "unavailable",
              detail: `the browser cannot read it (${String(cause)}); if the file was moved or changed, choose it again`
            })
        })
      })
  }
}
