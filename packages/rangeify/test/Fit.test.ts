import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as DType from "@tg/core-uop/DType"
import type { UOp } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import type { Limits } from "../src/Rangeify.ts"
import { kernels, RangeifyError, schedule } from "../src/Rangeify.ts"
import { Build, runSchedule, runTensor, scheduled } from "./support/programs.ts"

const limits: Limits = { maxStorageBuffers: 8, maxBindingBytes: 4096 }

/** The windows that each launch binds, in bytes; the whole of a buffer is `all`. */
const windowsOf = (sink: UOp, within = limits): ReadonlyArray<string> =>
  kernels(scheduled(sink, within)).map(({ args }) =>
    args.map(({ window }) => window === undefined ? "all" : `${window.offset}+${window.bytes}`).join(" ")
  )

/** A schedule within the limits has the values of the tensor graph. */
const check = (sink: UOp, vars: Readonly<Record<string, number>> = {}, within = limits): void =>
  assertEquals(runSchedule(sink, scheduled(sink, within), vars), runTensor(sink, vars))

describe("buffers larger than a binding", () => {
  it("are read by rows, in launches that differ in nothing but their windows", () => {
    const build = new Build()
    // 128 rows of 64 bytes: 8 KiB
    const { sink } = Program.make([build.out(Nn.linear(build.f32(1, 16), build.f32(128, 16)))])
    assertEquals(windowsOf(sink), ["all all 0+4096", "all all 4096+4096"])
    check(sink)
  })

  it("are written by rows", () => {
    const build = new Build()
    const { sink } = Program.make([build.out(build.f32(64, 1).add(build.f32(1, 32)))])
    assertEquals(windowsOf(sink), ["0+4096 all all", "4096+4096 all all"])
    assert.strictEqual(new Set(kernels(scheduled(sink, limits)).map((step) => step.ast)).size, 2)
    check(sink)
  })

  it("are summed window by window inside of one kernel", () => {
    const build = new Build()
    const { sink } = Program.make([build.out(build.f32(256, 16).sum(0))])
    assertEquals(windowsOf(sink), ["all 0+4096 4096+4096 8192+4096 12288+4096"])
    check(sink)
  })

  it("are summed in several kernels where there are too many windows for one", () => {
    const build = new Build()
    const { sink } = Program.make([build.out(build.f32(256, 16).sum(0))])
    const few = { ...limits, maxStorageBuffers: 3 }
    assertEquals(windowsOf(sink, few), ["all 0+4096", "all all 4096+4096", "all all 8192+4096", "all all 12288+4096"])
    check(sink, {}, few)
  })

  it("are indexed by choosing among windows, or in a pass for each", () => {
    const build = new Build()
    const table = build.f32(96, 32)
    const ids = Tensor.buffer(build.arena, 9, { shape: [5], dtype: DType.u32 })
    const { sink } = Program.make([build.out(table.gather(ids))])
    assertEquals(windowsOf(sink), ["all all 0+4096 4096+4096 8192+4096"])
    check(sink)
    const few = { ...limits, maxStorageBuffers: 4 }
    assertEquals(windowsOf(sink, few), ["all all 0+4096", "all all 4096+4096", "all all 8192+4096"])
    check(sink, {}, few)
  })

  it("are written at a place that a variable decides", () => {
    const build = new Build()
    const rows = build.f32(4, 32)
    const cache = build.f32(64, 32)
    const at = Tensor.variable(build.arena, "at", 0, 60)
    const write = Program.assign(cache.slice(0, at, 4), rows.mul(2))
    const { sink } = Program.make([build.out(Program.after(cache, [write]).sum(1))])
    for (const place of [0, 29, 30, 31, 32, 60]) check(sink, { at: place })
  })

  it("no window reaches over the end of a buffer of the largest size", () => {
    const build = new Build()
    const { sink } = Program.make([build.out(build.f32(128, 24).mul(2))])
    const within = { ...limits, maxBufferBytes: 5120 }
    for (const text of windowsOf(sink, within)) {
      for (const window of text.split(" ").filter((w) => w !== "all")) {
        const [offset, bytes] = window.split("+").map(Number)
        assert.strictEqual(Math.floor(offset! / 5120), Math.floor((offset! + bytes! - 1) / 5120))
      }
    }
    check(sink, {}, within)
  })

  it("that a device has too few bindings for are refused, with what was asked", () => {
    const build = new Build()
    const table = build.f32(4096, 32)
    // an index inside of a sum: no output knows where it reads
    const chosen = table.gather(build.u32(8, 8)).sum(1)
    const result = schedule(Program.make([build.out(chosen)]).sink, limits)
    assert.instanceOf(result, RangeifyError)
    assert.match(
      (result as RangeifyError).message,
      /reads and writes 3 buffers, 1 of them in windows of 4096 bytes, and the device binds 8 at once/
    )
  })
})
