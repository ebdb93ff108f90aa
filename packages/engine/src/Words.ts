/** Numbers as the bytes of buffers, and back. */

/** The floats that were read. */
export const floatsOf = (bytes: Uint8Array): Float32Array =>
  bytes.byteOffset % 4 === 0
    ? new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4)
    : new Float32Array(bytes.slice().buffer)

/** The words that were read. */
export const wordsOf = (bytes: Uint8Array): Uint32Array =>
  bytes.byteOffset % 4 === 0
    ? new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4)
    : new Uint32Array(bytes.slice().buffer)

/** The first word that was read. */
export const wordOf = (bytes: Uint8Array): number => wordsOf(bytes)[0]!

/** What is to be written. */
export const bytesOf = (words: Int32Array | Uint32Array | Float32Array): Uint8Array =>
  new Uint8Array(words.buffer, words.byteOffset, words.byteLength)
