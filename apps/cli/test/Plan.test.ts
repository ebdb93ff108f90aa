import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { wasm, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import type { EqualStep } from "@tg/engine/StepPlan"
import * as Explain from "@tg/rangeify/Explain"
import { Effect, type Scope } from "effect"
import * as EqualText from "../src/EqualText.ts"
import * as Profiles from "../src/Profiles.ts"
import { type Outcome, tg } from "./support/run.ts"

const folder: Effect.Effect<string, never, Scope.Scope> = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "tg-plan-"))),
  (path) => Effect.promise(() => rm(path, { recursive: true }))
)

const assertRefused = ({ code, stderr, stdout }: Outcome, ...words: ReadonlyArray<string>): void => {
  assertEquals([code, stdout], [1, ""])
  for (const word of words) assert.include(stderr, word)
  assert.notMatch(stderr, /^\s+at /m)
}

const boundariesIn = (launches: ReadonlyArray<Explain.ExplainedLaunch>): number =>
  launches.reduce((sum, { boundaries }) => sum + boundaries.length, 0)

/** A plan without what scheduling took, which is a time. */
const numbers = (stdout: string) => JSON.parse(stdout, (key, value) => /millis$/i.test(key) ? 0 : value)

describe("plan", () => {
  it.live("--json has the numbers of a step", () =>
    Effect.gen(function*() {
      const { code, stdout } = yield* tg(["plan", "--shape", "youtu-llm-2b:q4_0", "--json"])
      const plan = JSON.parse(stdout)
      assert.strictEqual(code, 0)
      assertEquals([plan.deviceProfile, plan.context], ["h200", 1024])
      assert.strictEqual(plan.dispatchesPerLayer.length, 32)
      // 32 equal blocks in each program; each kind of program has a body of its own, which is known if it was weighed
      const { bodies, hits, misses } = plan.schedules
      assertEquals(misses + hits, 32 * bodies)
      assert.isAtMost(misses, bodies)
      assert.closeTo(plan.bytesPerToken / 1e9, 1.17, 0.005)
      // 32 layers of 576 halves for each of 1024 positions, and for a tile behind them
      assert.strictEqual(plan.kvBytes, 32 * (1024 + 64) * 576 * 2)
      for (
        const key of ["dispatchesPerToken", "barriersPerToken", "weightBytes", "scratchBytes", "predictedMsPerToken"]
      ) {
        assert.isAbove(plan[key], 0, key)
      }
    }))

  it.live("prints a table of kernels", () =>
    Effect.gen(function*() {
      const { stdout } = yield* tg([
        "plan",
        "--shape",
        "tiny-glm:q4_k_m",
        "--ctx",
        "64",
        "-d",
        "8",
        "--profile",
        "wasm"
      ])
      assert.match(stdout, /^tiny-glm:q4_k_m on wasm, context 64, behind 8, cache f16, int8-all activations$/m)
      assert.match(stdout, /^\d+ launches per token; per layer \d+, (\d+, \d+|2 x \d+); 0 barriers$/m)
      assert.match(stdout, /^kernel +calls +bytes +us +us\/token +workgroups x threads$/m)
      assert.match(stdout, /^other forms of them, by the e-graph: \d+ bod(y|ies) searched in \d+ ms/m)
      assert.notInclude(stdout, "weighed")
    }))

  it.live("--explain tells what was chosen for each range of tokens; with --no-egraph nothing is", () =>
    Effect.gen(function*() {
      const args = ["plan", "--shape", "tiny-glm:q4_0", "--ctx", "1024", "--explain"]
      const { equal } = JSON.parse((yield* tg([...args, "--json"])).stdout) as {
        readonly equal: ReadonlyArray<EqualStep>
      }
      assertEquals(equal.map(({ step, tokens }) => [step, tokens]), [
        ["decode", 1],
        ...[2, 4, 8, 16, 32].map((tokens) => ["few", tokens]),
        ["prompt", 512]
      ])
      for (const { bodies } of equal) {
        assertEquals(bodies.map(({ name, sites }) => [name, ...sites]), [
          ["dense_block", "blk.0"],
          ["expert_block", "blk.1", "blk.2"]
        ])
      }
      const [mix] = equal[0]!.pieces
      assertEquals([mix?.label, mix?.piece, mix?.callers.map(({ body }) => body)], [
        "attn_mix",
        64,
        ["dense_block", "expert_block"]
      ])
      assert.isBelow(mix!.micros, mix!.wholeMicros)
      const lines = EqualText.print(equal)
      assert.match(
        lines,
        /^  one token\n    dense_block, blk\.0: another form: \d.* us, \d+ launches .*; as written \d/m
      )
      assert.match(
        lines,
        /^    attn_mix \(dense_block, .*\): in pieces of 64, 1 of 4 rows together, \d.* us; as written, all 256 terms/m
      )
      assert.match(
        lines,
        /^ {6}products read ffn_norm as floats, \d+\.\d us; stored bytes, \d+\.\d us; bytes in place, \d+\.\d us$/m
      )
      // the rules of a few tokens once, and the pieces of each number of them
      const of = (tokens: number): string => lines.split(`  up to ${tokens} tokens\n`)[1]!.split(/^ {2}\S/m)[0]!
      assert.match(lines, /^ {4}the experts of a block: token by token, \d+\.\d us; grouped by expert, \d+\.\d us$/m)
      assert.match(of(32), /^ {4}the experts of a block: token by token, \d+\.\d us$/m)
      assert.notInclude(of(2), "nest: ")
      assert.include(of(32), "nest: ")
      for (const tokens of [2, 32]) assert.match(of(tokens), /^ {4}attn_mix .*: in pieces of 64, \d+ of \d+ rows/m)
      const off = JSON.parse((yield* tg([...args, "--json", "--no-egraph"])).stdout) as {
        readonly equal: ReadonlyArray<EqualStep>
      }
      assertEquals(off.equal.map(({ bodies, pieces }) => [bodies, pieces]), equal.map(() => [[], []]))
    }))

  it.live("--explain says of every launch why it is there", () =>
    Effect.gen(function*() {
      // other forms of the bodies have a test of their own, and so have persistent launches
      const args = ["plan", "--shape", "tiny-glm:q4_k_m", "--ctx", "64", "--no-egraph", "--no-persistent", "--explain"]
      const plan = JSON.parse((yield* tg([...args, "--json"])).stdout)
      const bodies: ReadonlyArray<Explain.ExplainedBody> = plan.explain
      const launches = bodies.flatMap((body) => body.launches)
      assert.strictEqual(launches.reduce((sum, { calls }) => sum + calls, 0), plan.dispatchesPerToken)
      const { stdout } = yield* tg(args)
      const lines = stdout.split("\n")
      for (const { boundaries, name } of launches) {
        assert.include(lines, `  ${name}`)
        assert.strictEqual(boundaries.map(({ kernel }) => kernel).join("+"), name)
        for (const line of boundaries.flatMap(Explain.print)) assert.include(lines, `      ${line}`)
      }
      assert.strictEqual(lines.filter((line) => line.startsWith("      launch: ")).length, boundariesIn(launches))
      // its types differ from layer to layer, so that each is a body of its own
      assert.match(stdout, /^expert_block, blk\.2: \d+ launches$/m)
      assert.match(stdout, /^      weighed: global [\d.]+ us, workgroup [\d.]+ us/m)
    }))

  it.live("plans for the file of a model", () =>
    Effect.gen(function*() {
      const path = join(yield* folder, "tiny.gguf")
      yield* tg(["synth", "--shape", "tiny-lite:q4_0", "--out", path])
      const ofFile = yield* tg(["plan", "--model", path, "--json"])
      const ofShape = yield* tg(["plan", "--shape", "tiny-lite:q4_0", "--json"])
      assertEquals({ ...numbers(ofFile.stdout), model: "" }, { ...numbers(ofShape.stdout), model: "" })
    }).pipe(Effect.scoped))

  it.live("takes a profile from a file, and halves the precision of the cache by default", () =>
    Effect.gen(function*() {
      const path = join(yield* folder, "mine.json")
      const { subgroupSize: _, ...rest } = wasm
      yield* Effect.promise(() => writeFile(path, JSON.stringify({ ...rest, name: "mine", dispatchMicros: 0 })))
      const args = ["plan", "--shape", "tiny-glm:q4_0", "--profile", path, "--json"]
      const half = JSON.parse((yield* tg(args)).stdout)
      const full = JSON.parse((yield* tg([...args, "--kv", "f32"])).stdout)
      assert.strictEqual(half.deviceProfile, "mine")
      assert.strictEqual(full.kvBytes, 2 * half.kvBytes)
      // without costs of kernels, as of a CPU, the bytes alone
      assert.closeTo(half.predictedMsPerToken, half.movedBytesPerToken / wasm.bytesPerMicro / 1000, 1e-9)
    }).pipe(Effect.scoped))

  it.live("refuses what makes no sense", () =>
    Effect.gen(function*() {
      assertRefused(yield* tg(["plan"]), "--model", "--shape")
      assertRefused(yield* tg(["plan", "--shape", "glm:q4_0"]), "glm:q4_0", "glm-4.7-flash:q4_0")
      assertRefused(yield* tg(["plan", "--shape", "tiny-glm:q4_0", "--profile", "h100"]), "h100", "h200")
      assertRefused(yield* tg(["plan", "--shape", "tiny-glm:q4_0", "--ctx", "100000"]), "100000", "4096")
      assertRefused(yield* tg(["plan", "--shape", "tiny-glm:q4_0", "--ctx", "0"]), "0")
      assertRefused(yield* tg(["plan", "--shape", "tiny-glm:q4_0", "--ctx", "64", "--depth", "64"]), "64", "65")
      assertRefused(
        yield* tg(["plan", "--shape", "tiny-glm:q4_0", "--limit", "maxFoo=1"]),
        "maxFoo",
        "maxStorageBufferBindingSize"
      )
    }))
})

describe("Profiles", () => {
  it("knows the built-in profiles by name", () => {
    assert.strictEqual(Profiles.builtIn.get("webgpu-default"), webgpuDefault)
  })
})
