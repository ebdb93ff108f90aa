import * as ModelFile from "@tg/engine/ModelFile"
import type { ByteSource } from "@tg/gguf/ByteSource"
import * as Models from "@tg/models/Models"
import { Effect } from "effect"

/** Reads the header of a model of any known family. */
export const open = (source: ByteSource["Service"]) => ModelFile.open(source).pipe(Effect.provide(Models.layer))
