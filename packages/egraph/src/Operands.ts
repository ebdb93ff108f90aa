/**
 * How the products of a body read what a policy allows to round. A model states products of bytes that are stored once for all of them
 * (`Int8.contract`), and the products of floats that may stand in their place; what takes least time is written here, before the body is
 * searched. So is whether what products compute of several rows is stored before it is rounded. Forms differ by no more than 2^-7 of the largest value of a product, as in `round`.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Shape from "@tg/core-uop/Shape"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import * as Int8 from "@tg/tensor/Int8"
import { Tensor } from "@tg/tensor/Tensor"
import * as OperandCost from "./OperandCost.ts"
import { inPlace, isByItself, readBy, type Rounded, roundedIn } from "./Rounded.ts"
import { loading } from "./TensorCost.ts"

/** How a value is read, and what each form takes, in microseconds. */
export interface OperandReport {
  /** What the value is called in the model. */
  readonly label: string | undefined
  readonly form: OperandCost.Form
  readonly micros: OperandCost.Costs
}

/** A body, and how its products read their values. */
export interface Chosen {
  readonly body: UOp
  readonly reports: ReadonlyArray<OperandReport>
}

const matrixOf = (rows: Int8.Rows): OperandCost.Matrix => ({
  rows: Shape.maxElements(rows.words.shape.slice(0, -3)),
  columns: Int8.blockValues * Number(rows.words.dim(-3)),
  bytes: loading(Shape.maxElements)(Int8.values(rows).node)
})

/**
 * Whether a value may be read in several forms. Others are rounded at no cost, by the launch that computes them; or by one in front of the
 * products, where the value chooses their matrices. Where its rows are several, each workgroup would round all.
 */
const isOpen = (value: Tensor, products: ReadonlyArray<Rounded>): boolean =>
  value.shape.slice(0, -1).every((d) => d === 1) && isByItself(value) &&
  !products.some(({ rows }) => toposort(rows.words.node).includes(value.node))

/** The products with weights that a value is computed from, element by element. */
const productsIn = (value: UOp): ReadonlyArray<UOp> => [...readBy(value, Int8.hasForms)].filter(Int8.hasForms)

/** Whether all rows of what a product computes are products with the same matrix: not where what is computed chooses one for each of them. */
const isShared = ({ rows }: Rounded): boolean => !toposort(rows.words.node).some(({ op }) => op === "REDUCE")

/** Whether something else is stored that does not depend on the value, nor the value on it. */
const isBeside = (body: UOp, value: UOp): boolean => {
  const nodes = toposort(body)
  const under = new Set(toposort(value))
  const after = new Set([value])
  for (const node of nodes) if (node.src.some((source) => after.has(source))) after.add(node)
  return nodes.some((node) => node.op === "CONTIGUOUS" && !under.has(node) && !after.has(node))
}

/** What products compute of several rows, of a number that is known, and would be rounded where it is computed; nothing of other values. */
const computedOf = (body: UOp, value: Tensor): OperandCost.Computed | undefined => {
  const rows = Shape.maxElements(value.shape.slice(0, -1))
  if (rows === 1 || value.shape.some((d) => typeof d !== "number") || isByItself(value)) return undefined
  const products = productsIn(value.node).flatMap((node) => roundedIn(node) ?? [])
  if (products.length === 0 || !products.every(isShared)) return undefined
  return { matrices: products.map((product) => matrixOf(product.rows)), rows, isBeside: isBeside(body, value.node) }
}

/** What a value is called; without a name of its own, what the products are called that it is computed from. */
const labelOf = (value: UOp): string | undefined => {
  const { arena } = value
  const products = productsIn(value).flatMap((node) => arena.labelOf(node) ?? [])
  return arena.labelOf(value) ?? (products.length === 0 ? undefined : products.join(" and "))
}

/** The body with each value read in its cheapest form. The threads of a CPU do not wait for each other's loads, and its launches cost little. */
export const ofBody = (
  body: UOp,
  { kind, ...profile }: OperandCost.Profile & Partial<Pick<DeviceProfile, "kind">>
): Chosen => {
  const reports: Array<OperandReport> = []
  const forms = new Map<UOp, OperandCost.Form>()
  const stated = kind === "cpu" ? [] : toposort(body).filter(Int8.hasForms).flatMap((node) => roundedIn(node) ?? [])
  for (const [value, products] of Map.groupBy(stated, ({ value }) => value.node)) {
    const computed = computedOf(body, new Tensor(value))
    if (computed === undefined && !isOpen(new Tensor(value), products)) continue
    const micros = computed === undefined
      ? OperandCost.costsOf(products.map(({ rows }) => matrixOf(rows)), profile)
      : OperandCost.costsOfRows(computed, profile)
    const form = OperandCost.cheapest(micros)
    reports.push({ label: labelOf(value), form, micros })
    if (form !== "stored bytes") forms.set(value, form)
  }
  return { body: forms.size === 0 ? body : written(body, forms), reports }
}

/** A graph whose products read some values in other forms. Those that stay are made anew, so that it is known what they are products of. */
const written = (root: UOp, forms: ReadonlyMap<UOp, OperandCost.Form>): UOp => {
  const { arena } = root
  const since = arena.size
  const known = new Map<UOp, UOp>()
  const tensor = (x: Tensor): Tensor => new Tensor(now(x.node))
  const product = (node: UOp, { floats, made, of, rows, value }: Rounded): Tensor => {
    const form = forms.get(value.node)
    if (form === "floats" && floats !== undefined) return tensor(floats())
    const [x, own] = [tensor(value), Int8.mapRows(rows, tensor)]
    return form === undefined || form === "stored values"
      ? of(x, own)
      : Int8.contract(inPlace(x, made, since), own).reshape(Shape.of(node))
  }
  const now = (node: UOp): UOp => {
    const before = known.get(node)
    if (before !== undefined) return before
    const own = roundedIn(node)
    const as = own === undefined ? node.with(node.src.map(now)) : product(node, own).node
    const made = forms.get(node) === "stored values" ? new Tensor(as).contiguous().node : as
    arena.inherit(made, node, since)
    known.set(node, made)
    return made
  }
  return now(root)
}
