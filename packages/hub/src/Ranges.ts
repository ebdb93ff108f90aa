/** What servers say about ranges: the headers `Content-Range`, `ETag`, `Last-Modified` and `Retry-After`. */

/** `bytes 0-99/200` */
export interface ContentRange {
  readonly start: number
  /** After the last byte. */
  readonly end: number
  readonly size: number
}

/** Reads `Content-Range`; nothing if it says something else than one range of a known whole. */
export const parseContentRange = (header: string | null): ContentRange | undefined => {
  const [, first, last, whole] = /^\s*bytes\s+(\d+)-(\d+)\/(\d+)\s*$/i.exec(header ?? "") ?? []
  if (whole === undefined) return undefined
  const range = { start: Number(first), end: Number(last) + 1, size: Number(whole) }
  const isSound = Number.isSafeInteger(range.size) && range.start < range.end && range.end <= range.size
  return isSound ? range : undefined
}

/** The size that an answer 416 tells: `bytes * /200`. */
export const parseUnsatisfied = (header: string | null): number | undefined => {
  const [, whole] = /^\s*bytes\s+\*\/(\d+)\s*$/i.exec(header ?? "") ?? []
  return whole === undefined ? undefined : Number(whole)
}

/** What can be given in `If-Range`: a strong entity tag, else a date of change (RFC 9110, 13.1.5). */
export const validatorOf = (headers: Headers): string | undefined => {
  const tag = headers.get("etag")
  if (tag !== null) return /^"[^"]*"$/.test(tag) ? tag : undefined
  return headers.get("last-modified") ?? undefined
}

/** The hash in an entity tag, where it is one: hubs name large files by their SHA-256. */
export const sha256Of = (tag: string | null): string | undefined =>
  /^(?:W\/)?"?([0-9a-f]{64})"?$/i.exec(tag ?? "")?.[1]?.toLowerCase()

/** How long to wait, in milliseconds: seconds or a date (RFC 9110, 10.2.3). */
export const retryAfterMillis = (header: string | null, now: number): number | undefined => {
  if (header === null) return undefined
  if (/^\s*\d+\s*$/.test(header)) return Number(header) * 1000
  const date = Date.parse(header)
  return Number.isNaN(date) ? undefined : Math.max(0, date - now)
}
