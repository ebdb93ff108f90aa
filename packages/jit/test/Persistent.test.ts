import { assert, describe, it } from "@effect/vitest"
import { type DeviceProfile, h200, Profile } from "@tg/core-uop/DeviceProfile"
import * as Phases from "@tg/core-uop/Phases"
import type { Program } from "@tg/core-uop/Program"
import { argOf } from "@tg/core-uop/UOp"
import { Heuristics } from "@tg/heuristics/Heuristics"
import { bytesOfSlots } from "@tg/rangeify/Persist"
import * as Explain from "@tg/rangeify/Explain"
import { FusionCosts } from "@tg/rangeify/Fusion"
import * as Reference from "@tg/runtime/Reference"
import type { KernelStep } from "@tg/rangeify/Schedule"
import { Device } from "@tg/runtime/Device"
import type { TensorProgram } from "@tg/tensor/Program"
import { randomProgram } from "@tg/tensor/Random"
import { Effect, Layer } from "effect"
import { Compiler } from "../src/Compiler.ts"
import { Jit } from "../src/Jit.ts"
import * as Persistent from "../src/Persistent.ts"
import { Pipeline } from "../src/Pipeline.ts"
import { blocks, filled } from "./support/blocks.ts"
import * as Devices from "./support/devices.ts"
import { model } from "./support/stranger.ts"
import { upload } from "./support/upload.ts"

/** A GPU on which barriers hold among so many workgroups. */
const gpu: DeviceProfile = { ...h200, processors: 3, gridBarrierWorkgroups: 3, maxWorkgroupThreads: 64 }

const service = (mode: Persistent.Mode): Persistent.Service => ({ ...Persistent.off, mode })

/** The stages for a GPU with persistent launches. */
const pipeline = (mode: Persistent.Mode, profile = gpu) =>
  Pipeline.layer.pipe(
    Layer.provide([Reference.renderer({ subgroupSize: 32 }), Profile.layer(profile)]),
    // without costs, whatever may be stored is: many launches
    Layer.provide(Layer.mergeAll(
      Layer.succeed(Persistent.Persistent, service(mode)),
      Layer.succeed(FusionCosts, () => undefined)
    ))
  )

/** The evaluator, with linear kernels as a GPU would run them. */
const linear = (mode: Persistent.Mode) =>
  Jit.layer.pipe(
    Layer.provide(Compiler.layer),
    Layer.provideMerge(pipeline(mode)),
    Layer.provideMerge(Reference.layer)
  )

/** The evaluator, with kernels as the schedule has them. */
const kernels = (mode: Persistent.Mode) =>
  Jit.layer.pipe(
    Layer.provide([Compiler.layerReference, pipeline(mode)]),
    Layer.provideMerge(Reference.layer)
  )

