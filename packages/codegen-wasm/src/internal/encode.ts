/** Numbers as the bytes of a module. */
import { type Atom, wrong } from "./source.ts"

/** A natural number in LEB128. */
export const unsigned = (value: number): ReadonlyArray<number> => {
  const bytes: Array<number> = []
  for (let rest = value;; rest = Math.floor(rest / 128)) {
    if (rest < 128) return [...bytes, rest]
    bytes.push(rest % 128 + 128)
  }
}

/** A signed number in LEB128. */
export const signed = (value: bigint): ReadonlyArray<number> => {
  const bytes: Array<number> = []
  for (let rest = value;; rest >>= 7n) {
    const low = Number(rest & 127n)
    if (rest >= -64n && rest < 64n) return [...bytes, low]
    bytes.push(low | 128)
  }
}

/** Bytes with their count in front. */
export const counted = (bytes: ReadonlyArray<number>): ReadonlyArray<number> => [...unsigned(bytes.length), ...bytes]

/** Things with their count in front. */
export const vector = (things: ReadonlyArray<ReadonlyArray<number>>): ReadonlyArray<number> => [
  ...unsigned(things.length),
  ...things.flat()
]

const digits = /^([+-]?)(\d[\d_]*|0x[\da-fA-F][\da-fA-F_]*)$/

/** An integer that fits so many bits, signed or not, as a signed one. */
export const integer = ({ line, text }: Atom, bits: number): bigint => {
  const [, sign, magnitude] = digits.exec(text) ?? []
  if (magnitude === undefined) throw wrong(line, `${text} stands where an integer belongs`)
  const value = BigInt(magnitude.replaceAll("_", "")) * (sign === "-" ? -1n : 1n)
  if (value < -(1n << BigInt(bits - 1)) || value >= 1n << BigInt(bits)) {
    throw wrong(line, `${text} does not fit ${bits} bits`)
  }
  return BigInt.asIntN(bits, value)
}

/** A natural number up to `most`. */
export const natural = (atom: Atom, most: number): number => {
  const value = /^\d{1,15}$/.test(atom.text) ? Number(atom.text) : Number(integer(atom, 64))
  if (value < 0 || value > most) throw wrong(atom.line, `${atom.text} is not from 0 to ${most}`)
  return value
}

const littleEndian = (value: bigint, bytes: number): ReadonlyArray<number> =>
  Array.from({ length: bytes }, (_, i) => Number((value >> BigInt(8 * i)) & 255n))

/** A float as bytes. Decimals are rounded to 64 bits first; there is one NaN. */
export const float = ({ line, text }: Atom, bits: 32 | 64): ReadonlyArray<number> => {
  const special = /^([+-]?)(inf|nan)$/.exec(text)
  if (special === null && !/^[+-]?\d[\d_]*(\.[\d_]*)?([eE][+-]?\d+)?$/.test(text)) {
    throw wrong(line, `${text} stands where a decimal number, inf or nan belongs`)
  }
  const magnitude = special === null
    ? Number(text.replace(/^[+-]/, "").replaceAll("_", ""))
    : special[2] === "inf"
    ? Infinity
    : NaN
  const bytes = new Uint8Array((bits === 32 ? Float32Array.of(magnitude) : Float64Array.of(magnitude)).buffer)
  if (text.startsWith("-")) bytes[bytes.length - 1]! |= 128
  return [...bytes]
}

/** The bytes of a vector, as `i32x4` and four numbers say them. */
export const vectorBytes = (shape: Atom, lanes: ReadonlyArray<Atom>): ReadonlyArray<number> => {
  const [, kind, width] = /^([if])(8|16|32|64)x\d+$/.exec(shape.text) ?? []
  const bits = Number(width)
  if (kind === "i") return lanes.flatMap((atom) => littleEndian(BigInt.asUintN(bits, integer(atom, bits)), bits / 8))
  return lanes.flatMap((atom) => float(atom, bits as 32 | 64))
}

/** How many lanes a vector of a shape has. */
export const lanesOf = ({ line, text }: Atom): number => {
  const lanes: Readonly<Record<string, number>> = { i8x16: 16, i16x8: 8, i32x4: 4, i64x2: 2, f32x4: 4, f64x2: 2 }
  const count = lanes[text]
  if (count === undefined) {
    throw wrong(line, `${text} is no shape of a vector; those are ${Object.keys(lanes).join(", ")}`)
  }
  return count
}
