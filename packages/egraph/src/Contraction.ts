/**
 * Contractions: sums of products of tensors over named indices, as physicists write them.
 *
 * `y[t, n] = sum_k x[t, k] w[n, k]` is a contraction, and so are every product of broadcast tensors, every sum, every
 * reshape, permutation and expansion, and whatever is made of these: they compose.
 */
import type * as Shape from "@tg/core-uop/Shape"

/** An index: its place in `sizes`. */
export type Index = number

/** For each axis of a tensor the indices that it runs over, the slowest first; none for an axis of size 1. */
export type Access = ReadonlyArray<ReadonlyArray<Index>>

/** `output = sum over all other indices of the product of the operands`. */
export interface Contraction {
  readonly sizes: ReadonlyArray<Shape.Dim>
  readonly operands: ReadonlyArray<Access>
  readonly output: Access
}

const indicesOf = (access: Access): ReadonlyArray<Index> => access.flat()

/** The indices that an operand reads. */
export const indicesOfOperand = (c: Contraction, operand: number): ReadonlySet<Index> =>
  new Set(indicesOf(c.operands[operand]!))

/** The indices that are summed over. */
export const summed = (c: Contraction): ReadonlyArray<Index> => {
  const sums: Array<Index> = []
  for (let i = 0; i < c.sizes.length; i++) if (!reads(c.output, i)) sums.push(i)
  return sums
}

/** Whether an axis runs over an index. */
const reads = (access: Access, index: Index): boolean => {
  for (const axis of access) if (axis.includes(index)) return true
  return false
}

/** Whether anything is summed over. */
export const isSum = (c: Contraction): boolean => c.sizes.some((_, i) => !reads(c.output, i))

/**
 * Whether each of these operands reads some index that is summed over and that no others read: then there is a sum in contracting them first,
 * and none of them is only a factor of it, which is multiplied once behind it.
 */
export const isSumOf = (c: Contraction, chosen: ReadonlyArray<number>): boolean => {
  const own = c.sizes.flatMap((_, i) =>
    !reads(c.output, i) && c.operands.every((access, operand) => chosen.includes(operand) || !reads(access, i))
      ? [i]
      : []
  )
  return chosen.every((operand) => own.some((i) => reads(c.operands[operand]!, i)))
}

/** The sizes of the axes of a value that is read so. Composite axes have fixed sizes. */
export const shapeOf = (sizes: ReadonlyArray<Shape.Dim>, access: Access): Shape.Shape =>
  access.map((axis) => axis.length === 1 ? sizes[axis[0]!]! : axis.reduce((n, i) => n * Number(sizes[i]!), 1))

/** Two ways to cut a run of elements into axes, by their common refinement: sizes, and each axis as some of these. */
interface Refined {
  readonly sizes: ReadonlyArray<Shape.Dim>
  readonly left: Access
  readonly right: Access
}

/** The common refinement of two shapes of as many elements; none where a symbolic size meets another one. */
export const refine = (left: Shape.Shape, right: Shape.Shape): Refined | undefined => {
  const sizes: Array<Shape.Dim> = []
  const parts = [left, right].map((shape) => shape.map((): Array<Index> => []))
  const shapes = [left, right]
  const at = [left.length, right.length]
  const rest: Array<Shape.Dim> = [1, 1]
  const next = (side: number): void => {
    while (rest[side] === 1 && at[side]! > 0) rest[side] = shapes[side]![--at[side]!]!
  }
  for (;;) {
    next(0)
    next(1)
    const [a, b] = [rest[0]!, rest[1]!]
    if (a === 1 && b === 1) break
    const piece = a === b ? a : smaller(a, b)
    if (piece === undefined || piece === 1) return undefined
    parts.forEach((axes, side) => axes[at[side]!]!.unshift(sizes.length))
    sizes.push(piece)
    rest.forEach((size, side) => {
      rest[side] = size === piece ? 1 : Number(size) / Number(piece)
    })
  }
  return { sizes, left: parts[0]!, right: parts[1]! }
}

/** The smaller of two fixed sizes if it divides the other. */
const smaller = (a: Shape.Dim, b: Shape.Dim): number | undefined => {
  if (typeof a !== "number" || typeof b !== "number" || a === 0 || b === 0) return undefined
  const [least, most] = a < b ? [a, b] : [b, a]
  return most % least === 0 ? least : undefined
}

/** The operand as it is. */
export const identity = (shape: Shape.Shape): Contraction => {
  const access = shape.map((size, axis) => size === 1 ? [] : [axis])
  return normalise({ sizes: shape, operands: [access], output: access })
}

/** The operand under another shape, if fixed and symbolic sizes keep apart. */
export const reshape = (from: Shape.Shape, to: Shape.Shape): Contraction | undefined => {
  const refined = refine(from, to)
  return refined === undefined
    ? undefined
    : normalise({ sizes: refined.sizes, operands: [refined.left], output: refined.right })
}

