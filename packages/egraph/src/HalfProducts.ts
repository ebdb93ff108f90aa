/**
 * Products with halves of a cache, and those of tokens with packed weights, as products of halves, which matrix units multiply. llama.cpp does the same
 * wherever its cache is f16: its products of halves take both operands as such, queries as well as the weights of softmax.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { side } from "@tg/core-uop/MatrixTile"
import { elementwise, movement } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { rebuild, reduceArg, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { iota, Tensor } from "@tg/tensor/Tensor"
import { behind } from "./Axis.ts"
import { scaledOf } from "./Constants.ts"
import { readBy } from "./Rounded.ts"

/** Where tokens are; programs of one token have fewer rows than a tile, or are no faster for what they read. */
const tokenAxis = 0

const moves = ({ op }: UOp): boolean => movement.has(op) || op === "GATHER"

/** Whether words are those of a cache: of storage that the program writes, in whatever order they are read. */
const isCached = (words: UOp): boolean => {
  if (words.op === "AFTER") return true
  if (elementwise.has(words.op)) return words.src.some(isCached)
  return (moves(words) || words.op === "CONTIGUOUS") && isCached(words.src[0]!)
}

/** Whether a value is halves of a cache as floats, and nothing else. */
export const areHalves = (value: UOp): boolean =>
  value.op === "HALF_TO_FLOAT" ? isCached(value.src[0]!) : moves(value) && areHalves(value.src[0]!)

/** Whether a value is the same all along an axis, as what heads share is. */
const isSameAlong = (node: UOp, axis: number): boolean => {
  if (node.op === "CONST") return true
  if (elementwise.has(node.op)) return node.src.every((source) => isSameAlong(source, axis))
  const moved = behind(node, axis)
  if (moved === undefined) return false
  return Shape.of(moved.source)[moved.axis] !== Shape.of(node)[axis] || isSameAlong(moved.source, moved.axis)
}

/** The part of a size that is known to divide it. */
const knownFactor = (size: Shape.Dim): number =>
  typeof size === "number" ? size : size.op === "MUL" ? Number(size.src.find(({ op }) => op === "CONST")?.arg ?? 1) : 1

/** Whether the rows of a product fill fragments: axes along which an operand is the same, as those of the other one's rows are. */
const fillsFragments = (operand: UOp, rows: ReadonlyArray<number>): boolean =>
  rows.reduce((n, axis) => isSameAlong(operand, axis) ? n * knownFactor(Shape.of(operand)[axis]!) : n, 1) % side === 0

/** Axes of halves in front of `count` along which they are the same, if tokens are among them and make whole tiles with the others. */
const fillsTiles = (halves: UOp, axes: ReadonlyArray<number>): boolean => {
  const shape = Shape.of(halves)
  if (!axes.includes(tokenAxis) || shape[tokenAxis] === 1 || !isSameAlong(halves, tokenAxis)) return false
  return fillsFragments(halves, axes)
}

/** The terms of a sum that matrix units may compute: halves of a cache, and floats which several rows multiply with them. */
export interface Terms {
  readonly halves: UOp
  readonly floats: UOp
}

/** A value as a product of halves of a cache and floats. */
const productOf = (terms: UOp): Terms | undefined => {
  if (terms.op !== "MUL" || terms.dtype !== DType.f32) return undefined
  const [a, b] = [terms.src[0]!, terms.src[1]!]
  const [halves, floats] = areHalves(a) ? [a, b] : [b, a]
  return areHalves(halves) && !areHalves(floats) ? { halves, floats } : undefined
}

/** The terms of a sum over some axes as such a product; none where they are no product, or of too few rows. */
export const termsOf = (terms: UOp, summed: ReadonlyArray<number>): Terms | undefined => {
  const product = productOf(terms)
  const rows = [...Shape.of(terms).keys()].filter((axis) => !summed.includes(axis))
  return product !== undefined && fillsTiles(product.halves, rows) ? product : undefined
}

/** What is only moved on its way from where it is computed or stored. */
const movedFrom = (value: UOp): UOp => movement.has(value.op) ? movedFrom(value.src[0]!) : value

/** Whether a value is moved products of halves of a cache and floats. */
export const areProducts = (terms: UOp): boolean => productOf(movedFrom(terms)) !== undefined

/** Whether floats are made of packed weights, element by element: of words that the program only reads. Floats, of 32 bits or of 16 with their range, lie in words, too. */
const areWeights = (value: UOp): boolean => {
  const read = [...readBy(value)].filter(({ op }) => op !== "IOTA")
  const isPacked = read.every(({ dtype, op }) => (op === "PARAM" || op === "BUFFER") && dtype === DType.u32)
  return read.length > 0 && isPacked && movedFrom(value).op !== "BITCAST"
}

