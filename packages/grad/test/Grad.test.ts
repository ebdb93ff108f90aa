import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import { Arena, argOf } from "@tg/core-uop/UOp"
import { Jit } from "@tg/jit/Jit"
import * as Devices from "@tg/node/Devices"
import { Device } from "@tg/runtime/Device"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { scatterAdd } from "@tg/tensor/Scatter"
import * as Tensor from "@tg/tensor/Tensor"
import { Effect } from "effect"
import * as Attached from "../src/Attached.ts"
import { grad, gradients, valueAndGrad } from "../src/Grad.ts"
import { GradError } from "../src/GradError.ts"
import { type Row, standard } from "../src/Rules.ts"
import { contentsOf, evaluate, randomCase } from "./random.ts"

const f32 = DType.f32

const inputs = (...shapes: ReadonlyArray<ReadonlyArray<number>>): ReadonlyArray<Tensor.Tensor> => {
  const arena = new Arena()
  return shapes.map((shape, id) => Tensor.buffer(arena, id, { shape, dtype: f32 }))
}

/** Values of tensors in doubles, where the buffers hold these numbers. */
const at = (
  roots: ReadonlyArray<Tensor.Tensor>,
  buffers: ReadonlyArray<readonly [Tensor.Tensor, ReadonlyArray<number>]>
) =>
  evaluate(
    roots,
    new Map(buffers.map(([{ dtype, node }, data]) => [
      node,
      dtype === f32 ? Float64Array.from(data) : Uint32Array.from(data)
    ])),
    {}
  ).map((data) => [...data])

const messageOf = (run: () => unknown): string => {
  try {
    run()
  } catch (error) {
    if (error instanceof GradError) return error.message
    throw error
  }
  return assert.fail("no error")
}

