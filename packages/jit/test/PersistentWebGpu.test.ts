import { assert, describe, it } from "@effect/vitest"
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import * as Phases from "@tg/core-uop/Phases"
import { type DeviceProfile, Profile } from "@tg/core-uop/DeviceProfile"
import { FusionCosts } from "@tg/rangeify/Fusion"
import { type Binding, bufferOf, Device, type DeviceShape } from "@tg/runtime/Device"
import * as Testing from "@tg/runtime-webgpu/Testing"
import { rendererOptions, WebGpuInfo } from "@tg/runtime-webgpu/WebGpuInfo"
import { Effect, Layer } from "effect"
import * as CompileCache from "../src/CompileCache.ts"
import { Compiler } from "../src/Compiler.ts"
import { Jit, settled } from "../src/Jit.ts"
import * as Persistent from "../src/Persistent.ts"
import { Pipeline } from "../src/Pipeline.ts"
import { blocks, contents, filled } from "./support/blocks.ts"
import { upload } from "./support/upload.ts"

const noGpu = (await Testing.availableAdapter()) === undefined

/** The device, taken for one on which so many workgroups run at once. */
const profileWith = (profile: DeviceProfile, workgroups: number): DeviceProfile => ({
  ...profile,
  processors: workgroups,
  gridBarrierHolds: true,
  gridBarrierWorkgroups: workgroups,
  // waits that are in vain end soon
  cachedLoadMicros: workgroups > 2 ? 10 : 0.01
})

/** A driver that compiles persistent launches wrong: the first value that crosses phases is twice what it should be. */
const spoiling = Layer.effect(
  Compiler,
  Effect.map(Compiler, (compiler) => ({
    ...compiler,
    compile: (name, kernel) =>
      Effect.map(compiler.compile(name, kernel), (program) =>
        Phases.isPersistent(kernel)
          ? { ...program, code: String(program.code).replace(/bitcast<u32>\((?!x\))/, "bitcast<u32>(2.0 * ") }
          : program)
  }))
).pipe(Layer.provide(Compiler.layer))

const jit = (persistent: Persistent.Service, workgroups: number, compiler = Compiler.layer) =>
  Layer.unwrap(Effect.gen(function*() {
    const { profile } = yield* Device
    const stages = Layer.mergeAll(
      WgslRenderer.layer(rendererOptions(yield* WebGpuInfo, profile)),
      Layer.succeed(Profile, profileWith(profile, workgroups)),
      Layer.succeed(Persistent.Persistent, persistent),
      Layer.succeed(FusionCosts, () => undefined)
    )
    return Jit.layer.pipe(
      Layer.provide(compiler),
      Layer.provide(Layer.fresh(Pipeline.layer)),
      Layer.provide(stages)
    )
  }))

/** Of which each is a persistent launch: words that cross phases are awaited. */
const apart = blocks(3, { apart: 1 })
/** Which are one persistent launch: what crosses phases is exchanged. */
const together = blocks(3)

/** Of which one reads what another one's phases tell each other. */
const remembering = blocks(4, { apart: 2, remembers: true })

/** Of which those in the middle are of two kinds in turns: variants of one program. */
const mixed = blocks(6, { apart: 1, isPadded: (i) => i % 2 === 1 })

/** Weights of a block, each behind the other in one buffer. */
const weightsOf = Effect.fnUntraced(function*(device: DeviceShape, first: number) {
  const sizes = [8, 128, 128]
  const buffer = yield* device.allocate(4 * 64 * 5, `weights ${first}`)
  const offsets = [0, 256, 768]
  return yield* Effect.forEach(sizes, (size, i) => {
    const slice: Binding = { buffer, offset: offsets[i]!, bytes: 4 * size }
    return Effect.as(
      device.write(buffer, new Uint8Array(contents(first + i, size).buffer), slice.offset),
      [first + i, slice] as const
    )
  })
})

