/** Random weights as blocks of any type, of a given deviation, deterministic by seed, at the bandwidth of memory. */
import { type GridName, valuesOf } from "./internal/grids.ts"
import { seedOf, type State, words } from "./internal/randomWords.ts"
import { type Name, table } from "./GgufType.ts"

/** The distribution and the type of random values. */
export interface RandomOptions {
  readonly type: Name
  /** Quantised values are spread around zero, whatever this says. */
  readonly mean: number
  /** Root mean square of the distance from the mean, within some percent. */
  readonly deviation: number
  /** A seed, and a name that distinguishes tensors of one seed. */
  readonly seed: readonly [seed: number, name: string]
}

/** A sequence of random blocks. */
export interface RandomBlocks {
  /** Writes the next blocks to the start of the buffer, which holds as many and 4 bytes more; answers with a view. */
  readonly next: (buffer: ArrayBuffer, blocks: number) => Uint8Array<ArrayBuffer>
}

/** How blocks of a type are scaled: by a half in each, to which values are proportional. */
interface Recipe {
  /** Root mean square of the values of blocks with random bits and scale 1. */
  readonly rms: number
  readonly scaleAt: number
  /** The second half of a block: the scale times `factor`. It moves the mean of the values to zero. */
  readonly minimum?: { readonly at: number; readonly factor: number }
  /** Corrects random bits that must agree with others. */
  readonly repair?: (bytes: Uint8Array, start: number) => void
}

// Uniform quants: of 4 bits around 8 (or 7.5), of 5 bits around 16 (or 15.5), and so on.
const nibble = Math.sqrt(21.5)
const centredNibble = Math.sqrt(21.25)
const fiveBits = Math.sqrt(85.5)
const centredFiveBits = Math.sqrt(85.25)
const sixBits = Math.sqrt(341.5)
const byte = Math.sqrt(5461.5)
const twoBits = Math.sqrt(1.25)
const signedThreeBits = Math.sqrt(5.5)
/** Scales from 0 to 63, and from 0 to 15. */
const sixBitScale = Math.sqrt(1333.5)
const nibbleScale = Math.sqrt(77.5)
/** Root mean square of the 16 values of the table of IQ4. */
const iq4 = Math.sqrt(4548)
/** The same of the sixteen doubled values of MXFP4. */
const fp4 = Math.sqrt(34.25)

/** Mean square of the values of a code book, as they are or moved by an eighth to either side. */
const bookSquare = (name: GridName, moved = 0): number => {
  const values = valuesOf(name)
  return values.reduce((sum, v) => sum + v * v, 0) / values.length + moved ** 2
}
/** Scales n + 1/2 of four bits, and 2n + 1 of four or three. */
const halfMore = Math.sqrt(85.25)
const oddOfFour = Math.sqrt(341)
const oddOfThree = Math.sqrt(85)

/** Eight scales and eight minima of 6 bits in 12 bytes: each minimum becomes its scale. */
const equalMinima = (bytes: Uint8Array, start: number): void => {
  for (let i = start + 4; i < start + 8; i++) {
    bytes[i] = bytes[i - 4]!
    bytes[i + 4] = (bytes[i + 4]! & 15) * 17
  }
}

