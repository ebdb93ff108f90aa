/** The programs of rounds on a device, each compiled when it is first asked for, and their buffers. */
import { Jit, type Prepared } from "@tg/jit/Jit"
import { type Binding as DeviceBinding, Device, type DeviceBuffer, type Work } from "@tg/runtime/Device"
import type { TensorProgram } from "@tg/tensor/Program"
import { Context, Effect, Result, Scope } from "effect"
import type { Prediction, Setting } from "./PredictionPrograms.ts"
import * as Random from "./Random.ts"
import * as RoundProgram from "./RoundProgram.ts"
import * as SampleProgram from "./SampleProgram.ts"
import * as Sampler from "./Sampler.ts"
import * as Tables from "./SamplerTables.ts"
import { type Compiling, once } from "./SessionPrograms.ts"
import { ids } from "./StepProgram.ts"
import * as TokenRing from "./TokenRing.ts"
import { bytesOf } from "./Words.ts"

const { mostRound, roundIds } = RoundProgram

/** What a round of so many tokens runs. */
export interface Verifying {
  readonly verify: Prepared
  readonly accept: Prepared
  readonly read: Prepared
}

/** Programs and buffers of rounds. */
export interface Rounds {
  /** Tokens of the next round, and where they stand. */
  readonly tokens: DeviceBuffer
  readonly position: DeviceBuffer
  /** What the host reads of a round. */
  readonly report: DeviceBuffer
  readonly verifying: (tokens: number) => Compiling<Verifying>
  readonly guess: Compiling<Prepared>
  /** What draws by these settings in place of the likeliest tokens; nothing, where those are wanted. Writes what draws need. */
  readonly draws: (sampling: Sampler.Settings, tokens: number) => Compiling<ReadonlyArray<Work>>
}

/** What programs of rounds are bound to beside their own buffers. */
export interface RoundSetting extends Setting {
  readonly prediction: Prediction
  /** The caches of the model's blocks, by their ids. */
  readonly caches: ReadonlyArray<readonly [number, DeviceBinding]>
}

/** The buffers of rounds. */
const storageOf = Effect.fnUntraced(function*({ model }: RoundSetting) {
  const device = yield* Device
  const words = (count: number, label: string) => device.allocate(4 * count, label)
  return {
    tokens: yield* words(mostRound, "round_tokens"),
    drawn: yield* words(TokenRing.size(RoundProgram.ring), "round_drawn"),
    position: yield* words(mostRound, "round_position"),
    readAt: yield* words(mostRound, "round_read_at"),
    taken: yield* words(1, "round_taken"),
    upcoming: yield* words(mostRound, "round_upcoming"),
    first: yield* words(1, "round_first"),
    report: yield* words(RoundProgram.reportWords, "round_report"),
    logits: yield* words(mostRound * model.config.vocabulary, "round_logits")
  }
})

type Storage = Effect.Success<ReturnType<typeof storageOf>>

type Preparing = (
  name: string,
  program: () => TensorProgram,
  bound: ReadonlyMap<number, DeviceBinding>
) => Compiling<Prepared>

