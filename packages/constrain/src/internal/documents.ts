/** Where schemas are: URIs, anchors, JSON pointers, and what references name. Nothing is loaded. */
import type { SchemaNode } from "./formula.ts"
import { isArray, isRecord } from "./keywords.ts"
import { child, Refusal } from "./refusal.ts"

/** Keywords that hold one schema, lists of schemas, and schemas by name. */
const single = [
  "items",
  "contains",
  "additionalProperties",
  "propertyNames",
  "unevaluatedProperties",
  "unevaluatedItems",
  "not",
  "if",
  "then",
  "else",
  "contentSchema"
]
const lists = ["allOf", "anyOf", "oneOf", "prefixItems"]
const maps = ["$defs", "definitions", "properties", "patternProperties", "dependentSchemas"]

/** The base of a schema that names none. */
const unnamed = "tg-schema:/root"

const dialect = "https://json-schema.org/draft/2020-12/schema"

/** Drafts whose schemas mean the same as long as they have none of these keywords, and no keyword beside `$ref`. */
const older: ReadonlyArray<string> = [
  "http://json-schema.org/draft-06/schema",
  "http://json-schema.org/draft-07/schema"
]

/** Keywords that may stand beside `$ref` in older drafts, where all others would be without effect. */
const harmless = new Set([
  "$ref",
  "$comment",
  "title",
  "description",
  "default",
  "examples",
  "$schema",
  "$defs",
  "definitions"
])

/** More schemas than this, or deeper ones, are refused. */
const maxSchemas = 50_000
const maxDepth = 300

/** All schemas of one document. */
export class Documents {
  readonly root: boolean | SchemaNode
  /** Schemas by URI with pointer or anchor as its fragment. */
  private readonly byUri = new Map<string, boolean | SchemaNode>()
  private readonly nodes = new Map<object, SchemaNode>()
  /** How many schemas have a dynamic anchor. */
  private readonly dynamic = new Map<string, number>()
  private isOlder = false

  constructor(schema: unknown) {
    this.root = this.check(schema, "#", unnamed)
    if (typeof this.root !== "boolean") this.dialectOf(this.root)
    this.index()
  }

  /** The schema below another one. */
  below(node: SchemaNode, value: unknown, path: string): boolean | SchemaNode {
    if (isRecord(value)) return this.nodes.get(value) ?? this.check(value, path, node.base)
    return this.check(value, path, node.base)
  }

  /** The schema that a reference names. */
  resolve(node: SchemaNode, keyword: string, reference: string): boolean | SchemaNode {
    const uri = join(reference, node.base)
    if (uri === undefined) throw new Refusal(node.path, keyword, `${reference} is no URI reference`)
    const found = this.byUri.get(normal(uri))
    if (found === undefined) {
      throw new Refusal(node.path, keyword, `${reference} names no schema in this document, and nothing else is loaded`)
    }
    const name = uri.hash.slice(1)
    if (keyword === "$dynamicRef" && (this.dynamic.get(name) ?? 0) > 1) {
      throw new Refusal(node.path, keyword, `more than one schema has the dynamic anchor ${name}`)
    }
    return found
  }

  private check(value: unknown, path: string, base: string): boolean | SchemaNode {
    if (typeof value === "boolean") return value
    if (isRecord(value)) return { value, path, base }
    throw new Refusal(path, "schema", "must be an object or a boolean")
  }

