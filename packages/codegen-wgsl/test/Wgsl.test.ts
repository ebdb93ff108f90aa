import { afterAll, assert, describe, expect, it } from "@effect/vitest"
import { DType, Expr, Spec } from "@tg/core-uop"
import { Renderer, RenderError } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import { Effect } from "effect"
import * as Wgsl from "../src/Wgsl.ts"
import * as WgslRenderer from "../src/WgslRenderer.ts"
import * as Dawn from "./dawn.ts"
import { Kernel } from "./kernels.ts"
import { caps, render } from "./render.ts"

afterAll(Dawn.close)

const refusal = (build: (k: Kernel) => void): string => {
  const kernel = new Kernel()
  build(kernel)
  const program = Wgsl.render("kernel", kernel.linear(), caps)
  if (!(program instanceof RenderError)) throw new Error("the kernel was rendered")
  assert.strictEqual(program.kernel, "kernel")
  return program.message
}

/** The right side of the store of one value. */
const expression = async (
  dtype: DType.DType,
  build: (k: Kernel) => UOp,
  options: Wgsl.Caps = caps
): Promise<string> => {
  const k = new Kernel()
  k.store(k.param(9, dtype), k.int(0), build(k))
  const code = await render(k, options)
  return /data9\[0\] = (.*);\n/.exec(code)![1]!
}

