import { assert, describe, it } from "@effect/vitest"
import { h200 } from "@tg/core-uop/DeviceProfile"
import { digest, key } from "@tg/core-uop/UOp"
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { randomProgram } from "@tg/tensor/Random"
import * as Tensor from "@tg/tensor/Tensor"
import * as Explain from "../src/Explain.ts"
import { type FusionCost, ofProfile } from "../src/Fusion.ts"
import { members } from "../src/Horizontal.ts"
import { kernels, type Limits, limitsOf } from "../src/Rangeify.ts"
import type { Step } from "../src/Schedule.ts"
import { Build, scheduled } from "./support/programs.ts"

const boundariesOf = (steps: ReadonlyArray<Step>): ReadonlyArray<Explain.Boundary> =>
  steps.flatMap(({ boundaries }) => boundaries)

/** The boundaries of a program, by model line. */
const explained = (
  made: (b: Build) => ReadonlyArray<Tensor.Tensor>,
  limits: number | Limits = 8
): ReadonlyMap<string, Explain.Boundary> => {
  const { steps } = scheduled(Program.make(made(new Build())).sink, limits)
  return new Map(boundariesOf(steps).map((boundary) => [boundary.value, boundary]))
}

/** Every kernel costs the same, so a kernel less is always cheaper. */
const launchesOnly: FusionCost = {
  key: "launches",
  maxWorkgroupBytes: 16384,
  kernelMicros: () => ({ wait: 0, work: 1 })
}
const staging = (fusion: Partial<FusionCost> = {}, maxStorageBuffers = 8): Limits => ({
  maxStorageBuffers,
  fusion: { ...launchesOnly, ...fusion }
})

/** The verdict on a placement of a value. */
const verdictOn = (
  placements: ReadonlyArray<Explain.Considered>,
  home: Explain.Home
): Explain.Verdict | undefined => placements.find((considered) => considered.home === home)?.verdict

describe("why a value is stored", () => {
  const causes: Readonly<Record<string, readonly [Explain.Cause, (b: Build) => ReadonlyArray<Tensor.Tensor>]>> = {
    "the program writes it to a buffer": [
      { _tag: "Required", by: "effect" },
      (b) => [b.out(b.f32(4).mul(2).label("value"))]
    ],
    "it is a function's result": [
      { _tag: "Required", by: "output" },
      (b) => [b.out(Program.call("f", [b.f32(4)], (x) => [x!.mul(2).label("value")])[0]!).label("out")]
    ],
    "a call takes it": [
      { _tag: "Required", by: "argument" },
      (b) => [
        b.out(Program.call("f", [b.f32(4).mul(3).label("value")], (x) => [x!.mul(2).label("result")])[0]!).label("out")
      ]
    ],
    "contiguous() asks for it": [
      { _tag: "Required", by: "contiguous" },
      (b) => [b.out(b.f32(4).mul(2).contiguous().label("value").add(1)).label("out")]
    ],
    "it overwrites what it reads elsewhere": [
      { _tag: "Required", by: "overwritten" },
      (b) => {
        const state = b.f32(6)
        return [Program.assign(state, state.flip(0).add(1).label("value")).label("out")]
      }
    ],
    "a broadcast repeats it": [
      { _tag: "Repeated", times: 6 },
      (b) => [b.out(b.f32(4, 8).sum(1).label("value").unsqueeze(1).mul(b.f32(4, 6))).label("out")]
    ],
    "another reduction reads it": [
      { _tag: "Reduced", times: 4 },
      (b) => [b.out(b.f32(4, 8).sum(1).label("value").max(0).label("out"))]
    ],
    "memory decides what of it is read": [
      { _tag: "Gathered" },
      (b) => [b.out(b.f32(11, 4, 8).sum(2).label("value").gather(b.u32(3)).label("out"))]
    ],
    "another one that reads the same is stored, and written with it": [
      { _tag: "Sibling" },
      (b) => {
        const x = b.f32(1, 64)
        const twice = x.mul(b.f32(32, 64)).sum(1)
        const value = x.mul(b.f32(32, 64)).sum(1).label("value")
        return [b.out(Nn.cat([twice.add(twice.flip(0)), value], 0)).label("out")]
      }
    ],
    "two kernels use it": [
      { _tag: "Shared", places: 2 },
      (b) => {
        const sum = b.f32(4, 8).sum(1).label("value")
        return [b.out(sum.add(1)).label("a"), b.out(sum.sub(1)).label("b")]
      }
    ]
  }
  for (const [name, [cause, made]] of Object.entries(causes)) {
    it(name, () => {
      const found = explained(made).get("value")
      assert.deepStrictEqual(found?.cause, cause)
      // nothing else is weighed where the device has no costs
      assert.deepStrictEqual(found?.placements, [])
    })
  }

  it("a kernel would bind too many buffers", () => {
    const found = explained((b) => [b.out(Array.from({ length: 6 }, () => b.f32(4)).reduce((x, y) => x.add(y)))], 4)
    assert.deepStrictEqual([...found.values()].map(({ cause }) => cause), [
      { _tag: "Bindings", needs: 5, has: 4 },
      { _tag: "Required", by: "effect" }
    ])
  })

  it("a hand-written kernel computes it", () => {
    const b = new Build()
    const out = b.f32(4)
    const kernel = { name: "by_hand", writes: [0], cost: { bytes: 32, flops: 4 }, reference: () => {} }
    const { steps } = scheduled(Program.make([Program.custom(kernel, [out, b.f32(4)])]).sink)
    assert.deepStrictEqual(boundariesOf(steps).map(({ cause, launch, value }) => [value, cause, launch]), [
      ["by_hand", { _tag: "Required", by: "custom" }, { _tag: "Alone" }]
    ])
  })

  it("names who reads it", () => {
    const found = explained((b) => {
      const sum = b.f32(4, 8).sum(1).label("sum")
      const [called] = Program.call("f", [sum], (x) => [x!.mul(2).label("doubled")])
      return [b.out(sum.add(1)).label("a"), b.out(called!).label("b")]
    })
    assert.deepStrictEqual(found.get("sum")!.users, ["f", "a"])
    // the caller reads a result
    assert.deepStrictEqual(found.get("doubled")!.users, [])
  })
})

