import { assert, describe, it } from "@effect/vitest"
import { h200, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { ofProfile } from "@tg/core-uop/ProfileFile"
import { facts } from "@tg/runtime-webgpu/Testing"
import * as DeviceReport from "../src/DeviceReport.ts"

const { adapter } = facts
const litmus = [
  { workgroups: 2, values: 1e8, stale: 0, gaveUp: false },
  { workgroups: 4000, values: 0, stale: 0, gaveUp: true }
]

describe("doctor, of a GPU", () => {
  it("says of each quantity what it is, or why it is unknown, and what the litmus program found", () => {
    const text = DeviceReport.measuredLines({
      device: "acme",
      isKept: true,
      findings: [
        { quantity: "processors", value: 132 },
        { quantity: "cacheBytes", problem: "memory was not slower than caches" }
      ],
      litmus,
      profile: { ...h200, gridBarrierHolds: true, gridBarrierWorkgroups: 2 },
      seconds: 1.25
    })
    assert.deepStrictEqual(text, [
      "measured on acme, in 1.3 s; kept, and used from now on:",
      "  processors 132",
      "  cacheBytes unknown, a usual value is taken: memory was not slower than caches",
      "  barrier across 2 workgroups: 1.0e+8 values read, 0 stale",
      "  barrier across 4000 workgroups: not all of them ran at once; it was given up",
      "  barriers across the grid hold, for up to 2 workgroups"
    ])
  })

  it("says where figures come from", () => {
    assert.match(DeviceReport.keptLines(facts, undefined)[0]!, /figures of a small GPU/)
    assert.match(DeviceReport.keptLines({ ...facts, named: true }, undefined)[0]!, /figures of its name/)
    const profile = ofProfile({ ...webgpuDefault, loadMicros: 0.5, gridBarrierHolds: false })
    const problems = [{ quantity: "gridBarrierHolds", problem: "a wait was given up" }]
    const kept = { version: 5, adapter, complete: true, profile, problems, litmus: [], seconds: 2 } as const
    assert.deepStrictEqual(DeviceReport.keptLines(facts, kept), [
      "  planned with what was measured of it, in 2.0 s:",
      "    saturatingThreads 16384, dispatchMicros 5, bytesPerMicro 100000, loadMicros 0.5, gridBarrierHolds false",
      "    gridBarrierHolds: a wait was given up",
      "  barriers across the grid do not hold: kernels are launched one by one"
    ])
  })
})
