/**
 * What of `effect/Schema` the engine uses, for bundles: there it stands in for it, which takes a tenth of its bytes (`NodeBundling`). It finds
 * the same faults in values and says the same of them, as far as `Schema.test.ts` says; it makes no copies of what it decodes, and what code of
 * ours constructs is not checked. Whoever needs more of Schema in a page is told when the page is built.
 */
import { Data, Effect, Option, Result } from "effect"

interface Fault {
  readonly says: string
  readonly at: ReadonlyArray<string | number>
}
type Faults = ReadonlyArray<Fault>

interface Check {
  readonly expected: string
  readonly holds: (value: never) => boolean
}

/** A set of values. */
interface Schema {
  readonly expected: string
  /** Whether a value is one of this kind, so that its faults are those to tell. */
  readonly fits: (value: unknown) => boolean
  /** Of those that have it, and all of which are equal there: the key and the value. */
  readonly sentinel?: readonly [key: string, value: unknown] | undefined
  readonly literals?: ReadonlyArray<unknown> | undefined
  readonly fields?: Fields | undefined
  readonly isOptional?: boolean
  readonly isJson?: boolean
  /** The first that is found; in unions, one of each member that the value may be meant for. */
  readonly faults: (value: unknown, isExact: boolean) => Faults
  readonly check: (...checks: ReadonlyArray<Check>) => Schema
}
type Fields = Readonly<Record<string, Schema>>

const none: Faults = []
const expected = (what: string): Faults => [{ says: `Expected ${what}`, at: [] }]

const make = (
  own: Pick<Schema, "expected" | "fits"> & Partial<Omit<Schema, "check">>,
  inside: Schema["faults"] = () => none
): Schema => {
  const faults = own.faults ??
    ((value: unknown, isExact: boolean) => own.fits(value) ? inside(value, isExact) : expected(own.expected))
  return {
    ...own,
    faults,
    check: (...checks) =>
      make(own, (value, isExact) => {
        const found = inside(value, isExact)
        const broken = found.length > 0 ? undefined : checks.find(({ holds }) => !holds(value as never))
        return broken === undefined ? found : expected(broken.expected)
      })
  }
}

const within = (key: string | number, faults: Faults): Faults =>
  faults.map(({ at, says }) => ({ says, at: [key, ...at] }))

/** The first faults of some. */
const first = <A>(all: Iterable<A>, faultsOf: (each: A) => Faults): Faults => {
  for (const each of all) {
    const faults = faultsOf(each)
    if (faults.length > 0) return faults
  }
  return none
}

const typed = (type: string): Schema => make({ expected: type, fits: (value) => typeof value === type })

export const Unknown = /* #__PURE__ */ make({ expected: "unknown", fits: () => true })
export const String = /* #__PURE__ */ typed("string")
export const Number = /* #__PURE__ */ typed("number")
export const Boolean = /* #__PURE__ */ typed("boolean")

const numbers = (check: Check): Schema => Number.check(check)
export const Finite = /* #__PURE__ */ numbers({ expected: "a finite number", holds: globalThis.Number.isFinite })
export const Int = /* #__PURE__ */ numbers({ expected: "an integer", holds: globalThis.Number.isSafeInteger })

export const isGreaterThan = (least: number): Check => ({
  expected: `a value greater than ${least}`,
  holds: (value: number) => value > least
})
export const isGreaterThanOrEqualTo = (least: number): Check => ({
  expected: `a value greater than or equal to ${least}`,
  holds: (value: number) => value >= least
})
export const isBetween = ({ maximum, minimum }: { readonly minimum: number; readonly maximum: number }): Check => ({
  expected: `a value between ${minimum} and ${maximum}`,
  holds: (value: number) => value >= minimum && value <= maximum
})
export const isPattern = (pattern: RegExp): Check => ({
  expected: `a string matching the RegExp ${pattern.source}`,
  holds: (value: string) => pattern.test(value)
})

export const Literals = (literals: ReadonlyArray<unknown>): Schema => {
  const all = literals.map((literal) => JSON.stringify(literal)).join(" | ")
  return make({
    expected: all,
    literals,
    fits: (value) => literals.some((literal) => typeof literal === typeof value)
  }, (value) => literals.includes(value) ? none : expected(all))
}
export const Literal = (literal: unknown): Schema => Literals([literal])

export const declare = (is: (value: unknown) => boolean, { expected: what }: { readonly expected: string }): Schema =>
  make({ expected: what, fits: () => true }, (value) => is(value) ? none : expected(what))

export const Union = (members: ReadonlyArray<Schema>): Schema => {
  const isMeant = ({ fits, sentinel }: Schema, value: unknown): boolean =>
    fits(value) && (sentinel === undefined || (value as Record<string, unknown>)[sentinel[0]] === sentinel[1])
  const faults: Schema["faults"] = (value, isExact) => {
    const meant = members.filter((member) => isMeant(member, value))
    if (meant.length === 0) return expected(members.map(({ expected }) => expected).join(" | "))
    const found = meant.map((member) => member.faults(value, isExact))
    return found.some(({ length }) => length === 0) ? none : found.flat()
  }
  return make({ expected: "one of a union", fits: (value) => members.some((each) => isMeant(each, value)), faults })
}

