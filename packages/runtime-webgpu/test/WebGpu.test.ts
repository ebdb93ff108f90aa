import { assert, describe, it, layer } from "@effect/vitest"
import { DType, Expr } from "@tg/core-uop"
import type { Program } from "@tg/core-uop/Program"
import { Device, type DeviceError, together } from "@tg/runtime/Device"
import { Effect, Exit, Fiber, Scope } from "effect"
import { execFile } from "node:child_process"
import { fileURLToPath } from "node:url"
import * as Node from "../src/Node.ts"
import * as Testing from "../src/Testing.ts"
import * as WebGpu from "../src/WebGpu.ts"
import { WebGpuInfo } from "../src/WebGpuInfo.ts"
import { bytesOf, Kernel, render, wordsOf } from "./support.ts"

const noGpu = (await Testing.availableAdapter()) === undefined

const refused = (
  effect: Effect.Effect<unknown, DeviceError, Device | Scope.Scope>,
  reason: DeviceError["reason"],
  message: RegExp
) =>
  Effect.gen(function*() {
    const error = yield* Effect.flip(effect)
    assert.strictEqual(error.reason, reason)
    assert.match(error.message, message)
  })

const program = (code: string, fields: Partial<Program> = {}): Program => ({
  name: "hand-written",
  target: "wgsl",
  code,
  workgroup: [1, 1, 1],
  grid: [1, 1, 1],
  bindings: [],
  vars: [],
  ...fields
})

/** `data0[data1...] += n` for each of `threads` elements. */
const adder = (variable: string, grid: (k: Kernel) => ReturnType<typeof Expr.int> | number = () => 4): Kernel => {
  const k = new Kernel()
  const i = k.special("gidx0", grid(k))
  const n = Expr.cast(Expr.variable(k.arena, variable, -1000, 1000), DType.i32)
  const data = k.param(0, DType.i32, 4)
  k.store(data, i, Expr.add(k.load(data, i), n))
  return k
}

const integers = (bytes: Uint8Array): Array<number> => Array.from(wordsOf(bytes, DType.i32))

describe.skipIf(noGpu)("memory", () => {
  layer(Testing.layer)((it) => {
    it.effect("starts as zeros, is counted, and returns with its scope", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const before = device.allocatedBytes()
        yield* Effect.scoped(Effect.gen(function*() {
          const buffer = yield* device.allocate(10, "ten")
          assert.strictEqual(buffer.bytes, 12)
          assert.strictEqual(device.allocatedBytes(), before + 12)
          assert.deepStrictEqual(yield* device.read(buffer), new Uint8Array(12))
        }))
        assert.strictEqual(device.allocatedBytes(), before)
      }))

    it.effect("takes and gives back parts, from shared memory too", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const buffer = yield* device.allocate(16, "parts")
        const shared = new Uint8Array(new SharedArrayBuffer(8))
        shared.set([1, 2, 3, 4, 5, 6, 7, 8])
        yield* device.write(buffer, shared, 4)
        assert.deepStrictEqual(Array.from(yield* device.read(buffer, 4, 8)), [1, 2, 3, 4, 5, 6, 7, 8])
        assert.deepStrictEqual(Array.from(yield* device.read(buffer, 0, 8)), [0, 0, 0, 0, 1, 2, 3, 4])
        assert.strictEqual((yield* device.read(buffer, 16, 0)).length, 0)
      }).pipe(Effect.scoped))

    it.effect("takes more at once than the queue keeps", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const words = new Uint32Array(24 * 2 ** 20).map((_, i) => i)
        const buffer = yield* device.allocate(words.byteLength, "large")
        for (let i = 0; i < 3; i++) yield* device.write(buffer, bytesOf(words))
        const tail = wordsOf(yield* device.read(buffer, words.byteLength - 8), DType.u32)
        assert.deepStrictEqual(Array.from(tail), [words.length - 2, words.length - 1])
      }).pipe(Effect.scoped))

    it.effect("refuses what does not fit", () =>
      Effect.gen(function*() {
        const device = yield* Device
        yield* refused(device.allocate(-4, "x"), "BadArgument", /-4 bytes/)
        const buffer = yield* device.allocate(8, "small")
        yield* refused(
          device.write(buffer, new Uint8Array(12)),
          "BadArgument",
          /write small: bytes 0 to 12 of a buffer of 8/
        )
        yield* refused(device.read(buffer, 2), "BadArgument", /multiples of 4/)
        const scope = yield* Scope.make()
        const gone = yield* Scope.provide(device.allocate(8, "gone"), scope)
        yield* Scope.close(scope, Exit.void)
        yield* refused(device.read(gone), "BadArgument", /gone was returned when its scope closed/)
      }).pipe(Effect.scoped))

    it.effect("survives an interrupted read", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const buffer = yield* device.allocate(2 ** 20, "interrupted")
        yield* device.write(buffer, new Uint8Array([9, 0, 0, 0]))
        for (let i = 0; i < 3; i++) {
          const fiber = yield* Effect.forkChild(device.read(buffer))
          yield* Effect.yieldNow
          yield* Fiber.interrupt(fiber)
        }
        assert.strictEqual((yield* device.read(buffer))[0], 9)
      }).pipe(Effect.scoped))
  })
})

