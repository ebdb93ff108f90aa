/** Halves as floats. */
import type { UOp } from "@tg/core-uop/UOp"
import type { Body } from "./elementwise.ts"
import { type Block, blockOf, costOf, typical } from "./nest.ts"
import { constantOf } from "./value.ts"

/**
 * From so many instructions for each conversion on, its own are of no account. A loop over blocks of 32 values with a
 * half each has some 50, one over blocks of 256 some hundreds.
 */
const manyInstructions = 100

/**
 * The conversions that are few among the instructions around them. They take the form whose time does not depend on
 * the number: processors need more than a hundred cycles for a product with a subnormal number, and the scales of large
 * blocks are subnormal halves as a rule.
 */
export const rareHalvesOf = (linear: UOp): ReadonlySet<UOp> => {
  const rare = new Set<UOp>()
  const visit = (block: Block): void => {
    const own: Array<UOp> = []
    for (const item of block.items) {
      if ("items" in item) visit(item)
      else if (item.op === "HALF_TO_FLOAT") own.push(item)
    }
    if (own.length > 0 && typical(costOf(block.items)) >= manyInstructions * own.length) {
      for (const half of own) rare.add(half)
    }
  }
  visit(blockOf(linear))
  return rare
}

const splat = (type: "f32x4" | "i32x4", value: number): string => `(v128.const ${type}${` ${value}`.repeat(4)})`

/** Words shifted right by 0 or 16, each lane by its own: halves in the upper bits are there already. */
const mixed = (shifted: UOp, body: Body): string | undefined => {
  const [words, amounts] = shifted.src
  if (shifted.op !== "SHR" || !body.isInlined(shifted) || amounts!.op !== "STACK") return undefined
  const places = amounts!.src.map(constantOf)
  if (places.some((by) => by !== 0 && by !== 16) || new Set(places).size < 2) return undefined
  const [first, again] = body.twice(body.value(words!), "v128")
  const bytes = places.flatMap((by, i) => [0, 1, 2, 3].map((byte) => (by === 0 ? 0 : 16) + 4 * i + byte)).join(" ")
  return `(i8x16.shuffle ${bytes} (i32x4.shl ${first} (i32.const 16)) ${again})`
}

/** The half in the upper 16 bits of each lane, seen through what moved it to the lower ones. */
const raised = (source: UOp, body: Body): string => {
  const [word, by] = source.src
  const amount = by === undefined ? undefined : constantOf(by)
  const isSeen = body.isInlined(source) && word!.op !== "REG"
  const vector = (x: UOp): string => x.dtype.lanes === 4 ? body.value(x) : `(i32x4.splat ${body.value(x)})`
  if (isSeen && source.op === "SHR" && amount === 16) return vector(word!)
  const inLower = isSeen && source.op === "AND" && amount === 0xffff ? word! : source
  return mixed(inLower, body) ?? `(i32x4.shl ${vector(inLower)} (i32.const 16))`
}

/**
 * Exponent and fraction in their places in an f32, with an exponent that is 112 too small: a product repairs normals and
 * subnormals alike. Infinity and NaN need all exponent bits.
 */
const byProduct = (half: string, body: Body): string => {
  const [placed, again] = body.twice(
    `(v128.and (i32x4.shr_s ${half} (i32.const 3)) ${body.literal(splat("i32x4", 0x8fffe000 | 0))})`,
    "v128"
  )
  const exponent = body.literal(splat("i32x4", 0x0f800000))
  return `(v128.or (f32x4.mul ${placed} ${body.literal(splat("f32x4", 2 ** 112))}) ` +
    `(v128.and (i32x4.eq (v128.and ${again} ${exponent}) ${exponent}) ${body.literal(splat("i32x4", 0x7f800000))}))`
}

/**
 * The same without subnormal operands. With 112 added to the exponent, a normal magnitude is v, and where the exponent
 * was 0 it should be 2 v - 2^-14, which is the lesser one there and only there.
 */
const byMinimum = (half: string, body: Body): string => {
  const [first, second] = body.twice(half, "v128")
  const magnitude = `(v128.and (i32x4.shr_u ${first} (i32.const 3)) ${body.literal(splat("i32x4", 0x0fffe000))})`
  const [v, again] = body.twice(`(i32x4.add ${magnitude} ${body.literal(splat("i32x4", 112 * 2 ** 23))})`, "v128")
  const finite = `(f32x4.pmin (f32x4.add ${v} (f32x4.sub ${again} ${body.literal(splat("f32x4", 2 ** -14))})) ${again})`
  const special = `(v128.and (f32x4.ge ${again} ${body.literal(splat("f32x4", 2 ** 16))}) ` +
    `${body.literal(splat("i32x4", 0x7f800000))})`
  const sign = `(v128.and ${second} ${body.literal(splat("i32x4", 2 ** 31 | 0))})`
  return `(v128.or (v128.or ${finite} ${special}) ${sign})`
}

/** The code of HALF_TO_FLOAT, for vectors and scalars. */
export const halfToFloat = (node: UOp, body: Body): string => {
  const half = raised(node.src[0]!, body)
  const floats = body.rareHalves.has(node) ? byMinimum(half, body) : byProduct(half, body)
  return node.dtype.lanes === 4 ? floats : `(f32x4.extract_lane 0 ${floats})`
}
