/**
 * A short prompt behind a long context: milliseconds of a prompt of 16 behind nothing, 4096 and 16000 tokens, ours and those of llama.cpp's `llama-bench`,
 * side by side.
 *
 *     node bench/behind.ts --model glm.gguf --peer /tmp/l/bin/llama-bench
 *
 * `--prompt 16 --depths 0,4096,16000 --repeat 5 --device webgpu --tg "node scripts/cli.ts"` are the defaults; `--profile h200` takes a measured one.
 */
import { dirname } from "node:path"
import { parseArgs } from "node:util"
import { output, table, usual } from "./support/tg.ts"

interface Report {
  readonly model: string
  readonly device: string
  readonly prefill: ReadonlyArray<{
    readonly depth: number
    readonly tokensPerSecond: { readonly mean: number; readonly max: number }
  }>
}

interface PeerRow {
  readonly n_prompt: number
  readonly n_depth: number
  readonly avg_ns: number
}

const { values: given } = parseArgs({
  options: {
    model: { type: "string" },
    peer: { type: "string" },
    prompt: { type: "string", default: "16" },
    depths: { type: "string", default: "0,4096,16000" },
    repeat: { type: "string", default: "5" },
    device: { type: "string", default: "webgpu" },
    profile: { type: "string" },
    tg: { type: "string", default: usual }
  }
})
const { depths, device, model, peer, profile, prompt, repeat, tg } = given
if (model === undefined) throw new Error("which model? node bench/behind.ts --model F.gguf --peer llama-bench")

const report = JSON.parse(output(tg, [
  ...["bench", "--model", model, "--device", device, "--json"],
  ...["-p", prompt, "-n", "8", "-d", depths, "-r", repeat],
  ...profile === undefined ? [] : ["--profile", profile]
])) as Report

/** The peer's libraries lie beside it. */
const peerRows = (program: string): ReadonlyArray<PeerRow> => {
  const beside = { ...process.env, LD_LIBRARY_PATH: [dirname(program), process.env["LD_LIBRARY_PATH"]].join(":") }
  const gpu = device === "wasm" ? ["-ngl", "0"] : ["-ngl", "99", "-fa", "1"]
  const args = ["-m", model, ...gpu, "-p", prompt, "-n", "0", "-d", depths, "-r", repeat, "-o", "json"]
  return JSON.parse(output(program, args, beside)) as ReadonlyArray<PeerRow>
}
const others = peer === undefined ? [] : peerRows(peer)

const millis = (tokensPerSecond: number): number => 1000 * Number(prompt) / tokensPerSecond
console.log(`${report.model} on ${report.device}: milliseconds of a prompt of ${prompt}`)
console.log(table([
  ["behind", "ours", "best", "llama.cpp", "its / ours"],
  ...report.prefill.map(({ depth, tokensPerSecond: { max, mean } }) => {
    const other = others.find((row) => row.n_depth === depth && row.n_prompt === Number(prompt))
    const its = other && other.avg_ns / 1e6
    return [
      String(depth),
      millis(mean).toFixed(2),
      millis(max).toFixed(2),
      its?.toFixed(2) ?? "-",
      its === undefined ? "-" : (its / millis(mean)).toFixed(2)
    ]
  })
]))
console.log("asked of GLM: a prompt of 16 behind 16000 tokens in under 15 ms")
