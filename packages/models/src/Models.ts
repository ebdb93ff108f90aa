/** The families of models that tg runs. */
import * as Family from "@tg/model-parts/Family"
import { deepseek2 } from "@tg/models-deepseek2/Family"
import { llama } from "@tg/models-llama/Family"
import type { Layer } from "effect"

/** All families. */
export const known: Family.Registry = { families: [deepseek2, llama] }

/** Runs their models. */
export const layer: Layer.Layer<Family.Families> = Family.layer(known.families)
