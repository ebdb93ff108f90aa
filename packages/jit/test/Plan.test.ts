import { assert, describe, it } from "@effect/vitest"
import type { Program } from "@tg/core-uop/Program"
import { signature } from "@tg/core-uop/Program"
import { planMemory } from "@tg/rangeify/Memory"
import { RangeifyError, schedule } from "@tg/rangeify/Rangeify"
import type { Schedule, Step } from "@tg/rangeify/Schedule"
import { Arena } from "@tg/core-uop/UOp"
import * as DType from "@tg/core-uop/DType"
import * as TensorProgram from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import * as Phases from "@tg/core-uop/Phases"
import { leadingWithout } from "../src/Jit.ts"
import { keyOf, type Launch, plan } from "../src/Plan.ts"
import { blocks } from "./support/blocks.ts"

const scheduleOf = (program: TensorProgram.TensorProgram): Schedule => {
  const result = schedule(program.sink, { maxStorageBuffers: 8 })
  if (result instanceof RangeifyError) throw result
  return result
}

/** A program that binds what its kernel binds, and does nothing. */
const programOf = (step: Step): Program => ({
  name: step.name,
  target: "reference",
  code: "",
  ...(step.kind === "kernel" ? signature(step.ast) : { workgroup: [1, 1, 1], grid: [1, 1, 1], bindings: [], vars: [] })
})

describe("Plan", () => {
  it("has each program once, and a launch for each step in order", () => {
    const made = scheduleOf(blocks(5))
    const asked: Array<string> = []
    const { launches, programs } = plan(made, (step) => {
      asked.push(keyOf(step))
      return programOf(step)
    })
    const kernelsOfABlock = (made.steps.length - 1) / 5
    assert.strictEqual(programs.length, kernelsOfABlock + 1)
    assert.strictEqual(new Set(asked).size, asked.length)
    assert.deepStrictEqual(launches.map((l) => l.name), made.steps.map((s) => s.name))
    assert.deepStrictEqual(
      launches.map((l) => l.program),
      made.steps.map((_, i) => i === made.steps.length - 1 ? kernelsOfABlock : i % kernelsOfABlock)
    )
  })

  it("knows the launches that are for one buffer alone, at the end", () => {
    const program = (...accesses: ReadonlyArray<"read" | "write">): Program => ({
      ...{ name: "p", target: "reference", code: "", workgroup: [1, 1, 1], grid: [1, 1, 1], vars: [] },
      bindings: accesses.map((access, slot) => ({ slot, access }))
    })
    const [result, weight, cache] = [2, 5, 7].map((id) => ({ kind: "buffer", id }) as const)
    const block = { kind: "block", block: 0 } as const
    const launch = (...slots: Launch["slots"]): Launch => ({ name: "p", program: 0, slots })
    const leading = (...launches: ReadonlyArray<Launch>) =>
      leadingWithout({ programs: [program("write", "read")], launches, blocks: [4] }, 2)
    const tail = [launch(block, weight!), launch(block, cache!), launch(result!, block)]
    assert.equal(leading(launch(block, weight!), launch(cache!, block), ...tail), 2)
    assert.equal(leading(launch(result!, weight!), launch(cache!, block)), 2)
    assert.equal(leading(...tail), 0)
    assert.equal(leadingWithout({ programs: [program("write", "write")], launches: tail, blocks: [4] }, 2), 2)
  })

  it("lets words that launches await be cleared, though nobody needs the launch that does it", () => {
    const cache = { kind: "buffer", id: 7 } as const
    const part = (number: number) => ({
      kind: "block" as const,
      block: 1,
      window: { offset: 4 * Phases.beginOf(number), bytes: 4 * Phases.waiting.part }
    })
    const counters = { kind: "block", block: 1, window: { offset: 0, bytes: 256 } } as const
    const program: Program = {
      ...{ name: "p", target: "reference", code: "", workgroup: [1, 1, 1], grid: [1, 1, 1], vars: [] },
      bindings: [0, 1, 2, 3].map((slot) => ({ slot, access: "write" }))
    }
    // writes its own part, and clears that of another one
    const launch = (own: number, cleared: number, out: Launch["slots"][number] = counters): Launch => ({
      name: "p",
      program: 0,
      slots: [out, part(own), part(cleared), counters]
    })
    const leading = (...launches: ReadonlyArray<Launch>) =>
      leadingWithout({ programs: [program], launches, blocks: [4, 4], meeting: 1 }, 2)
    const other = { name: "p", program: 0, slots: [{ kind: "block", block: 0 }] } as const
    assert.equal(leading(launch(0, 1), launch(1, 0, cache), launch(0, 1), launch(2, 0)), 2)
    assert.equal(leading(launch(0, 1), launch(1, 0), launch(0, 1, cache), other, launch(2, 0), other), 5)
  })

  it("binds buffers of the host by id, temporaries by their block, in the order of the bindings", () => {
    const made = scheduleOf(blocks(2))
    const { blocks: bytes, launches } = plan(made, programOf)
    const memory = planMemory(made)
    assert.deepStrictEqual(bytes, memory.blocks)
    launches.forEach((launch, i) => {
      assert.deepStrictEqual(
        launch.slots,
        made.steps[i]!.args.map((ref) =>
          ref.kind === "buffer"
            ? { kind: "buffer", id: (ref.node.arg as { id: number }).id }
            : { kind: "block", block: memory.blockOf[(ref as { id: number }).id]! }
        )
      )
    })
  })

  it("leaves out arguments that the program does not bind", () => {
    const { launches } = plan(scheduleOf(blocks(1)), (step) => {
      const program = programOf(step)
      return { ...program, bindings: program.bindings.slice(0, 1) }
    })
    assert.isTrue(launches.every((l) => l.slots.length === 1))
  })

  it("is plain data: it survives JSON, and is equal for equal schedules", () => {
    const make = () => plan(scheduleOf(blocks(3)), programOf)
    const { blocks: bytes, launches } = make()
    assert.deepStrictEqual(JSON.parse(JSON.stringify({ bytes, launches })), { bytes, launches })
    assert.deepStrictEqual(make().launches, launches)
  })

  it("identifies hand-written kernels by all that they are", () => {
    const arena = new Arena()
    const x = (id: number) => Tensor.buffer(arena, id, { shape: [4], dtype: DType.f32 })
    const kernelOf = (text: string, grid = 1) => ({
      name: "by_hand",
      writes: [0],
      sources: { wgsl: { text, grid: [grid, 1, 1] } },
      reference: () => undefined
    } as const)
    const keysOf = (...kernels: ReadonlyArray<TensorProgram.CustomKernel>) =>
      new Set(
        scheduleOf(TensorProgram.make(kernels.map((kernel, i) => TensorProgram.custom(kernel, [x(i)])))).steps.map(
          keyOf
        )
      ).size
    assert.strictEqual(keysOf(kernelOf("a"), kernelOf("a")), 1)
    assert.strictEqual(keysOf(kernelOf("a"), kernelOf("b"), kernelOf("a", 2)), 3)
  })
})
