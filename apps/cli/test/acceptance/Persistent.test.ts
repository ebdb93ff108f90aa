import { mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { webgpuDefault } from "@tg/core-uop/DeviceProfile"
import * as ProfileFile from "@tg/core-uop/ProfileFile"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { child } from "../support/run.ts"
import { isFull } from "./support/full.ts"

const folder = mkdtempSync(join(tmpdir(), "tg-persistent-"))

/** The file of a profile of a device on which so many workgroups are said to run at once; waits in vain end soon where there are many. */
const profile = (workgroups: number): string => {
  const path = join(folder, `${workgroups}.json`)
  const said = {
    ...webgpuDefault,
    // small launches, for software Vulkan's compiler
    maxStorageBuffers: 4,
    processors: workgroups,
    gridBarrierHolds: true,
    gridBarrierWorkgroups: workgroups,
    cachedLoadMicros: workgroups > 2 ? 10 : 0.01
  }
  writeFileSync(path, JSON.stringify(ProfileFile.ofProfile(said)))
  return path
}

const question = ["What is 17 + 25?", "-n", "12", "--context", "64", "--device", "webgpu"]
const answer = (...flags: ReadonlyArray<string>) =>
  child(["generate", ...question, ...flags], { env: { XDG_CACHE_HOME: folder } })

describe.skipIf(!isFull || (await availableAdapter()) === undefined)("persistent launches", () => {
  it("answer what launches answer", async () => {
    const { code, stderr, stdout } = await answer("--persistent", "on", "--profile", profile(2))
    assert.strictEqual(code, 0, stderr)
    assert.match(stdout, /17 \+ 25 = 42/)
  })

  it("that give up are done again as launches, and doctor says what happened", async () => {
    const { code, stderr, stdout } = await answer("--persistent", "on", "--profile", profile(4096))
    assert.strictEqual(code, 0, stderr)
    assert.match(stdout, /17 \+ 25 = 42/)
    assert.match(stderr, /workgroups of a persistent launch did not all run at once/)
    const doctor = await child(["doctor"], { env: { XDG_CACHE_HOME: folder } })
    assert.match(doctor.stdout, /gridBarrierHolds: workgroups of a persistent launch did not all run at once/)
    assert.match(doctor.stdout, /barriers across the grid do not hold/)
  })
})