describe("where else a value could live", () => {
  // the largest element of each row and the sum of the exponentials: each could be in the kernel of its users
  const softmax = (b: Build): ReadonlyArray<Tensor.Tensor> => {
    const x = b.f32(4, 48)
    const e = x.sub(x.max(1).label("most").unsqueeze(1)).exp()
    return [b.out(e.div(e.sum(1).label("sum").unsqueeze(1)).label("softmax"))]
  }

  it("in the workgroups that use it, if that is cheaper", () => {
    const found = explained(softmax, staging())
    assert.deepStrictEqual([...found.keys()], ["softmax"])
    const { inside } = found.get("softmax")!
    // users first
    assert.deepStrictEqual(inside.map(({ value }) => value), ["sum", "most"])
    assert.deepStrictEqual(inside[1]!.placements, [
      { home: "workgroup", verdict: { _tag: "Cost", micros: 1 } },
      { home: "global", verdict: { _tag: "Cost", micros: 2 } },
      { home: "inline", verdict: { _tag: "Repeats", iterations: 48 } }
    ])
  })

  it("nowhere else if its bytes are more than a workgroup has, whatever it would cost", () => {
    const bytes = 4 * 48
    const product = (b: Build): ReadonlyArray<Tensor.Tensor> => {
      const inner = Nn.linear(b.f32(1, 16), b.f32(48, 16)).label("inner")
      return [b.out(Nn.linear(inner, b.f32(8, 48)).label("outer"))]
    }
    assert.deepStrictEqual([...explained(product, staging({ maxWorkgroupBytes: bytes })).keys()], ["outer"])
    const found = explained(product, staging({ maxWorkgroupBytes: bytes - 4 }))
    assert.deepStrictEqual(found.get("inner")!.placements, [
      { home: "global", verdict: { _tag: "Cost", micros: 2 } },
      {
        home: "workgroup",
        verdict: {
          _tag: "Forbidden",
          limit: "workgroupBytes",
          needs: bytes,
          has: bytes - 4,
          kernel: "outer",
          micros: 1
        }
      },
      { home: "inline", verdict: { _tag: "Repeats", iterations: 16 } }
    ])
  })

  it("nowhere else if nobody knows how many bytes it takes", () => {
    const found = explained((b) => {
      const rows = b.f32(8, 6, 4).slice(0, 0, Tensor.variable(b.arena, "n", 1, 8))
      return [b.out(rows.sum(2).label("sum").max(0).label("most"))]
    }, staging())
    assert.deepStrictEqual(verdictOn(found.get("sum")!.placements, "workgroup"), {
      _tag: "Forbidden",
      limit: "workgroupBytes",
      has: 16384,
      kernel: "most",
      micros: 1
    })
    assert.include(Explain.print(found.get("sum")!)[1], "an unknown number of bytes")
  })

  it("nowhere else if a kernel would bind more buffers than it may, whatever it would cost", () => {
    // the sum reads three buffers, the rest three more and the output
    const sums = (b: Build): ReadonlyArray<Tensor.Tensor> => {
      const three = (...shape: ReadonlyArray<number>) =>
        [b.f32(...shape), b.f32(...shape), b.f32(...shape)].reduce((x, y) => x.add(y))
      const sum = three(4, 8).sum(1).label("sum")
      return [b.out(sum.unsqueeze(1).mul(three(4, 6)).label("product"))]
    }
    assert.deepStrictEqual([...explained(sums, staging({}, 7)).keys()], ["product"])
    const found = explained(sums, staging({}, 6))
    assert.deepStrictEqual(verdictOn(found.get("sum")!.placements, "workgroup"), {
      _tag: "Forbidden",
      limit: "bindings",
      needs: 7,
      has: 6,
      kernel: "product",
      micros: 1
    })
  })

  it("nowhere else if the kernel would read what it overwrites", () => {
    const found = explained((b) => {
      const state = b.f32(4, 8)
      const sum = state.sum(1).label("sum").unsqueeze(1)
      return [Program.assign(state, b.f32(4, 8).mul(sum)).label("scaled")]
    }, staging())
    assert.deepStrictEqual(verdictOn(found.get("sum")!.placements, "workgroup"), {
      _tag: "Overwrites",
      kernel: "scaled"
    })
  })

  it("costs more by a device's numbers", () => {
    const found = explained(
      (
        b
      ) => [b.out(Nn.linear(Nn.linear(b.f32(1, 256), b.f32(512, 256)).label("inner"), b.f32(512, 512)).label("outer"))],
      { maxStorageBuffers: 8, fusion: ofProfile(h200) }
    )
    const [chosen, other] = found.get("inner")!.placements
    assert.deepStrictEqual([chosen!.home, other!.home], ["global", "workgroup"])
    assert.isTrue(chosen!.verdict._tag === "Cost" && other!.verdict._tag === "Cost")
    if (chosen!.verdict._tag !== "Cost" || other!.verdict._tag !== "Cost") return
    assert.isBelow(chosen!.verdict.micros, other!.verdict.micros)
  })

  it("is weighed inline too where no reduction would be repeated", () => {
    const found = explained(
      (b) => [b.out(b.f32(4, 1).sin().label("sin").expand([4, 2048]).mul(b.f32(4, 2048)).label("product"))],
      staging()
    )
    const [sin] = found.get("product")!.inside
    assert.deepStrictEqual(sin!.placements.map(({ home }) => home), ["inline", "global", "workgroup"])
  })
})