describe("kernels", () => {
  it("accesses whole vectors with the index in units of vectors", async () => {
    const k = new Kernel()
    const at = Expr.add(Expr.mul(k.special("gidx0", 4), 256), Expr.mul(k.special("lidx0", 64), 4))
    k.store(k.param(1, DType.f32), at, Expr.mul(k.load(k.param(0, DType.f32), at, 4), Expr.splat(k.f32(2), 4)))
    expect(await render(k)).toMatchInlineSnapshot(`
      "// kernel
      @group(0) @binding(0) var<storage, read> data0: array<vec4<f32>>;
      @group(0) @binding(1) var<storage, read_write> data1: array<vec4<f32>>;
      @compute @workgroup_size(64, 1, 1)
      fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_id) local_invocation_id: vec3<u32>) {
        let gidx0 = i32(workgroup_id.x);
        let lidx0 = i32(local_invocation_id.x);
        let x0 = data0[(gidx0 * 64) + lidx0];
        data1[(gidx0 * 64) + lidx0] = x0 * vec4<f32>(2.0);
      }
      "
    `)
  })

  it("finds names for more than thirty loops", async () => {
    const k = new Kernel()
    const register = k.register(0, k.f32(0))
    for (let id = 0; id < 34; id++) {
      const i = k.range(id, 2)
      k.accumulate("ADD", register, k.load(k.param(0, DType.f32), i))
      k.end(i)
    }
    k.store(k.param(1, DType.f32), k.int(0), register)
    const code = await render(k)
    assert.include(code, "i31 < 2")
    assert.notInclude(code, "var i32 ")
  })

  it("bounds a symbolic loop by a constant and leaves it early", async () => {
    const k = new Kernel()
    const n = Expr.variable(k.arena, "n", 1, 128)
    const register = k.register(0, k.f32(-Infinity))
    const i = k.range(0, n)
    k.accumulate("MAX", register, k.load(k.param(0, DType.f32), i))
    k.end(i)
    k.store(k.param(1, DType.f32), k.int(0), register)
    expect(await render(k)).toMatchInlineSnapshot(`
      "// kernel
      @group(0) @binding(0) var<storage, read> data0: array<f32>;
      @group(0) @binding(1) var<storage, read_write> data1: array<f32>;
      // n
      @group(0) @binding(2) var<uniform> vars: array<vec4<i32>, 1>;
      @compute @workgroup_size(1, 1, 1)
      fn main() {
        let f32_inf_bits = 0x7f800000u;
        let f32_inf = bitcast<f32>(f32_inf_bits);
        var acc0: f32 = -f32_inf;
        for (var i0 = 0; i0 < 128; i0++) {
          if (i0 >= vars[0].x) { break; }
          let x0 = data0[i0];
          acc0 = max(acc0, x0);
        }
        data1[0] = acc0;
      }
      "
    `)
  })

  it("reduces by subgroups, then through workgroup memory", async () => {
    const k = new Kernel()
    const thread = k.special("lidx0", 64)
    const shared = k.local(0, DType.f32, 8)
    const sum = k.subgroup("ADD", k.load(k.param(0, DType.f32), thread), 8)
    k.store(shared, Expr.floordiv(thread, 8), sum, Expr.eq(Expr.floormod(thread, 8), 0))
    k.barrier()
    const total = k.subgroup("ADD", k.load(shared, Expr.min(thread, 3)), 4)
    k.store(k.param(1, DType.f32), k.int(0), total, Expr.eq(thread, 0))
    expect(await render(k)).toMatchInlineSnapshot(`
      "// kernel
      enable subgroups;
      diagnostic(off, subgroup_uniformity);
      @group(0) @binding(0) var<storage, read> data0: array<f32>;
      @group(0) @binding(1) var<storage, read_write> data1: array<f32>;
      var<workgroup> local0: array<f32, 8>;
      @compute @workgroup_size(64, 1, 1)
      fn main(@builtin(local_invocation_id) local_invocation_id: vec3<u32>) {
        let lidx0 = i32(local_invocation_id.x);
        let x0 = data0[lidx0];
        let v0 = x0 + subgroupShuffleXor(x0, 1u);
        let v1 = v0 + subgroupShuffleXor(v0, 2u);
        let v2 = v1 + subgroupShuffleXor(v1, 4u);
        if ((lidx0 % 8) == 0) { local0[lidx0 / 8] = v2; }
        workgroupBarrier();
        let x1 = local0[min(lidx0, 3)];
        let v3 = x1 + subgroupShuffleXor(x1, 1u);
        let v4 = v3 + subgroupShuffleXor(v3, 2u);
        if (lidx0 == 0) { data1[0] = v4; }
      }
      "
    `)
  })

  it("orders an argument at a barrier, where the kernel reads what it has written there", async () => {
    const linesOf = async (reads: boolean): Promise<ReadonlyArray<string>> => {
      const k = new Kernel()
      const thread = k.special("lidx0", 64)
      const out = k.param(0, DType.f32)
      k.store(out, thread, k.load(k.param(1, DType.f32), thread))
      k.barrier()
      const next = Expr.floormod(Expr.add(thread, 1), 64)
      k.store(k.param(2, DType.f32), thread, k.load(reads ? out : k.param(1, DType.f32), next))
      return (await render(k)).split("\n").filter((line) => line.includes("Barrier")).map((line) => line.trim())
    }
    expect(await linesOf(false)).toEqual(["workgroupBarrier();"])
    expect(await linesOf(true)).toEqual(["storageBarrier();", "workgroupBarrier();"])
  })

  it("adds up several sums over the same threads in one butterfly, which halves them", async () => {
    const k = new Kernel()
    const thread = k.special("lidx0", 64)
    const values = [0, 1, 2, 3].map((i) => k.load(k.param(0, DType.f32), Expr.add(Expr.mul(thread, 4), i)))
    const sums = values.map((value) => k.subgroup("ADD", value, 8))
    sums.forEach((sum, i) => k.store(k.param(1, DType.f32), k.int(i), sum, Expr.eq(thread, 0)))
    const code = await render(k)
    const count = (text: string) => code.split(text).length - 1
    // one by one they take three steps each
    assert.deepStrictEqual([count("subgroupShuffleXor"), count("subgroupBroadcast")], [4, 4])
  })

  it("reads part of a wide element, and writes only whole elements", async () => {
    const k = new Kernel()
    const i = k.special("lidx0", 16)
    const [wide, narrow] = [k.param(0, DType.u32), k.param(1, DType.u32)]
    const row = k.load(wide, Expr.mul(i, 4), 4)
    k.store(narrow, Expr.mul(i, 4), row)
    k.store(narrow, i, k.load(wide, i), Expr.lt(i, 5))
    k.store(k.param(2, DType.u32), Expr.mul(i, 2), k.load(wide, Expr.mul(i, 2), 2))
    expect(await render(k)).toMatchInlineSnapshot(`
      "// kernel
      @group(0) @binding(0) var<storage, read> data0: array<vec4<u32>>;
      @group(0) @binding(1) var<storage, read_write> data1: array<u32>;
      @group(0) @binding(2) var<storage, read_write> data2: array<vec2<u32>>;
      @compute @workgroup_size(16, 1, 1)
      fn main(@builtin(local_invocation_id) local_invocation_id: vec3<u32>) {
        let lidx0 = i32(local_invocation_id.x);
        let v0 = lidx0 * 4;
        let x0 = data0[lidx0];
        data1[v0] = x0.x;
        data1[v0 + 1] = x0.y;
        data1[v0 + 2] = x0.z;
        data1[v0 + 3] = x0.w;
        let x1 = data0[lidx0 >> 2u][lidx0 & 3];
        if (lidx0 < 5) { data1[lidx0] = x1; }
        let v1 = lidx0 * 2;
        let x2 = vec2<u32>(data0[v1 >> 2u][v1 & 3], data0[v1 >> 2u][(v1 & 3) + 1]);
        data2[lidx0] = x2;
      }
      "
    `)
  })

  it("names the lane of a wide element where the index says it", async () => {
    const k = new Kernel()
    const i = k.special("lidx0", 16)
    const [wide, out] = [k.param(0, DType.u32, 256), k.param(1, DType.u32, 256)]
    const record = Expr.mul(i, 12)
    k.store(out, Expr.mul(i, 4), k.load(wide, record, 4))
    k.store(k.param(2, DType.u32, 256), Expr.mul(i, 2), k.load(wide, Expr.add(record, k.int(9))))
    k.store(k.param(3, DType.u32, 256), i, k.load(wide, Expr.add(Expr.add(record, k.int(7)), k.int(3))))
    k.store(k.param(4, DType.u32, 256), i, k.load(wide, Expr.add(Expr.mul(i, 6), k.int(1))))
    const code = await render(k)
    assert.include(code, "data0[(lidx0 * 3) + 2].y")
    assert.include(code, "data0[((lidx0 * 3) + 1) + 1].z")
    // the lane differs from thread to thread
    assert.match(code, /data0\[\w+ >> 2u\]\[\w+ & 3\]/)
  })

  it("keeps a register's value at the place where it is read", async () => {
    const k = new Kernel()
    const register = k.register(0, k.f32(1))
    const before = k.add(Expr.add(register, k.f32(0.5)))
    const place = k.register(1, Expr.constant(k.arena, DType.i32, 2))
    const index = k.add(Expr.element(k.param(0, DType.f32), place))
    k.accumulate("ADD", place, Expr.constant(k.arena, DType.i32, 1))
    const i = k.range(0, 4)
    k.accumulate("MUL", register, k.f32(3))
    k.end(i)
    k.add(Expr.store(index, before))
    k.store(k.param(0, DType.f32), k.int(1), register)
    expect(await render(k)).toMatchInlineSnapshot(`
      "// kernel
      @group(0) @binding(0) var<storage, read_write> data0: array<f32>;
      @compute @workgroup_size(1, 1, 1)
      fn main() {
        var acc0: f32 = 1.0;
        let v0 = acc0 + 0.5;
        var acc1: i32 = 2;
        let v1 = acc1;
        acc1 = acc1 + 1;
        for (var i0 = 0; i0 < 4; i0++) {
          acc0 = acc0 * 3.0;
        }
        data0[v1] = v0;
        data0[1] = acc0;
      }
      "
    `)
  })

  it("reads in each branch what stands in both, and waits where all threads come by", async () => {
    const k = new Kernel()
    const group = k.special("gidx0", 8)
    const thread = k.special("lidx0", 4)
    const [isFirst, isSecond] = [Expr.lt(group, 3), Expr.not(Expr.lt(group, 3))]
    const shared = k.local(0, DType.f32, 4)
    const weight = Expr.load(Expr.element(k.param(0, DType.f32), k.int(7)))
    const results = [k.param(1, DType.f32), k.param(2, DType.f32)] as const
    for (const node of [thread, isFirst, isSecond, shared, ...weight.src[0]!.src, ...results, k.int(0)]) k.add(node)
    k.branch(isFirst, () => {
      k.store(shared, thread, k.add(weight))
      k.barrier()
      k.store(results[0], Expr.add(Expr.mul(group, 4), thread), k.load(shared, k.int(0)))
    })
    k.branch(isSecond, () => {
      k.again(weight)
      k.store(results[1], thread, Expr.mul(weight, weight))
    })
    expect(await render(k)).toMatchInlineSnapshot(`
      "// kernel
      @group(0) @binding(0) var<storage, read> data0: array<f32>;
      @group(0) @binding(1) var<storage, read_write> data1: array<f32>;
      @group(0) @binding(2) var<storage, read_write> data2: array<f32>;
      var<workgroup> local0: array<f32, 4>;
      @compute @workgroup_size(4, 1, 1)
      fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_id) local_invocation_id: vec3<u32>) {
        let lidx0 = i32(local_invocation_id.x);
        let gidx0 = i32(workgroup_id.x);
        let v0 = gidx0 < 3;
        if (v0) {
          let x0 = data0[7];
          local0[lidx0] = x0;
          workgroupBarrier();
          let x1 = local0[0];
          data1[(gidx0 * 4) + lidx0] = x1;
        }
        if (!v0) {
          let x2 = data0[7];
          data2[lidx0] = x2 * x2;
        }
      }
      "
    `)
    const apart = new Kernel()
    apart.branch(Expr.lt(apart.special("lidx0", 4), 3), () => apart.barrier())
    assert.match(Spec.check("linear", apart.linear())[0]!.reason, /threads of a workgroup may disagree/)
  })

  it("drops gated loads and stores behind their gates", async () => {
    const k = new Kernel()
    const i = k.special("gidx0", Expr.variable(k.arena, "rows", 0, 1000))
    const gate = Expr.lt(i, 10)
    const x = k.load(k.param(0, DType.f32), Expr.mul(i, 4), 4, gate)
    k.branch(Expr.lt(i, 100), () => k.store(k.param(1, DType.f32), Expr.mul(i, 4), x, gate))
    expect(await render(k)).toMatchInlineSnapshot(`
      "// kernel
      @group(0) @binding(0) var<storage, read> data0: array<vec4<f32>>;
      @group(0) @binding(1) var<storage, read_write> data1: array<vec4<f32>>;
      // rows
      @group(0) @binding(2) var<uniform> vars: array<vec4<i32>, 1>;
      @compute @workgroup_size(1, 1, 1)
      fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>) {
        let gidx0 = i32(workgroup_id.x);
        let v0 = gidx0 < 10;
        let x0 = select(vec4<f32>(), data0[gidx0], v0);
        if (gidx0 < 100) {
          if (v0) { data1[gidx0] = x0; }
        }
      }
      "
    `)
  })
})

