/** Where schemas are: JSON pointers and references. */
import type { SchemaNode } from "./formula.ts"
import { Refusal } from "./refusal.ts"

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** One schema document. */
export class Documents {
  readonly root: boolean | SchemaNode

  constructor(schema: unknown) {
    this.root = this.check(schema, "#", "")
  }

  /** The schema below another one. */
  below(node: SchemaNode, value: unknown, path: string): boolean | SchemaNode {
    return this.check(value, path, node.base)
  }

  private check(value: unknown, path: string, base: string): boolean | SchemaNode {
    if (typeof value === "boolean") return value
    if (isRecord(value)) return { value, path, base }
    throw new Refusal(path, "schema", "must be an object or a boolean")
  }

  /** The schema that a reference names. */
  resolve(node: SchemaNode, keyword: string, reference: string): boolean | SchemaNode {
    if (!reference.startsWith("#") || (reference.length > 1 && reference[1] !== "/")) {
      throw new Refusal(node.path, keyword, `${reference} is not a JSON pointer into this schema`)
    }
    if (typeof this.root === "boolean") return this.root
    let at: unknown = this.root.value
    for (const step of reference.split("/").slice(1)) {
      const name = decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~")
      at = typeof at === "object" && at !== null && Object.hasOwn(at, name)
        ? (at as Readonly<Record<string, unknown>>)[name]
        : undefined
    }
    if (at === undefined) throw new Refusal(node.path, keyword, `${reference} names nothing in this schema`)
    return this.check(at, reference, this.root.base)
  }
}
