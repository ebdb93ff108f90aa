import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { type DeviceProfile, h200, wasm } from "@tg/core-uop/DeviceProfile"
import { ofProfile, profileOf } from "@tg/core-uop/ProfileFile"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect } from "effect"
import * as Profiles from "../src/Profiles.ts"
import { type Outcome, tg } from "./support/run.ts"

const folder = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "tg-profiles-"))),
  (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
)

/** A file that says this. */
const file = Effect.fnUntraced(function*(content: unknown) {
  const path = join(yield* folder, "mine.json")
  yield* Effect.promise(() => writeFile(path, JSON.stringify(content)))
  return path
})

const assertRefused = ({ code, stderr, stdout }: Outcome, ...words: ReadonlyArray<string>): void => {
  assert.notStrictEqual(code, 0)
  assert.strictEqual(stdout, "")
  for (const word of words) assert.include(stderr, word)
}

const generate = ["generate", "--device", "wasm", "-n", "3", "What is 17 + 25?"]

describe("--profile", () => {
  it("a file says all that a profile has", () => {
    for (const profile of [h200, wasm]) {
      assert.deepStrictEqual({ ...profileOf(ofProfile(profile)) }, { ...profile, subgroupSize: profile.subgroupSize })
    }
  })

  it.live("is what the device is taken for, wherever a model runs", () =>
    Effect.gen(function*() {
      const slow: DeviceProfile = { ...wasm, name: "slow", bytesPerMicro: 1000 }
      const path = yield* file(ofProfile(slow))
      const usual = yield* tg(generate)
      const given = yield* tg([...generate, "--profile", path])
      assert.strictEqual(given.code, 0)
      assert.strictEqual(given.stdout, usual.stdout)
    }).pipe(Effect.scoped))

  it.live("has a file's matrix units where nothing runs, until --no-matrix-units", () =>
    Effect.gen(function*() {
      const path = yield* file(ofProfile({ ...h200, matrixUnits: true }))
      const planned = (noMatrixUnits: boolean) =>
        Profiles.resolve({ profile: path, limits: {}, noSubgroups: false, noMatrixUnits })
      assert.isTrue((yield* planned(false)).matrixUnits)
      const without = yield* planned(true)
      assert.deepStrictEqual([without.matrixUnits, without.subgroupSize], [undefined, 32])
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)))

  it.live("is refused where it is unknown, of another kind of device, or says what no profile says", () =>
    Effect.gen(function*() {
      assertRefused(yield* tg([...generate, "--profile", "h100"]), "no profile h100", "h200, wasm, webgpu-default")
      assertRefused(yield* tg([...generate, "--profile", "h200"]), "h200 is one of a gpu", "wasm is a cpu")
      const misspelt = yield* file({ ...ofProfile(wasm), registersBytes: 4 })
      assertRefused(yield* tg([...generate, "--profile", misspelt]), misspelt, "registersBytes")
      const impossible = yield* file({ ...ofProfile(wasm), loadMicros: -1 })
      assertRefused(yield* tg([...generate, "--profile", impossible]), impossible, "loadMicros", "greater than 0")
      assertRefused(yield* tg([...generate, "--profile", "/no/such.json"]), "/no/such.json cannot be read")
    }).pipe(Effect.scoped))
})
