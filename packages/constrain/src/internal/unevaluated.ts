/**
 * `unevaluatedProperties` and `unevaluatedItems`, where it does not depend on the value which properties and items other
 * keywords have looked at: these are then as `additionalProperties` and `items`, seen through allOf and references.
 */
import type { Documents } from "./documents.ts"
import type { Formula, Formulas, SchemaNode } from "./formula.ts"
import { isArray, isRecord } from "./keywords.ts"
import { child, Refusal } from "./refusal.ts"

interface Context {
  readonly documents: Documents
  readonly formulas: Formulas
  readonly formulaOf: (schema: boolean | SchemaNode) => Formula
}

/** Keywords whose annotations depend on the value. */
const conditional = ["anyOf", "oneOf", "if", "dependentSchemas", "$dynamicRef", "not"]

/** A schema, and all that always apply together with it. */
const together = ({ documents }: Context, root: SchemaNode, keyword: string): ReadonlyArray<SchemaNode> => {
  const found = new Map<object, SchemaNode>([[root.value, root]])
  for (const node of found.values()) {
    const blocked = conditional.find((other) => Object.hasOwn(node.value, other))
    if (blocked !== undefined) throw new Refusal(root.path, keyword, `together with ${blocked} is not supported`)
    const parts = node.value["allOf"]
    const schemas = isArray(parts)
      ? parts.map((part, i) => documents.below(node, part, child(node.path, "allOf", i)))
      : []
    const reference = node.value["$ref"]
    const all = typeof reference === "string" ? [...schemas, documents.resolve(node, "$ref", reference)] : schemas
    for (const schema of all) {
      if (typeof schema !== "boolean" && !found.has(schema.value)) found.set(schema.value, schema)
    }
  }
  return [...found.values()]
}

const synthetic = ({ formulaOf }: Context, root: SchemaNode, value: Readonly<Record<string, unknown>>): Formula =>
  formulaOf({ ...root, value })

/** What holds of properties that no other keyword has looked at. */
export const unevaluatedProperties = (context: Context, root: SchemaNode, value: Formula): ReadonlyArray<Formula> => {
  if (value === context.formulas.true_) return []
  const nodes = together(context, root, "unevaluatedProperties")
  const isClosed = nodes.some((node) =>
    Object.hasOwn(node.value, "additionalProperties") ||
    (node !== root && Object.hasOwn(node.value, "unevaluatedProperties"))
  )
  if (isClosed) return []
  const all = (keyword: string): Readonly<Record<string, unknown>> =>
    Object.fromEntries(nodes.flatMap((node) => {
      const map = node.value[keyword]
      return isRecord(map) ? Object.keys(map).map((name) => [name, true] as const) : []
    }))
  return [synthetic(context, root, {
    properties: all("properties"),
    patternProperties: all("patternProperties"),
    additionalProperties: root.value["unevaluatedProperties"]
  })]
}

/** What holds of items that no other keyword has looked at. */
export const unevaluatedItems = (context: Context, root: SchemaNode, value: Formula): ReadonlyArray<Formula> => {
  if (value === context.formulas.true_) return []
  const nodes = together(context, root, "unevaluatedItems")
  if (nodes.some((node) => Object.hasOwn(node.value, "contains"))) {
    throw new Refusal(root.path, "unevaluatedItems", "together with contains is not supported")
  }
  const isClosed = nodes.some((node) =>
    Object.hasOwn(node.value, "items") || (node !== root && Object.hasOwn(node.value, "unevaluatedItems"))
  )
  if (isClosed) return []
  const length = Math.max(
    0,
    ...nodes.map((node) => {
      const prefix = node.value["prefixItems"]
      return isArray(prefix) ? prefix.length : 0
    })
  )
  const prefix = length === 0 ? {} : { prefixItems: Array.from({ length }, () => true) }
  return [synthetic(context, root, { ...prefix, items: root.value["unevaluatedItems"] })]
}
