import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { Jit } from "@tg/jit/Jit"
import * as Devices from "@tg/node/Devices"
import { Device } from "@tg/runtime/Device"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import { Effect } from "effect"
import { softmax } from "./softmax.ts"

const most = { rows: 8, columns: 48 }

/** `softmax(2 x) + 1` over rows, by hand or in the tensor language. Rows and columns are variables. */
export const softmaxProgram = (by: "hand" | "tensors", kernel = softmax(most.columns)): Program.TensorProgram => {
  const arena = new Arena()
  const rows = Tensor.variable(arena, "rows", 0, most.rows)
  const columns = Tensor.variable(arena, "columns", 1, most.columns)
  const shape = [rows.node, columns.node]
  const [x, y, out] = [0, 1, 2].map((id) => Tensor.buffer(arena, id, { shape, dtype: DType.f32 }))
  const twice = x!.mul(2)
  if (by === "tensors") return Program.make([Program.assign(out!, Nn.softmax(twice).add(1))])
  const call = Program.custom(kernel, [y!, twice, columns])
  return Program.make([Program.assign(out!, Program.after(y!, [call]).add(1))])
}

/** What the program makes of numbers. */
export const run = Effect.fn(function*(program: Program.TensorProgram, vars: Readonly<Record<string, number>>) {
  const device = yield* Device
  const numbers = Float32Array.from({ length: most.rows * most.columns }, (_, i) => 4 * Math.sin(i * i))
  const [x, y, out] = yield* Effect.forEach(["x", "y", "out"], (label) => device.allocate(numbers.byteLength, label))
  yield* device.write(x!, new Uint8Array(numbers.buffer))
  const jit = yield* Jit
  const prepared = yield* jit.prepare(program.sink, new Map([[0, x!], [1, y!], [2, out!]]))
  yield* prepared.run(vars)
  const bytes = yield* device.read(out!, 0, numbers.byteLength)
  return { out: new Float32Array(bytes.slice().buffer), launches: prepared.plan.launches.map(({ name }) => name) }
}, Effect.scoped)

if (import.meta.main) {
  const { launches, out } = await Effect.runPromise(
    run(softmaxProgram("hand"), { rows: 2, columns: 3 }).pipe(Effect.provide(Devices.layer("wasm")))
  )
  process.stdout.write(`${launches.join(", ")}: ${[...out.subarray(0, 3)].join(" ")}\n`)
}
