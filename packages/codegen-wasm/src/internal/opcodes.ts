/** The instructions of WebAssembly, as data: numbers, fixed-width SIMD, relaxed SIMD, atomics. */

/** What stands behind the name of an instruction. */
export type Immediate =
  | "none"
  | "local"
  | "function"
  | "label"
  | "zero"
  | "zeros"
  | "lane"
  | "lanes"
  | "i32"
  | "i64"
  | "f32"
  | "f64"
  | "v128"
  | "access"
  | "access lane"

export interface Instruction {
  /** The byte in front of the opcode, if there is one. */
  readonly prefix: number | undefined
  readonly opcode: number
  readonly immediate: Immediate
  /** Bytes of a memory access, 1 for other instructions. */
  readonly width: number
}

const compare = "eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u"
const integer = "clz ctz popcnt add sub mul div_s div_u rem_s rem_u and or xor shl shr_s shr_u rotl rotr"
const float = "abs neg ceil floor trunc nearest sqrt add sub mul div min max copysign"
const loads = "load8_s load8_u load16_s load16_u"
const shifts = "shl shr_s shr_u"
const saturating = "add add_sat_s add_sat_u sub sub_sat_s sub_sat_u"
const extremes = "min_s min_u max_s max_u"
const floats = "abs neg - sqrt add sub mul div min max pmin pmax"
const extending = (x: string): string => `extend_low_${x}_s extend_high_${x}_s extend_low_${x}_u extend_high_${x}_u`
const products = (x: string): string => `extmul_low_${x}_s extmul_high_${x}_s extmul_low_${x}_u extmul_high_${x}_u`
const lanes = "extract_lane replace_lane"
const signedLanes = "extract_lane_s extract_lane_u replace_lane"

/** Runs of opcodes: the first of them, then names in order, each with the type in front. `-` is an opcode that is not used. */
type Run = readonly [first: number, type: string, names: string]

const plain: ReadonlyArray<Run> = [
  [0x00, "", "unreachable nop"],
  [0x0c, "", "br br_if - return call"],
  [0x1a, "", "drop select"],
  [0x20, "", "local.get local.set local.tee"],
  [0x28, "", "i32.load i64.load f32.load f64.load"],
  [0x2c, "i32", loads],
  [0x30, "i64", `${loads} load32_s load32_u`],
  [0x36, "", "i32.store i64.store f32.store f64.store i32.store8 i32.store16 i64.store8 i64.store16 i64.store32"],
  [0x3f, "", "memory.size memory.grow i32.const i64.const f32.const f64.const"],
  [0x45, "i32", `eqz ${compare}`],
  [0x50, "i64", `eqz ${compare}`],
  [0x5b, "f32", "eq ne lt gt le ge"],
  [0x61, "f64", "eq ne lt gt le ge"],
  [0x67, "i32", integer],
  [0x79, "i64", integer],
  [0x8b, "f32", float],
  [0x99, "f64", float],
  [0xa7, "i32", "wrap_i64 trunc_f32_s trunc_f32_u trunc_f64_s trunc_f64_u"],
  [0xac, "i64", "extend_i32_s extend_i32_u trunc_f32_s trunc_f32_u trunc_f64_s trunc_f64_u"],
  [0xb2, "f32", "convert_i32_s convert_i32_u convert_i64_s convert_i64_u demote_f64"],
  [0xb7, "f64", "convert_i32_s convert_i32_u convert_i64_s convert_i64_u promote_f32"],
  [0xbc, "", "i32.reinterpret_f32 i64.reinterpret_f64 f32.reinterpret_i32 f64.reinterpret_i64"],
  [0xc0, "", "i32.extend8_s i32.extend16_s i64.extend8_s i64.extend16_s i64.extend32_s"]
]

const bulk: ReadonlyArray<Run> = [
  [0x00, "i32", "trunc_sat_f32_s trunc_sat_f32_u trunc_sat_f64_s trunc_sat_f64_u"],
  [0x04, "i64", "trunc_sat_f32_s trunc_sat_f32_u trunc_sat_f64_s trunc_sat_f64_u"],
  [0x0a, "memory", "copy fill"]
]

