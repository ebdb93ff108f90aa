import { writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Model } from "@tg/node"
import type { Family } from "@tg/model-parts"
import { bytes } from "./file.ts"

/** What a parrot says to something, whole. */
export const say = async (text: string, families: ReadonlyArray<Family.ModelFamily>): Promise<string> => {
  const file = join(tmpdir(), `parrot-${process.pid}.gguf`)
  writeFileSync(file, bytes)
  await using model = await Model.open(file, { device: "wasm", threads: 1, families })
  let said = ""
  for await (const part of model.chat(text, { maxTokens: 20 })) said += part
  return said
}
