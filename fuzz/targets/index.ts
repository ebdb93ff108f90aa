/** Everything that is fed with damaged input. */
import type { Target } from "../Target.ts"
import { generates } from "./generate.ts"
import { header } from "./header.ts"
import { templates } from "./template.ts"
import { keptPrograms, messageFiles, tunedFiles } from "./texts.ts"
import { tokenizers } from "./tokenizer.ts"

/** Those that are quick: thousands of cases in a second. */
export const quick: ReadonlyArray<Target> = [header, templates, tokenizers, tunedFiles, keptPrograms, messageFiles]

/** All of them. */
export const targets: ReadonlyArray<Target> = [...quick, generates]