const recipes: { readonly [N in Name]?: Recipe } = {
  Q4_0: { rms: nibble, scaleAt: 0 },
  Q4_1: { rms: centredNibble, scaleAt: 0, minimum: { at: 2, factor: -7.5 } },
  Q5_0: { rms: fiveBits, scaleAt: 0 },
  Q5_1: { rms: centredFiveBits, scaleAt: 0, minimum: { at: 2, factor: -15.5 } },
  Q8_0: { rms: byte, scaleAt: 0 },
  Q2_K: {
    rms: nibbleScale * twoBits,
    scaleAt: 80,
    minimum: { at: 82, factor: 1.5 },
    repair: (bytes, start) => {
      for (let i = start; i < start + 16; i++) bytes[i] = (bytes[i]! & 15) * 17
    }
  },
  Q3_K: { rms: sixBits * signedThreeBits, scaleAt: 108 },
  Q4_K: {
    rms: sixBitScale * centredNibble,
    scaleAt: 0,
    minimum: { at: 2, factor: 7.5 },
    repair: (bytes, start) => equalMinima(bytes, start + 4)
  },
  Q5_K: {
    rms: sixBitScale * centredFiveBits,
    scaleAt: 0,
    minimum: { at: 2, factor: 15.5 },
    repair: (bytes, start) => equalMinima(bytes, start + 4)
  },
  Q6_K: { rms: byte * sixBits, scaleAt: 208 },
  IQ4_NL: { rms: iq4, scaleAt: 0 },
  IQ4_XS: { rms: sixBits * iq4, scaleAt: 0 },
  IQ2_XXS: { rms: halfMore / 4 * Math.sqrt(bookSquare("iq2_xxs")), scaleAt: 0 },
  IQ2_XS: { rms: halfMore / 4 * Math.sqrt(bookSquare("iq2_xs")), scaleAt: 0 },
  IQ2_S: { rms: halfMore / 4 * Math.sqrt(bookSquare("iq2_s")), scaleAt: 0 },
  IQ3_XXS: { rms: halfMore / 2 * Math.sqrt(bookSquare("iq3_xxs")), scaleAt: 0 },
  IQ3_S: { rms: oddOfFour * Math.sqrt(bookSquare("iq3_s")), scaleAt: 0 },
  IQ1_S: { rms: oddOfThree * Math.sqrt(bookSquare("iq1", 1 / 8)), scaleAt: 0 },
  TQ1_0: { rms: Math.sqrt(2 / 3), scaleAt: 52 },
  TQ2_0: { rms: Math.sqrt(1.5), scaleAt: 64 },
  Q1_0: { rms: 1, scaleAt: 0 },
  Q2_0: { rms: Math.sqrt(1.5), scaleAt: 0 }
}

/** The types that can be filled. */
export const types: ReadonlyArray<Name> = [
  ...Object.keys(recipes) as ReadonlyArray<Name>,
  "F32",
  "F16",
  "BF16",
  "MXFP4",
  "NVFP4",
  "IQ1_M"
]

/** A sequence of random blocks, or nothing for a type that has none here. */
export const make = (options: RandomOptions): RandomBlocks | undefined => {
  const state = seedOf(...options.seed)
  const { blockBytes } = table[options.type]
  const patch = patchOf(options, state)
  return patch === undefined ? undefined : {
    next: (buffer, blocks) => {
      const random = new Uint32Array(buffer, 0, Math.ceil(blocks * blockBytes / 4))
      words(state, random)
      const bytes = new Uint8Array(buffer, 0, blocks * blockBytes)
      patch(bytes, blocks)
      return bytes
    }
  }
}

type Patch = (bytes: Uint8Array<ArrayBuffer>, blocks: number) => void

/** Distinct values of float types: their table fits the L1 cache. */
const valueCount = 4096
/** Distinct scales: enough that neighbouring blocks differ, and their table fits the L1 cache. */
const scaleCount = 1024

const patchOf = (options: RandomOptions, state: State): Patch | undefined => {
  const { deviation, mean, type } = options
  switch (type) {
    case "F32": {
      const values = normals(state, mean, deviation)
      return (bytes, blocks) => {
        const floats = new Float32Array(bytes.buffer, 0, blocks)
        const random = new Uint32Array(bytes.buffer, 0, blocks)
        for (let i = 0; i < blocks; i++) floats[i] = values[random[i]! & valueCount - 1]!
      }
    }
    case "F16":
    case "BF16": {
      const encode = type === "F16" ? half : bfloat
      const encoded = Uint16Array.from(normals(state, mean, deviation), encode)
      return (bytes, blocks) => {
        const halves = new Uint16Array(bytes.buffer, 0, blocks)
        for (let i = 0; i < blocks; i++) halves[i] = encoded[halves[i]! & valueCount - 1]!
      }
    }
    case "MXFP4": {
      // a power of two per block: half of it, it, or twice it
      const least = Math.min(252, Math.max(1, Math.round(128 + Math.log2(deviation / fp4)) - 1))
      return (bytes, blocks) => {
        for (let i = 0, at = 0; i < blocks; i++, at += 17) bytes[at] = least + bytes[at]! % 3
      }
    }
    case "NVFP4": {
      // a scale for each group: the nearest, or one of its neighbours; the values are doubled
      const least = nearestE4M3(2 * deviation / fp4) - 1
      return (bytes, blocks) => {
        for (let at = 0; at < 36 * blocks; at += 36) {
          for (let group = at; group < at + 4; group++) bytes[group] = least + bytes[group]! % 3
        }
      }
    }
    case "IQ1_M": {
      // the half that scales a block lies in the upper bits of four others
      const rms = oddOfThree * Math.sqrt(bookSquare("iq1", 1 / 8))
      const scales = Uint16Array.from(lognormal(state), (x) => half(x * deviation / rms))
      return (bytes, blocks) => {
        const halves = new Uint16Array(bytes.buffer, 0, bytes.length / 2)
        for (let block = 0; block < blocks; block++) {
          const at = 28 * block + 24
          const scale = scales[halves[at]! & (scaleCount - 1)]!
          for (let i = 0; i < 4; i++) halves[at + i] = halves[at + i]! & 0xfff | (scale >> 4 * i & 15) << 12
        }
      }
    }
    default:
      return scaled(type, deviation, state)
  }
}

