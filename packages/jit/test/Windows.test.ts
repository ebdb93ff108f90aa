import { assert, describe, it } from "@effect/vitest"
import { webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { toposort } from "@tg/core-uop/UOp"
import * as Fusion from "@tg/rangeify/Fusion"
import type { Limits } from "@tg/rangeify/Rangeify"
import type { Schedule } from "@tg/rangeify/Schedule"
import type { RandomProgram } from "@tg/tensor/Random"
import { Effect } from "effect"
import { forAll } from "./support/search.ts"
import { difference, runSchedule, runTensor, scheduled, stages } from "./support/stages.ts"

/** What a schedule binds against the limits, if anything. */
const excess = (schedule: Schedule, limits: Limits): string | undefined => {
  const { bindingAlignment = 256, maxBindingBytes = Infinity, maxBufferBytes = Infinity } = limits
  const segment = maxBufferBytes - maxBufferBytes % bindingAlignment
  for (const step of schedule.steps) {
    if (step.kind !== "kernel") continue
    const params = toposort(step.ast).filter((node) => node.op === "PARAM")
    if (params.length > limits.maxStorageBuffers) return `${step.name} binds ${params.length} buffers`
    for (const param of params) {
      const { window } = step.args[(param.arg as { readonly slot: number }).slot]!
      const bytes = 4 * Number(param.src[0]!.arg)
      const { offset } = window ?? { offset: 0 }
      if ((window?.bytes ?? bytes) !== bytes) return `${step.name}: ${bytes} bytes in a window of ${window!.bytes}`
      if (bytes > maxBindingBytes) return `${step.name} binds ${bytes} bytes`
      if (offset % bindingAlignment !== 0) return `${step.name} binds from ${offset} on`
      if (offset + bytes > Math.ceil((offset + 1) / segment) * segment) return `${step.name} binds over ${segment}`
    }
  }
  return undefined
}

const compare = (random: RandomProgram, limits: Limits): string | undefined => {
  const schedule = scheduled(random, limits)
  const noOpts = { choose: () => [], hasGrid: false }
  return excess(schedule, limits) ??
    difference(random, runTensor(random), runSchedule(random, schedule, stages.kernel(noOpts)))
}

const limits: Readonly<Record<string, Limits>> = {
  "of 256 bytes": { maxStorageBuffers: 8, maxBindingBytes: 256, bindingAlignment: 32 },
  "of 64 bytes": { maxStorageBuffers: 8, maxBindingBytes: 64, bindingAlignment: 16 },
  "of 64 bytes, four at once": { maxStorageBuffers: 4, maxBindingBytes: 64, bindingAlignment: 16 },
  "of 256 bytes, some kernels joined, some values staged": {
    maxStorageBuffers: 8,
    maxBindingBytes: 256,
    bindingAlignment: 32,
    fusion: Fusion.ofProfile(webgpuDefault),
    joinsKernels: true
  },
  "in buffers of 64 bytes": { maxStorageBuffers: 8, maxBindingBytes: 48, maxBufferBytes: 64, bindingAlignment: 16 }
}

describe("a random program in windows", () => {
  for (const [name, limit] of Object.entries(limits)) {
    it.effect(name, () =>
      Effect.gen(function*() {
        const count = yield* forAll({ runs: 60 }, (random) => Effect.sync(() => compare(random, limit)))
        assert.isAbove(count, 0)
      }))
  }
})
