/**
 * What the kernels of a step of a few tokens take, beside what was predicted for GLM-4.7-Flash Q4_0 on an H200 (docs/few-tokens.md): a table
 * of the report of `profile --json`; with several reports, as of an old and a new build in turns, a column for each.
 *
 *     tg profile --model glm.gguf --device webgpu --profile h200 --prompt 4 --json > p4.json
 *     node bench/few.ts p4.json
 *
 *     sh bench/few.sh glm.gguf old.mjs new.mjs     both builds in turns, for 2, 4, 8, 16 and 32 tokens
 */
import * as fs from "node:fs"
import { Schema } from "effect"

const Report = Schema.Struct({
  tokens: Schema.Int,
  depth: Schema.Int,
  kernels: Schema.Array(Schema.Struct({
    name: Schema.String,
    calls: Schema.Int,
    us: Schema.Finite,
    usPerToken: Schema.Finite
  })),
  deviceMsPerToken: Schema.optional(Schema.Finite)
})

/** Predicted microseconds of a call, for 2, 4, 8, 16 and 32 tokens behind nothing. */
interface Predicted {
  readonly role: string
  readonly name: RegExp
  readonly micros: readonly [two: number, four: number, eight: number, sixteen: number, most: number]
}

const sizes = [2, 4, 8, 16, 32]

/** In the order of a layer; a kernel has the first role whose expression its name meets. */
const predictions: ReadonlyArray<Predicted> = [
  { role: "query and latent", name: /attn_q_a/, micros: [4, 4.7, 6.3, 9, 11] },
  { role: "norms, cache", name: /int8_\d+_24_12/, micros: [4.4, 4.4, 3.2, 4, 4.4] },
  { role: "query's second half", name: /attn_q_b/, micros: [4.4, 5.3, 6.5, 10, 13] },
  { role: "query through k_b", name: /query|attn_scores/, micros: [5.3, 7.5, 8.8, 12, 21] },
  { role: "attention", name: /attn_mix\w*_520$/, micros: [7.4, 9.5, 8, 10, 15] },
  { role: "value projection", name: /attn_mix_\d+_\d+_\d+$/, micros: [NaN, NaN, 6, 10, 15] },
  { role: "combination of pieces", name: /attn_mix/, micros: [NaN, NaN, 4.5, 6.5, 7] },
  { role: "values' rounding or all", name: /int8_\d+_160_12/, micros: [8, 9.2, 3, 3.2, 3.8] },
  { role: "output", name: /ffn_inp/, micros: [6, 8, 12.4, 18, 29] },
  { role: "choice, shared gate and up", name: /ffn_moe_topk/, micros: [5.5, 6.1, 8.3, 13, 15] },
  { role: "router, norm", name: /ffn_gate_inp/, micros: [3.5, 3.8, 4.2, 6, 7] },
  { role: "experts' gate and up", name: /int8_\d+_4_48_12/, micros: [12, 17.3, 25, 41, 54] },
  { role: "experts' down", name: /l_out/, micros: [8.5, 12, 18, 33, 51] },
  { role: "first norm", name: /^int8_\d+_64_12/, micros: [2.8, 3.5, 3.5, 3.7, 4] }
]

const roleOf = (name: string): Predicted | undefined => predictions.find((each) => each.name.test(name))

const files = process.argv.slice(2)
if (files.length === 0) {
  throw new Error("which report? node bench/few.ts REPORT.json .., of `tg profile --prompt N --json`")
}
const reports = files.map((file) => Schema.decodeUnknownSync(Report)(JSON.parse(fs.readFileSync(file, "utf8"))))
const { depth, tokens } = reports[0]!
if (reports.some((report) => report.tokens !== tokens || report.depth !== depth)) {
  throw new Error(
    `reports of one size behind one depth: ${reports.map((r) => `${r.tokens} behind ${r.depth}`).join(", ")}`
  )
}
const size = sizes.indexOf(tokens)
const columns = (figures: ReadonlyArray<number | undefined>, digits: number): string =>
  figures.map((x) => (x === undefined || Number.isNaN(x) ? "-" : x.toFixed(digits)).padStart(8)).join("")

/** Kernels of one role, or of one name where that has none: builds name the parts of a launch differently. */
const rowOf = (name: string): string => roleOf(name)?.role ?? name
const rows = [...new Set(reports.flatMap(({ kernels }) => kernels.map(({ name }) => rowOf(name))))]
const of = (report: typeof Report.Type, row: string) => report.kernels.filter(({ name }) => rowOf(name) === row)

console.log(
  `${tokens} tokens behind ${depth}; calls, us of a call: predicted (behind nothing), measured; ms of the step`
)
for (const row of rows) {
  const predicted = predictions.find((each) => each.role === row)?.micros[size]
  const calls = reports.map((report) => of(report, row).reduce((n, kernel) => n + kernel.calls, 0))
  const all = reports.map((report) => of(report, row).reduce((n, kernel) => n + kernel.usPerToken, 0))
  const each = all.map((micros, i) => calls[i] === 0 ? undefined : micros / calls[i]!)
  console.log(
    `${row.slice(0, 40).padEnd(40)}${columns(calls, 0)} |${columns([predicted], 1)} |${columns(each, 1)} |${
      columns(all.map((micros) => micros / 1000), 3)
    }`
  )
}
console.log(`the step on the device's clock, ms:${columns(reports.map((report) => report.deviceMsPerToken), 2)}`)
