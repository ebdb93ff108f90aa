import { assert, describe, it } from "@effect/vitest"
import { restrict } from "@tg/core-uop/DeviceLimits"
import { type DeviceProfile, h200, Profile, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { devectorize, DevectorizeError } from "@tg/devectorize/Devectorize"
import { linearize } from "@tg/devectorize/Linearize"
import { choose } from "@tg/heuristics/Heuristics"
import * as Postrange from "@tg/postrange/Postrange"
import * as Reference from "@tg/runtime/Reference"
import { kernels, limitsOf, RangeifyError, schedule } from "@tg/rangeify/Rangeify"
import * as Program from "@tg/tensor/Program"
import { buffer } from "@tg/tensor/Tensor"
import { Effect, Layer } from "effect"
import { Compiler } from "../src/Compiler.ts"
import { Pipeline } from "../src/Pipeline.ts"
import * as KernelLimits from "../src/KernelLimits.ts"
import { forAll } from "./support/search.ts"
import { difference, runSchedule, runTensor, scheduled, type StageOptions, stages } from "./support/stages.ts"

const limited = (limits: Readonly<Record<string, number>>): DeviceProfile =>
  restrict(h200, { limits, subgroups: false })

const caps = { ...Reference.caps, target: "wgsl", hasGrid: true, lanes: [1, 4] } as const

/** A kernel as the heuristics and later stages make it for a device. */
const compiled = (name: string, kernel: UOp, profile: DeviceProfile): UOp => {
  const opted = Postrange.apply(name, kernel, choose(kernel, profile), profile)
  if (opted instanceof Postrange.IllegalOpt) throw opted
  const expanded = devectorize(name, opted, caps, profile)
  if (expanded instanceof DevectorizeError) throw expanded
  return linearize(expanded, caps)
}

describe("a random program for a device with low limits", () => {
  const devices = {
    "four threads": limited({ maxComputeInvocationsPerWorkgroup: 4 }),
    "64 bytes of workgroup memory": limited({ maxComputeWorkgroupStorageSize: 64 }),
    "no workgroup memory": limited({ maxComputeWorkgroupStorageSize: 0 }),
    "four buffers": limited({ maxStorageBuffersPerShaderStage: 4 }),
    "five workgroups a dimension": limited({ maxComputeWorkgroupsPerDimension: 5 }),
    "one workgroup": limited({ maxComputeWorkgroupsPerDimension: 1 }),
    "all of that": limited({
      maxComputeInvocationsPerWorkgroup: 4,
      maxComputeWorkgroupStorageSize: 64,
      maxStorageBuffersPerShaderStage: 4,
      maxComputeWorkgroupsPerDimension: 5,
      maxStorageBufferBindingSize: 512
    })
  }
  for (const [name, profile] of Object.entries(devices)) {
    it.effect(`${name}: compiles within them, to the same values`, () =>
      Effect.gen(function*() {
        const options: StageOptions = { choose: (kernel) => choose(kernel, profile), hasGrid: true, profile }
        const count = yield* forAll({ runs: 40, kept: [1098, 1264, 2195] }, (random) =>
          Effect.sync(() => {
            const schedule = scheduled(random, limitsOf(profile))
            for (const step of schedule.steps) {
              if (step.kind !== "kernel") continue
              const exceeded = KernelLimits.check(step.name, compiled(step.name, step.ast, profile), profile)
              if (exceeded !== undefined) return exceeded.message
            }
            return difference(random, runTensor(random), runSchedule(random, schedule, stages.linear(options)))
          }))
        assert.isAbove(count, 0)
      }))
  }
})

describe("a kernel that exceeds a limit", () => {
  it.effect("does not compile, and says which kernel and which limit", () =>
    Effect.gen(function*() {
      const arena = new Arena()
      const [a, b, out] = [0, 1, 2].map((id) => buffer(arena, id, { shape: [4], dtype: DType.f32 }))
      const made = schedule(Program.make([Program.assign(out!, a!.mul(b!))]).sink, { maxStorageBuffers: 8 })
      if (made instanceof RangeifyError) throw made
      const { compile } = yield* Compiler
      const error = yield* Effect.flip(compile("product", kernels(made)[0]!.ast))
      assert.strictEqual(error.reason._tag, "KernelLimit")
      assert.strictEqual(
        error.message,
        "product does not compile: product needs 3 of maxStorageBuffersPerShaderStage, the device allows 2; " +
          "materialise a part of what it computes with contiguous()"
      )
    }).pipe(
      Effect.provide(
        Compiler.layer.pipe(
          Layer.provide(Pipeline.layer),
          Layer.provide([
            Reference.renderer(caps),
            Profile.layer(restrict(webgpuDefault, { limits: { maxStorageBuffersPerShaderStage: 2 }, subgroups: true }))
          ])
        )
      )
    ))
})