const simd: ReadonlyArray<Run> = [
  [0x00, "v128", "load load8x8_s load8x8_u load16x4_s load16x4_u load32x2_s load32x2_u"],
  [0x07, "v128", "load8_splat load16_splat load32_splat load64_splat store const"],
  [0x0d, "", "i8x16.shuffle i8x16.swizzle"],
  [0x0f, "", "i8x16.splat i16x8.splat i32x4.splat i64x2.splat f32x4.splat f64x2.splat"],
  [0x15, "i8x16", signedLanes],
  [0x18, "i16x8", signedLanes],
  [0x1b, "i32x4", lanes],
  [0x1d, "i64x2", lanes],
  [0x1f, "f32x4", lanes],
  [0x21, "f64x2", lanes],
  [0x23, "i8x16", compare],
  [0x2d, "i16x8", compare],
  [0x37, "i32x4", compare],
  [0x41, "f32x4", "eq ne lt gt le ge"],
  [0x47, "f64x2", "eq ne lt gt le ge"],
  [0x4d, "v128", "not and andnot or xor bitselect any_true load8_lane load16_lane load32_lane load64_lane"],
  [0x58, "v128", "store8_lane store16_lane store32_lane store64_lane load32_zero load64_zero"],
  [0x5e, "", "f32x4.demote_f64x2_zero f64x2.promote_low_f32x4"],
  [0x60, "i8x16", "abs neg popcnt all_true bitmask narrow_i16x8_s narrow_i16x8_u"],
  [0x67, "f32x4", "ceil floor trunc nearest"],
  [0x6b, "i8x16", `${shifts} ${saturating}`],
  [0x74, "", "f64x2.ceil f64x2.floor"],
  [0x76, "i8x16", extremes],
  [0x7a, "", "f64x2.trunc i8x16.avgr_u i16x8.extadd_pairwise_i8x16_s i16x8.extadd_pairwise_i8x16_u"],
  [0x7e, "i32x4", "extadd_pairwise_i16x8_s extadd_pairwise_i16x8_u"],
  [0x80, "i16x8", `abs neg q15mulr_sat_s all_true bitmask narrow_i32x4_s narrow_i32x4_u ${extending("i8x16")}`],
  [0x8b, "i16x8", `${shifts} ${saturating}`],
  [0x94, "", "f64x2.nearest"],
  [0x95, "i16x8", `mul ${extremes} - avgr_u ${products("i8x16")}`],
  [0xa0, "i32x4", `abs neg - all_true bitmask - - ${extending("i16x8")} ${shifts} add`],
  [0xb1, "i32x4", `sub - - - mul ${extremes} dot_i16x8_s - ${products("i16x8")}`],
  [0xc0, "i64x2", `abs neg - all_true bitmask - - ${extending("i32x4")} ${shifts} add`],
  [0xd1, "i64x2", `sub - - - mul eq ne lt_s gt_s le_s ge_s ${products("i32x4")}`],
  [0xe0, "f32x4", floats],
  [0xec, "f64x2", floats],
  [0xf8, "", "i32x4.trunc_sat_f32x4_s i32x4.trunc_sat_f32x4_u f32x4.convert_i32x4_s f32x4.convert_i32x4_u"],
  [0xfc, "", "i32x4.trunc_sat_f64x2_s_zero i32x4.trunc_sat_f64x2_u_zero f64x2.convert_low_i32x4_s"],
  [0xff, "f64x2", "convert_low_i32x4_u"],
  [0x100, "", "i8x16.relaxed_swizzle i32x4.relaxed_trunc_f32x4_s i32x4.relaxed_trunc_f32x4_u"],
  [0x103, "i32x4", "relaxed_trunc_f64x2_s_zero relaxed_trunc_f64x2_u_zero"],
  [0x105, "", "f32x4.relaxed_madd f32x4.relaxed_nmadd f64x2.relaxed_madd f64x2.relaxed_nmadd"],
  [0x109, "", "i8x16.relaxed_laneselect i16x8.relaxed_laneselect i32x4.relaxed_laneselect i64x2.relaxed_laneselect"],
  [0x10d, "", "f32x4.relaxed_min f32x4.relaxed_max f64x2.relaxed_min f64x2.relaxed_max"],
  [0x111, "", "i16x8.relaxed_q15mulr_s i16x8.relaxed_dot_i8x16_i7x16_s i32x4.relaxed_dot_i8x16_i7x16_add_s"]
]

