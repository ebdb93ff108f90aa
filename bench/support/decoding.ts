/** The step of a model file that decodes, prepared on the device of the context. */
import { fromModel } from "../../packages/engine/src/Engine.ts"
import * as ModelFile from "../../packages/engine/src/ModelFile.ts"
import * as Sampler from "../../packages/engine/src/Sampler.ts"
import * as GgufFile from "../../packages/gguf/src/GgufFile.ts"
import * as Profiler from "../../packages/jit/src/Profiler.ts"
import { known } from "../../packages/models/src/Models.ts"
import { Effect } from "effect"

/** The step behind so many tokens, with the device at its clock; the step's variables; and its launches by their programs, of those that layers have. */
export const decoding = Effect.fnUntraced(function*(
  path: string,
  { context, depth }: { readonly context: number; readonly depth: number }
) {
  const { gguf, source } = yield* GgufFile.open(path)
  const file = yield* ModelFile.ofGguf(gguf, known)
  const { session } = yield* fromModel(source, file, { context, prepare: ["last", Sampler.greedy] })
  yield* session.advance(Array.from({ length: depth }, (_, i) => i % session.vocabulary))
  const prepared = yield* session.decodeStep(depth)
  const vars = { T: 1, startPos: depth }
  const { steps } = yield* prepared.schedule
  yield* Profiler.warm(prepared, vars)
  const ofPrograms = Map.groupBy(prepared.dispatches.keys(), (i) => prepared.plan.launches[i]!.program)
  const groups = [...ofPrograms.values()].filter((group) => group.length > 4)
  return { prepared, steps, vars, groups }
})
