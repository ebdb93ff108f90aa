/**
 * Tokens a second of N conversations at once, ours and those of llama.cpp's `llama-batched-bench`, one after the other on the same device and file, side by
 * side; beside each what is asked of us.
 *
 *     node bench/together.ts --model glm.gguf --peer /tmp/l/bin/llama-batched-bench
 *     node bench/together.ts --model tg-tiny.gguf --device wasm --counts 1,2        without a peer
 *
 * `--counts 1,2,4,8,16,32 --prompt 16 --generate 64 --repeat 3 --device webgpu --profile h200 --tg "node scripts/cli.ts"` are the defaults, but for the
 * profile, of which there is none. With `--accept 0.8` a model with a prediction block is also measured with drafts of which so many are taken for right.
 */
import { parseArgs } from "node:util"
import { output, table, usual } from "./support/tg.ts"

interface Speed {
  readonly parallel: number
  readonly tokensPerSecond: number
  readonly each?: number
  readonly step?: { readonly ms: number; readonly deviceMs: number; readonly idleMs: number }
  readonly forced?: ReadonlyArray<{ readonly drafts: number; readonly tokensPerSecond: number; readonly gain: number }>
}

interface Report {
  readonly model: string
  readonly device: string
  readonly parallel: ReadonlyArray<Speed>
  readonly peer?: ReadonlyArray<Speed>
}

const { values: given } = parseArgs({
  options: {
    model: { type: "string" },
    peer: { type: "string" },
    counts: { type: "string", default: "1,2,4,8,16,32" },
    prompt: { type: "string", default: "16" },
    generate: { type: "string", default: "64" },
    repeat: { type: "string", default: "3" },
    device: { type: "string", default: "webgpu" },
    profile: { type: "string" },
    accept: { type: "string" },
    tg: { type: "string", default: usual }
  }
})
const { accept, counts, device, generate, model, peer, profile, prompt, repeat, tg } = given
if (model === undefined) {
  throw new Error("which model? node bench/together.ts --model F.gguf --peer llama-batched-bench")
}

const report = JSON.parse(output(tg, [
  ...["bench", "--model", model, "--device", device, "--json"],
  ...["--parallel", counts, "-p", prompt, "-n", generate, "-r", repeat],
  ...peer === undefined ? [] : ["--peer", "llama.cpp", "--peer-program", peer],
  ...profile === undefined ? [] : ["--profile", profile],
  ...accept === undefined ? [] : ["--draft", "mtp", "--accept", accept]
])) as Report

const [one] = report.parallel
const shown = (value: number | undefined, digits = 1): string => value === undefined ? "-" : value.toFixed(digits)
console.log(`${report.model} on ${report.device}: ${generate} tokens behind prompts of ${prompt}, tokens a second`)
console.log(table([
  ["N", "ours", "each", `times ${one!.parallel}`, "llama.cpp", "ours / its", "step ms", "device ms", "idle ms"],
  ...report.parallel.map((own) => {
    const other = report.peer?.find(({ parallel }) => parallel === own.parallel)?.tokensPerSecond
    return [
      String(own.parallel),
      shown(own.tokensPerSecond),
      shown(own.each),
      shown(own.tokensPerSecond / one!.tokensPerSecond, 2),
      shown(other),
      shown(other && own.tokensPerSecond / other, 2),
      shown(own.step?.ms, 2),
      shown(own.step?.deviceMs, 2),
      shown(own.step?.idleMs, 2)
    ]
  })
]))
for (const { forced = [], parallel } of report.parallel) {
  for (const { drafts, gain, tokensPerSecond } of forced) {
    console.log(`${parallel}, ${drafts} drafts a round, ${accept} of them right: ${tokensPerSecond} (${gain} times)`)
  }
}
console.log("asked: 3.5 times one with 8 of GLM, faster than llama.cpp at every N")