describe("the homes that are explained", () => {
  /** Costs without sense, so that the search moves values anywhere. */
  const anywhere = (seed: number): FusionCost => ({
    key: `anywhere ${seed}`,
    maxWorkgroupBytes: 16384,
    kernelMicros: (kernel) => ({
      wait: 0.1,
      work: parseInt(digest(`${seed} ${key(kernel)}`).slice(0, 6), 16) / 2 ** 24
    })
  })

  it("are those of the scheduled kernels", () => {
    const seen = new Set<Explain.Home>()
    for (let seed = 0; seed < 24; seed++) {
      for (const fusion of [anywhere(seed), ofProfile(h200)]) {
        const { sink } = randomProgram(seed, 40).program
        for (const step of kernels(scheduled(sink, { maxStorageBuffers: 8, fusion }))) {
          const [boundary, ...others] = step.boundaries
          assert.strictEqual(others.length, 0)
          const { inside, placements, value } = boundary!
          const homes = inside.map((moved) => moved.placements[0]!.home)
          const told = `seed ${seed}: ${value}`
          if (placements.length > 0) assert.strictEqual(placements[0]!.home, "global", told)
          assert.notInclude(homes, "global", told)
          assert.strictEqual(step.ast.src.length - 1, homes.filter((home) => home === "workgroup").length, told)
          for (const considered of [...inside.map((moved) => moved.placements), placements]) {
            if (considered.length > 0) seen.add(considered[0]!.home)
          }
        }
      }
    }
    assert.deepStrictEqual([...seen].toSorted(), ["global", "inline", "workgroup"])
  })
})