  private dialectOf(root: SchemaNode): void {
    const name = root.value["$schema"]
    if (name === undefined) return
    const plain = typeof name === "string" ? name.replace(/#$/, "") : ""
    this.isOlder = older.includes(plain)
    if (plain !== dialect && !this.isOlder) {
      throw new Refusal("#", "$schema", `must be ${dialect}, or left out`)
    }
  }

  /** Finds all schemas, their URIs and anchors. */
  private index(): void {
    const queue: Array<readonly [schema: boolean | SchemaNode, depth: number, resource: string, pointer: string]> = [
      [this.root, 0, unnamed, ""]
    ]
    for (let i = 0; i < queue.length; i++) {
      const [schema, depth, resource, pointer] = queue[i]!
      if (typeof schema === "boolean") {
        this.byUri.set(`${resource}#${pointer}`, schema)
        continue
      }
      if (i > maxSchemas || depth > maxDepth) throw new Refusal(schema.path, "schema", "is too large or too deep")
      const id = this.idOf(schema)
      const node = { ...schema, base: id ?? schema.base }
      if (this.nodes.has(schema.value)) continue
      this.byUri.set(`${resource}#${pointer}`, node)
      if (id !== undefined) {
        const other = this.byUri.get(`${id}#`)
        if (other !== undefined) throw new Refusal(node.path, "$id", `${id} is the URI of another schema, too`)
        this.byUri.set(`${id}#`, node)
      }
      this.nodes.set(node.value, node)
      this.anchors(node)
      for (const [steps, value] of this.parts(node)) {
        const inner = this.check(value, child(node.path, ...steps), node.base)
        // a pointer does not reach through a schema that has a URI of its own
        queue.push([inner, depth + 1, id ?? resource, child(id === undefined ? pointer : "", ...steps)])
      }
    }
    if (typeof this.root !== "boolean") Object.assign(this, { root: this.nodes.get(this.root.value) ?? this.root })
  }

  private idOf({ base, path, value }: SchemaNode): string | undefined {
    const id = value["$id"]
    if (path !== "#" && Object.hasOwn(value, "$schema")) {
      throw new Refusal(path, "$schema", "is supported at the root only")
    }
    if (Object.hasOwn(value, "$vocabulary")) throw new Refusal(path, "$vocabulary", "is not supported")
    if (this.isOlder && Object.hasOwn(value, "$ref")) {
      const other = Object.keys(value).find((keyword) => !harmless.has(keyword))
      if (other !== undefined) throw new Refusal(path, other, "beside $ref has no effect in this draft")
    }
    if (id === undefined) return undefined
    const uri = typeof id === "string" ? join(id, base) : undefined
    if (uri === undefined || uri.hash !== "") {
      throw new Refusal(path, "$id", "must be a URI reference without a fragment")
    }
    return normal(uri).slice(0, -1)
  }

  private anchors(node: SchemaNode): void {
    for (const keyword of ["$anchor", "$dynamicAnchor"]) {
      const name = node.value[keyword]
      if (name === undefined) continue
      if (typeof name !== "string" || !/^[A-Za-z_][-A-Za-z0-9._]*$/.test(name)) {
        throw new Refusal(node.path, keyword, "must be a name")
      }
      const uri = `${node.base}#${name}`
      const other = this.byUri.get(uri)
      if (other !== undefined && typeof other !== "boolean" && other.value !== node.value) {
        throw new Refusal(node.path, keyword, `${name} is the name of another schema, too`)
      }
      if (keyword === "$dynamicAnchor" && other === undefined) this.dynamic.set(name, (this.dynamic.get(name) ?? 0) + 1)
      this.byUri.set(uri, node)
    }
  }

  /** The schemas inside of one. */
  private parts(
    { value }: SchemaNode
  ): ReadonlyArray<readonly [steps: ReadonlyArray<string | number>, schema: unknown]> {
    const isSchema = (part: unknown): boolean => typeof part === "boolean" || isRecord(part)
    return [
      ...single.flatMap((keyword) => isSchema(value[keyword]) ? [[[keyword], value[keyword]] as const] : []),
      ...lists.flatMap((keyword) => {
        const list = value[keyword]
        return isArray(list) ? list.map((part, i) => [[keyword, i], part] as const) : []
      }),
      ...maps.flatMap((keyword) => {
        const map = value[keyword]
        return isRecord(map) ? Object.entries(map).map(([name, part]) => [[keyword, name], part] as const) : []
      })
    ]
  }
}

const join = (reference: string, base: string): URL | undefined => {
  try {
    return new URL(reference, base)
  } catch {
    return undefined
  }
}

/** A URI with its fragment decoded: how schemas are found. */
const normal = (uri: URL): string => {
  const plain = uri.href.slice(0, uri.href.length - uri.hash.length).replace(/#$/, "")
  try {
    return `${plain}#${decodeURIComponent(uri.hash.slice(1))}`
  } catch {
    return `${plain}#${uri.hash.slice(1)}`
  }
}
