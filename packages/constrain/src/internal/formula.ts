/** What must hold of a value, as a boolean formula over the schemas of a document. Equal formulas are one object. */

/** A formula. */
export type Formula =
  | { readonly _tag: "True"; readonly id: number }
  | { readonly _tag: "False"; readonly id: number }
  | { readonly _tag: "Schema"; readonly id: number; readonly schema: SchemaNode }
  | { readonly _tag: "And"; readonly id: number; readonly parts: ReadonlyArray<Formula> }
  | { readonly _tag: "Or"; readonly id: number; readonly parts: ReadonlyArray<Formula> }
  | { readonly _tag: "Not"; readonly id: number; readonly part: Formula }

/** A schema object and where it is. */
export interface SchemaNode {
  readonly value: Readonly<Record<string, unknown>>
  /** A JSON pointer that begins with `#`. */
  readonly path: string
  /** The URI that references in it are relative to. */
  readonly base: string
}

/** More formulas than this are refused. */
const maxFormulas = 20_000

/** Thrown inside of a compilation when a schema would need more of something than is allowed. */
export class TooComplex {
  readonly reason: string
  constructor(reason: string) {
    this.reason = reason
  }
}

/** The formulas of one compilation. */
export class Formulas {
  private readonly known = new Map<string, Formula>()
  private readonly schemas = new Map<object, Formula>()
  private count = 2

  readonly true_: Formula = { _tag: "True", id: 0 }
  readonly false_: Formula = { _tag: "False", id: 1 }

  schema(node: SchemaNode): Formula {
    const found = this.schemas.get(node.value)
    if (found !== undefined) return found
    const made: Formula = { _tag: "Schema", id: this.next(), schema: node }
    this.schemas.set(node.value, made)
    return made
  }

  private readonly constants = new Map<string, Readonly<Record<string, unknown>>>()

  /** A schema of one value: equal values have the same one. */
  constant(value: unknown): Readonly<Record<string, unknown>> {
    const key = JSON.stringify(value)
    const known = this.constants.get(key) ?? { const: value }
    this.constants.set(key, known)
    return known
  }

  private readonly requirements = new Map<string, Readonly<Record<string, unknown>>>()

  /** A schema that requires some properties of objects. */
  requiring(names: ReadonlyArray<string>): Readonly<Record<string, unknown>> {
    const key = JSON.stringify(names)
    const known = this.requirements.get(key) ?? { required: names }
    this.requirements.set(key, known)
    return known
  }

  and(parts: Iterable<Formula>): Formula {
    const all = this.flat(parts, "And")
    if (all.includes(this.false_)) return this.false_
    return this.joined("And", all.filter((part) => part !== this.true_), this.true_)
  }

  or(parts: Iterable<Formula>): Formula {
    const all = this.flat(parts, "Or")
    if (all.includes(this.true_)) return this.true_
    return this.joined("Or", all.filter((part) => part !== this.false_), this.false_)
  }

  not(part: Formula): Formula {
    if (part === this.true_) return this.false_
    if (part === this.false_) return this.true_
    if (part._tag === "Not") return part.part
    return this.intern(`!${part.id}`, () => ({ _tag: "Not", id: this.next(), part }))
  }

  private joined(tag: "And" | "Or", parts: ReadonlyArray<Formula>, neutral: Formula): Formula {
    const sorted = [...new Set(parts)].sort((a, b) => a.id - b.id)
    if (sorted.length === 0) return neutral
    if (sorted.length === 1) return sorted[0]!
    return this.intern(`${tag}${sorted.map((part) => part.id).join()}`, () => ({
      _tag: tag,
      id: this.next(),
      parts: sorted
    }))
  }

  private flat(parts: Iterable<Formula>, tag: "And" | "Or"): ReadonlyArray<Formula> {
    return [...parts].flatMap((part) => part._tag === tag ? part.parts : [part])
  }

  private intern(key: string, make: () => Formula): Formula {
    const found = this.known.get(key)
    if (found !== undefined) return found
    const made = make()
    this.known.set(key, made)
    return made
  }

  private next(): number {
    if (this.count >= maxFormulas) throw new TooComplex(`combines its parts in more than ${maxFormulas} ways`)
    return this.count++
  }
}
