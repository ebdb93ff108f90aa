/** Sampling on a device: the programs of `SampleProgram`, bound to the logits of a step and to the token of the next. */
import { Jit, type JitError } from "@tg/jit/Jit"
import { Device, type DeviceBuffer, type DeviceError } from "@tg/runtime/Device"
import { Effect, Scope } from "effect"
import * as Random from "./Random.ts"
import * as SampleProgram from "./SampleProgram.ts"
import type * as Sampler from "./Sampler.ts"
import * as Tables from "./SamplerTables.ts"

/** Draws the token at a place of the text, after the logits in front of it. */
export type Draw = (position: number) => Effect.Effect<void, DeviceError>

/** Whether a device can draw by these settings; where it cannot, the host reads the logits and draws. */
export const fits = (settings: Sampler.Settings, vocabulary: number): boolean =>
  vocabulary <= SampleProgram.mostTokens || !SampleProgram.cutsOf(settings).topP

/** Draws from `logits` into `token`. Programs are compiled when they are first asked for and live as long as the Scope. */
export const make = Effect.fnUntraced(
  function*({ logits, token, vocabulary }: {
    readonly logits: DeviceBuffer
    readonly token: DeviceBuffer
    readonly vocabulary: number
  }) {
    const device = yield* Device
    const jit = yield* Jit
    const scope = yield* Effect.scope
    const { ids } = SampleProgram
    const table = yield* device.allocate(4 * Tables.words, "tables")
    const rule = yield* device.allocate(4 * SampleProgram.ruleWords, "rule")
    yield* device.write(table, bytesOf(Tables.shared()))
    const buffers = new Map([[ids.logits, logits], [ids.token, token], [ids.rule, rule], [ids.table, table]])
    const prepare = (cuts: SampleProgram.Cuts) =>
      Effect.cached(
        Effect.suspend(() => jit.prepare(SampleProgram.make(vocabulary, cuts).sink, buffers)).pipe(Scope.provide(scope))
      )
    const programs = {
      none: yield* prepare({ topK: false, topP: false }),
      k: yield* prepare({ topK: true, topP: false }),
      p: yield* prepare({ topK: false, topP: true }),
      both: yield* prepare({ topK: true, topP: true })
    }
    return Effect.fnUntraced(function*(settings: Sampler.Settings): Effect.fn.Return<Draw, JitError> {
      const { topK, topP } = SampleProgram.cutsOf(settings)
      const { run } = yield* programs[topK ? topP ? "both" : "k" : topP ? "p" : "none"]
      return Effect.fnUntraced(function*(position: number) {
        const words = Random.words(settings.seed, position)
        yield* device.write(rule, bytesOf(SampleProgram.ruleOf(settings, words)))
        yield* run({})
      })
    })
  }
)

const bytesOf = (words: Uint32Array): Uint8Array => new Uint8Array(words.buffer, words.byteOffset, words.byteLength)