/** Axis i of the result is axis `order[i]` of the operand. */
export const permute = (shape: Shape.Shape, order: ReadonlyArray<number>): Contraction => {
  const access = shape.map((_, axis) => [axis])
  return normalise({ sizes: shape, operands: [access], output: order.map((axis) => access[axis]!) })
}

/** Axes of size 1 grow to `to`. */
export const expand = (from: Shape.Shape, to: Shape.Shape): Contraction =>
  normalise({
    sizes: to,
    operands: [from.map((size, axis) => size === 1 && to[axis] !== 1 ? [] : [axis])],
    output: to.map((_, axis) => [axis])
  })

/** The product, element by element, of operands of this shape. */
export const product = (shape: Shape.Shape, count: number): Contraction => {
  const access = shape.map((_, axis) => [axis])
  return normalise({ sizes: shape, operands: Array.from({ length: count }, () => access), output: access })
}

/** The sum over axes of the operand. */
export const sum = (shape: Shape.Shape, axes: ReadonlyArray<number>): Contraction => {
  const access = shape.map((_, axis) => [axis])
  return normalise({ sizes: shape, operands: [access], output: access.filter((_, axis) => !axes.includes(axis)) })
}

const renamed = (access: Access, to: ReadonlyArray<ReadonlyArray<Index>>): Access =>
  access.map((axis) => axis.flatMap((i) => to[i]!))

/**
 * The contraction that has another one in place of an operand: sums move in front of products (distributivity). Its operands
 * are the others, then those of the inner one. None where the two cut an axis in ways that have no common refinement.
 */
export const compose = (outer: Contraction, at: number, inner: Contraction): Contraction | undefined => {
  const sizes: Array<Shape.Dim> = []
  const fresh = (size: Shape.Dim): Index => sizes.push(size) - 1
  const outerTo: Array<ReadonlyArray<Index> | undefined> = outer.sizes.map(() => undefined)
  const innerTo: Array<ReadonlyArray<Index> | undefined> = inner.sizes.map(() => undefined)
  for (const [axis, outerAxis] of outer.operands[at]!.entries()) {
    const innerAxis = inner.output[axis]!
    const refined = refine(outerAxis.map((i) => outer.sizes[i]!), innerAxis.map((i) => inner.sizes[i]!))
    if (refined === undefined) return undefined
    const own = refined.sizes.map(fresh)
    outerAxis.forEach((i, k) => {
      outerTo[i] = refined.left[k]!.map((piece) => own[piece]!)
    })
    innerAxis.forEach((i, k) => {
      innerTo[i] = refined.right[k]!.map((piece) => own[piece]!)
    })
  }
  const outerNow = outerTo.map((to, i) => to ?? [fresh(outer.sizes[i]!)])
  const innerNow = innerTo.map((to, i) => to ?? [fresh(inner.sizes[i]!)])
  return normalise({
    sizes,
    operands: [
      ...outer.operands.filter((_, i) => i !== at).map((access) => renamed(access, outerNow)),
      ...inner.operands.map((access) => renamed(access, innerNow))
    ],
    output: renamed(outer.output, outerNow)
  })
}

/**
 * The indices in an order in which no access runs over a slower one behind a faster one; none if there is no such order. Where
 * accesses leave a choice, those of fixed sizes come first, then those that the first accesses read.
 */
export const inOrder = (
  sizes: ReadonlyArray<Shape.Dim>,
  accesses: ReadonlyArray<Access>
): ReadonlyArray<Index> | undefined => {
  const runs = accesses.map((access) => access.flat())
  const left = new Set(runs.flat())
  const order: Array<Index> = []
  while (left.size > 0) {
    const isFree = (i: Index): boolean => runs.every((run) => run.find((j) => left.has(j)) === i || !run.includes(i))
    const free = [...left].filter(isFree)
    const next = free.find((i) => typeof sizes[i] === "number") ?? free[0]
    if (next === undefined) return undefined
    order.push(next)
    left.delete(next)
  }
  return order
}

/** A contraction of a contraction: the outer one reads the inner one's result as its last operand. */
export interface Split {
  readonly inner: Contraction
  readonly outer: Contraction
}

/**
 * Some operands contracted first (associativity): what only they read is summed there. The outer contraction has the other
 * operands, in their order, then the result.
 */
export const contractFirst = (c: Contraction, chosen: ReadonlyArray<number>): Split => {
  // in the order of the operands, whatever reads the result: the same product is the same node wherever it is found
  const inside = new Set(chosen.flatMap((i) => indicesOf(c.operands[i]!)))
  const others = c.operands.filter((_, i) => !chosen.includes(i))
  const outside = new Set([...others, c.output].flatMap(indicesOf))
  const order = inOrder(c.sizes, chosen.map((i) => c.operands[i]!)) ?? [...inside]
  const kept = order.filter((i) => outside.has(i)).map((i) => [i])
  return {
    inner: normalise({ sizes: c.sizes, operands: chosen.map((i) => c.operands[i]!), output: kept }, inside),
    outer: normalise(
      { sizes: c.sizes, operands: [...others, kept], output: c.output },
      new Set([...c.sizes.keys()].filter((i) => outside.has(i) || !inside.has(i)))
    )
  }
}

