/** Damaged files through the command line: `generate` accepts what `inspect` accepts. */
import { mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { tg } from "../../apps/cli/test/support/run.ts"
import { accepted, type Outcome, type Target } from "../Target.ts"
import { type Base, base, damaged, unpacked } from "./header.ts"

let known: Base | undefined
const smallest = (): Base => known ??= base("test/vectors/oracle/c05.gguf")
let folder: string | undefined

/** What only shows when weights are read or numbers computed: `inspect` cannot know it. */
const late = /NaN|not a number|does not fit|OutOfMemory|bytes asked|context|tokens/

/** Whether `inspect` says in its last line why nothing but `--raw` is answered. */
const isTold = (refusal: string, shown: string): boolean => {
  const said = refusal.replace(/^error: /, "").trim().replaceAll("\n", "\\n")
  return said !== "" && shown.trim().endsWith(said)
}

const run = async (input: Uint8Array): Promise<Outcome> => {
  folder ??= mkdtempSync(join(tmpdir(), "tg-fuzz-"))
  const path = join(folder, "model.gguf")
  writeFileSync(path, unpacked(input, smallest()))
  const inspected = await Effect.runPromise(tg(["inspect", "--model", path]))
  const args = ["generate", "-n", "2", "--device", "wasm", "--threads", "1", "--model", path, "hi"]
  const generated = await Effect.runPromise(tg(args))
  const both = `${inspected.stderr}\n${generated.stderr}`
  const result = generated.code === 0 ? "accepted" : "refused"
  if (/defect of tg|^\s+at .*:\d+:\d+\)?$/m.test(both)) return { result, finding: both.slice(0, 1500) }
  if (/NaN/.test(generated.stdout)) return { result, finding: `NaN is printed: ${generated.stdout.slice(0, 500)}` }
  if (inspected.code === generated.code && (inspected.code === 0 || inspected.stderr === generated.stderr)) {
    return inspected.code === 0 ? accepted : { result, tag: "refused by both" }
  }
  if (inspected.code === 0 && isTold(generated.stderr, inspected.stdout)) return { result, tag: "told by inspect" }
  if (inspected.code === 0 && late.test(generated.stderr)) return { result, tag: "refused late" }
  return {
    result,
    finding: `inspect: ${inspected.code} ${inspected.stderr.slice(0, 500)}; generate: ${generated.code} ${
      generated.stderr.slice(0, 700)
    }`
  }
}

/** Files of the smallest oracle model, through both commands. */
export const generates: Target = {
  name: "generate",
  make: (random) => damaged(random, smallest()),
  run
}