/** What the blocks compute, in how many launches, and what the device says about that. */
const run = (
  persistent: Persistent.Service,
  workgroups: number,
  { areSlices = false, compiler = Compiler.layer, program = apart } = {}
) =>
  Effect.gen(function*() {
    const device = yield* Device
    const { prepare, settle } = yield* Jit
    const buffers = new Map<number, Binding>(yield* upload(filled(program)))
    const first = [2, 5, 8, 11].filter((id) => program.buffers.some((buffer) => buffer.id === id))
    for (const id of areSlices ? first : []) {
      for (const [weight, slice] of yield* weightsOf(device, id)) buffers.set(weight, slice)
    }
    const { plan, run } = yield* prepare(program.sink, buffers)
    yield* run({})
    yield* run({})
    const read = yield* Effect.result(Effect.asVoid(settled({ device, jit: { settle } }, [])))
    /** Arguments that are whole buffers of which the host's are slices. */
    const wholes = plan.launches.flatMap(({ slots }) =>
      slots.filter((slot) => slot.kind === "buffer" && slot.whole === true)
    )
    return {
      launches: plan.launches.length,
      wholes: wholes.length,
      variants: new Set(plan.programs.flatMap(({ given }) => given === undefined ? [] : [JSON.stringify(given)])).size,
      out: [...yield* device.read(bufferOf(buffers.get(1)!))],
      settled: read
    }
  }).pipe(Effect.scoped, Effect.provide(Layer.fresh(jit(persistent, workgroups, compiler))))

/** Launches that may be persistent, and what was said when they were not any more. */
const listening = () => {
  const told: Array<string> = []
  const persistent: Persistent.Service = {
    mode: "on",
    refused: undefined,
    onRefused: (why) => Effect.sync(() => void told.push(why))
  }
  return { persistent, told }
}

/** The compiler, and how often it was asked. */
const counting = () => {
  const asked: Array<string> = []
  const compiler = Layer.effect(
    Compiler,
    Effect.map(Compiler, (compiler) => ({
      ...compiler,
      compile: (name, kernel) =>
        Effect.suspend(() => {
          asked.push(name)
          return compiler.compile(name, kernel)
        })
    }))
  ).pipe(Layer.provide(Compiler.layer))
  return { asked, compiler }
}

describe.skipIf(noGpu)("persistent launches of a program", () => {
  it.live("compute what launches compute", () =>
    Effect.gen(function*() {
      for (
        const { areSlices, program } of [
          ...[apart, together, remembering].flatMap((program) => [
            { areSlices: false, program },
            { areSlices: true, program }
          ]),
          { areSlices: false, program: mixed }
        ]
      ) {
        const want = yield* run(Persistent.off, 2, { areSlices, program })
        const found = yield* run({ ...Persistent.off, mode: "on" }, 2, { areSlices, program })
        assert.isBelow(found.launches, want.launches)
        assert.strictEqual(found.wholes > 0, areSlices)
        assert.strictEqual(found.variants, program === mixed ? 2 : 0)
        assert.strictEqual(found.settled._tag, "Success")
        assert.deepStrictEqual(found.out, want.out)
      }
    }).pipe(Effect.provide(Testing.layer)))

  it.live("are given up where workgroups do not run at once: the same program is launches from then on", () =>
    Effect.gen(function*() {
      const { persistent, told } = listening()
      const found = yield* run(persistent, 4096)
      assert.deepStrictEqual(told, [persistent.refused])
      const want = yield* run(Persistent.off, 4096)
      assert.deepStrictEqual(found, want)
      assert.match(told.join(), /did not all run at once: a barrier that waited for \d+ arrivals saw \d+$/)
      const again = yield* run(persistent, 4096)
      assert.deepStrictEqual(again, want)
      assert.lengthOf(told, 1)
    }).pipe(Effect.provide(Testing.layer)))

  it.live("are given up where they compute something else than their kernels do one by one, before any result is used", () =>
    Effect.gen(function*() {
      const { persistent, told } = listening()
      const want = yield* run(Persistent.off, 2)
      const found = yield* run(persistent, 2, { compiler: spoiling })
      assert.deepStrictEqual(found, want)
      assert.deepStrictEqual(told, [persistent.refused])
      assert.match(
        told.join(),
        /left other values than its kernels do one by one: \d+% of the \d+ words of one of them/
      )
    }).pipe(Effect.provide(Testing.layer)))

  it.live("are tried once: the cache of programs remembers it", () =>
    Effect.gen(function*() {
      const persistent: Persistent.Service = { ...Persistent.off, mode: "on" }
      const [first, later] = [counting(), counting()]
      const found = yield* run(persistent, 2, { compiler: first.compiler })
      assert.isAbove(first.asked.length, found.launches)
      assert.deepStrictEqual(yield* run(persistent, 2, { compiler: later.compiler }), found)
      assert.deepStrictEqual(later.asked, [])
    }).pipe(Effect.provide([CompileCache.layerMemory, Testing.layer])))
})