describe("constants", () => {
  const float = (value: number) => expression(DType.f32, (k) => k.f32(value))
  const integer = (value: number) => expression(DType.i32, (k) => Expr.constant(k.arena, DType.i32, value))
  it("are the shortest text that reads back the same", async () => {
    assert.strictEqual(await float(1), "1.0")
    assert.strictEqual(await float(0.1), "0.1")
    assert.strictEqual(await float(1 / 3), "0.33333334")
    assert.strictEqual(await float(2 ** -149), "1e-45")
    assert.strictEqual(await float(3.4028234663852886e38), "3.4028234663852886e+38")
    assert.strictEqual(await float(2 ** -126), "1.1754944e-38")
    assert.strictEqual(await float(16777216), "16777216.0")
  })
  it("reach infinity, NaN and the negative zero through their bits", async () => {
    assert.strictEqual(await float(-0), "f32_negative_zero")
    assert.strictEqual(await float(-Infinity), "-f32_inf")
    assert.strictEqual(await float(1e39), "f32_inf")
    assert.strictEqual(await float(NaN), "f32_nan")
  })
  it("span the integers", async () => {
    assert.strictEqual(await integer(-(2 ** 31)), "-2147483648")
    assert.strictEqual(await expression(DType.u32, (k) => k.u32(2 ** 32 - 1)), "4294967295u")
    assert.match(refusal((k) => k.store(k.param(0, DType.f32), k.int(2 ** 31), k.f32(0))), /2147483648 does not fit/)
  })
  it("are no operands of an operation that WGSL would evaluate, and reject when it overflows", async () => {
    const huge = (k: Kernel) => Expr.constant(k.arena, DType.i32, 2 ** 31 - 1)
    assert.strictEqual(await expression(DType.i32, (k) => Expr.add(huge(k), huge(k))), "c0 + 2147483647")
    assert.strictEqual(await expression(DType.f32, (k) => Expr.mul(k.f32(3e38), k.f32(10))), "c0 * 10.0")
    assert.strictEqual(
      await expression(DType.f32, (k) => Expr.bitcast(k.u32(0x7f800000), DType.f32)),
      "bitcast<f32>(c0)"
    )
  })
})