describe.skipIf(noGpu)("programs", () => {
  layer(Testing.layer)((it) => {
    it.effect("are rejected with the kernel's name, the line and the compiler's words", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const code = "@compute @workgroup_size(1)\nfn main() {\n  let x = 1.0f + 2u;\n}\n"
        yield* refused(
          device.load(program(code)),
          "ProgramRejected",
          /hand-written was rejected: *\n *line 3: no matching overload[^]*let x = 1\.0f \+ 2u;/
        )
        const writes =
          "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n@compute @workgroup_size(1) fn main() { x[0] = 1; }"
        const wrongAccess = program(writes, { bindings: [{ slot: 0, access: "read" }] })
        yield* refused(device.load(wrongAccess), "ProgramRejected", /ReadOnlyStorage/)
        yield* refused(
          device.load(program("", { target: "wasm" })),
          "BadArgument",
          /is for wasm; this device takes WGSL/
        )
      }))

    it.effect("are held to the limits before Dawn sees them", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const { maxStorageBuffers, maxWorkgroupBytes } = device.profile
        const bindings = Array.from({ length: maxStorageBuffers + 1 }, (_, slot) => ({ slot, access: "read" as const }))
        yield* refused(
          device.load(program("", { bindings })),
          "LimitExceeded",
          new RegExp(`needs ${bindings.length} storage buffers`)
        )
        yield* refused(
          device.load(program("", { workgroup: [1024, 1024, 1] })),
          "LimitExceeded",
          /1048576 threads in a workgroup/
        )
        const code = `var<workgroup> x: array<f32, ${maxWorkgroupBytes}>;`
        yield* refused(device.load(program(code)), "LimitExceeded", /bytes of workgroup memory, the device has/)
      }))
  })
})

