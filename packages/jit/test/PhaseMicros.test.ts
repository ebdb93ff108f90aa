import { h200, processorsOf } from "@tg/core-uop/DeviceProfile"
import { slower } from "../src/internal/phaseMicros.ts"
import { describe, expect, it } from "@effect/vitest"

const processors = processorsOf(h200)
/** A launch with a workgroup of 1024 threads on each processor. */
const launch = { threads: 1024, workgroups: processors }
/** Workgroups of one subgroup that run at once, as a launch of their own and in the launch: 32 on each processor. */
const wave = 32 * processors

describe("what a phase loses against a launch of its own", () => {
  it("is nothing where its workgroups run at once", () => {
    expect(slower(h200, { busy: 3, waits: 2, workgroups: wave, threads: 32 }, launch)).toBe(0)
  })

  it("is the wait of a turn for each one more, of several", () => {
    const large = { busy: 3, waits: 2, workgroups: 2 * processors, threads: 512 }
    expect(slower(h200, large, { threads: 512, workgroups: processors }) - slower(h200, large, launch)).toBeCloseTo(
      2 + 3
    )
  })

  it("is a part of a wave's wait where a launch has many waves", () => {
    const waves = 18.25
    const waits = 26
    const lost = slower(h200, { busy: 57, waits, workgroups: waves * wave, threads: 32 }, launch)
    expect(lost).toBeCloseTo((19 - waves) * waits / waves)
  })
})
