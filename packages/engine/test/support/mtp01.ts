/** `mtp01` of the oracle: a model with a prediction block, and what the reference drafts behind a prompt. */
import { readFileSync } from "node:fs"
import { fromBytes } from "@tg/gguf/ByteSource"
import * as Gguf from "@tg/gguf/Gguf"
import { known } from "@tg/models/Models"
import { Result } from "effect"
import * as ModelFile from "../../src/ModelFile.ts"

const read = (name: string) =>
  new Uint8Array(readFileSync(new URL(`../../../../test/vectors/oracle-families/${name}`, import.meta.url)))
const bytes = read("mtp01.gguf")

export const { drafts, next, prompt } = JSON.parse(new TextDecoder().decode(read("mtp01.json"))) as {
  readonly prompt: ReadonlyArray<number>
  readonly next: number
  readonly drafts: ReadonlyArray<number>
}
export const source = fromBytes("mtp01", bytes)
export const model = Result.getOrThrow(
  Result.flatMap(Gguf.fromBytes("mtp01", bytes), (gguf) => ModelFile.fromGguf(gguf, known))
)