describe.skipIf(noGpu)("plans", () => {
  layer(Testing.layer)((it) => {
    it.effect("run in order, with the variables of each run", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const buffer = yield* device.allocate(16, "counts")
        const [add, more] = yield* Effect.all([
          Effect.flatMap(render("add", adder("n")), device.load),
          Effect.flatMap(render("more", adder("m")), device.load)
        ])
        const buffers = [buffer]
        const replay = yield* device.plan([{ executable: add, buffers }, { executable: more, buffers }, {
          executable: add,
          buffers
        }])
        yield* replay.run({ n: 1, m: 100 })
        yield* replay.run({ n: -7, m: 1000 })
        assert.deepStrictEqual(integers(yield* device.read(buffer)), Array.from({ length: 4 }, () => 2 - 14 + 1100))
      }).pipe(Effect.scoped))

    it.effect("run as well when they are timed", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const buffer = yield* device.allocate(16, "timed")
        const executable = yield* Effect.flatMap(render("timed", adder("n")), device.load)
        const replay = yield* device.plan(Array.from({ length: 3 }, () => ({ executable, buffers: [buffer] })))
        assert.isAtLeast(yield* (replay.timed ?? (() => Effect.as(replay.run({ n: 2 }), 0)))({ n: 2 }), 0)
        assert.deepStrictEqual(integers(yield* device.read(buffer)), [6, 6, 6, 6])
      }).pipe(Effect.scoped))

    it.effect("run and are read in one submission, each read behind its own run", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const buffer = yield* device.allocate(16, "read behind")
        const executable = yield* Effect.flatMap(render("behind", adder("n")), device.load)
        const replay = yield* device.plan([{ executable, buffers: [buffer] }])
        const span = { buffer, offset: 4, bytes: 8 }
        const of = (...values: ReadonlyArray<number>) =>
          together(device, values.flatMap((n) => [{ replay, vars: { n } }, span]))
        // all are submitted before the first one has come back
        const all = yield* Effect.forEach([of(1), of(10, 100), of(200, 300, 400), of()], (read) =>
          Effect.forkChild(read, { startImmediately: true }))
        const found = yield* Effect.forEach(all, (fiber) =>
          Effect.map(Fiber.join(fiber), (bytes) =>
            bytes.map((each) =>
              integers(each)[1]
            )))
        assert.deepStrictEqual(found, [[1], [11, 111], [311, 611, 1011], []])
        yield* refused(together(device, [{ ...span, bytes: 16 }]), "BadArgument", /bytes 4 to 20 of a buffer of 16/)
        // what is wrong with the last run keeps the first from running
        const [first, last] = [{ replay, vars: { n: 1 } }, { replay, vars: {} }]
        yield* refused(together(device, [first, last]), "BadArgument", /behind needs a value for the variable n/)
        assert.deepStrictEqual(integers(yield* device.read(buffer)), [1011, 1011, 1011, 1011])
        const empty = yield* together(device, [{ buffer, offset: 0, bytes: 0 }, { buffer, offset: 12, bytes: 4 }])
        assert.deepStrictEqual(empty.map(({ length }) => length), [0, 4])
      }).pipe(Effect.scoped))

    it.effect("are encoded with no more calls than it takes", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const buffer = yield* device.allocate(16, "counted")
        const executable = yield* Effect.flatMap(render("counted", adder("n")), device.load)
        const replay = yield* device.plan(Array.from({ length: 4 }, () => ({ executable, buffers: [buffer] })))
        const span = { buffer, offset: 0, bytes: 4 }
        const step = (n: number) => [{ replay, vars: { n } }, span]
        const steps = (...values: ReadonlyArray<number>) => together(device, values.flatMap(step))
        // memory for reads and for variables is there from then on
        yield* steps(1, 2, 3)
        const calls = (runs: number) => ({
          createCommandEncoder: 1,
          // of a run that is not alone, the variables are copied to their place, too
          copyBufferToBuffer: runs === 1 ? 1 : 2 * runs,
          beginComputePass: runs,
          setPipeline: runs,
          setBindGroup: runs,
          dispatchWorkgroups: 4 * runs,
          end: runs,
          finish: 1,
          writeBuffer: 1,
          submit: 1
        })
        assert.deepStrictEqual((yield* Testing.counted(steps(4)))[1], calls(1))
        assert.deepStrictEqual((yield* Testing.counted(steps(5, 6, 7)))[1], calls(3))
      }).pipe(Effect.scoped))

    it.effect("start before all of them are encoded, where the device is idle", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const buffer = yield* device.allocate(16, "idle")
        const executable = yield* Effect.flatMap(render("idle", adder("n")), device.load)
        const replay = yield* device.plan(Array.from({ length: 60 }, () => ({ executable, buffers: [buffer] })))
        const run = Effect.map(Testing.counted(replay.run({ n: 1 })), ([, calls]) => calls["submit"])
        const read = Effect.map(device.read(buffer), (bytes) => integers(bytes)[0])
        // 16, 24 and the other 20; then one, behind what nobody has waited for
        yield* read
        assert.deepStrictEqual([yield* run, yield* run, yield* read, yield* run, yield* read], [3, 1, 120, 3, 180])
      }).pipe(Effect.scoped))

    it.effect("take their grid from variables, and skip an empty one", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const buffer = yield* device.allocate(16, "rows")
        const kernel = adder("n", (k) => Expr.variable(k.arena, "rows", 0, 100_000))
        const executable = yield* device.load(yield* render("rows", kernel))
        const replay = yield* device.plan([{ executable, buffers: [buffer] }])
        yield* replay.run({ n: 5, rows: 2 })
        yield* replay.run({ n: 50, rows: 0 })
        assert.deepStrictEqual(integers(yield* device.read(buffer)), [5, 5, 0, 0])
        yield* refused(
          replay.run({ n: 1, rows: 70_000 }),
          "LimitExceeded",
          /rows: 70000 workgroups along x, the device runs 65535/
        )
        yield* refused(replay.run({ n: 1 }), "BadArgument", /rows needs a value for the variable rows/)
        yield* refused(replay.run({ n: 0.5, rows: 1 }), "BadArgument", /n = 0.5 is not an integer from/)
      }).pipe(Effect.scoped))

    it.effect("refuse buffers in roles that WebGPU keeps apart, and foreign ones", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const k = new Kernel()
        k.store(k.param(1, DType.f32), k.int(0), k.load(k.param(0, DType.f32), k.int(0)))
        const executable = yield* device.load(yield* render("copy", k))
        const [a, b] = yield* Effect.all([device.allocate(16, "a"), device.allocate(16, "b")])
        yield* refused(
          device.plan([{ executable, buffers: [a, a] }]),
          "BadArgument",
          /copy: a is bound as 0 and as 1, and written/
        )
        yield* refused(device.plan([{ executable, buffers: [a] }]), "BadArgument", /1 buffers for 2 bindings/)
        const foreign = { label: "foreign", bytes: 16 }
        yield* refused(
          device.plan([{ executable, buffers: [a, foreign] }]),
          "BadArgument",
          /foreign belongs to another device/
        )
        const replay = yield* device.plan([{ executable, buffers: [a, b] }])
        yield* replay.run({})
      }).pipe(Effect.scoped))

    it.effect("refuse to run on memory that was returned", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const executable = yield* device.load(yield* render("add", adder("n")))
        const memory = yield* Scope.make()
        const buffers = [yield* Scope.provide(device.allocate(16, "short-lived"), memory)]
        const replay = yield* device.plan([{ executable, buffers }])
        yield* Scope.close(memory, Exit.void)
        yield* refused(replay.run({ n: 1 }), "BadArgument", /short-lived was returned/)
      }))

    it.effect("return what they hold with their scope, and do not run after it", () =>
      Effect.gen(function*() {
        const device = yield* Device
        const executable = yield* device.load(yield* render("add", adder("n")))
        const buffers = [yield* device.allocate(16, "values")]
        const before = device.allocatedBytes()
        const replay = yield* Effect.scoped(Effect.gen(function*() {
          const made = yield* device.plan([{ executable, buffers }])
          assert.isAbove(device.allocatedBytes(), before)
          yield* made.run({ n: 1 })
          return made
        }))
        assert.strictEqual(device.allocatedBytes(), before)
        yield* refused(replay.run({ n: 1 }), "BadArgument", /after its scope closed/)
      }))
  })
})

