import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect } from "effect"
import * as Node from "@tg/runtime-webgpu/Node"
import { neededTokens, parseDepths, spread, tokenIds } from "../src/Measurement.ts"
import * as BatchedPeer from "../src/BatchedPeer.ts"
import * as HostCalls from "../src/HostCalls.ts"
import * as ParallelBench from "../src/ParallelBench.ts"
import { tg } from "./support/run.ts"

const wasm = ["--device", "wasm"]

/** What `llama-batched-bench` prints: the format of its README, with a line of its log in front. */
const batchedBench =
  `main: n_kv_max = 2048, n_batch = 2048, n_ubatch = 512, flash_attn = 1, n_gpu_layers = 99, n_threads = 8

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   128 |    128 |    1 |    256 |    0.108 |  1186.64 |    3.079 |    41.57 |    3.187 |    80.32 |
|   128 |    128 |    2 |    512 |    0.198 |  1295.19 |    5.029 |    50.90 |    5.227 |    97.95 |

llama_perf_context_print:        load time =     812.06 ms`

describe("llama-batched-bench beside ours", () => {
  const speeds = [
    { parallel: 1, tokensPerSecond: 41.57, promptTokensPerSecond: 1186.64 },
    { parallel: 2, tokensPerSecond: 50.9, promptTokensPerSecond: 1295.19 }
  ]
  it("is read from its table", () => {
    assertEquals(BatchedPeer.parse(batchedBench), speeds)
    // a log's time in front of each line, and a line that was cut
    const logged = batchedBench.split("\n").map((line) => `0.00.123.456 I ${line}`).join("\n")
    assertEquals(BatchedPeer.parse(`${logged}\n|   128 |    128 |    4 |`), speeds)
    assertEquals(BatchedPeer.parse("error: unknown model"), [])
  })

  it("is looked for, and the error says what to do", () => {
    assert.match(String(BatchedPeer.find(undefined, "/nowhere")), /in no folder of PATH; .* --peer-program FILE/)
    assert.match(String(BatchedPeer.find("/nowhere/x", "")), /there is no \/nowhere\/x; give the path of/)
  })

  it("stands in the same table", () => {
    const times = { steps: 9, ms: 8, deviceMs: 7, encodeMs: 2, planMs: 0.1, submitMs: 2.1, waitMs: 5, idleMs: 0.5 }
    const step = { ...times, ahead: 0.75, dropped: 3 }
    const speed = { min: 80, max: 90, each: 85, tokensPerSecond: 83.14, promptTokensPerSecond: 2373.28 }
    const own = { ...speed, tokensPerStep: 1, step }
    const text = ParallelBench.asText({
      ...{ model: "m", device: "d", context: 64, prompt: 128, generate: 128, weightsMs: 1, compileMs: 1, gpuBytes: 1 },
      parallel: [{ ...own, parallel: 1 }, { ...own, parallel: 4 }],
      peer: speeds
    })
    assert.match(text, /^4 +9 +8 +7 +2 +0\.1 +2\.1 +5 +0\.5 +0\.75 +3$/m)
    assert.match(text, /llama\.cpp\/s +times it +its prompts\/s +times them$/m)
    assert.match(text, /^1 .* 41\.57 +2\.00 +1186\.64 +2\.00$/m)
    assert.match(text, /^4 .* 1 *$/m)
  })
})