const scaled = (type: Name, deviation: number, state: State): Patch | undefined => {
  const recipe = recipes[type]
  if (recipe === undefined) return undefined
  const { minimum, repair, rms, scaleAt } = recipe
  const { blockBytes } = table[type]
  // where nothing else depends on it, the scale has either sign
  const signed = minimum === undefined
  const scales = lognormal(state).map((x, i) => x * deviation / rms * (signed && i % 2 === 1 ? -1 : 1))
  const encoded = Uint16Array.from(scales, half)
  const minima = Uint16Array.from(scales, (scale) => half(scale * (minimum?.factor ?? 0)))
  return (bytes, blocks) => {
    // every block of these types has an even number of bytes
    const halves = new Uint16Array(bytes.buffer, 0, bytes.length / 2)
    const step = blockBytes / 2
    const end = blocks * step
    for (let at = scaleAt / 2; at < end; at += step) {
      const which = halves[at]! & (scaleCount - 1)
      halves[at] = encoded[which]!
      if (minimum !== undefined) halves[at + (minimum.at - scaleAt) / 2] = minima[which]!
    }
    if (repair !== undefined) { for (let at = 0; at < bytes.length; at += blockBytes) repair(bytes, at) }
  }
}

/** Scales around 1, of mean square 1: that of exp(x) for x of deviation s is exp(2 s^2). */
const lognormal = (state: State): Float64Array => {
  const spread = 0.25
  return normals(state, 0, spread, scaleCount).map((x) => Math.exp(x - spread ** 2))
}

/** The code of the unsigned E4M3 number nearest to a size, with a neighbour on either side. */
const nearestE4M3 = (size: number): number => {
  const value = (code: number): number => code < 8 ? code * 2 ** -9 : (1 + (code & 7) / 8) * 2 ** ((code >> 3) - 7)
  let code = 2
  while (code < 124 && Math.abs(value(code + 1) - size) < Math.abs(value(code) - size)) code++
  return code
}

/** Normally distributed values, by the basic (trigonometric) form of the Box-Muller transform. */
const normals = (state: State, mean: number, deviation: number, count = valueCount): Float64Array => {
  const uniform = words(state, new Uint32Array(2 * count))
  return Float64Array.from({ length: count }, (_, i) => {
    const radius = Math.sqrt(-2 * Math.log((uniform[2 * i]! + 1) / 2 ** 32))
    return mean + deviation * radius * Math.cos(2 * Math.PI * uniform[2 * i + 1]! / 2 ** 32)
  })
}

const single = new Float32Array(1)
const singleBits = new Uint32Array(single.buffer)

/** Bits of the nearest half, subnormal ones included; finite for the finite values of weights. */
const half = (x: number): number => {
  const sign = x < 0 ? 0x8000 : 0
  const size = Math.min(65504, Math.abs(x))
  // below 2^-14 halves are multiples of 2^-24; rounding up to 1024 of them is the smallest normal one
  if (size < 2 ** -14) return sign | Math.round(size * 2 ** 24)
  const exponent = Math.floor(Math.log2(size))
  const fraction = Math.round((size / 2 ** exponent - 1) * 1024)
  return sign | (exponent + 15 << 10) + fraction
}

/** The upper half of a float. */
const bfloat = (x: number): number => {
  single[0] = x
  return singleBits[0]! + 0x8000 >>> 16
}