const none = -1
const many = -2

/** For each index the one that follows it wherever it stands and follows nothing else; `none` or `many` if there is none. */
const followers = (accesses: ReadonlyArray<Access>, sizes: ReadonlyArray<Shape.Dim>): ReadonlyArray<number> => {
  const unset = -3
  const next: Array<number> = sizes.map(() => unset)
  const before: Array<number> = sizes.map(() => unset)
  for (const access of accesses) {
    for (const axis of access) {
      for (let k = 0, last: number = none; k < axis.length; k++) {
        const i = axis[k]!
        const follower = k + 1 < axis.length ? axis[k + 1]! : none
        next[i] = next[i] === unset || next[i] === follower ? follower : many
        before[i] = before[i] === unset || before[i] === last ? last : many
        last = i
      }
    }
  }
  return next.map((b, a) =>
    b >= 0 && before[b] === a && typeof sizes[a] === "number" && typeof sizes[b] === "number" ? b : none
  )
}

const withoutOnes = (accesses: ReadonlyArray<Access>, sizes: ReadonlyArray<Shape.Dim>): ReadonlyArray<Access> =>
  accesses.map((access) => access.map((axis) => axis.filter((i) => sizes[i] !== 1)))

/**
 * The one form of equal contractions: no index of size 1 or outside of `used`, indices that never part are one, and numbers by
 * first appearance, in the output and then in the operands.
 */
export const normalise = (c: Contraction, used?: ReadonlySet<Index>): Contraction => {
  const own = [c.output, ...c.operands]
  const accesses = c.sizes.includes(1) ? withoutOnes(own, c.sizes) : own
  const next = followers(accesses, c.sizes)
  const sizes: Array<Shape.Dim> = []
  /** What follows another index has no number of its own. */
  const number: Array<Index> = c.sizes.map(() => none)
  for (const i of next) if (i >= 0) number[i] = many
  /** Numbers an index, and multiplies its size by those that always follow it. */
  const take = (i: Index): void => {
    if (number[i] !== none || c.sizes[i] === 1 || used?.has(i) === false) return
    number[i] = sizes.length
    let size = c.sizes[i]!
    for (let at = next[i]!; at >= 0; at = next[at]!) size = Number(size) * Number(c.sizes[at])
    sizes.push(size)
  }
  for (const access of accesses) for (const axis of access) for (const i of axis) take(i)
  for (let i = 0; i < c.sizes.length; i++) take(i)
  const numbered = (axis: ReadonlyArray<Index>): ReadonlyArray<Index> => {
    const now: Array<Index> = []
    for (const i of axis) if (number[i]! >= 0) now.push(number[i]!)
    return now
  }
  const [output, ...operands] = accesses.map((access) => access.map(numbered))
  return { sizes, operands, output: output! }
}

/** The same with its operands in another order. */
export const reorder = (c: Contraction, order: ReadonlyArray<number>): Contraction =>
  normalise({ ...c, operands: order.map((i) => c.operands[i]!) })

/** Whether it only moves its one operand: no sum, nothing repeated. */
export const isView = (c: Contraction): boolean => c.operands.length === 1 && !isSum(c)

/** Whether it is its one operand. */
export const isIdentity = (c: Contraction): boolean =>
  c.operands.length === 1 && isSame(c.operands[0]!, c.output) && !isSum(c)

const isSame = (a: Access, b: Access): boolean =>
  a.length === b.length && a.every((axis, k) => axis.length === b[k]!.length && axis.every((i, n) => i === b[k]![n]))

const letters = "abcdefghijklmnopqrstuvwxyz"
const letter = (i: Index): string => letters[i] ?? `i${i}`
const printAccess = (access: Access): string =>
  access.map((axis) => axis.length === 1 ? letter(axis[0]!) : `(${axis.map(letter).join("")})`).join(" ")

/** As in papers and libraries: `a c, b c -> a b`; axes of several indices in brackets. */
export const print = (c: Contraction): string => `${c.operands.map(printAccess).join(", ")} -> ${printAccess(c.output)}`

/** Equal for equal contractions of one arena. */
export const key = (c: Contraction): string => {
  let text = ""
  for (const access of c.operands) text += `${keyOf(access)};`
  text += keyOf(c.output)
  for (const d of c.sizes) text += typeof d === "number" ? `,${d}` : `,#${d.id}`
  return text
}

const keyOf = (access: Access): string => {
  let text = ""
  for (const axis of access) {
    for (const i of axis) text += `${i} `
    text += "|"
  }
  return text
}