describe("grad", () => {
  it("gives the gradient of each input, in its shape", () => {
    const [x, w] = inputs([2], [3, 2])
    const found = grad((x, w) => Nn.linear(x!, w!).sum())(x!, w!)
    assert.deepStrictEqual(at(found, [[x!, [5, 7]], [w!, [1, 2, 3, 4, 5, 6]]]), [[9, 12], [5, 7, 5, 7, 5, 7]])
  })

  it("gives derivatives of derivatives", () => {
    const [x] = inputs([])
    const second = grad((x) => grad((x) => x!.mul(x!).mul(x!))(x!)[0]!)
    assert.deepStrictEqual(at(second(x!), [[x!, [5]]]), [[30]])
  })

  it("shares the gradient among equal extremes", () => {
    const [x, y] = inputs([4], [4])
    const data = [[x!, [3, 1, 3, 2]], [y!, [3, 2, 0, 2]]] as const
    assert.deepStrictEqual(at(grad((x) => x!.max())(x!), data), [[0.5, 0, 0.5, 0]])
    assert.deepStrictEqual(at(grad((x, y) => x!.minimum(y!).sum())(x!, y!), data), [
      [0.5, 1, 0, 0.5],
      [0.5, 0, 1, 0.5]
    ])
  })

  it("of a product with a zero is the product of the others", () => {
    const [x] = inputs([2, 3])
    const [found] = grad((x) => x!.prod({ axis: [0, 1] }))(x!)
    assert.deepStrictEqual(at([found!], [[x!, [1, 2, 3, 4, 0, 5]]]), [[0, 0, 0, 0, 120, 0]])
  })

  it("of an embedding adds up what each row was used for", () => {
    const [table] = inputs([4, 2])
    const tokens = Tensor.buffer(table!.arena, 9, { shape: [2, 2], dtype: DType.u32 })
    const weights = Tensor.iota(table!.arena, 2).cast(f32).add(1)
    const [found] = grad((table) => table!.gather(tokens).mul(weights).sum())(table!)
    const data = [[table!, [1, 1, 1, 1, 1, 1, 1, 1]], [tokens, [3, 0, 3, 3]]] as const
    assert.deepStrictEqual(at([found!], data), [[1, 2, 0, 0, 0, 0, 3, 6]])
  })

  it("of words is that of the floats in them, through calls and storage too", () => {
    const arena = new Arena()
    const words = Tensor.buffer(arena, 0, { shape: [3], dtype: DType.u32 })
    const cache = Tensor.buffer(arena, 1, { shape: [4], dtype: f32 })
    const [out] = Program.call("write", [words, cache], (words, cache) => {
      const written = Program.assign(cache!.slice(0, 1, 2), words!.slice(0, 0, 2).bitcast(f32).contiguous())
      return [Program.after(cache!, [written]).mul(3), written]
    })
    const [ofWords, ofCache] = gradients(out!.sum(), [words, cache])
    assert.deepStrictEqual(at([ofWords!, ofCache!], [[words, [0, 0, 0]], [cache, [1, 1, 1, 1]]]), [
      [3, 3, 0],
      [3, 0, 0, 3]
    ])
  })

  it("takes the gradient of a call that somebody wrote", () => {
    const [x] = inputs([2])
    const [y] = Attached.call("clip", [x!], (x) => [x!.minimum(1)], ({ args, gradients, results }) => [
      gradients[0]!.mul(args[0]!).mul(results[0]!)
    ])
    assert.deepStrictEqual(at(gradients(y!.sum(), [x!]), [[x!, [4, 0.5]]]), [[4, 0.25]])
  })

  it("takes the gradient of a kernel written by hand", () => {
    const [x, out] = inputs([3], [3])
    const kernel: Program.CustomKernel = {
      name: "square",
      writes: [0],
      reference: ([out, x]) => x!.forEach((value, i) => out![i] = value * value)
    }
    const effect = Attached.custom(kernel, [out!, x!], ({ args, gradients }) => [
      undefined,
      gradients[0]!.mul(args[1]!).mul(2)
    ])
    const [found] = gradients(Program.after(out!, [effect]).sum(), [x!])
    assert.deepStrictEqual(at([found!], [[x!, [1, 2, 3]], [out!, [0, 0, 0]]]), [[2, 4, 6]])
    const bare = Program.after(out!, [Program.custom({ ...kernel, name: "bare" }, [out!, x!])]).sum()
    assert.match(messageOf(() => gradients(bare, [x!])), /^CUSTOM: .*bare.*Attached\.custom/)
  })

  it("lets a second user give a rule", () => {
    const [x] = inputs([2])
    const rounded = x!.trunc().sum()
    const straight: Row = (_, gradient) => [gradient]
    const [own] = gradients(rounded, [x!], { rules: new Map([...standard, ["TRUNC", straight]]) })
    const [usual] = gradients(rounded, [x!])
    assert.deepStrictEqual(at([own!, usual!], [[x!, [1.5, 2.5]]]), [[1, 1], [0, 0]])
  })

  it("names the operation without a rule, and what cannot be asked for", () => {
    const [x, y] = inputs([2], [2])
    const rules = new Map([...standard].filter(([op]) => op !== "SIN"))
    assert.match(messageOf(() => gradients(x!.sin().sum(), [x!], { rules })), /^SIN: .*no rule.*Rules\.standard/)
    assert.match(messageOf(() => gradients(x!, [x!])), /one float; found f32 \[2\]; sum it/)
    assert.match(messageOf(() => gradients(x!.sum(), [y!, y!])), /same tensor twice/)
    const words = Tensor.buffer(x!.arena, 5, { shape: [2], dtype: DType.u32 })
    assert.match(messageOf(() => gradients(words.cast(f32).sum(), [words])), /input 0; found u32/)
  })

  it("has a rule for a product and a sum in one", () => {
    const [a, b, c] = inputs([], [], [])
    const node = a!.arena.make("MULACC", f32, [a!.node, b!.node, c!.node])
    const found = gradients(new Tensor.Tensor(node), [a!, b!, c!])
    assert.deepStrictEqual(at(found, [[a!, [2]], [b!, [3]], [c!, [4]]]), [[3], [2], [1]])
  })
})

/** What a program makes of its inputs, on the device of the context. */
const onDevice = Effect.fn(
  function*(
    sink: Program.TensorProgram["sink"],
    sizes: ReadonlyMap<number, ArrayBufferView>,
    vars: Readonly<Record<string, number>>
  ) {
    const device = yield* Device
    const buffers = new Map(
      yield* Effect.forEach([...sizes], ([id, { buffer, byteLength, byteOffset }]) =>
        Effect.gen(function*() {
          const made = yield* device.allocate(Math.max(4, byteLength), `${id}`)
          yield* device.write(made, new Uint8Array(buffer, byteOffset, byteLength))
          return [id, made] as const
        }))
    )
    const jit = yield* Jit
    const prepared = yield* jit.prepare(sink, buffers)
    yield* prepared.run(vars)
    return yield* Effect.forEach(
      [...buffers].filter(([id]) => id >= 1000),
      ([, buffer]) => Effect.map(device.read(buffer, 0), (bytes) => new Float32Array(bytes.slice().buffer))
    )
  },
  Effect.scoped
)