/** A key that may be missing. */
export const optionalKey = (schema: Schema): Schema => ({ ...schema, isOptional: true })
/** One that may be `undefined`, too. */
export const optional = (schema: Schema): Schema => optionalKey(Union([schema, typed("undefined")]))

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !globalThis.Array.isArray(value)

export const Struct = (fields: Fields): Schema => {
  const all = Object.entries(fields)
  const [key, value] = all.find(([, { literals }]) => literals?.length === 1) ?? []
  const literal = value?.literals?.[0]
  const isOne = (found: Record<string, unknown>, isExact: boolean): Faults => {
    const excess = isExact ? Object.keys(found).find((key) => !Object.hasOwn(fields, key)) : undefined
    if (excess !== undefined) return [{ says: "Expected no excess property", at: [excess] }]
    return first(all, ([key, schema]) => {
      if (Object.hasOwn(found, key)) return within(key, schema.faults(found[key], isExact))
      return schema.isOptional === true ? none : [{ says: "Missing key", at: [key] }]
    })
  }
  return make({
    expected: key === undefined ? "object" : `{ readonly ${JSON.stringify(key)}: ${JSON.stringify(literal)}, ... }`,
    fits: isObject,
    sentinel: key === undefined ? undefined : [key, literal],
    fields,
    faults: (value, isExact) => isObject(value) ? isOne(value, isExact) : expected("object")
  })
}
export const TaggedStruct = (tag: string, fields: Fields): Schema => Struct({ _tag: Literal(tag), ...fields })
/** Whatever else there is may be anything. */
export const StructWithRest = (struct: Schema): Schema =>
  make({ ...struct, faults: (value) => struct.faults(value, false) })

export const Record = (_: Schema, schema: Schema): Schema =>
  make(
    { expected: "object", fits: isObject },
    (value, isExact) =>
      first(Object.entries(value as object), ([key, each]) => within(key, schema.faults(each, isExact)))
  )

export const Array = (schema: Schema): Schema =>
  make(
    { expected: "array", fits: globalThis.Array.isArray },
    (value, isExact) =>
      first((value as ReadonlyArray<unknown>).entries(), ([i, each]) => within(i, schema.faults(each, isExact)))
  )

export const Tuple = (schemas: ReadonlyArray<Schema>): Schema =>
  make({ expected: "array", fits: globalThis.Array.isArray }, (value, isExact) => {
    const found = value as ReadonlyArray<unknown>
    if (found.length > schemas.length) {
      return [{ says: "Expected no excess property", at: [schemas.length] }]
    }
    return first(
      schemas.entries(),
      ([i, schema]) =>
        i < found.length ? within(i, schema.faults(found[i], isExact)) : [{ says: "Missing key", at: [i] }]
    )
  })

/** A text that is the value in JSON. */
export const fromJsonString = (schema: Schema): Schema => ({ ...schema, isJson: true })
/** Nothing is encoded otherwise than it is, but for JSON. */
export const toType = (schema: Schema): Schema => schema

class SchemaError extends Data.TaggedError("SchemaError")<{ readonly message: string }> {}

const parsed = ({ isJson }: Schema, value: unknown): Result.Result<unknown, string> => {
  if (isJson !== true) return Result.succeed(value)
  if (typeof value !== "string") return Result.fail("Expected string")
  try {
    return Result.succeed(JSON.parse(value))
  } catch {
    return Result.fail("Expected a valid JSON string")
  }
}

const lineOf = ({ at, says }: Fault): string =>
  at.length === 0 ? says : `${says}\n  at ${at.map((key) => `[${JSON.stringify(key)}]`).join("")}`

interface Options {
  readonly onExcessProperty?: "error" | undefined
}

export const decodeUnknownResult = (schema: Schema, { onExcessProperty }: Options = {}) => (value: unknown) =>
  Result.flatMap(parsed(schema, value), (found) => {
    const faults = schema.faults(found, onExcessProperty === "error")
    return faults.length === 0 ? Result.succeed(found) : Result.fail(faults.map(lineOf).join("\n"))
  }).pipe(Result.mapError((message) => new SchemaError({ message })))

export const decodeUnknownEffect = (schema: Schema, options?: Options) => (value: unknown) =>
  Effect.fromResult(decodeUnknownResult(schema, options)(value))
export const decodeEffect = decodeUnknownEffect
export const decodeUnknownOption = (schema: Schema) => (value: unknown) =>
  Option.getSuccess(decodeUnknownResult(schema)(value))
export const encodeEffect = ({ isJson }: Schema) => (value: unknown) =>
  Effect.succeed(isJson === true ? JSON.stringify(value) : value)

/** An error by its tag; its fields are for the types of the program. */
export const TaggedError = () => (tag: string) => Data.TaggedError(tag)

/** A class by its tag, whose instances have the tag and the fields in this order. */
export const TaggedClass = () => (_tag: string, fields: Fields) =>
  class extends Data.Class<Record<string, unknown>> {
    static readonly fields = fields
    constructor(props: Record<string, unknown>) {
      super(
        Object.fromEntries(
          Object.entries({ _tag, ...fields }).map(([key]) => [key, key === "_tag" ? _tag : props[key]])
        )
      )
    }
  }