describe("why a kernel is a launch", () => {
  const launchesOf = (
    made: (b: Build) => ReadonlyArray<Tensor.Tensor>,
    limits: Partial<Limits> = {}
  ): ReadonlyArray<readonly [string, Explain.Launch]> =>
    [...explained(made, { maxStorageBuffers: 8, joinsKernels: true, ...limits }).values()].map(
      ({ launch, value }) => [value, launch]
    )
  const two = (b: Build): ReadonlyArray<Tensor.Tensor> => {
    const x = b.f32(1, 8)
    return [b.out(Nn.linear(x, b.f32(16, 8)).label("query")), b.out(Nn.linear(x, b.f32(4, 8)).label("key"))]
  }

  it("it is not: it runs beside another one", () => {
    assert.deepStrictEqual(launchesOf(two), [
      ["query", { _tag: "First" }],
      ["key", { _tag: "Joined", with: "query_16" }]
    ])
  })

  it("the device runs one after the other", () => {
    assert.deepStrictEqual(launchesOf(two, { joinsKernels: false }).map(([, launch]) => launch._tag), [
      "Alone",
      "Alone"
    ])
  })

  it("it needs what another one does", () => {
    const chain = (b: Build) => [b.out(b.f32(4).mul(2).contiguous().label("first").add(1)).label("second")]
    assert.deepStrictEqual(launchesOf(chain), [
      ["first", { _tag: "First" }],
      ["second", { _tag: "After", kernel: "first_4" }]
    ])
  })

  it("the launch of its level binds enough buffers already", () => {
    assert.deepStrictEqual(launchesOf(two, { maxStorageBuffers: 4 })[1], [
      "key",
      { _tag: "Forbidden", limit: "bindings", needs: 5, has: 4, kernel: "query_16+key_4" }
    ])
  })

  it("the launch of its level takes enough workgroup memory already", () => {
    // each keeps the 32 results that it quantises, in the same place; a launch may take half of what kernels may
    const blocks = (b: Build): ReadonlyArray<Tensor.Tensor> =>
      ["a", "b"].map((name) => {
        const rows = Nn.linear(b.f32(1, 16), b.f32(64, 16)).label(name)
        return b.out(Int8.quantise(rows).label(`${name}_int8`).contiguous()).label(`${name}_out`)
      })
    const found = launchesOf(blocks, { fusion: { ...launchesOnly, maxWorkgroupBytes: 128 } })
    assert.deepStrictEqual(found[1], ["b_int8", {
      _tag: "Forbidden",
      limit: "workgroupBytes",
      needs: 128,
      has: 64,
      kernel: "a_int8_2_12+b_int8_2_12"
    }])
    const joined = launchesOf(blocks, { fusion: { ...launchesOnly, maxWorkgroupBytes: 256 } })
    assert.deepStrictEqual(joined[1], ["b_int8", { _tag: "Joined", with: "a_int8_2_12" }])
  })
})

describe("explanations of a schedule", () => {
  it("are one for each kernel, joined or not", () => {
    for (let seed = 0; seed < 60; seed++) {
      const { sink } = randomProgram(seed, 24).program
      for (const limits of [{ maxStorageBuffers: 8 }, limitsOf(h200)]) {
        for (const step of kernels(scheduled(sink, limits))) {
          assert.strictEqual(step.boundaries.length, members(step.ast).length, `${seed}: ${step.name}`)
          assert.strictEqual(step.boundaries.map(({ kernel }) => kernel).join("+"), step.name)
          for (const boundary of step.boundaries) {
            assert.isTrue(boundary.placements.every(({ home }, i) => (home === "global") === (i === 0)))
            for (const line of Explain.print(boundary)) assert.notInclude(line, "undefined")
          }
        }
      }
    }
  })

  it("stand once for each body, with its sites", () => {
    const b = new Build()
    let x = b.f32(1, 8)
    for (let i = 0; i < 3; i++) {
      x = Program.call("block", [x, b.f32(8, 8)], (y, w) => [
        Nn.linear(Nn.linear(y!, w!).contiguous().label("inner"), w!).label("outer")
      ])[0]!
      b.arena.label(x.node.src[0]!, `blk.${i}`)
    }
    const { steps } = scheduled(Program.make([b.out(x).label("out")]).sink)
    const bodies = Explain.byBody(steps)
    assert.deepStrictEqual(
      bodies.map(({ body, launches, sites }) => [body, sites, launches.map(({ calls, name }) => [name, calls])]),
      [
        ["block", ["blk.0", "blk.1", "blk.2"], [["inner_8", 3], ["outer_8", 3]]],
        [undefined, [], [["out_8", 1]]]
      ]
    )
  })

  it("are text", () => {
    const found = explained((b) => {
      const inner = Nn.linear(b.f32(1, 16), b.f32(48, 16)).label("inner")
      return [b.out(Nn.linear(inner, b.f32(8, 48)).label("outer"))]
    }, staging({ maxWorkgroupBytes: 0 }))
    assert.deepStrictEqual([...found.values()].map(Explain.print), [
      [
        "stored: a broadcast uses each element 8 times; read by outer",
        "weighed: global 2.00 us, workgroup forbidden (outer would take 192 bytes of workgroup memory of 0; 1.00 us " +
        "otherwise), inline not weighed (each use would run a reduction of 16)",
        "launch: runs alone"
      ],
      ["stored: the program writes it to a buffer", "launch: runs alone"]
    ])
  })
})
