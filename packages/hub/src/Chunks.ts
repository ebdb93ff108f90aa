/**
 * A file in chunks of equal size (the last one may be shorter), each with its SHA-256 once it is there. The table is a
 * text: a line of JSON that says what file it is, then a line `index hash` for every chunk. A chunk is added by adding a
 * line; of two lines for a chunk the later one counts, and `index -` takes a chunk back. A line that was not written to
 * its end counts for nothing, so a table is valid whenever its writer dies.
 */
import { Option, Schema } from "effect"

/** What a table is about. */
export const Header = Schema.Struct({
  version: Schema.Literal(1),
  /** Where it comes from. */
  url: Schema.String,
  size: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  chunkBytes: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 2 ** 30 })),
  /** What the server gave to recognise this version of the file: an entity tag or a date. */
  validator: Schema.optionalKey(Schema.String),
  /** Of the whole file, if it is known. */
  sha256: Schema.optionalKey(Schema.String)
})

/** What a table is about. */
export type Header = typeof Header.Type

/** Which chunks are there. */
export interface Table {
  readonly header: Header
  readonly hashes: ReadonlyMap<number, string>
}

const MiB = 2 ** 20

/** Bytes of a chunk: about 64 of them, within 1 and 16 MiB. */
export const chunkBytesFor = (size: number): number => {
  const wanted = 2 ** Math.ceil(Math.log2(Math.max(1, size / 64)))
  return Math.min(16 * MiB, Math.max(MiB, wanted))
}

/** How many chunks there are. */
export const count = ({ chunkBytes, size }: Pick<Header, "chunkBytes" | "size">): number => Math.ceil(size / chunkBytes)

/** Where a chunk begins and ends. */
export const rangeOf = (
  { chunkBytes, size }: Pick<Header, "chunkBytes" | "size">,
  index: number
): { readonly start: number; readonly end: number } => ({
  start: index * chunkBytes,
  end: Math.min(size, (index + 1) * chunkBytes)
})

/** Bytes of the chunks that are there. */
export const bytesDone = ({ hashes, header }: Table): number =>
  [...hashes.keys()].reduce((sum, index) => {
    const { end, start } = rangeOf(header, index)
    return sum + end - start
  }, 0)

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(Header))
const linePattern = /^(\d{1,10}) ([0-9a-f]{64}|-)$/

/** Reads a table; nothing if it does not begin as one. */
export const parse = (text: string): Table | undefined => {
  const lines = text.split("\n")
  // what follows the last line end was not written to its end
  lines.pop()
  const header = Option.getOrUndefined(decode(lines[0] ?? ""))
  if (header === undefined) return undefined
  const hashes = new Map<number, string>()
  for (const line of lines.slice(1)) {
    const [, digits, hash] = linePattern.exec(line) ?? []
    const index = Number(digits)
    if (hash === undefined || index >= count(header)) continue
    if (hash === "-") hashes.delete(index)
    else hashes.set(index, hash)
  }
  return { header, hashes }
}

/** The first line of a table. */
export const printHeader = (header: Header): string => `${JSON.stringify(header)}\n`

/** The line that adds a chunk, or takes it back. */
export const printChunk = (index: number, hash: string | undefined): string => `${index} ${hash ?? "-"}\n`

/** A whole table. */
export const print = ({ hashes, header }: Table): string =>
  printHeader(header) + [...hashes].map(([index, hash]) => printChunk(index, hash)).join("")

/** Chunks that follow one another, `from` up to `to`. */
export interface Run {
  readonly from: number
  readonly to: number
}

/** The first chunks that follow one another among those wanted, at most so many. */
export const firstRun = (wanted: ReadonlySet<number>, most: number): Run | undefined => {
  let from = Infinity
  for (const index of wanted) if (index < from) from = index
  if (from === Infinity) return undefined
  let to = from + 1
  while (to - from < most && wanted.has(to)) to++
  return { from, to }
}