describe.skipIf(noGpu)("the device", () => {
  layer(Testing.layer)((it) => {
    it.effect("reports itself", () =>
      Effect.gen(function*() {
        const { profile } = yield* Device
        const facts = yield* WebGpuInfo
        assert.strictEqual(profile.kind, "gpu")
        assert.strictEqual(profile.maxBindingBytes, facts.limits["maxStorageBufferBindingSize"]!)
        assert.strictEqual(profile.maxBufferBytes, facts.limits["maxBufferSize"]!)
        assert.isAtLeast(profile.maxStorageBuffers, 8)
        assert.include(profile.name, facts.adapter.description)
        if (profile.subgroupSize !== undefined) {
          assert.deepStrictEqual(facts.subgroupSizes, [profile.subgroupSize, profile.subgroupSize])
        }
      }))
  })

  // these use devices of their own
  it.live("says that it was lost", () =>
    Effect.gen(function*() {
      const gpu = yield* Node.entry
      const adapter = yield* WebGpu.selectAdapter(gpu, { allowSoftware: true })
      const raw = yield* Effect.promise(() => adapter.requestDevice())
      const context = yield* WebGpu.fromDevice(raw, adapter.info)
      yield* Effect.gen(function*() {
        const device = yield* Device
        const buffer = yield* device.allocate(16, "lost")
        raw.destroy()
        yield* Effect.promise(() => raw.lost)
        yield* refused(device.read(buffer), "DeviceLost", /the GPU device was lost \(destroyed\)/)
        yield* refused(device.allocate(16, "after"), "DeviceLost", /make a new one/)
      }).pipe(Effect.provide(context))
    }).pipe(Effect.scoped))

  it.live("reports a refused submission with the next call", () =>
    Effect.gen(function*() {
      const gpu = yield* Node.entry
      const adapter = yield* WebGpu.selectAdapter(gpu, { allowSoftware: true })
      const raw = yield* Effect.acquireRelease(
        Effect.promise(() => adapter.requestDevice()),
        (device) => Effect.sync(() => device.destroy())
      )
      const context = yield* WebGpu.fromDevice(raw, adapter.info)
      yield* Effect.gen(function*() {
        const device = yield* Device
        const buffer = yield* device.allocate(16, "healthy")
        raw.queue.writeBuffer(raw.createBuffer({ size: 16, usage: 0x80 }), 0, new Uint8Array(16)) // no COPY_DST
        yield* refused(device.read(buffer), "BadArgument", /the GPU refused a submission: .*CopyDst/)
        assert.strictEqual((yield* device.read(buffer)).length, 16)
      }).pipe(Effect.provide(context))
    }).pipe(Effect.scoped))

  it.live("lets its process end", () =>
    Effect.gen(function*() {
      const script = fileURLToPath(new URL("./process.ts", import.meta.url))
      const output = yield* Effect.callback<string>((resume) => {
        execFile(process.execPath, [script], (error, stdout) => {
          resume(Effect.succeed(error === null ? stdout : `${error.message}${stdout}`))
        })
      })
      assert.strictEqual(output, "[1,2,3,4]\n")
    }))
})
