/**
 * Tuned opts by adapter and by kernel, as data for files. Entries are advice: one that no longer fits its kernel is skipped (`Tuned`), so
 * a stale file costs speed and nothing else.
 */
import type { UOp } from "@tg/core-uop/UOp"
import { key } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import { Result, Schema } from "effect"

/** The tuned opts of a kernel: of a member of a launch. */
export interface Entry {
  /** What the kernel was called where it was tuned; for people. */
  readonly name: string
  readonly opts: ReadonlyArray<Opt.Opt>
  /** Microseconds of the launch that it was tuned in, with the best opts of all its members. */
  readonly micros: number
  /** The same with the opts that the heuristics chose for all of them. */
  readonly usualMicros: number
}

/** Entries by the key of the kernel, by adapter (`DeviceProfile.adapter`). */
export type Store = ReadonlyMap<string, Kernels>
/** Entries of one adapter by the key of the kernel. */
export type Kernels = ReadonlyMap<string, Entry>

/** A text that is no store. */
export class StoreError extends Schema.TaggedError<StoreError>()("StoreError", { message: Schema.String }) {}

/** Kernels of equal structure have equal keys, on every machine. */
export const keyOf = (kernel: UOp): string => key(kernel)

export const empty: Store = new Map()

const version = 1
const EncodedOpt = Schema.Tuple([Opt.Opt.fields.kind, Opt.Opt.fields.range, Opt.Opt.fields.amount])
const Micros = Schema.Finite.check(Schema.isGreaterThan(0))
const File = Schema.Struct({
  version: Schema.Literal(version),
  adapters: Schema.Record(
    Schema.String,
    Schema.Record(
      Schema.String,
      Schema.Struct({
        name: Schema.String,
        opts: Schema.Array(EncodedOpt),
        micros: Micros,
        usualMicros: Micros
      })
    )
  )
})

/** Reads what `JSON.parse` made of a file; `where` says which, for the error. */
export const fromJson = (json: unknown, where: string): Result.Result<Store, StoreError> =>
  Schema.decodeUnknownResult(File)(json).pipe(
    Result.mapError((error) =>
      new StoreError({
        message: `${where} holds no tuned opts of version ${version}: ${
          error.message.slice(0, 500).replace(/\s+/g, " ")
        }; remove it, or tune again`
      })
    ),
    Result.map(({ adapters }) =>
      new Map(
        Object.entries(adapters).map(([adapter, kernels]) => [
          adapter,
          new Map(
            Object.entries(kernels).map(([kernel, { opts, ...rest }]) => [
              kernel,
              { ...rest, opts: opts.map(([kind, range, amount]) => new Opt.Opt({ kind, range, amount })) }
            ])
          )
        ])
      )
    )
  )

/** Reads the text of a file. */
export const decode = (text: string, where: string): Result.Result<Store, StoreError> =>
  Result.try({
    try: (): unknown => JSON.parse(text),
    catch: (error) => new StoreError({ message: `${where} is not JSON: ${error}; remove it, or tune again` })
  }).pipe(Result.flatMap((json) => fromJson(json, where)))

const sorted = <A>(map: ReadonlyMap<string, A>): ReadonlyArray<readonly [string, A]> =>
  [...map].toSorted(([a], [b]) => a < b ? -1 : 1)

const round = (micros: number): number => Math.round(micros * 100) / 100

/** The text of a file: a line for each entry, in an order that depends on nothing else. */
export const encode = (store: Store): string => {
  const lines = sorted(store).map(([adapter, kernels]) => {
    const entries = sorted(kernels).map(([kernel, { micros, name, opts, usualMicros }]) => {
      const entry = {
        name,
        opts: opts.map(({ amount, kind, range }) => [kind, range, amount]),
        micros: round(micros),
        usualMicros: round(usualMicros)
      }
      return `      ${JSON.stringify(kernel)}: ${JSON.stringify(entry)}`
    })
    return `    ${JSON.stringify(adapter)}: {\n${entries.join(",\n")}\n    }`
  })
  return `{\n  "version": ${version},\n  "adapters": {\n${lines.join(",\n")}\n  }\n}\n`
}

/** The union; where both know a kernel, the second wins. */
export const merge = (under: Store, over: Store): Store => {
  const made = new Map(under)
  for (const [adapter, kernels] of over) made.set(adapter, new Map([...(made.get(adapter) ?? []), ...kernels]))
  return made
}

/** A store with one entry. */
export const of = (adapter: string, kernel: UOp, entry: Entry): Store =>
  new Map([[adapter, new Map([[keyOf(kernel), entry]])]])

/** The entries of an adapter; none for a device without one. */
export const forAdapter = (store: Store, adapter: string | undefined): Kernels =>
  (adapter === undefined ? undefined : store.get(adapter)) ?? new Map()