/** The floats that a sum multiplies with packed weights that so many tokens share; none of another sum. */
const weighedIn = (node: UOp): UOp | undefined => {
  const { axes, op } = reduceArg(node)
  const terms = node.src[0]!
  const tokens = Shape.of(terms)[tokenAxis]
  if (op !== "ADD" || terms.op !== "MUL" || terms.dtype !== DType.f32 || axes.includes(tokenAxis)) return undefined
  if (typeof tokens !== "number" || tokens % side !== 0) return undefined
  const [floats, ...others] = terms.src.filter((own) => !areWeights(own))
  const weights = terms.src.find(areWeights)
  return weights === undefined || others.length > 0 || !isSameAlong(weights, tokenAxis) ? undefined : floats
}

/** The same of a sum. */
export const ofSum = (node: UOp): Terms | undefined => {
  if (node.op !== "REDUCE") return undefined
  const { axes, op } = reduceArg(node)
  return op === "ADD" ? termsOf(node.src[0]!, axes) : undefined
}

/** A float as the nearest half. */
export const rounded = (value: UOp): UOp =>
  value.arena.make("HALF_TO_FLOAT", DType.f32, [value.arena.make("FLOAT_TO_HALF", DType.u32, [value])])

/** A sum of products with both operands as halves. */
const bothRounded = (sum: UOp): UOp => sum.with([sum.src[0]!.with(sum.src[0]!.src.map(rounded))])

/** Whether the program rounds what products read anyway (to bytes: `Activations` of models), and the device gains by products of halves. */
export const mayRound = (nodes: ReadonlyArray<UOp>, { matrixUnits }: Pick<DeviceProfile, "matrixUnits">): boolean =>
  matrixUnits === true && nodes.some(({ op }) => op === "DOT4I8")

/** What is stored as it is, or with other operations on each element: not what another reduction reads at once. */
const storedOf = (nodes: ReadonlyArray<UOp>): ReadonlySet<UOp> => {
  const found = new Set<UOp>()
  for (const node of nodes.toReversed()) {
    const isStore = node.op === "CONTIGUOUS" || node.op === "STORE" || node.op === "TUPLE"
    if (isStore || found.has(node) && (elementwise.has(node.op) || movement.has(node.op))) {
      for (const source of node.src) found.add(source)
    }
  }
  return found
}

/** Whether terms are summed over as many positions as there are: nobody computes that twice, and pieces are of a fixed number. */
const isOfContext = (node: UOp): boolean =>
  node.op === "REDUCE" && reduceArg(node).axes.some((axis) => typeof Shape.of(node.src[0]!)[axis] !== "number")

/** Whether a value is computed element by element of what is stored: a product can round it where it reads it. */
const isMadeInPlace = (value: UOp): boolean => {
  const read = [...readBy(value)]
  return read.length > 0 && read.every(({ op }) => op !== "REDUCE")
}

/** Halves of a word, and words that are read together. */
const halvesOfWord = 2
const wordsOfVector = 4

/** Floats `[.., 8 n]` as words of two halves that are stored, and these as floats again; halves of a word are as far apart as a cache has them. */
const storedAsHalves = (x: Tensor): Tensor => {
  const { arena, shape } = x
  const lead = shape.slice(0, -1)
  const groups = Number(x.dim(-1)) / (halvesOfWord * wordsOfVector)
  const shifts = iota(arena, halvesOfWord).cast(DType.u32).mul(16).reshape([halvesOfWord, 1])
  const words = x.reshape([...lead, groups, halvesOfWord, wordsOfVector]).floatToHalf().shl(shifts)
    .sum({ axis: -2, keepDims: true }).contiguous()
  return words.shr(shifts).halfToFloat().reshape(shape)
}

/** An operand as halves: stored as such, if it is stored for products like this one, which copy it then, else rounded where it is read. */
const asHalves = (value: UOp): UOp => {
  const stored = movedFrom(value)
  const last = Shape.of(stored).at(-1)
  if (stored.op !== "CONTIGUOUS" || typeof last !== "number" || last % (halvesOfWord * wordsOfVector) !== 0) {
    return rounded(value)
  }
  const { arena } = stored
  const since = arena.size
  // what is stored in parts is not stored as a whole, too
  const whole = stored.src[0]!
  const floats = [...readBy(whole)].some(({ op }) => op === "CONTIGUOUS") ? whole : stored
  const made = storedAsHalves(new Tensor(floats)).node
  arena.inherit(made, stored, since)
  return substitute(value, new Map([[stored, made]]))
}

/** A value moved as another one is. */
const movedAs = (moved: UOp, value: UOp): UOp =>
  movement.has(moved.op) ? moved.with([movedAs(moved.src[0]!, value), ...moved.src.slice(1)]) : value

