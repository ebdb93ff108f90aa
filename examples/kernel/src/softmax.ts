import type { CustomKernel } from "@tg/tensor/Program"
import { scalar } from "@tg/tensor/Tensor"

/** One workgroup for each row: its 64 threads share the largest element, then the sum. */
const wgsl = (stride: number): string => `
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<uniform> vars: array<vec4<i32>, 1>;
var<workgroup> partial: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
  let columns = u32(vars[0].x);
  let row = group.x * ${stride}u;
  let thread = local.x;
  var largest = -3.4e38;
  for (var i = thread; i < columns; i += 64u) { largest = max(largest, x[row + i]); }
  partial[thread] = largest;
  for (var half = 32u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) { partial[thread] = max(partial[thread], partial[thread + half]); }
  }
  workgroupBarrier();
  largest = partial[0];
  workgroupBarrier();
  var sum = 0.0;
  for (var i = thread; i < columns; i += 64u) { sum += exp(x[row + i] - largest); }
  partial[thread] = sum;
  for (var half = 32u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) { partial[thread] += partial[thread + half]; }
  }
  workgroupBarrier();
  for (var i = thread; i < columns; i += 64u) { out[row + i] = exp(x[row + i] - largest) / partial[0]; }
}`

/** Rows `from` to `to`. WebAssembly has no exponential: 2^x is 2^n, by its bits, times a polynomial for the rest. */
const wasm = (stride: number): string => `
(func $exp (param $x f32) (result f32) (local $n f32)
  (local.set $x (f32.max (f32.mul (local.get $x) (f32.const 1.44269504)) (f32.const -126)))
  (local.set $n (f32.nearest (local.get $x)))
  (local.set $x (f32.sub (local.get $x) (local.get $n)))
  (f32.mul
    (f32.add (f32.const 1) (f32.mul (local.get $x)
      (f32.add (f32.const 0.69314718) (f32.mul (local.get $x)
        (f32.add (f32.const 0.24022651) (f32.mul (local.get $x)
          (f32.add (f32.const 0.05550328) (f32.mul (local.get $x)
            (f32.add (f32.const 0.00961800) (f32.mul (local.get $x) (f32.const 0.00134002))))))))))
    )
    (f32.reinterpret_i32
      (i32.shl (i32.add (i32.trunc_sat_f32_s (local.get $n)) (i32.const 127)) (i32.const 23)))))

(func (export "run") (param $from i32) (param $to i32) (param $out i32) (param $x i32) (param $columns i32)
  (local $i i32) (local $at i32) (local $end i32) (local $largest f32) (local $sum f32)
  (block $done (loop $rows
    (br_if $done (i32.ge_s (local.get $from) (local.get $to)))
    (local.set $at (i32.mul (local.get $from) (i32.const ${4 * stride})))
    (local.set $end (i32.add (local.get $at) (i32.shl (local.get $columns) (i32.const 2))))
    (local.set $largest (f32.const -inf))
    (local.set $i (local.get $at))
    (block $a (loop $max
      (br_if $a (i32.ge_s (local.get $i) (local.get $end)))
      (local.set $largest (f32.max (local.get $largest) (f32.load (i32.add (local.get $x) (local.get $i)))))
      (local.set $i (i32.add (local.get $i) (i32.const 4)))
      (br $max)))
    (local.set $sum (f32.const 0))
    (local.set $i (local.get $at))
    (block $b (loop $exps
      (br_if $b (i32.ge_s (local.get $i) (local.get $end)))
      (f32.store (i32.add (local.get $out) (local.get $i))
        (call $exp (f32.sub (f32.load (i32.add (local.get $x) (local.get $i))) (local.get $largest))))
      (local.set $sum (f32.add (local.get $sum) (f32.load (i32.add (local.get $out) (local.get $i)))))
      (local.set $i (i32.add (local.get $i) (i32.const 4)))
      (br $exps)))
    (local.set $i (local.get $at))
    (block $c (loop $divide
      (br_if $c (i32.ge_s (local.get $i) (local.get $end)))
      (f32.store (i32.add (local.get $out) (local.get $i))
        (f32.div (f32.load (i32.add (local.get $out) (local.get $i))) (local.get $sum)))
      (local.set $i (i32.add (local.get $i) (i32.const 4)))
      (br $divide)))
    (local.set $from (i32.add (local.get $from) (i32.const 1)))
    (br $rows))))`

/**
 * softmax(out, x, columns): of the first `columns` elements of each row. Rows lie `stride` elements apart, which is the
 * largest number of columns where that is a variable.
 */
export const softmax = (stride: number): CustomKernel => ({
  name: "softmax",
  writes: [0],
  sources: {
    wgsl: { text: wgsl(stride), workgroup: [64, 1, 1], grid: (out) => [out!.shape[0]!, 1, 1] },
    wasm: { text: wasm(stride), grid: (out) => [out!.shape[0]!, 1, 1] }
  },
  cost: (out) => ({ flops: scalar(out!.arena, out!.shape[0]!).mul(20 * stride) }),
  reference: ([out, x], { columns }) => {
    for (let row = 0; row < x!.length; row += stride) {
      const values = [...x!.subarray(row, row + columns!)]
      const largest = Math.max(...values)
      const exps = values.map((value) => Math.exp(value - largest))
      const sum = exps.reduce((a, b) => a + b, 0)
      exps.forEach((e, i) => out![row + i] = e / sum)
    }
  }
})
