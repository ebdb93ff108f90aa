/** Sampling on a device: the programs of `SampleProgram`, bound to the logits of a step and to the token of the next. */
import { Jit, type JitError } from "@tg/jit/Jit"
import { Device, type DeviceBuffer, type DeviceError, type Work } from "@tg/runtime/Device"
import { Effect, Scope } from "effect"
import type * as ProgramMemo from "./ProgramMemo.ts"
import * as Random from "./Random.ts"
import * as SampleProgram from "./SampleProgram.ts"
import * as Sampler from "./Sampler.ts"
import * as Tables from "./SamplerTables.ts"

/** Draws of tokens after the logits in front of them. */
export interface Draw {
  /** Tells the device of the next draws: of their places in the text, and, where draws are masked, of what the mask allows. */
  readonly begin: (positions: ReadonlyArray<number>, mask?: Uint32Array) => Effect.Effect<void, DeviceError>
  /** Makes one of them, by its number. */
  readonly work: (number: number) => Work
}

/** Whether a device can draw by these settings; where it cannot, the host reads the logits and draws. */
export const fits = (settings: Sampler.Settings, vocabulary: number): boolean =>
  Sampler.isGreedy(settings) || vocabulary <= SampleProgram.mostTokens || !SampleProgram.cutsOf(settings).topP

/** Draws from `logits` into `token`. Programs are compiled when they are first asked for and live as long as the Scope. */
export const make = Effect.fnUntraced(
  function*({ logits, programs: memo, token, vocabulary }: {
    readonly logits: DeviceBuffer
    readonly programs: ProgramMemo.ProgramMemo
    readonly token: DeviceBuffer
    readonly vocabulary: number
  }) {
    const device = yield* Device
    const jit = yield* Jit
    const scope = yield* Effect.scope
    const { ids, maskWords } = SampleProgram
    const table = yield* device.allocate(4 * Tables.words, "tables")
    const rules = yield* device.allocate(4 * SampleProgram.ruleWords * SampleProgram.mostDraws, "rules")
    yield* device.write(table, bytesOf(Tables.shared()))
    const own = Scope.provide(scope)
    const allowed = yield* Effect.cached(device.allocate(4 * maskWords(vocabulary), "mask").pipe(own))

    const buffers = [[ids.logits, logits], [ids.token, token], [ids.rule, rules], [ids.table, table]] as const
    const prepare = Effect.fnUntraced(function*(
      key: string,
      settings: Sampler.Settings,
      masked: SampleProgram.Allowed
    ) {
      const program = memo(`draw ${key}`, () =>
        Sampler.isGreedy(settings)
          ? SampleProgram.greedy(vocabulary, masked)
          : SampleProgram.make(vocabulary, SampleProgram.cutsOf(settings), masked))
      const mask = masked === "masked" ? [[ids.mask, yield* allowed] as const] : []
      return yield* jit.prepare(program.sink, new Map([...buffers, ...mask])).pipe(own)
    })
    const programs = new Map<string, ReturnType<typeof prepare>>()
    const programOf = Effect.fnUntraced(function*(settings: Sampler.Settings, masked: SampleProgram.Allowed) {
      const { topK, topP } = SampleProgram.cutsOf(settings)
      const key = Sampler.isGreedy(settings) ? `greedy ${masked}` : `${topK} ${topP} ${masked}`
      const made = programs.get(key) ?? (yield* Effect.cached(prepare(key, settings, masked)))
      programs.set(key, made)
      return yield* made
    })

    return Effect.fnUntraced(function*(
      settings: Sampler.Settings,
      masked: SampleProgram.Allowed
    ): Effect.fn.Return<Draw, JitError> {
      const replay = yield* programOf(settings, masked)
      const isGreedy = Sampler.isGreedy(settings)
      return {
        begin: Effect.fnUntraced(function*(positions: ReadonlyArray<number>, mask?: Uint32Array) {
          if (mask !== undefined) yield* device.write(yield* allowed, bytesOf(ofLength(mask, maskWords(vocabulary))))
          if (!isGreedy) yield* device.write(rules, bytesOf(rulesOf(settings, positions)))
        }),
        work: (number) => ({ replay, vars: isGreedy ? {} : { draw: number } })
      }
    })
  }
)

/** The rules of draws, one behind the other. */
const rulesOf = (settings: Sampler.Settings, positions: ReadonlyArray<number>): Uint32Array => {
  const rules = new Uint32Array(SampleProgram.ruleWords * positions.length)
  for (const [i, position] of positions.entries()) {
    const words = Random.words(settings.seed, position)
    rules.set(SampleProgram.ruleOf(settings, words), SampleProgram.ruleWords * i)
  }
  return rules
}

/** A mask with as many words: what is not there allows nothing. */
const ofLength = (mask: Uint32Array, words: number): Uint32Array => {
  if (mask.length >= words) return mask.subarray(0, words)
  const longer = new Uint32Array(words)
  longer.set(mask)
  return longer
}

const bytesOf = (words: Uint32Array): Uint8Array => new Uint8Array(words.buffer, words.byteOffset, words.byteLength)
