/** Helpers, which are in a kernel's text only if it uses them. */
export type Helper =
  | "inf"
  | "nan"
  | "negative_zero"
  | "floor_div"
  | "floor_mod"
  | "half_to_float"
  | "float_to_half"
  | "sine"
  | "subgroups"

/**
 * Lines at the start of `main`. WGSL rejects constant expressions that are infinite or NaN, and Tint makes -0.0 a plain zero;
 * a `let` is not a constant expression, so the bits go through one.
 */
export const prelude: ReadonlyArray<readonly [Helper, ReadonlyArray<string>]> = [
  ["inf", ["let f32_inf_bits = 0x7f800000u;", "let f32_inf = bitcast<f32>(f32_inf_bits);"]],
  ["nan", ["let f32_nan_bits = 0x7fc00000u;", "let f32_nan = bitcast<f32>(f32_nan_bits);"]],
  ["negative_zero", [
    "let f32_negative_zero_bits = 0x80000000u;",
    "let f32_negative_zero = bitcast<f32>(f32_negative_zero_bits);"
  ]]
]

/** Functions of the module. */
export const functions: ReadonlyArray<readonly [Helper, string]> = [
  [
    // division by zero gives zero, as in the reference evaluator
    "floor_div",
    `fn floor_div(a: i32, b: i32) -> i32 {
  let q = a / b;
  let floored = select(q, q - 1, (q * b != a) & ((a < 0) != (b < 0)));
  return select(floored, 0, b == 0);
}`
  ],
  [
    "floor_mod",
    `fn floor_mod(a: i32, b: i32) -> i32 {
  let r = a % b;
  return select(r, r + b, (r != 0) & ((r < 0) != (b < 0)));
}`
  ],
  [
    // For devices whose unpack2x16float flushes subnormal halves. The subnormal branch multiplies an integer by 2^-24: normal
    // numbers in and out. 0x38000000 moves the exponent bias from 15 to 127; infinities and NaNs take it twice.
    "half_to_float",
    `fn half_to_float(word: u32) -> f32 {
  let magnitude = word & 0x7fffu;
  let small = bitcast<u32>(f32(magnitude) * 5.9604645e-8);
  let large = (magnitude << 13u) + select(0x38000000u, 0x70000000u, magnitude >= 0x7c00u);
  return bitcast<f32>(select(large, small, magnitude < 0x400u) | ((word & 0x8000u) << 16u));
}`
  ],
  [
    // pack2x16float may round either way and leaves overflow open, so rounding to nearest even is done in integers. Normal
    // halves drop 13 bits, subnormal ones 126 - exponent, which is 14 or more; dropping 25 always leaves zero.
    "float_to_half",
    `fn float_to_half(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let magnitude = bits & 0x7fffffffu;
  let normal = (magnitude + 0xfffu + ((magnitude >> 13u) & 1u) - 0x38000000u) >> 13u;
  let dropped = 126u - clamp(magnitude >> 23u, 101u, 112u);
  let digits = (magnitude & 0x7fffffu) | 0x800000u;
  let small = (digits + (1u << (dropped - 1u)) - 1u + ((digits >> dropped) & 1u)) >> dropped;
  let finite = select(normal, small, magnitude < 0x38800000u);
  let half = min(finite, 0x7c00u) | ((bits >> 16u) & 0x8000u);
  return select(half, 0x7e00u, magnitude > 0x7f800000u);
}`
  ],
  [
    // WGSL's own sin promises 2^-11 within [-pi, pi] only, too little for rotary embeddings. Cody-Waite range reduction, x - k pi with
    // pi in three parts: the first two have 8 and 9 bits, so their products are exact while |x| < 10^5. Then the odd Taylor polynomial
    // up to r^11.
    "sine",
    `fn sine(x: f32) -> f32 {
  let k = round(x * 0.31830987);
  let r = ((x - k * 3.140625) - k * 0.00096702576) - k * 6.2771141e-7;
  let s = r * r;
  let p = r + r * s * (-0.16666667 + s * (0.008333333 + s * (-0.0001984127 + s * (2.7557319e-6 + s * -2.5052108e-8))));
  return select(p, -p, (i32(k) & 1) == 1);
}`
  ]
]