describe("bench", () => {
  it("takes each depth once, and refuses what is no depth", () => {
    assertEquals(parseDepths("0, 4096,0"), [0, 4096])
    assert.match(String(parseDepths("0,x")), /"x"; give numbers of tokens/)
  })

  it("needs room for the prompt and for the text at every depth", () => {
    assert.strictEqual(neededTokens({ depths: [0, 100], prompt: 8, generate: 20 }), 120)
    assert.strictEqual(neededTokens({ depths: [0], prompt: 1, generate: 20 }), 21)
  })

  it.effect(
    "prints one JSON value on stdout where something is worth a warning, which is a line on stderr",
    () =>
      Effect.gen(function*() {
        const sizes = ["--parallel", "8", "-p", "4", "-n", "4", "--context", "1024", "--limit", "memory=30000000"]
        const { code, stderr, stdout } = yield* tg(["bench", ...wasm, ...sizes, "--json"])
        assert.strictEqual(code, 0, stderr)
        assert.match(stderr, /^warning: the device has room for \d+ of 128 pages of 64 tokens$/m)
        assert.strictEqual(JSON.parse(stdout).parallel[0].parallel, 8)
      }),
    60_000
  )

  it("gives mean, least and largest speed", () => {
    assertEquals(spread(10, [1e6, 2e6]), { mean: 7.5, min: 5, max: 10 })
  })

  it("measures with other tokens each time", () => {
    const [first, again, other] = [tokenIds(9, 1, 50), tokenIds(9, 1, 50), tokenIds(9, 2, 50)]
    assertEquals(first, again)
    assert.notDeepEqual(first, other)
    assert.isTrue(first.every((id) => id >= 0 && id < 50))
  })

  it.live("--json has speeds at each depth, the costs of a token and the memory", () =>
    Effect.gen(function*() {
      const args = ["-p", "4", "-n", "3", "-d", "0,5", "--repeat", "2"]
      const { code, stdout } = yield* tg(["bench", ...wasm, ...args, "--json"])
      assert.strictEqual(code, 0)
      const report = JSON.parse(stdout)
      assertEquals([report.model, report.device, report.encodeMsPerToken], ["tg-tiny", "wasm", 0])
      assertEquals(report.prefill.map((m: { tokens: number; depth: number }) => [m.tokens, m.depth]), [[4, 0], [4, 5]])
      assertEquals(report.decode.map((m: { tokens: number; depth: number }) => [m.tokens, m.depth]), [[3, 0], [3, 5]])
      for (const { tokensPerSecond: { max, mean, min } } of [...report.prefill, ...report.decode]) {
        assert.isTrue(0 < min && min <= mean && mean <= max)
      }
      for (const key of ["loadMs", "dispatchesPerToken", "gpuMsPerToken", "peakHeapBytes", "gpuBytes"]) {
        assert.isAbove(report[key], 0)
      }
    }))

  it.live("counts what is called of Dawn while it is profiled, and leaves Dawn as it was", () =>
    Effect.gen(function*() {
      const { GPUQueue } = yield* Node.classes
      assert.isTrue(typeof GPUQueue === "function")
      const prototype =
        (GPUQueue as { readonly prototype: { submit: (given: ReadonlyArray<unknown>) => void } }).prototype
      const own = prototype.submit
      // without a queue it throws, and has been called all the same
      const call = Effect.try(() => prototype.submit([])).pipe(Effect.ignore)
      const [, { calls, heapBytes }] = yield* HostCalls.profile(Effect.replicateEffect(call, 3))
      assertEquals(calls.map(({ calls, name }) => [name, calls]), [["submit", 3]])
      assert.isAtLeast(heapBytes, 0)
      assert.strictEqual(prototype.submit, own)
      // of what is allocated in a turn in which something was called, turns in which nothing was collected tell
      const kept: Array<Uint8Array> = []
      const turn = Effect.andThen(
        call,
        Effect.promise(() => {
          kept.push(new Uint8Array(2 ** 20))
          return new Promise(setImmediate)
        })
      )
      const [, { arrayBytes }] = yield* HostCalls.profile(Effect.replicateEffect(turn, 16))
      assert.closeTo(arrayBytes, 2 ** 24, 2 ** 22)
      assert.strictEqual(kept.length, 16)
    }))

  it.live("--host is refused where no device is called", () =>
    Effect.gen(function*() {
      const { code, stderr } = yield* tg(["bench", ...wasm, "-p", "2", "-n", "2", "--host"])
      assert.strictEqual(code, 1)
      assert.include(stderr, "--host profiles calls into WebGPU, and the device is wasm; add --device webgpu")
    }))

  it.live("--parallel has the speed of several conversations together, and of each", () =>
    Effect.gen(function*() {
      const folder = yield* Effect.acquireRelease(
        Effect.promise(() => mkdtemp(join(tmpdir(), "tg-bench-"))),
        (path) => Effect.promise(() => rm(path, { recursive: true }))
      )
      const program = join(folder, "llama-batched-bench")
      const script = `#!/bin/sh\necho "$@" > ${folder}/arguments\ncat <<END\n${batchedBench}\nEND\n`
      yield* Effect.promise(() => writeFile(program, script, { mode: 0o755 }))
      const args = ["--parallel", "2,1", "-p", "4", "-n", "3", "--repeat", "1", "--threads", "2"]
      const peer = ["--peer", "llama.cpp", "--peer-program", program]
      const { code, stdout } = yield* tg(["bench", ...wasm, ...args, ...peer, "--json"])
      assert.strictEqual(code, 0)
      const { parallel, peer: found } = JSON.parse(stdout)
      assertEquals(found, BatchedPeer.parse(batchedBench))
      const given = yield* Effect.promise(() => readFile(`${folder}/arguments`, "utf8"))
      assert.match(given, /^-m \S+\.gguf -c 14 -npp 4 -ntg 3 -npl 1,2 -ngl 0 -t 2 -tb 2$/m)
      assertEquals(parallel.map((at: ParallelBench.Speed) => [at.parallel, at.tokensPerStep]), [[1, 1], [2, 2]])
      for (const { each, max, min, parallel: count, tokensPerSecond } of parallel) {
        assert.isTrue(0 < min && min <= tokensPerSecond && tokensPerSecond <= max)
        assert.closeTo(each, tokensPerSecond / count, 0.01 * each)
      }
      for (const { step } of parallel as ReadonlyArray<ParallelBench.Speed>) {
        const { ahead, dropped, idleMs, ms, planMs, steps, submitMs, waitMs } = step
        // a processor has nothing to run ahead of
        assertEquals([steps, ahead, dropped], [3, 0, 0])
        assert.isAtMost(planMs + submitMs + waitMs, ms)
        assert.isAtMost(idleMs, ms)
      }
      const wrong = yield* tg(["bench", ...wasm, "--parallel", "1,0"])
      assert.strictEqual(wrong.code, 1)
      assert.include(wrong.stderr, "--parallel has \"0\"; give numbers of conversations from 1 to 256")
    }))

  it.live("a depth beyond the context is refused before the model is loaded", () =>
    Effect.gen(function*() {
      const { code, stderr, stdout } = yield* tg(["bench", ...wasm, "-d", "1000"])
      assertEquals([code, stdout], [1, ""])
      assert.include(stderr, "the context holds 1024 tokens and 1512 were asked for")
    }))
})