/** Terms, and the condition without which they are zero. */
const conditionOf = (terms: UOp): { readonly terms: UOp; readonly condition: UOp | undefined } => {
  const [condition, own, other] = terms.src
  return terms.op === "WHERE" && other!.op === "CONST" && other!.arg === 0
    ? { terms: own!, condition }
    : { terms, condition: undefined }
}

/** Terms as products of halves, both operands rounded; where terms count as nothing the floats are zero, and halves may be anything that is finite. */
const asProducts = (whole: UOp): UOp | undefined => {
  const { condition, terms } = conditionOf(whole)
  const product = movedFrom(terms)
  const { floats } = productOf(product) ?? {}
  if (floats === undefined) return undefined
  const operands = product.src.map((own) => {
    const moved = movedAs(terms, own)
    if (own !== floats) return moved
    return rounded(condition === undefined ? moved : new Tensor(condition).where(new Tensor(moved), 0).node)
  })
  return product.with(operands)
}

/** A value whose sums of products with halves have both operands as halves, as far as they are its own. */
export const inPieces = (root: UOp, isOwn: (node: UOp) => boolean): UOp =>
  rebuild(root, (node, src) => {
    const now = src === node.src ? node : node.with(src)
    if (!isOwn(node) || node.op !== "REDUCE" || reduceArg(node).op !== "ADD") return now
    const since = now.arena.size
    const products = asProducts(now.src[0]!)
    if (products === undefined) return now
    const made = now.with([products])
    now.arena.inherit(made, node, since)
    return made
  })

/** A product with halves of a cache that has both operands as halves, as a kernel of its own computes it; none where nothing is gained. */
const ofCache = (node: UOp, now: UOp): UOp | undefined => {
  const terms = ofSum(node)
  if (terms === undefined || !isMadeInPlace(terms.floats)) return undefined
  const product = now.src[0]!
  // what it reads may have changed: only whether it is the first operand has not
  const operands = node.src[0]!.src.map((own, i) => own === terms.floats ? asHalves(product.src[i]!) : product.src[i]!)
  return now.with([product.with(operands)])
}

/**
 * A product over the positions of a context whose operands are floats in memory, as weights of softmax and values of each head are, with both as halves;
 * none where its rows fill no fragments.
 */
const ofPositions = (node: UOp, now: UOp): UOp | undefined => {
  const { axes, op } = reduceArg(node)
  const terms = node.src[0]!
  if (op !== "ADD" || terms.op !== "MUL" || terms.dtype !== DType.f32 || !isOfContext(node)) return undefined
  const rows = [...Shape.of(terms).keys()].filter((axis) => !axes.includes(axis))
  const areRead = terms.src.every((own) => movedFrom(own).op === "CONTIGUOUS" && fillsFragments(own, rows))
  return areRead ? bothRounded(now) : undefined
}

/** What is read beside other values: padded, and moved or scaled before. */
const besideOf = (nodes: ReadonlyArray<UOp>): ReadonlySet<UOp> =>
  new Set(nodes.filter(({ op }) => op === "PAD").map((node) => movedFrom(scaledOf(node).value)))

/** Products with packed weights, of tokens that fill fragments, each with the floats that it reads, before these are moved. */
const weighed = (nodes: ReadonlyArray<UOp>): ReadonlyMap<UOp, UOp> =>
  new Map(nodes.flatMap((node) => {
    const floats = node.op === "REDUCE" ? weighedIn(node) : undefined
    return floats === undefined ? [] : [[node, movedFrom(floats)]]
  }))

/** The program whose products with halves that kernels of their own compute, and those of tokens with packed weights, have both operands as halves. */
export const ofProgram = (sink: UOp): UOp => {
  const nodes = toposort(sink)
  const [stored, beside] = [storedOf(nodes), besideOf(nodes)]
  const products = weighed(nodes)
  // a product is a kernel of its own, and reads what another one has stored; who reads it beside other values looks at each column which of them it is
  const read = new Set([...products.values()].filter((floats) => !isMadeInPlace(floats)))
  return rebuild(sink, (node, src) => {
    const now = src === node.src ? node : node.with(src)
    const since = now.arena.size
    const isOwn = node.op === "REDUCE" && (stored.has(node) || isOfContext(node))
    const product = products.has(node)
      ? bothRounded(now)
      : isOwn
      ? ofCache(node, now) ?? ofPositions(node, now)
      : undefined
    const made = product ?? now
    const isStored = read.has(node) || products.has(node) && beside.has(node)
    const whole = isStored ? new Tensor(made).contiguous().node : made
    if (whole !== now) now.arena.inherit(whole, node, since)
    return whole
  })
}