/** What is drawn otherwise than as the likeliest token, with a rule for each place that the device makes. */
const drawing = Effect.fnUntraced(function*(prepare: Preparing, storage: Storage, vocabulary: number) {
  const device = yield* Device
  const { mask, rule, table, logits, token } = SampleProgram.ids
  const { ruleWords } = SampleProgram
  const tables = yield* device.allocate(4 * Tables.words, "tables")
  yield* device.write(tables, bytesOf(Tables.shared()))
  const rules = yield* device.allocate(4 * mostRound * ruleWords, "rules")
  const settings = yield* device.allocate(4 * ruleWords, "settings")
  const making = prepare(
    "rules",
    RoundProgram.rulesProgram,
    new Map([
      [mask, settings],
      [rule, rules],
      [roundIds.position, storage.position]
    ])
  )
  const bound = new Map([[logits, storage.logits], [token, storage.drawn], [rule, rules], [table, tables]])
  const made = new Map<string, Compiling<Prepared>>()
  const drawsBy = (cuts: SampleProgram.Cuts) => {
    const name = `draws ${JSON.stringify(cuts)}`
    const own = made.get(name) ?? prepare(
      name,
      () => SampleProgram.ofRows(vocabulary, { most: mostRound, ring: RoundProgram.ring }, { allowed: "all", cuts }),
      bound
    )
    made.set(name, own)
    return own
  }
  return (sampling: Sampler.Settings, tokens: number): Compiling<ReadonlyArray<Work>> =>
    Effect.gen(function*() {
      if (Sampler.isGreedy(sampling)) return []
      const own = SampleProgram.ruleAmong(sampling, [Random.keyOf(sampling.seed), 0])
      yield* device.write(settings, bytesOf(own))
      return [
        { replay: yield* making, vars: {} },
        { replay: yield* drawsBy(SampleProgram.cutsOf(sampling)), vars: { R: tokens, drawn: 0 } }
      ]
    })
})

/** Buffers by their ids, of the rounds' own programs and of the block's. */
const boundOf = ({ caches, given, model, prediction, states, weights }: RoundSetting, storage: Storage) => {
  const block = Result.getOrThrow(model.prediction!)
  const [cache, row] = prediction.own
  const { config } = model
  const inputs = given.filter(([id]) => id !== ids.tokens)
  const own = (Object.keys(storage) as ReadonlyArray<keyof Storage>)
    .map((name) => [roundIds[name], storage[name]] as const)
  const all = new Map<number, DeviceBinding>([...inputs, [ids.states, states], ...own])
  return {
    block,
    model: new Map([
      ...all,
      ...caches,
      ...model.weights.all.map(({ name }, i) => [ids.firstCache + config.layers + i, weights.get(name)!] as const)
    ]),
    prediction: new Map([
      ...all,
      [roundIds.logits, row!],
      [roundIds.cache, cache!],
      ...block.weights.map(({ name }, i) => [roundIds.firstWeight + i, weights.get(name)!] as const)
    ])
  }
}

/** The programs over these buffers. They belong to the Scope. */
export const make = Effect.fnUntraced(function*(setting: RoundSetting) {
  const { memo, model, shape } = setting
  const here = Effect.provide(Context.pick(Jit, Scope.Scope)(yield* Effect.context<Jit | Scope.Scope>()))
  const storage = yield* storageOf(setting)
  const bound = boundOf(setting, storage)
  const { profile: _, ...told } = shape
  const prepare: Preparing = (name, program, bound) =>
    once(
      Effect.gen(function*() {
        const { sink } = memo(`round ${name} ${JSON.stringify(told)}`, program)
        return yield* (yield* Jit).prepare(sink, bound)
      }).pipe(here)
    )
  const predicting = { model, block: bound.block }
  const verifyingOf = (count: number): Compiling<Verifying> => {
    const verify = prepare(`verify ${count}`, () => RoundProgram.verifyProgram(model, shape, count), bound.model)
    const accept = prepare(`accept ${count}`, () => RoundProgram.acceptProgram(model, count), bound.model)
    const read = prepare(`read ${count}`, () => RoundProgram.readProgram(predicting, shape, count), bound.prediction)
    return Effect.all({ verify, accept, read })
  }
  const verifying = new Map<number, Compiling<Verifying>>()
  const made: Rounds = {
    tokens: storage.tokens,
    position: storage.position,
    report: storage.report,
    verifying: (tokens) => {
      const own = verifying.get(tokens) ?? verifyingOf(tokens)
      verifying.set(tokens, own)
      return own
    },
    guess: prepare("guess", () => RoundProgram.guessProgram(predicting, shape), bound.prediction),
    draws: yield* drawing(prepare, storage, model.config.vocabulary)
  }
  return made
})