/** Seven instructions for each way to read, change and write at once. */
const atomicUpdates = ["add", "sub", "and", "or", "xor", "xchg", "cmpxchg"].map((op, i): Run => [
  0x1e + 7 * i,
  "",
  ["i32.atomic.rmw", "i64.atomic.rmw"].map((x) => `${x}.${op}`).join(" ") +
  ["i32.atomic.rmw8", "i32.atomic.rmw16", "i64.atomic.rmw8", "i64.atomic.rmw16", "i64.atomic.rmw32"]
    .map((x) => ` ${x}.${op}_u`).join("")
])

const atomic: ReadonlyArray<Run> = [
  [0x00, "", "memory.atomic.notify memory.atomic.wait32 memory.atomic.wait64 atomic.fence"],
  [0x10, "", "i32.atomic.load i64.atomic.load i32.atomic.load8_u i32.atomic.load16_u"],
  [0x14, "i64", "atomic.load8_u atomic.load16_u atomic.load32_u"],
  [0x17, "", "i32.atomic.store i64.atomic.store i32.atomic.store8 i32.atomic.store16"],
  [0x1b, "i64", "atomic.store8 atomic.store16 atomic.store32"],
  ...atomicUpdates
]

const named: Readonly<Record<string, Immediate>> = {
  "br": "label",
  "br_if": "label",
  "call": "function",
  "memory.size": "zero",
  "memory.grow": "zero",
  "memory.fill": "zero",
  "memory.copy": "zeros",
  "i8x16.shuffle": "lanes",
  "atomic.fence": "zero"
}

const immediateOf = (name: string): Immediate => {
  const own = named[name]
  if (own !== undefined) return own
  const [type, rest] = name.split(/\.(.*)/, 2)
  if (type === "local") return type
  if (rest === "const") return type as Immediate
  if (/^(load|store)\d+_lane$/.test(rest ?? "")) return "access lane"
  if (/^(extract|replace)_lane/.test(rest ?? "")) return "lane"
  return /^(load|store|atomic)/.test(rest ?? "") ? "access" : "none"
}

const typeBytes: Readonly<Record<string, number>> = { i32: 4, f32: 4, i64: 8, f64: 8, v128: 16, memory: 4 }

/** Bytes that an access reads or writes. */
const widthOf = (name: string): number => {
  const [, bits, count] = /(?:load|store|rmw|wait)(\d+)(?:x(\d))?/.exec(name) ?? []
  return bits === undefined ? typeBytes[name.split(".")[0]!]! : Number(bits) * Number(count ?? 1) / 8
}

/** All instructions by name. Blocks are none: they have a form of their own. */
export const instructions: ReadonlyMap<string, Instruction> = new Map(
  ([[undefined, plain], [0xfc, bulk], [0xfd, simd], [0xfe, atomic]] as const).flatMap(([prefix, runs]) =>
    runs.flatMap(([first, type, names]) =>
      names.split(" ").flatMap((suffix, i): ReadonlyArray<readonly [string, Instruction]> => {
        if (suffix === "-") return []
        const name = type === "" ? suffix : `${type}.${suffix}`
        const immediate = immediateOf(name)
        return [[name, {
          prefix,
          opcode: first + i,
          immediate,
          width: immediate.startsWith("access") ? widthOf(name) : 1
        }]]
      })
    )
  )
)
