import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { type Binding, bufferOf, Device } from "@tg/runtime/Device"
import { availableAdapter, counted } from "@tg/runtime-webgpu/Testing"
import { randomProgram } from "@tg/tensor/Random"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import { Effect } from "effect"
import { Jit } from "../src/Jit.ts"
import type * as Shared from "../src/Shared.ts"
import { filled } from "./support/blocks.ts"
import * as Devices from "./support/devices.ts"
import { initial } from "./support/stages.ts"

const noGpu = (await availableAdapter()) === undefined
const full = process.env["TG_FULL"] === "1"
const alignment = 256

/** Buffers with these contents: what is only read lies in one, where it is packed as a part of it. */
const upload = Effect.fnUntraced(
  function*(data: ReadonlyMap<number, ArrayBufferView>, packed: ReadonlyArray<ReadonlyArray<number>>) {
    const device = yield* Device
    const buffers = new Map<number, Binding>()
    const put = (binding: Binding, { buffer, byteLength, byteOffset }: ArrayBufferView) =>
      device.write(
        bufferOf(binding),
        new Uint8Array(buffer, byteOffset, byteLength),
        "buffer" in binding ? binding.offset : 0
      )
    for (const ids of packed) {
      let end = 0
      const places = ids.map((id) => {
        const offset = end
        end += Math.ceil(data.get(id)!.byteLength / alignment) * alignment
        return { id, offset, bytes: data.get(id)!.byteLength }
      })
      const whole = yield* device.allocate(end, "packed")
      for (const { bytes, id, offset } of places) buffers.set(id, { buffer: whole, offset, bytes })
    }
    for (const [id, { byteLength }] of data) {
      if (!buffers.has(id)) buffers.set(id, yield* device.allocate(byteLength, `buffer ${id}`))
    }
    for (const [id, values] of data) yield* put(buffers.get(id)!, values)
    return buffers
  }
)

/** A run of a program: what its own buffers hold afterwards, its plan, and how often a bind group was set. */
const ran = Effect.fnUntraced(function*(
  { sink }: Pick<Program.TensorProgram, "sink">,
  { data, groups, packed, vars }: {
    readonly data: ReadonlyMap<number, ArrayBufferView>
    readonly packed: ReadonlyArray<ReadonlyArray<number>>
    readonly groups: Shared.BindGroups
    readonly vars: Readonly<Record<string, number>>
  }
) {
  const device = yield* Device
  const buffers = yield* upload(data, packed)
  const { plan, run } = yield* (yield* Jit).prepare(sink, buffers, { groups })
  const [, { setBindGroup: sets = 0 }] = yield* counted(run(vars))
  const after = yield* Effect.forEach(
    [...buffers],
    ([id, binding]) =>
      "buffer" in binding ? Effect.succeed([id, []]) : Effect.map(device.read(binding), (bytes) => [id, [...bytes]])
  )
  return { plan, after, sets }
}, Effect.scoped)

const width = 32

/**
 * A chain of equal blocks of a few launches, each block with two matrices of its own; buffer 0 is the input, 1 the result. With a
 * table of so many rows, which is the last buffer, the input only says which row of it goes in.
 */
const blocks = (count: number, rows?: number): Program.TensorProgram => {
  const arena = new Arena()
  let next = 0
  const buffer = (...shape: ReadonlyArray<number>): Tensor.Tensor =>
    Tensor.buffer(arena, next++, { shape, dtype: DType.f32 })
  const [input, out] = [buffer(1, width), buffer(1, width)]
  const last = 2 + 2 * count
  const table = rows === undefined
    ? undefined
    : Tensor.buffer(arena, last, { shape: [rows, width], dtype: DType.f32 })
  const row = table?.gather(input.slice(1, 0, 1).reshape([1]).mul(-2000).cast(DType.i32))
  let x = (row ?? input).add(1).contiguous()
  for (let i = 0; i < count; i++) {
    x = Program.call("block", [x, buffer(width, width), buffer(width, width)], (y, first, second) => {
      const half = y!.add(Nn.linear(y!, first!)).contiguous()
      return [half.add(Nn.linear(half.silu().contiguous(), second!)).contiguous()]
    })[0]!
  }
  return Program.make([Program.assign(out, x.mul(0.5))])
}

/** Blocks with bindings of their own and with shared ones, the weights of a block in one buffer: what is left in the other buffers is equal. */
const ranBoth = Effect.fnUntraced(function*(program: ReturnType<typeof blocks>, count: number) {
  const data = filled(program)
  const packed = Array.from({ length: count }, (_, i) => [2 + 2 * i, 3 + 2 * i])
  const own = yield* ran(program, { data, packed: [], groups: "dispatch", vars: {} })
  const block = yield* ran(program, { data, packed, groups: "block", vars: {} })
  assertEquals(block.after.filter(([id]) => Number(id) < 2), own.after.filter(([id]) => Number(id) < 2))
  return { block, own }
})

describe.skipIf(noGpu)("plans with shared bindings", () => {
  const layer = Devices.webgpu()

  it.live("random programs leave the same bits as with bindings of their own", () =>
    Effect.gen(function*() {
      let shared = 0
      const seeds = full ? 60 : 4
      for (let seed = 0; seed < seeds; seed++) {
        const random = randomProgram(seed, 12)
        const setting = { data: initial(random), packed: [random.inputs.map(({ id }) => id)], vars: random.vars }
        const own = yield* ran(random.program, { ...setting, packed: [], groups: "dispatch" })
        const block = yield* ran(random.program, { ...setting, groups: "block" })
        const isPacked = new Set(setting.packed.flat())
        assertEquals(
          block.after.filter(([id]) => !isPacked.has(Number(id))),
          own.after.filter(([id]) => !isPacked.has(Number(id)))
        )
        if (block.plan.programs.every(({ group }) => group !== undefined)) shared++
      }
      assert.isAtLeast(shared, seeds - 1)
    }).pipe(Effect.provide(layer)))

  it.live("blocks of a model share their programs, and each sets one bind group", () =>
    Effect.gen(function*() {
      const count = 6
      const program = blocks(count)
      const { block, own } = yield* ranBoth(program, count)
      assert.strictEqual(block.plan.programs.length, own.plan.programs.length)
      assert.strictEqual(block.plan.launches.length, own.plan.launches.length)
      // the launch in front of the blocks has the input where they have their weights
      assert.strictEqual(block.sets, count + 1)
      assert.strictEqual(own.sets, own.plan.launches.length)
      assert.isAtLeast(own.sets, 2 * count)
    }).pipe(Effect.provide(layer)))

  const most = 2 ** 15
  it.live("what is larger than a binding is bound as launches look at it, and everything else is shared", () =>
    Effect.gen(function*() {
      const [count, rows] = [4, 1024]
      const program = blocks(count, rows)
      const { block } = yield* ranBoth(program, count)
      assert.isTrue(block.plan.programs.every(({ group }) => group !== undefined))
      const windows = block.plan.launches.flatMap(({ slots }) => slots).filter(({ window }) => window !== undefined)
      assert.isAtLeast(windows.length, 4)
      assert.isTrue(windows.every(({ window }) => window!.bytes <= most))
      assert.isAtMost(block.sets, count + 2)
    }).pipe(Effect.provide(Devices.webgpu({ maxBindingBytes: most }))))
})