describe("profile", () => {
  it.live("--parallel has a step of several conversations", () =>
    Effect.gen(function*() {
      const { code, stdout } = yield* tg(["profile", ...wasm, "--parallel", "2", "--json"])
      assert.strictEqual(code, 0)
      const { dispatchesPerToken, kernels, stepMsPerToken, tokens } = JSON.parse(stdout)
      assert.strictEqual(tokens, 2)
      assert.isAbove(stepMsPerToken, 0)
      assert.strictEqual(kernels.reduce((n: number, { calls }: { calls: number }) => n + calls, 0), dispatchesPerToken)
      const wrong = yield* tg(["profile", ...wasm, "--parallel", "2", "-p", "4"])
      assert.strictEqual(wrong.code, 1)
      assert.include(wrong.stderr, "--parallel profiles steps that write, and --prompt one that reads a prompt")
    }))

  it.live("--json has every launch, and relates their sum to the step", () =>
    Effect.gen(function*() {
      const { code, stdout } = yield* tg(["profile", ...wasm, "--depth", "3", "--json"])
      assert.strictEqual(code, 0)
      const { dispatchesPerToken, kernels, restMsPerToken, stepMsPerToken, sumMsPerToken, schedules } = JSON.parse(
        stdout
      )
      assert.isAbove(schedules.hits, schedules.misses)
      const sum = (f: (kernel: { calls: number; usPerToken: number; share: number }) => number): number =>
        kernels.map(f).reduce((a: number, b: number) => a + b, 0)
      assert.strictEqual(sum((k) => k.calls), dispatchesPerToken)
      // 1e-9: sums of floats in another order
      assert.closeTo(sum((k) => k.usPerToken) / 1000, sumMsPerToken, 1e-9)
      assert.closeTo(sum((k) => k.share), 1, 1e-9)
      assert.closeTo(sumMsPerToken + restMsPerToken, stepMsPerToken, 1e-9)
      assert.strictEqual(new Set(kernels.map((k: { name: string }) => k.name)).size, kernels.length)
    }))

  it.live("a depth beyond the context is refused", () =>
    Effect.gen(function*() {
      const { code, stderr } = yield* tg(["profile", ...wasm, "--depth", "1024"])
      assert.strictEqual(code, 1)
      assert.include(stderr, "1025 were asked for")
    }))
})

describe("bench --steps", () => {
  it.live("times steps of several tokens beside one", () =>
    Effect.gen(function*() {
      const { stdout } = yield* tg(["bench", ...wasm, "--steps", "4,2", "-d", "0,8", "-r", "1", "--json"])
      const { steps } = JSON.parse(stdout) as {
        steps: ReadonlyArray<{ depth: number; tokens: number; ms: number; times: number }>
      }
      assertEquals(steps.map(({ depth, tokens }) => [depth, tokens]), [[0, 1], [0, 2], [0, 4], [8, 1], [8, 2], [8, 4]])
      assert.isTrue(steps.every(({ ms }) => ms > 0))
      assertEquals([steps[0]!.times, steps[3]!.times], [1, 1])
    }))

  it.live("refuses what is no size, and more tokens than a step reads", () =>
    Effect.gen(function*() {
      const bad = yield* tg(["bench", ...wasm, "--steps", "2,x"])
      assert.include(bad.stderr, "--steps has \"x\"; give numbers of tokens")
      const many = yield* tg(["bench", ...wasm, "--steps", "1000", "-r", "1"])
      assert.match(
        many.stderr,
        /--steps 1000: so many tokens of a prompt are read in several steps here, the first of \d+/
      )
    }))
})

describe("kernel --tokens", () => {
  it.live("shows the step that so many tokens of a prompt take", () =>
    Effect.gen(function*() {
      const named = (tokens: string) =>
        tg(["kernel", "--shape", "tiny-glm:q4_0", "--profile", "h200", "--step", "prompt", "--tokens", tokens])
      const few = yield* named("7")
      assert.include(few.stdout, "token_embd_8_")
      const alone = yield* tg(["kernel", "--shape", "tiny-glm:q4_0", "--profile", "h200", "--tokens", "4"])
      assert.include(alone.stderr, "--tokens 4 is of a prompt's step; give --step prompt with it")
    }))
})