describe("integer operations", () => {
  const of = (dtype: DType.DType, build: (x: UOp, k: Kernel) => UOp) =>
    expression(dtype, (k) => build(k.load(k.param(0, dtype), k.int(0)), k))
  it("divide toward minus infinity, plainly where the operands allow", async () => {
    assert.strictEqual(await of(DType.i32, (x) => Expr.floordiv(x, 8)), "x0 >> 3u")
    assert.strictEqual(await of(DType.i32, (x) => Expr.floormod(x, 8)), "x0 & 7")
    assert.strictEqual(await of(DType.i32, (x) => Expr.floordiv(x, 3)), "floor_div(x0, 3)")
    assert.strictEqual(await of(DType.i32, (x) => Expr.floormod(x, -3)), "floor_mod(x0, -3)")
    assert.strictEqual(await of(DType.u32, (x) => Expr.floordiv(x, 3)), "x0 / 3u")
    assert.strictEqual(await of(DType.u32, (x) => Expr.floordiv(x, x)), "select(x0 / x0, u32(), x0 == u32())")
    assert.strictEqual(await of(DType.u32, (x) => Expr.floormod(x, 0)), "u32()")
    assert.strictEqual(await of(DType.i32, (x) => Expr.floordiv(Expr.max(x, 0), 3)), "max(x0, 0) / 3")
  })
  it("shift by unsigned amounts below 32", async () => {
    assert.strictEqual(await of(DType.u32, (x) => Expr.shl(x, 5)), "x0 << 5u")
    assert.strictEqual(await of(DType.i32, (x) => Expr.shr(x, x)), "x0 >> u32(x0)")
    assert.strictEqual(await of(DType.u32, (x) => Expr.shl(x, 33)), "x0 << 1u")
  })
  it("keep the bits between integer types", async () => {
    assert.strictEqual(await of(DType.i32, (x) => Expr.cast(Expr.cast(x, DType.index), DType.i32)), "x0")
    assert.strictEqual(
      await expression(DType.u32, (k) => Expr.cast(k.load(k.param(0, DType.i32), k.int(0)), DType.u32)),
      "u32(x0)"
    )
    assert.strictEqual(await of(DType.u32, (x) => Expr.neg(x)), "0u - x0")
  })
})