describe("rows that are read or added where an index says", () => {
  it("a lookup's gradient is what comparing all rows with all indices gives", () => {
    const [table, weights] = inputs([5, 3], [2, 2, 3])
    const tokens = Tensor.buffer(table!.arena, 4, { shape: [2, 2], dtype: DType.u32 })
    const compared = tokens.reshape([4, 1]).eq(Tensor.iota(table!.arena, 5).cast(DType.u32)).cast(f32).transpose()
    const [own] = gradients(table!.gather(tokens).mul(weights!).sum(), [table!])
    const contents = [
      [table!, Array.from({ length: 15 }, (_, i) => i)],
      [weights!, Array.from({ length: 12 }, (_, i) => Math.sin(i))],
      [tokens, [4, 1, 4, 0]]
    ] as const
    const [expected, found] = at([Nn.matmul(compared, weights!.reshape([4, 3])), own!], contents)
    assert.deepStrictEqual(found, expected)
  })

  it("the gradient of an added row is read where it was added, of a row that is not there 0", () => {
    const [initial, value, weights] = inputs([3, 2], [4, 2], [3, 2])
    const index = Tensor.buffer(initial!.arena, 4, { shape: [4], dtype: DType.i32 })
    const sum = scatterAdd(initial!, { index, value: value! })
    const [ofInitial, ofValue] = gradients(sum.mul(weights!).sum(), [initial!, value!])
    const found = at([ofInitial!, ofValue!], [
      [initial!, [0, 0, 0, 0, 0, 0]],
      [value!, [0, 0, 0, 0, 0, 0, 0, 0]],
      [weights!, [1, 2, 3, 4, 5, 6]],
      [index, [2, 0, -1, 2]]
    ])
    assert.deepStrictEqual(found, [[1, 2, 3, 4, 5, 6], [5, 6, 1, 2, 0, 0, 5, 6]])
  })
})

describe("gradients as programs", () => {
  it.live("compile, and give on wasm what they are in double precision", () =>
    Effect.gen(function*() {
      for (let seed = 1; seed <= 12; seed++) {
        const tested = randomCase(seed, 14)
        const { random } = tested
        const made = gradients(tested.loss, tested.inputs)
          .filter(({ shape }) => shape.every((d) => typeof d === "number"))
        const outputs = made.map((g, i) => Tensor.buffer(g.arena, 1000 + i, { shape: g.shape, dtype: f32 }))
        const program = Program.make(made.map((g, i) => Program.assign(outputs[i]!, g)))
        const contents = contentsOf(tested, seed)
        const data = new Map<number, ArrayBufferView>(
          [...contents].map(([node, data]) => [
            argOf(node, "BUFFER").id,
            data instanceof Float64Array ? Float32Array.from(data) : data
          ])
        )
        made.forEach(({ shape }, i) => data.set(1000 + i, new Float32Array(Shape.maxElements(shape))))
        const present = new Map([...data].filter(([id]) => program.buffers.some((b) => b.id === id)))
        const vars = Object.fromEntries(program.vars.map(({ name }) => [name, random.vars[name]!]))
        const found = yield* onDevice(program.sink, present, vars)
        const exact = evaluate(made, contents, random.vars)
        // floats carry 2^-24, in some ten operations; `sin`, whose error devices may make absolute, 2^-11
        found.forEach((g, i) => {
          const largest = [...exact[i]!].reduce((most, x) => Math.max(most, Math.abs(x)), 1)
          g.forEach((x, at) => assert.closeTo(x, exact[i]![at]!, 2 ** -10 * largest, `seed ${seed}, ${at} of ${i}`))
        })
      }
    }).pipe(Effect.provide(Devices.layer("wasm", { threads: 1 }))))

  it("keeps the value and the gradients together", () => {
    const [x] = inputs([2])
    const { gradients: [found], value } = valueAndGrad((x) => x!.mul(x!).sum())(x!)
    assert.deepStrictEqual(at([value, found!], [[x!, [3, 4]]]), [[25], [6, 8]])
  })
})
