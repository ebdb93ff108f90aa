/**
 * Decoding with and without persistent launches, in turns, on the GPU at hand:
 *
 *     node bench/persistent.ts glm.gguf deepseek.gguf [ROUNDS]
 *
 * First each model answers "What is 17 + 25?" in every mode (tg-tiny does so too): the texts have to be equal. Models of random weights are made by
 * `cli synth`.
 */
import { spawnSync } from "node:child_process"
import { fileURLToPath } from "node:url"

const modes = ["off", "auto", "on"] as const
const cli = fileURLToPath(new URL("../scripts/cli.ts", import.meta.url))
const given = process.argv.slice(2)
const models = given.filter((argument) => !/^\d+$/.test(argument))
const rounds = Number(given.find((argument) => /^\d+$/.test(argument)) ?? 3)

/** What a command prints; its complaint, and the end, if it fails. */
const tg = (...args: ReadonlyArray<string>): string => {
  const { status, stderr, stdout } = spawnSync(process.execPath, [cli, ...args], { encoding: "utf8" })
  // a launch that gave up is told there
  process.stderr.write(stderr.split("\n").filter((line) => /^(warning|error|the device)/.test(line)).join("\n"))
  if (status === 0) return stdout
  console.error(stderr)
  process.exit(1)
}

const answer = (mode: string, model: ReadonlyArray<string>): string =>
  tg("generate", "What is 17 + 25?", "-n", "24", "--device", "webgpu", "--persistent", mode, ...model)

for (const model of [[], ...models.map((file) => ["--model", file])]) {
  const texts = modes.map((mode) => answer(mode, model))
  const same = texts.every((text) => text === texts[0])
  console.log(`${model[1] ?? "tg-tiny"}: ${same ? `equal texts: ${JSON.stringify(texts[0])}` : JSON.stringify(texts)}`)
}

/** Of a report of `bench --json`. */
interface Decoded {
  readonly decode: ReadonlyArray<{
    readonly tokensPerSecond: { readonly mean: number; readonly min: number; readonly max: number }
    readonly gpuMsPerToken: number
    readonly encodeMsPerToken: number
  }>
}

console.log("| model | persistent | tok/s | GPU, ms | encode, ms |\n| --- | --- | --- | --- | --- |")
for (const model of models) {
  for (let round = 0; round < rounds; round++) {
    for (const mode of modes) {
      const report = tg("bench", "--model", model, "-p", "64", "-n", "128", "-r", "3", "--persistent", mode, "--json")
      const [own] = (JSON.parse(report) as Decoded).decode
      const { max, mean, min } = own!.tokensPerSecond
      const cells = [model, mode, `${mean} (${min} to ${max})`, own!.gpuMsPerToken, own!.encodeMsPerToken]
      console.log(`| ${cells.join(" | ")} |`)
    }
  }
}
console.log(tg("doctor"))