describe("halves", () => {
  const words = (k: Kernel) => k.load(k.param(0, DType.u32), k.int(0))
  const high = (k: Kernel) => Expr.alu("HALF_TO_FLOAT", Expr.shr(words(k), 16))
  it("are unpacked in place where the device keeps subnormals", async () => {
    assert.strictEqual(await expression(DType.f32, high), "unpack2x16float(x0).y")
    assert.strictEqual(
      await expression(DType.f32, (k) => Expr.alu("HALF_TO_FLOAT", Expr.and(words(k), 0xffff))),
      "unpack2x16float(x0).x"
    )
  })
  it("are converted by integer arithmetic otherwise", async () => {
    assert.strictEqual(await expression(DType.f32, high, Wgsl.caps()), "half_to_float(x0 >> 16u)")
  })
  it("are packed exactly", async () => {
    const packed = (k: Kernel) => Expr.alu("FLOAT_TO_HALF", k.load(k.param(1, DType.f32), k.int(0)))
    assert.strictEqual(await expression(DType.u32, packed), "float_to_half(x0)")
  })
})

describe("products of bytes", () => {
  const words = (k: Kernel) => k.load(k.param(0, DType.u32), k.int(0))
  it("are packed", async () => {
    const dot = (k: Kernel) => Expr.alu("DOT4I8", words(k), Expr.and(words(k), 0x0f0f0f0f))
    assert.strictEqual(await expression(DType.i32, dot), "dot4I8Packed(x0, x0 & 252645135u)")
  })
  it("are declared where the language has them", () => {
    assert.isTrue(caps.ops.has("DOT4I8"))
    assert.isFalse(Wgsl.caps().ops.has("DOT4I8"))
  })
})

