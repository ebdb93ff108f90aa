import { readFileSync } from "node:fs"
import { ByteSource, fromBytes } from "@tg/gguf/ByteSource"
import * as Gguf from "@tg/gguf/Gguf"
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
  Result.flatMap(Gguf.fromBytes("tg-tiny", tinyBytes), ModelFile.fromGguf)
)
