import { assert, describe, it } from "@effect/vitest"
import { h200, wasm, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import * as Spec from "@tg/core-uop/Spec"
import { choose } from "@tg/heuristics/Heuristics"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import * as Postrange from "@tg/postrange/Postrange"
import * as Inputs from "../src/Inputs.ts"
import * as Moves from "../src/Moves.ts"
import * as Template from "../src/Template.ts"
import * as Kernels from "./support/kernels.ts"

const neighboursOf = (
  kernel: ReturnType<typeof Kernels.product>,
  opts: ReadonlyArray<Opt.Opt>,
  profile = webgpuDefault
): ReadonlyArray<ReadonlyArray<Opt.Opt>> => {
  const space = Moves.space(kernel, choose(kernel, profile), profile)
  return space.neighbours({ opts, template: undefined }).map((n) => n.candidate).filter(space.accepts).map((c) =>
    c.opts
  )
}

describe("space", () => {
  const kernel = Kernels.product(64, 1024)
  const from = [Opt.unroll(1, 4), Opt.group(1, 16), Opt.local(0, 2)]
  const found = new Set(neighboursOf(kernel, from).map(Moves.print))
  const has = (what: string, ...opts: ReadonlyArray<Opt.Opt>) =>
    it(`has ${what}`, () => assert.isTrue(found.has(Moves.print(opts)), [...found].join("\n")))

  has("a larger amount", Opt.unroll(1, 4), Opt.group(1, 32), Opt.local(0, 2))
  has("a smaller amount", Opt.unroll(1, 4), Opt.group(1, 8), Opt.local(0, 2))
  has("one opt less", Opt.unroll(1, 4), Opt.group(1, 16))
  has("one opt more", ...from, Opt.upcast(0, 2))
  has("the same iterations in another way", Opt.unroll(1, 4), Opt.group(1, 16), Opt.upcast(0, 2))
  has("another order of one loop's parts", Opt.group(1, 16), Opt.unroll(1, 4), Opt.local(0, 2))
  has("what one opt gives up in another one", Opt.unroll(1, 2), Opt.group(1, 32), Opt.local(0, 2))
  has("several rows to a workgroup, each with many threads", Opt.unroll(1, 4), Opt.group(1, 16), Opt.local(0, 8))
  has("rows per thread", Opt.unroll(1, 4), Opt.group(1, 16), Opt.upcast(0, 8))
  has("a whole workgroup for one reduction", Opt.unroll(1, 4), Opt.group(1, 256))

  it("has only what the kernel and the device allow", () => {
    for (const profile of [webgpuDefault, h200, wasm]) {
      for (
        const one of [kernel, Kernels.chosenRows(), Kernels.pickedRows(), Kernels.symbolic(), Kernels.product(7, 15)]
      ) {
        const lists = neighboursOf(one, choose(one, profile), profile)
        for (const opts of lists) {
          assert.notInstanceOf(Postrange.apply("k", one, opts, profile), Postrange.IllegalOpt, Moves.print(opts))
        }
        // a loop of unknown length on a CPU is what it is
        if (profile.kind === "gpu") assert.isNotEmpty(lists)
      }
    }
  })

  it("has lists that compute the same", () => {
    for (const one of [Kernels.product(6, 32), Kernels.chosenRows(), Kernels.pickedRows()]) {
      const data = Inputs.argumentsOf(one).map((argument): Float32Array | Uint32Array => {
        const words = Inputs.words(argument, argument.slot, argument.words)
        return argument.scalar === "f32" ? new Float32Array(words.buffer) : words
      })
      const run = (k: typeof one): ReadonlyArray<number> => {
        const buffers = data.map((d) => d.slice())
        evaluateKernel(k, buffers, {}, { checkWrites: true })
        return [...buffers[0]!]
      }
      const wanted = run(one)
      for (const opts of neighboursOf(one, choose(one, webgpuDefault))) {
        const opted = Postrange.apply("k", one, opts, webgpuDefault)
        if (opted instanceof Postrange.IllegalOpt) throw opted
        assert.isEmpty(Spec.check("opted", opted))
        // numbers below 2, 32 of them: sums of either order are within 64 roundings of 2^-24
        for (const [i, x] of run(opted).entries()) assert.closeTo(x, wanted[i]!, 2 ** -16, Moves.print(opts))
      }
    }
  })

  it("takes lists for the same whatever the order of different loops", () => {
    const { keyOf } = Moves.space(kernel, [], webgpuDefault)
    const key = (...opts: ReadonlyArray<Opt.Opt>) => keyOf({ opts, template: undefined })
    assert.strictEqual(key(Opt.group(1, 8), Opt.local(0, 2)), key(Opt.local(0, 2), Opt.group(1, 8)))
    assert.notStrictEqual(key(Opt.group(1, 8), Opt.unroll(1, 4)), key(Opt.unroll(1, 4), Opt.group(1, 8)))
  })
})

describe("templates", () => {
  const kernel = Kernels.product(64, 1024)
  const near = Template.around(kernel, choose(kernel, webgpuDefault), webgpuDefault)
  const built = (change: Partial<Template.Template>) =>
    Moves.print(Template.build(kernel, { ...near, ...change }, webgpuDefault))

  it("keep the vectors of the usual list", () => assert.strictEqual(Moves.print(near.first), "UNROLL(r1, 4)"))

  it("become opts", () => {
    assert.strictEqual(built({ group: 64 }), "UNROLL(r1, 4), GROUP(r1, 64)")
    assert.strictEqual(
      built({ rows: 2, local: 4, unroll: 4 }),
      "UNROLL(r1, 4), GROUP(r1, 16), UPCAST(r0, 2), LOCAL(r0, 4), UNROLL(r1, 4)"
    )
  })

  it("take as much as the device allows", () => {
    const opted = Postrange.apply(
      "k",
      kernel,
      Template.build(kernel, { ...near, group: 256, local: 128 }, webgpuDefault),
      webgpuDefault
    )
    if (opted instanceof Postrange.IllegalOpt) throw opted
    assert.strictEqual(Loops.threads(opted), 256)
  })
})
