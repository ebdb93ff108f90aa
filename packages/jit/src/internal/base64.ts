/** Bytes as text: by the host's own functions, several times faster than a loop over characters. */

// Node and browsers have both; this package knows the libraries of neither
declare const atob: (text: string) => string
declare const btoa: (binary: string) => string

/** In base 64. */
export const encode = (bytes: Uint8Array): string => {
  let binary = ""
  for (const byte of bytes) binary += String.fromCharCode(byte)
  return btoa(binary)
}

/** Throws what the host says of a text that is not base 64. */
export const decode = (text: string): Uint8Array => {
  const binary = atob(text)
  const bytes = new Uint8Array(binary.length)
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i)
  return bytes
}