describe("what WGSL cannot express", () => {
  it("a grid beyond the limit", () => {
    const message = refusal((k) => k.store(k.param(0, DType.f32), k.special("gidx1", 70_000), k.f32(0)))
    assert.match(message, /70000 workgroups along y, WebGPU allows 65535/)
  })
  it("a subgroup reduction over more threads than a subgroup has", () => {
    assert.match(
      refusal((k) => k.store(k.param(0, DType.f32), k.int(0), k.subgroup("ADD", k.f32(1), 32))),
      /subgroups have 8/
    )
  })
  it("a value used after the loop that computes it", () => {
    const message = refusal((k) => {
      const i = k.range(0, 4)
      const x = k.load(k.param(0, DType.f32), i)
      k.end(i)
      k.store(k.param(1, DType.f32), k.int(0), x)
    })
    assert.match(message, /LOAD stands inside a RANGE and is used after its end/)
  })
  it("a loop that should be the grid", () => {
    assert.match(
      refusal((k) => {
        const i = k.add(Expr.range(k.arena, 4, 0, "GLOBAL"))
        k.store(k.param(0, DType.f32), i, k.f32(1))
        k.end(i)
      }),
      /GLOBAL/
    )
  })
})

describe("every declared operation", () => {
  const types = [DType.bool, DType.i32, DType.u32, DType.f32, DType.index]
  const storable = [DType.i32, DType.u32, DType.f32]
  const operand = (k: Kernel, dtype: DType.DType, place: number): UOp => {
    const stored = DType.isStorable(dtype) ? DType.scalarOf(dtype) : DType.i32
    const x = k.load(k.param(storable.indexOf(stored), stored), k.int(place * dtype.lanes), dtype.lanes)
    return dtype.scalar === "bool" ? Expr.ne(x, 0) : Expr.cast(x, dtype)
  }
  /** One kernel with every operation that the spec allows. */
  const all = (lanes: DType.Lanes): readonly [Kernel, number] => {
    const k = new Kernel()
    let count = 0
    const keep = (node: UOp) => {
      if (Spec.check("linear", node).some((v) => v.reason !== "the root is not LINEAR")) return
      const value = DType.isStorable(node.dtype) ? node : Expr.cast(node, DType.i32)
      const stored = DType.scalarOf(value.dtype)
      k.store(k.param(3 + storable.indexOf(stored), stored), k.int(lanes * count++), value)
    }
    for (const scalar of types) {
      const dtype = DType.withLanes(scalar, lanes)
      const [a, b] = [operand(k, dtype, 0), operand(k, dtype, 1)]
      for (const op of caps.ops) {
        if (op === "CAST" || op === "BITCAST") {
          for (const to of types) keep(op === "CAST" ? Expr.cast(a, to) : Expr.bitcast(a, to))
        } else if (op === "WHERE") keep(Expr.where(Expr.ne(a, b), a, b))
        else for (const src of [[a], [a, b]]) if (src.length === arity(op)) keep(Expr.alu(op, ...src))
      }
    }
    return [k, count]
  }
  const arity = (op: string): number => /^(NEG|SQRT|EXP2|LOG2|SIN|TRUNC|HALF_TO_FLOAT|FLOAT_TO_HALF)$/.test(op) ? 1 : 2

  for (const lanes of [1, 2, 4] as const) {
    it(`renders for every dtype, ${lanes} lanes`, async () => {
      const [kernel, count] = all(lanes)
      assert.isAbove(count, 80)
      const code = await render(kernel)
      assert.strictEqual((code.match(/^ {2}data\d+\[.*\] = /gm) ?? []).length, count)
    })
  }
})

describe("the service", () => {
  it.effect("declares its capabilities and names the kernel it refuses", () =>
    Effect.gen(function*() {
      const renderer = yield* Renderer
      assert.deepStrictEqual([renderer.caps.target, renderer.caps.hasGrid, renderer.caps.subgroupSize], [
        "wgsl",
        true,
        32
      ])
      const k = new Kernel()
      k.store(k.param(3, DType.f32), k.int(0), k.f32(1))
      const program = yield* renderer.render("fill\n!", k.linear())
      assert.deepStrictEqual(program.bindings, [{ slot: 3, access: "write", bytes: 4 }])
      assert.match(program.code as string, /^\/\/ fill__\n/)
      const error = yield* Effect.flip(renderer.render("broken", k.int(1)))
      assert.strictEqual(error.kernel, "broken")
    }).pipe(Effect.provide(WgslRenderer.layer({ subgroupSize: 32 }))))
})
