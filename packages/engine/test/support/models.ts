import { readFileSync } from "node:fs"
import { ByteSource, fromBytes } from "@tg/gguf/ByteSource"
import * as Gguf from "@tg/gguf/Gguf"
import { known } from "@tg/models/Models"
import { Layer, Result } from "effect"
import * as ModelFile from "../../src/ModelFile.ts"

const path = new URL("../../../../apps/cli/models/tg-tiny-Q4_0.gguf", import.meta.url)

/** The model that comes with the command line. */
export const tinyBytes = new Uint8Array(readFileSync(path))
/** Its bytes as a source. */
export const tinySource = fromBytes("tg-tiny", tinyBytes)
/** Its bytes as a layer. */
export const tinyLayer = Layer.succeed(ByteSource, tinySource)
/** Its header. */
export const tiny = Result.getOrThrow(
  Result.flatMap(Gguf.fromBytes("tg-tiny", tinyBytes), (gguf) => ModelFile.fromGguf(gguf, known))
)
/** Its tokenizer. */
export const tinyCodec = tiny.codec
const template = Result.getOrThrow(tiny.template)

/** The prompt of a conversation: what the user says and what was answered, in turns. */
export const asked = (...turns: ReadonlyArray<string>): ReadonlyArray<number> => {
  const messages = turns.map((content, i) => ({ role: i % 2 === 0 ? "user" : "assistant", content }))
  const prompt = template.render({ messages, variables: { enable_thinking: false } }, new Date(0))
  return tinyCodec.encodeSegments(Result.getOrThrow(prompt).segments)
}
