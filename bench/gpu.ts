/**
 * What a GPU is held to, in one run: right answers first, then decoding, steps of a few tokens, several conversations and a prompt behind a long context, each
 * beside what is asked of GLM-4.7-Flash, DeepSeek-V2-Lite and Youtu-LLM-2B on an H200 (tok/s of decoding on a host that encodes a launch in 3.5 us).
 * Needs nothing but Node and the command line, so it runs beside a bundle (`pnpm bundle`) on a bare machine:
 *
 *     node bench/gpu.ts --glm GLM.gguf [--glm-k GLM-Q4_K_M.gguf] [--deepseek F] [--youtu F] [--tg "node tg.mjs"] [--vectors test/vectors] [--quick]
 *
 * `--quick` measures little of each, to see that all of it runs. Exits with 1 where an answer is wrong; what is slower than asked is said.
 */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { parseArgs } from "node:util"
import { distance } from "./support/distance.ts"
import { output, table, usual } from "./support/tg.ts"

const { values: given } = parseArgs({
  options: {
    glm: { type: "string" },
    "glm-k": { type: "string" },
    deepseek: { type: "string" },
    youtu: { type: "string" },
    tg: { type: "string", default: usual },
    vectors: { type: "string", default: "test/vectors" },
    questions: { type: "string", default: "apps/cli/models/eval.jsonl" },
    tiny: { type: "string", default: "apps/cli/models/tg-tiny-Q4_0.gguf" },
    device: { type: "string", default: "webgpu" },
    quick: { type: "boolean", default: false }
  }
})
const quick = given.quick
/** What the commands report, as far as it is told here. */
interface Report {
  readonly agree: number
  readonly recorded: number
  readonly decode: readonly [{ readonly tokensPerSecond: Readonly<Record<"max" | "mean" | "min", number>> }]
  readonly dispatchesPerToken: number
  readonly encodeMsPerToken: number
  readonly prefill: readonly [{ readonly tokensPerSecond: { readonly mean: number } }]
  readonly steps: ReadonlyArray<{ readonly tokens: number; readonly times: number }>
  readonly parallel: ReadonlyArray<
    { readonly parallel: number; readonly tokensPerSecond: number; readonly step: { readonly deviceMs: number } }
  >
}

/** A case of the oracle. */
interface Case {
  readonly n_vocab: number
  readonly runs: readonly [{
    readonly prompt: ReadonlyArray<number>
    readonly continuation: ReadonlyArray<number>
    readonly rows: ReadonlyArray<number>
    readonly logits: string
  }]
}

/** Figures that are asked, by depth or by tokens. */
type Figures = Readonly<Record<string, number>>

const json = (args: ReadonlyArray<string>): Report => JSON.parse(output(given.tg, [...args, "--json"]))

const lines: Array<ReadonlyArray<string>> = []
let wrong = 0

/** What is asked of a figure, if anything is, and how it is written. */
interface Asked {
  readonly digits?: number
  readonly least?: number | undefined
  readonly most?: number | undefined
  readonly unit?: string
}

/** A line of the table: what was found, and whether it is what is asked (`least`, `most`), if anything is. */
const tell = (what: string, found: number, { digits = 2, least, most, unit = "" }: Asked = {}): void => {
  const asked = least === undefined ? most === undefined ? "" : `at most ${most}` : `at least ${least}`
  const isMet = found >= (least ?? -Infinity) && found <= (most ?? Infinity)
  const line = [what, `${found.toFixed(digits)}${unit}`, asked, asked === "" ? "" : isMet ? "yes" : "NO"]
  lines.push(line)
  console.log(line.filter((cell) => cell !== "").join("  "))
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-gpu-"))
/** Floats of a file, which may be a view of a larger buffer. */
const floatsOf = (file: string): Float32Array => {
  const bytes = fs.readFileSync(file)
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength))
}

/**
 * The oracle's cases by kernels of prompts and of decoding. An H200 is 1.5e-6 and 1.0e-3 off with floats, for the order of its sums and a cache of halves;
 * llama.cpp with bytes up to 0.11 (`int8.json`). Whether we are as near as it is, is what `Int8.test.ts` asks.
 */
const oracle = (): void => {
  const limits = { "f32 float": 5e-6, "f16 float": 2e-3, "f16 int8": 0.12 }
  const known = fs.readdirSync(path.join(given.vectors, "oracle")).flatMap((name) =>
    /^(c\d+)\.json$/.exec(name)?.[1] ?? []
  )
  const cases = known.filter((name) => fs.existsSync(path.join(given.vectors, "oracle", `${name}.gguf`)))
  let runs = 0
  for (const name of quick ? cases.slice(0, 1) : cases) {
    const at = (file: string): string => path.join(given.vectors, "oracle", file)
    const { n_vocab: vocabulary, runs: [base] } = JSON.parse(fs.readFileSync(at(`${name}.json`), "utf8")) as Case
    const tokens = [...base.prompt, ...base.continuation].join()
    const expected = floatsOf(at(base.logits))
    for (const step of ["prompt", "decode"]) {
      for (const [how, limit] of Object.entries(limits)) {
        const [kv, activations] = how.split(" ")
        const out = path.join(folder, "logits.bin")
        output(given.tg, [
          "logits",
          "-m",
          at(`${name}.gguf`),
          "--tokens",
          tokens,
          "--out",
          out,
          "--force",
          "--step",
          step,
          "--kv",
          kv,
          "--activations",
          activations,
          "--device",
          given.device
        ])
        const found = floatsOf(out)
        const rows = base.rows.map((row, i) =>
          distance(
            found.subarray(row * vocabulary, (row + 1) * vocabulary),
            expected.subarray(i * vocabulary, (i + 1) * vocabulary)
          )
        )
        const worst = Math.max(...rows.map((x) => Number.isNaN(x) ? Infinity : x))
        runs++
        if (worst <= limit) continue
        wrong++
        console.log(
          `WRONG: ${name}, ${step}, ${how}: ${worst.toExponential(1)} of the logits' spread, at most ${limit}`
        )
      }
    }
  }
  tell("runs of the oracle that are wrong", wrong, { digits: 0, most: 0, unit: ` of ${runs}` })
}

