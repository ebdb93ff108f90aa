import { afterAll, describe, expect, it } from "@effect/vitest"
import { DType, Expr } from "@tg/core-uop"
import type { UOp } from "@tg/core-uop/UOp"
import * as Dawn from "./dawn.ts"
import { Kernel } from "./kernels.ts"
import { render } from "./render.ts"

afterAll(Dawn.close)

describe("a launch whose workgroups meet", () => {
  it("reads by atomics what other workgroups wrote, and waits no more if not all of them come", async () => {
    const k = new Kernel()
    const coherent = (slot: number, dtype: DType.DType): UOp =>
      k.arena.make("PARAM", dtype, [k.int(256)], { slot, coherent: true })
    const [group, thread] = [k.special("gidx0", 4), k.special("lidx0", 16)]
    const at = Expr.add(Expr.mul(group, 64), Expr.mul(thread, 4))
    k.store(coherent(1, DType.f32), at, k.load(k.param(0, DType.f32), at, 4))
    const barrier = { id: 0, workgroups: 4, spins: 1000 }
    k.add(k.arena.make("GRID_BARRIER", DType.none, [coherent(2, DType.u32)], barrier))
    const other = Expr.sub(k.int(252), at)
    k.store(k.param(3, DType.f32), at, k.load(coherent(1, DType.f32), other, 4))
    expect(await render(k)).toMatchInlineSnapshot(`
      "// kernel
      @group(0) @binding(0) var<storage, read> data0: array<vec4<f32>>;
      @group(0) @binding(1) var<storage, read_write> data1: array<atomic<u32>>;
      @group(0) @binding(2) var<storage, read_write> data2: array<atomic<u32>>;
      @group(0) @binding(3) var<storage, read_write> data3: array<vec4<f32>>;
      fn wait_for(returned: u32) { if (returned == 4294967295u) { atomicMax(&data2[1], 0u); } }
      fn wait_for_loads(loaded: u32) { if (loaded == 2654435769u) { atomicMax(&data2[1], 0u); } }
      fn arrive(thread: u32) -> u32 {
        storageBarrier();
        workgroupBarrier();
        if (thread != 0u) { return 0u; }
        return atomicAdd(&data2[0], 1u) + 1u;
      }
      fn meet(thread: u32, before: u32, all: u32, loaded: u32) {
        if (thread == 0u) {
          var come = before;
          var looks = 0u;
          while (come < all) {
            come = atomicLoad(&data2[0]);
            looks++;
            if (looks > 1000u) {
              come = atomicOr(&data2[0], 2147483648u);
              if (come < 2147483648u) {
                atomicStore(&data2[1], all);
                atomicStore(&data2[2], come);
              }
              come |= 2147483648u;
            }
          }
        }
        wait_for_loads(loaded);
        storageBarrier();
      }
      @compute @workgroup_size(16, 1, 1)
      fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_id) local_invocation_id: vec3<u32>) {
        var returned = 0u;
        var pending = vec4<u32>();
        let gidx0 = i32(workgroup_id.x);
        let lidx0 = i32(local_invocation_id.x);
        let v0 = (gidx0 * 64) + (lidx0 * 4);
        let x0 = data0[(gidx0 * 16) + lidx0];
        returned |= pending.x | pending.y | pending.z | pending.w;
        pending.x = atomicExchange(&data1[v0], bitcast<u32>(x0.x));
        pending.y = atomicExchange(&data1[v0 + 1], bitcast<u32>(x0.y));
        pending.z = atomicExchange(&data1[v0 + 2], bitcast<u32>(x0.z));
        pending.w = atomicExchange(&data1[v0 + 3], bitcast<u32>(x0.w));
        returned |= pending.x | pending.y | pending.z | pending.w;
        wait_for(returned);
        let come0 = arrive(local_invocation_id.x);
        meet(local_invocation_id.x, come0, 4u, 0u);
        let v1 = 252 - v0;
        let x1 = vec4<f32>(bitcast<f32>(atomicLoad(&data1[v1])), bitcast<f32>(atomicLoad(&data1[v1 + 1])), bitcast<f32>(atomicLoad(&data1[v1 + 2])), bitcast<f32>(atomicLoad(&data1[v1 + 3])));
        data3[(gidx0 * 16) + lidx0] = x1;
        if (local_invocation_id.x == 0u && atomicAdd(&data2[0], 1u) == 7u) { atomicStore(&data2[0], 0u); }
      }
      "
    `)
  })

  it("waits for loads in front of the barrier before it ends, so that no compiler moves them behind it", async () => {
    const k = new Kernel()
    const coherent = (slot: number): UOp => k.arena.make("PARAM", DType.f32, [k.int(64)], { slot, coherent: true })
    const [group, thread] = [k.special("gidx0", 4), k.special("lidx0", 16)]
    const at = Expr.add(Expr.mul(group, 16), thread)
    k.store(coherent(0), at, k.f32(1))
    const vector = k.load(k.param(2, DType.f32, 256), Expr.mul(at, 4), 4)
    const word = k.load(k.param(3, DType.f32, 64), at)
    const words = k.arena.make("PARAM", DType.u32, [k.int(4)], { slot: 1, coherent: true })
    k.add(k.arena.make("GRID_BARRIER", DType.none, [words], { id: 0, workgroups: 4, spins: 1000 }))
    k.store(k.param(4, DType.f32, 256), Expr.mul(at, 4), vector)
    k.store(k.param(5, DType.f32, 64), at, word)
    const lines = (await render(k)).split("\n").map((line) => line.trim())
    const arrival = lines.findIndex((line) => line.startsWith("let come0 = arrive"))
    expect(lines.slice(arrival + 1, arrival + 4)).toEqual([
      expect.stringMatching(/^let x0 = data2\[/),
      expect.stringMatching(/^let x1 = data3\[/),
      "meet(local_invocation_id.x, come0, 4u, bitcast<u32>(x0.x) ^ bitcast<u32>(x1));"
    ])
  })

  it("waits for them behind the first look at awaited words, where workgroups pass the barrier", async () => {
    const k = new Kernel()
    const coherent = (slot: number): UOp => k.arena.make("PARAM", DType.u32, [k.int(64)], { slot, coherent: true })
    const at = Expr.add(Expr.mul(k.special("gidx0", 4), 16), k.special("lidx0", 16))
    k.store(coherent(0), at, k.load(k.param(2, DType.u32, 64), at))
    const weight = k.load(k.param(3, DType.u32, 64), at)
    const arg = { id: 0, workgroups: 4, spins: 1000, awaits: 0, passes: 3 }
    k.add(k.arena.make("GRID_BARRIER", DType.none, [coherent(1)], arg))
    const word = k.load(coherent(0), Expr.sub(k.int(63), at))
    k.store(k.param(4, DType.u32, 64), at, Expr.add(k.add(k.arena.make("AWAIT", DType.u32, [word])), weight))
    const lines = (await render(k)).split("\n").map((line) => line.trim())
    const from = lines.findIndex((line) => line.startsWith("let come0 = arrive"))
    expect(lines.slice(from + 1, lines.findIndex((line) => line.startsWith("while (w0")))).toEqual([
      expect.stringMatching(/^let x1 = data3\[/),
      "if (workgroup_id.x >= 3u) { meet(local_invocation_id.x, come0, 4u, 0u); }",
      expect.stringMatching(/^let v\d+ = /),
      expect.stringMatching(/^let x2 = atomicLoad\(/),
      "wait_for_loads(x1);",
      "var w0 = x2;",
      "var looks0 = 0u;"
    ])
  })

  it("reads nothing behind a closed gate, but in loops, where loads are under way together", async () => {
    const made = async (isPersistent: boolean): Promise<string> => {
      const k = new Kernel()
      const thread = k.special("lidx0", 16)
      const words = (slot: number): UOp => k.arena.make("PARAM", DType.u32, [k.int(8)], { slot, coherent: true })
      if (isPersistent) {
        k.add(k.arena.make("GRID_BARRIER", DType.none, [words(3)], { id: 0, workgroups: 1, spins: 1000 }))
      }
      const gate = Expr.lt(thread, 8)
      const plain = (slot: number): UOp => k.param(slot, DType.f32, 8)
      const load = (buffer: UOp, at: UOp): UOp => k.add(Expr.load(Expr.element(buffer, at, gate)))
      const first = load(plain(0), thread)
      const loop = k.add(k.arena.make("RANGE", DType.index, [k.int(4)], { id: 0, axis: "LOOP" }))
      const inLoop = load(plain(1), Expr.add(thread, loop))
      const word = load(words(2), thread)
      k.store(plain(4), Expr.add(thread, loop), Expr.add(inLoop, k.arena.make("BITCAST", DType.f32, [word])))
      k.add(k.arena.make("END", DType.none, [loop]))
      k.store(plain(5), thread, first)
      return render(k)
    }
    const persistent = await made(true)
    expect(persistent).toMatch(/var (x\d+): f32;\n {2}if \(v\d+\) \{ \1 = data0\[lidx0\]; \}/)
    expect(persistent).toMatch(/var (x\d+): u32;\n {4}if \(v\d+\) \{ \1 = atomicLoad\(&data2\[lidx0\]\); \}/)
    expect(persistent).toMatch(/select\(f32\(\), data1\[/)
    expect(await made(false)).toMatch(/select\(f32\(\), data0\[/)
  })

  it("has one branch for what stands behind one condition, whatever is computed between, but nothing is moved past its use", async () => {
    const k = new Kernel()
    const thread = k.special("lidx0", 16)
    const word = k.arena.make("PARAM", DType.u32, [k.int(8)], { slot: 9, coherent: true })
    k.add(k.arena.make("GRID_BARRIER", DType.none, [word], { id: 0, workgroups: 1, spins: 1000 }))
    const gate = k.add(Expr.lt(thread, 8))
    const values = k.param(0, DType.i32, 64)
    const load = (at: UOp): UOp => k.load(values, at, 1, gate)
    const first = load(thread)
    const second = load(k.add(Expr.add(Expr.mul(thread, 3), 1)))
    const sum = k.add(Expr.add(first, second))
    const third = load(k.add(Expr.add(thread, 24)))
    k.store(k.param(1, DType.i32, 64), thread, Expr.mul(sum, third))
    k.store(k.param(2, DType.i32, 64), thread, sum)
    const text = await render(k)
    expect(text).toMatch(
      /if \((v\d+)\) \{\n {4}x0 = data0\[lidx0\];\n {4}x1 = data0\[.*\];\n {2}\}\n(?: {2}(?:let|var) .*\n)* {2}if \(\1\) \{ x2 = data0\[lidx0 \+ 24\]; \}/
    )
  })

  it("looks at words for others before they are stored, at all behind one condition at once", async () => {
    const k = new Kernel()
    const coherent = (slot: number): UOp => k.arena.make("PARAM", DType.u32, [k.int(64)], { slot, coherent: true })
    const thread = k.special("lidx0", 16)
    const values = [1, 2].map((slot) => k.load(k.param(slot, DType.u32, 64), thread))
    const gate = k.add(Expr.lt(thread, 8))
    values.forEach((value, i) =>
      k.add(Expr.store(Expr.element(coherent(0), i === 0 ? thread : Expr.add(thread, 16), gate), value))
    )
    k.store(coherent(0), Expr.add(thread, 32), values[0]!)
    k.add(k.arena.make("GRID_BARRIER", DType.none, [coherent(3)], { id: 0, workgroups: 4, spins: 1000, awaits: 0 }))
    const lines = (await render(k)).split("\n").map((line) => line.trim())
    const from = lines.findIndex((line) => line === "if ((min(x0, x1)) == 0u) { cannot_store(); }")
    expect(lines.slice(from + 1, from + 6)).toEqual([
      expect.stringMatching(/^atomicStore\(&data0\[lidx0\], x0\);$/),
      expect.stringMatching(/^atomicStore\(&data0\[lidx0 \+ 16\], x1\);$/),
      "}",
      "if ((x0) == 0u) { cannot_store(); }",
      expect.stringMatching(/^atomicStore\(&data0\[lidx0 \+ 32\], x0\);$/)
    ])
  })

  it("counts nobody where nobody waits, but ends with its workgroup memory, and has those wait who do not pass", async () => {
    const k = new Kernel()
    const coherent = (slot: number): UOp => k.arena.make("PARAM", DType.u32, [k.int(64)], { slot, coherent: true })
    const thread = k.special("lidx0", 16)
    const barrier = (id: number, passes?: number): void => {
      const arg = { id, workgroups: 4, spins: 1000, awaits: 0, ...passes === undefined ? {} : { passes } }
      k.add(k.arena.make("GRID_BARRIER", DType.none, [coherent(1)], arg))
    }
    k.store(coherent(0), thread, k.load(k.param(2, DType.u32, 64), thread))
    barrier(0)
    barrier(1, 4)
    barrier(2, 3)
    const lines = (await render(k)).split("\n").map((line) => line.trim())
    expect(lines.filter((line) => /^(let come|meet\(|if \(workgroup_id|if \(local_invocation_id.x == 0u)/.test(line)))
      .toEqual([
        "let come0 = arrive(local_invocation_id.x);",
        "meet(local_invocation_id.x, come0, 4u, 0u);",
        "let come2 = arrive(local_invocation_id.x);",
        "if (workgroup_id.x >= 3u) { meet(local_invocation_id.x, come2, 8u, 0u); }",
        "if (local_invocation_id.x == 0u && atomicAdd(&data1[0], 1u) == 11u) { atomicStore(&data1[0], 0u); }"
      ])
    const first = lines.indexOf("meet(local_invocation_id.x, come0, 4u, 0u);")
    expect(lines.slice(first + 1, first + 3)).toEqual(["storageBarrier();", "workgroupBarrier();"])
  })
})
