/** Families that are imported when a model of theirs is opened, for programs that are fetched. */
import type { Registry } from "@tg/model-parts/Family"
import { Effect } from "effect"

const ofDeepseek2 = Effect.promise(() => import("@tg/models-deepseek2/Family"))
const ofLlama = Effect.promise(() => import("@tg/models-llama/Family"))

/** The family of an architecture (`general.architecture`); of one that none runs, all of them. */
export const familyOf = Effect.fnUntraced(function*(architecture: unknown) {
  const families = architecture === "deepseek2"
    ? [(yield* ofDeepseek2).deepseek2]
    : [(yield* ofLlama).llama]
  const isKnown = families.some(({ architectures }) => (architectures as ReadonlyArray<unknown>).includes(architecture))
  const registry: Registry = { families: isKnown ? families : [(yield* ofDeepseek2).deepseek2, ...families] }
  return registry
})