const answers = (): void => {
  const { agree, recorded } = json([
    "eval",
    given.questions,
    // a bundle alone has no model beside it
    "--model",
    given.tiny,
    "--device",
    given.device,
    ...quick ? ["--first", "4"] : []
  ])
  tell("answers of tg-tiny that are those on record", agree, { digits: 0, least: recorded, unit: ` of ${recorded}` })
  if (agree !== recorded) wrong++
}

const bench = (file: string, args: ReadonlyArray<string>): Report =>
  json(["bench", "-m", file, "--device", given.device, "--no-cache", ...args])

/** Tokens a second of decoding behind each depth, and what the host takes to encode one. */
const decode = (name: string, file: string, asked: Figures, encodeMost?: number): void => {
  const depths = quick ? ["0"] : Object.keys(asked)
  for (const depth of depths) {
    const size = [
      "-p",
      "16",
      "-n",
      quick ? "8" : "128",
      "-r",
      quick ? "1" : "5",
      "-d",
      depth,
      "--context",
      `${Number(depth) + 512}`
    ]
    const { decode: [own], dispatchesPerToken, encodeMsPerToken } = bench(file, size)
    const { max, mean, min } = own.tokensPerSecond
    tell(`${name}: tok/s behind ${depth}`, mean, {
      digits: 0,
      least: asked[depth],
      unit: ` (${min.toFixed(0)} to ${max.toFixed(0)})`
    })
    if (depth !== "0") continue
    tell(`${name}: launches of a token`, dispatchesPerToken, {
      digits: 0,
      most: encodeMost === undefined ? undefined : 70
    })
    tell(`${name}: ms to encode a token`, encodeMsPerToken, { most: encodeMost })
  }
}

/** Steps of n tokens, times one. */
const few = (name: string, file: string, asked: Figures = {}): void => {
  const sizes = quick ? [1, 2] : [1, 2, 4, 8, 16, 32]
  for (const [depth, slack] of quick ? [[0, 1] as const] : [[0, 1] as const, [4096, 1.3] as const]) {
    const args = ["--steps", sizes.join(), "-d", `${depth}`, "-r", quick ? "1" : "5", "--context", `${depth + 512}`]
    for (const { times, tokens } of bench(file, args).steps) {
      if (tokens === 1) continue
      const own = asked[tokens]
      const most = own === undefined ? undefined : Number((slack * own).toFixed(2))
      tell(`${name}: a step of ${tokens} behind ${depth}, times one`, times, { most })
    }
  }
}

/** Conversations together. */
const together = (name: string, file: string): void => {
  const args = ["--parallel", quick ? "1,2" : "1,2,4,8,16,32", "-p", "16", "-n", quick ? "8" : "64", "-r", "1"]
  const { parallel } = bench(file, args)
  const [alone] = parallel
  for (const { parallel: count, step, tokensPerSecond } of parallel) {
    tell(`${name}: tok/s of ${count} together`, tokensPerSecond, {
      digits: 0,
      unit: `, ${step.deviceMs.toFixed(2)} ms of the device a step`
    })
    if (count === 8) {
      tell(`${name}: 8 together, times one alone`, tokensPerSecond / alone!.tokensPerSecond, { least: 3.5 })
    }
  }
}

/** A few words behind a long text. */
const behind = (name: string, file: string): void => {
  const depth = quick ? 64 : 16000
  const { prefill: [own] } = bench(file, [
    "-p",
    "16",
    "-n",
    "1",
    "-r",
    quick ? "1" : "5",
    "-d",
    `${depth}`,
    "--context",
    `${depth + 384}`
  ])
  tell(`${name}: ms for a prompt of 16 behind ${depth}`, 16000 / own.tokensPerSecond.mean, {
    digits: 1,
    most: quick ? undefined : 15
  })
}

oracle()
answers()
if (given.glm !== undefined) {
  decode("GLM", given.glm, { 0: 450, 4096: 330, 16000: 240 }, 0.4)
  few("GLM", given.glm, { 2: 1.35, 4: 1.7, 8: 2.5, 16: 3.5, 32: 5 })
  together("GLM", given.glm)
  behind("GLM", given.glm)
}
if (given["glm-k"] !== undefined) decode("GLM Q4_K_M", given["glm-k"], { 0: 420 })
for (const name of ["deepseek", "youtu"] as const) {
  const file = given[name]
  if (file === undefined) continue
  decode(name, file, { 0: 800 })
  few(name, file)
}
fs.rmSync(folder, { recursive: true })
console.log(`\n${table(lines)}`)
process.exitCode = wrong > 0 ? 1 : 0