describe("persistent launches", () => {
  it.effect("keep the values of random programs, at every stage", () =>
    Effect.gen(function*() {
      const count = process.env["TG_FULL"] === "1" ? 100 : 5
      let launches = 0
      let merged = 0
      for (let seed = 0; seed < count; seed++) {
        const random = randomProgram(seed, 24)
        const want = yield* Devices.run(random).pipe(Effect.provide(linear("off")))
        assert.deepStrictEqual(yield* Devices.run(random).pipe(Effect.provide(linear("on"))), want, `seed ${seed}`)
        const asKernels = yield* Devices.run(random).pipe(Effect.provide(kernels("off")))
        assert.deepStrictEqual(yield* Devices.run(random).pipe(Effect.provide(kernels("on"))), asKernels, `${seed}`)
        const { steps } = yield* Effect.flatMap(Pipeline, ({ schedule }) => schedule(random.program.sink)).pipe(
          Effect.provide(pipeline("on"))
        )
        launches += steps.length
        merged += steps.filter((step) => step.kind === "kernel" && Phases.isPersistent(step.ast)).length
      }
      assert.isAbove(merged, 2)
      assert.isAbove(launches, merged)
    }))

  it.effect("forward rows of a cache where there are two whose words are awaited, and read no whole cache word by word in one launch alone", () =>
    Effect.gen(function*() {
      const launchesOf = (sizes: { context: number; keyHeads: number; size: number }, maxStorageBuffers: number) =>
        Effect.gen(function*() {
          const { schedule } = yield* Pipeline
          const { steps } = yield* schedule(model({ ...sizes, heads: 4, width: 16 }).sink)
          const phases = steps.map((step) => step.kind === "kernel" ? Phases.phasesOf(step.ast) : [])
          const crossing = phases.flatMap((own) => {
            const bytes = bytesOfSlots(own)
            return [...Phases.crossing(own)].map((slot) => bytes.get(slot) ?? 0)
          })
          return {
            count: phases.filter((own) => own.length > 0).length,
            forwards: phases.flat().flatMap(Phases.forwardsOf).length,
            most: Math.max(...crossing)
          }
        }).pipe(Effect.provide(pipeline("on", { ...gpu, maxStorageBuffers })))
      const small = { context: 32, keyHeads: 2, size: 8 }
      const [two, one] = yield* Effect.all([launchesOf(small, 13), launchesOf(small, 16)])
      assert.deepStrictEqual([two.count, two.forwards], [2, 1])
      assert.deepStrictEqual([one.count, one.forwards], [1, 0])
      // of several launches one alone would forward a row of a cache of 300 KiB
      const large = yield* launchesOf({ context: 600, keyHeads: 4, size: 32 }, 12)
      assert.strictEqual(large.forwards, 0)
      assert.isAtMost(large.most, 2 ** 18)
    }))

  it.effect("are one where kernels of a function wait for each other", () =>
    Effect.gen(function*() {
      const scheduled = (mode: Persistent.Mode) =>
        Effect.flatMap(Pipeline, ({ schedule }) => schedule(blocks(2).sink)).pipe(Effect.provide(pipeline(mode)))
      const { kept = [], steps, temporaries } = yield* scheduled("on")
      const alone = yield* scheduled("off")
      const [first] = steps.filter((step) => step.kind === "kernel" && Phases.isPersistent(step.ast))
      assert.isAbove(alone.steps.length, steps.length)
      assert.deepStrictEqual(first!.args.at(-1), { kind: "temporary", id: kept[0]! })
      assert.strictEqual(temporaries[kept[0]!]!.bytes, 4 * Phases.meetingWords.count)
      const printed = first!.boundaries.flatMap(Explain.print)
      assert.match(printed.join("\n"), /persistent: one of \d+ phases by 3 workgroups/)
    }))

  it.effect("begin with words of 0, whatever programs ran before", () =>
    Effect.gen(function*() {
      const isLeft = new Uint8Array(Phases.waiting.count)
      let launches = 0
      for (const count of [3, 2, 5, 4, 2, 7, 3]) {
        const { steps } = yield* Effect.flatMap(
          Pipeline,
          ({ schedule }) => schedule(blocks(count, { apart: 1 }).sink)
        ).pipe(Effect.provide(pipeline("on")))
        for (const step of steps) {
          if (step.kind !== "kernel" || !Phases.isPersistent(step.ast)) continue
          const [slot, cleared, words] = argOf(step.ast, "PERSISTENT").awaited!
          const [own, other] = [slot, cleared].map((at) => step.args[at]!.window!.offset / 4)
          const places = Phases.phasesOf(step.ast).flatMap(({ kernel, offsets, slots }) =>
            [...Phases.sizes(kernel)].flatMap(([argument, bytes]) =>
              slots[argument] === slot
                ? [[own! + offsets[argument]!, own! + offsets[argument]! + bytes / 4] as const]
                : []
            )
          )
          assert.isNotEmpty(places)
          for (const [first, end] of places) {
            assert.isTrue(isLeft.subarray(first, end).every((word) => word === 0))
          }
          isLeft.fill(0, other!, other! + words)
          for (const [first, end] of places) isLeft.fill(1, first, end)
          launches++
        }
      }
      assert.strictEqual(launches, 26)
    }))

  it.effect("have words that are awaited where there are several, neighbours in different parts of their memory", () =>
    Effect.gen(function*() {
      const { kept = [], steps, temporaries } = yield* Effect.flatMap(
        Pipeline,
        ({ schedule }) => schedule(blocks(3, { apart: 1 }).sink)
      ).pipe(Effect.provide(pipeline("on")))
      const launches = steps.filter((step) => step.kind === "kernel" && Phases.isPersistent(step.ast))
      const awaited = launches.map((step) => {
        const [slot, cleared, words] = argOf((step as KernelStep).ast, "PERSISTENT").awaited!
        const [own, other] = [slot, cleared].map((at) => step.args[at]!.window!)
        return { own: own!.offset / 4, other: other!.offset / 4, words }
      })
      const { part, parts } = Phases.waiting
      assert.deepStrictEqual(awaited.map(({ own }) => own), [0, 1, 2].map(Phases.beginOf))
      // the first one clears all others, the others what the one before wrote
      assert.deepStrictEqual(awaited.map(({ other }) => other), [1, 0, 1].map(Phases.beginOf))
      assert.strictEqual(awaited[0]!.words, (parts - 1) * part)
      for (const { words } of awaited.slice(1)) assert.isBelow(words, part / 16)
      assert.strictEqual(temporaries[kept[0]!]!.bytes, 4 * Phases.waiting.count)
    }))

  it.effect("write twice what readers in them await and others read, too", () =>
    Effect.gen(function*() {
      const { steps } = yield* Effect.flatMap(
        Pipeline,
        ({ schedule }) => schedule(blocks(4, { apart: 2, remembers: true }).sink)
      ).pipe(Effect.provide(pipeline("on")))
      const launches = steps.flatMap((step) => step.kind === "kernel" && Phases.isPersistent(step.ast) ? [step] : [])
      const copied = launches.map(({ ast }) =>
        Phases.phasesOf(ast).flatMap(({ copies = [] }) => copies.filter((slot) => slot >= 0))
      )
      assert.deepStrictEqual(copied.map(({ length }) => length), [1, 0])
      // the copy is what the last launch reads
      const copy = launches[0]!.args[copied[0]![0]!]!
      assert.deepInclude(launches[1]!.args, copy)
    }))

  /** Blocks of two kinds in turns, which differ in one kernel and in the size of a buffer. */
  const mixed = (options: { apart: number; count: number }) =>
    blocks(options.count, { ...options, isPadded: (i) => i % 2 === 1 })

  /** What a program of blocks computes, from the same numbers. */
  const outputOf = (program: TensorProgram) =>
    Effect.gen(function*() {
      const device = yield* Device
      const { prepare } = yield* Jit
      const buffers = yield* upload(filled(program))
      const { plan, run } = yield* prepare(program.sink, buffers)
      yield* run({})
      yield* run({})
      return { out: [...yield* device.read(buffers.get(1)!)], plan }
    }).pipe(Effect.scoped)

  it.effect("are variants of one program where they differ in few phases, with the values of programs of their own", () =>
    Effect.gen(function*() {
      for (
        const { program, variants } of [
          // the first and the last one have other phases
          { program: mixed({ count: 6, apart: 1 }), variants: 2 },
          { program: mixed({ count: 7, apart: 1 }), variants: 2 },
          // an odd and an even one in each launch
          { program: mixed({ count: 8, apart: 2 }), variants: 0 },
          // of those between, one runs once
          { program: mixed({ count: 5, apart: 1 }), variants: 0 }
        ]
      ) {
        const want = yield* outputOf(program).pipe(Effect.provide(linear("off")))
        const { out, plan } = yield* outputOf(program).pipe(Effect.provide(linear("on")))
        assert.deepStrictEqual(out, want.out)
        const given = plan.launches.map(({ program }) => plan.programs[program]!.given?.[Phases.variantName])
        assert.strictEqual(new Set(given.filter((own) => own !== undefined)).size, variants)
        const codes = new Set(plan.programs.flatMap(({ code, given }) => given === undefined ? [] : [code]))
        assert.strictEqual(codes.size, Math.min(variants, 1))
        const asKernels = yield* outputOf(program).pipe(Effect.provide(kernels("off")))
        const merged = yield* outputOf(program).pipe(Effect.provide(kernels("on")))
        assert.deepStrictEqual(merged.out, asKernels.out)
      }
    }))

  it.effect("need of memory what their variant needs, and say what they are", () =>
    Effect.gen(function*() {
      const { schedule } = yield* Pipeline
      const { compile } = yield* Compiler.pipe(Effect.provide(Layer.provide(Compiler.layer, pipeline("on"))))
      const { steps } = yield* schedule(mixed({ count: 6, apart: 1 }).sink)
      const all = steps.flatMap((step) => step.kind === "kernel" && Phases.isPersistent(step.ast) ? [step] : [])
      assert.strictEqual(all.length, 6)
      const launches = all.slice(1, 3)
      const [large, small] = yield* Effect.forEach(launches, ({ ast, name }) => compile(name, ast))
      assert.deepStrictEqual([large!.given, small!.given], [0, 1].map((own) => ({ [Phases.variantName]: own })))
      const bytes = (program: Program) => program.bindings.map((binding) => binding.bytes ?? 0)
      const more = bytes(large!).filter((own, i) => own !== bytes(small!)[i])
      // rows of `down` twice as long
      assert.deepStrictEqual(more, [2 * 4 * 8 * 16])
      // one phase of each runs, at no other barrier
      const phases = Phases.phasesOf(launches[0]!.ast)
      assert.strictEqual(phases.filter(({ instead }) => instead).length, 1)
      assert.strictEqual(Phases.phasesOf(Phases.ofVariant(launches[0]!.ast)).length, phases.length - 1)
      assert.match(launches[0]!.boundaries.flatMap(Explain.print).join("\n"), /a program of 2 variants/)
    }).pipe(Effect.provide(pipeline("on"))))

  it.effect("are made by themselves where the device or the host is faster with them", () =>
    Effect.gen(function*() {
      const scheduled = (mode: Persistent.Mode, changed: Partial<DeviceProfile>) =>
        Effect.flatMap(Pipeline, ({ schedule }) => schedule(blocks(2).sink)).pipe(
          Effect.provide(pipeline(mode, { ...gpu, ...changed }))
        )
      const launchesOf = (mode: Persistent.Mode, changed: Partial<DeviceProfile>) =>
        Effect.map(scheduled(mode, changed), ({ steps }) => steps.length)
      const separate = yield* launchesOf("off", {})
      const merged = yield* launchesOf("on", {})
      assert.isBelow(merged, separate)
      const slowBarriers = { gridBarrierMicros: 10 * gpu.dispatchMicros }
      assert.strictEqual(yield* launchesOf("auto", { encodeMicros: gpu.dispatchMicros / 4 }), merged)
      assert.strictEqual(yield* launchesOf("auto", { ...slowBarriers, encodeMicros: 100 }), merged)
      // never measured
      assert.strictEqual(yield* launchesOf("auto", { encodeMicros: undefined }), separate)
      const { kept, steps } = yield* scheduled("auto", { ...slowBarriers, encodeMicros: gpu.dispatchMicros / 4 })
      assert.isUndefined(kept)
      assert.strictEqual(steps.length, separate)
      const printed = steps[0]!.boundaries.flatMap(Explain.print).join("\n")
      assert.match(
        printed,
        /persistent: a launch: the step takes [\d.]+ ms with launches one by one, and [\d.]+ with \d+ at best/
      )
    }))

  it.effect("leave a kernel alone whose opts were tuned to gain more as a launch than a phase saves", () =>
    Effect.gen(function*() {
      const profile = { ...gpu, encodeMicros: gpu.dispatchMicros / 4 }
      const launchesWith = (gain: number) => {
        const tuned = Layer.effect(
          Heuristics,
          Effect.map(Heuristics, (usual) => Heuristics.of({ ...usual, gain: () => gain }))
        ).pipe(Layer.provide(Heuristics.layer), Layer.provide(Profile.layer(profile)))
        return Effect.flatMap(Pipeline, ({ schedule }) => schedule(blocks(2).sink)).pipe(
          Effect.map(({ steps }) => steps.length),
          Effect.provide(pipeline("auto", profile).pipe(Layer.provide(tuned)))
        )
      }
      const [none, much] = yield* Effect.all([launchesWith(0), launchesWith(gpu.dispatchMicros)])
      assert.isBelow(none, much)
    }))

  it("have a workgroup on each processor, as far as barriers were tried among their threads", () => {
    const on = (threads: number, profile: Partial<DeviceProfile> = {}): number =>
      Persistent.residents({ ...h200, ...profile }, threads)
    assert.deepStrictEqual([64, 256, 512, 1024].map((threads) => on(threads)), [132, 132, 132, 132])
    assert.deepStrictEqual([on(1024, { gridBarrierWorkgroups: 264 }), on(256, { gridBarrierWorkgroups: 20 })], [66, 20])
  })

  for (
    const [name, changed] of Object.entries({
      "were never tried": { gridBarrierHolds: undefined },
      "do not hold": { gridBarrierHolds: false }
    })
  ) {
    it.effect(`are none where barriers across the grid ${name}`, () =>
      Effect.gen(function*() {
        const { steps } = yield* (yield* Pipeline).schedule(blocks(2).sink)
        assert.isFalse(steps.some((step) => step.kind === "kernel" && Phases.isPersistent(step.ast)))
      }).pipe(Effect.provide(pipeline("on", { ...gpu, ...changed }))))
  }
})
