/** Bytes, UTF-8 and the byte alphabet of byte-level BPE. */

const isPrintable = (byte: number): boolean =>
  (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae

/**
 * The character that stands for each byte: a printable byte is the code point of the same number, the other 68 are
 * U+0100, U+0101 and so on, in increasing order.
 */
export const letters: ReadonlyArray<string> = (() => {
  let next = 0x100
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : next++))
})()

const byteOf = (() => {
  const table = new Int16Array(0x144).fill(-1)
  letters.forEach((letter, byte) => table[letter.charCodeAt(0)] = byte)
  return table
})()

/** The bytes of a text in the byte alphabet; a text with other characters gives its UTF-8. */
export const fromLetters = (text: string): Uint8Array => {
  const bytes = new Uint8Array(text.length)
  for (let i = 0; i < text.length; i++) {
    const byte = byteOf[text.charCodeAt(i)] ?? -1
    if (byte < 0) return new TextEncoder().encode(text)
    bytes[i] = byte
  }
  return bytes
}

/** All bytes in one array. */
export const join = (parts: ReadonlyArray<Uint8Array>): Uint8Array => {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    all.set(part, at)
    at += part.length
  }
  return all
}

/** The text of UTF-8 bytes: U+FFFD for what is none, and a byte order mark stays. */
export const readUtf8 = (bytes: Uint8Array): string => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes)

/** Writes the UTF-8 of a well-formed text into `out`, which has room for three bytes per unit; returns the length. */
export const writeUtf8 = (text: string, out: Uint8Array): number => {
  let at = 0
  for (let i = 0; i < text.length; i++) {
    let code = text.charCodeAt(i)
    if (code < 0x80) {
      out[at++] = code
      continue
    }
    if (code < 0x800) {
      out[at++] = 0xc0 | code >> 6
      out[at++] = 0x80 | code & 0x3f
      continue
    }
    if (code >= 0xd800 && code < 0xdc00) {
      code = 0x10000 + ((code & 0x3ff) << 10) + (text.charCodeAt(++i) & 0x3ff)
      out[at++] = 0xf0 | code >> 18
      out[at++] = 0x80 | code >> 12 & 0x3f
    } else {
      out[at++] = 0xe0 | code >> 12
    }
    out[at++] = 0x80 | code >> 6 & 0x3f
    out[at++] = 0x80 | code & 0x3f
  }
  return at
}

/** Bytes of an incomplete UTF-8 sequence at the end. */
export const incompleteTail = (bytes: Uint8Array): number => {
  for (let length = 1; length <= Math.min(3, bytes.length); length++) {
    const byte = bytes[bytes.length - length]!
    if (byte < 0x80) return 0
    if (byte < 0xc0) continue
    const needed = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2
    return byte < 0xf8 && length < needed ? length : 0
  }
  return 0
}
