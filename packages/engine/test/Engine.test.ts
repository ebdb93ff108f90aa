import { known } from "@tg/models/Models"
import { assert, describe, it, layer } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Jit } from "@tg/jit/Jit"
import { fromBytes } from "@tg/gguf/ByteSource"
import type { DeviceError, Vars } from "@tg/runtime/Device"
import { Deferred, Effect, Layer, Result, Stream } from "effect"
import { StepsTogether } from "../src/Ahead.ts"
import { Engine, fromModel, type Request, type Token } from "../src/Engine.ts"
import * as ModelFile from "../src/ModelFile.ts"
import * as ProgramMemo from "../src/ProgramMemo.ts"
import * as Sampler from "../src/Sampler.ts"
import * as Stop from "../src/Stop.ts"
import { onItsOwn, wasm } from "./support/devices.ts"
import { asked as ask, tiny, tinyBytes, tinyCodec as codec, tinyLayer, tinySource } from "./support/models.ts"

const collect = (request: Request) =>
  Effect.gen(function*() {
    return yield* Stream.runCollect((yield* Engine).generate(request))
  })

const textOf = (tokens: ReadonlyArray<{ readonly text: string }>) => tokens.map((t) => t.text).join("")

describe("stop rules", () => {
  const rules: Stop.Rules = { endTokens: new Set([7]), maxTokens: 3, room: 5 }
  it("goes on otherwise", () => assert.isUndefined(Stop.reasonOf(1, 2, rules)))
  it("ends at an end token", () => assert.strictEqual(Stop.reasonOf(7, 1, rules), "end"))
  it("ends at the length", () => assert.strictEqual(Stop.reasonOf(1, 3, rules), "length"))
  it("ends where there is no place for another token", () => {
    assert.isUndefined(Stop.reasonOf(1, 5, { ...rules, maxTokens: 9 }))
    assert.strictEqual(Stop.reasonOf(1, 6, { ...rules, maxTokens: 9 }), "context")
  })
  it("an end token counts as the end, not as the length", () => assert.strictEqual(Stop.reasonOf(7, 3, rules), "end"))
})

describe("model files", () => {
  it("without a template say what to do", () => {
    const metadata = new Map([...tiny.gguf.metadata].filter(([key]) => key !== "tokenizer.chat_template"))
    const error = Result.getOrThrow(
      Result.flip(Result.getOrThrow(ModelFile.fromGguf({ ...tiny.gguf, metadata }, known)).template)
    )
    assert.strictEqual(error._tag, "NoChatTemplate")
    assert.include(error.message, "--raw")
  })
  it("without a tensor are refused", () => {
    const tensorsByName = new Map([...tiny.gguf.tensorsByName].filter(([name]) => name !== "blk.2.ffn_norm.weight"))
    const error = Result.getOrThrow(Result.flip(ModelFile.fromGguf({ ...tiny.gguf, tensorsByName }, known)))
    assert.strictEqual(error._tag, "WeightError")
    assert.include(error.message, "blk.2.ffn_norm.weight")
  })
})

describe("loading", () => {
  it.live("compiles while the weights are on their way", () =>
    Effect.gen(function*() {
      const compiled = yield* Deferred.make<void>()
      const jit = yield* Jit
      const watched = Jit.of({
        ...jit,
        // the step binds more than a tensor and its staging buffer
        prepare: (sink, buffers) =>
          jit.prepare(sink, buffers).pipe(
            Effect.tap(() => buffers.size > 2 ? Deferred.succeed(compiled, undefined) : Effect.void)
          )
      })
      // the last byte of the file comes when the program is compiled, so one after the other would never end
      const source = {
        ...tinySource,
        read: (offset: number, length: number) =>
          tinySource.read(offset, length).pipe(
            Effect.tap(() => offset + length === tinySource.size ? Deferred.await(compiled) : Effect.void)
          )
      }
      const { session } = yield* fromModel(source, tiny, { context: 96, prepare: ["last"] }).pipe(
        Effect.provideService(Jit, watched)
      )
      assert.strictEqual(yield* session.next(ask("What is 17 + 25?")), codec.encode("1")[0])
    }).pipe(Effect.scoped, Effect.provide(wasm)))
})

/** tg-tiny where the scale of each of these tokens' row is no number: the last half of a block of Q6_K, which is a row here. */
const damaged = (tokens: ReadonlyArray<number>) => {
  const { gguf, weights } = tiny
  const tensor = gguf.tensorsByName.get(weights.output.name)!
  const bytes = tinyBytes.slice()
  assert.strictEqual(tensor.type, "Q6_K")
  const rowBytes = tensor.bytes / tiny.config.vocabulary
  // a half that is NaN
  for (const id of tokens) bytes.set([0x00, 0x7e], tensor.offset + (id + 1) * rowBytes - 2)
  return fromBytes("damaged", bytes)
}

describe("a model with NaN", () => {
  const prompt = ask("What is 17 + 25?")
  for (const [what, tokens] of [["one row", [900]], ["each row", Array.from({ length: 1280 }, (_, i) => i)]] as const) {
    it.live(`in ${what} of its output is an error, in every way to ask for a token or for logits`, () =>
      Effect.gen(function*() {
        const { generate, logits } = yield* fromModel(damaged(tokens), tiny, { context: 96 })
        const wild = { ...Sampler.greedy, temperature: 1 }
        for (const request of [{}, { sampling: wild }, { logprobs: 1 }, { bias: new Map([[900, -Infinity]]) }]) {
          const error = yield* Effect.flip(Stream.runCollect(generate({ tokens: prompt, ...request })))
          if (error._tag !== "InvalidLogits") return assert.fail(error.message)
          assertEquals([error.bad, error.vocab, error.position], [tokens.length, 1280, prompt.length - 1])
          assert.include(error.message, "checksum")
        }
        const error = yield* Effect.flip(Stream.runCollect(logits(prompt)))
        assertEquals(error._tag === "InvalidLogits" && [error.position, error.bad], [0, tokens.length])
      }).pipe(Effect.scoped, Effect.provide(wasm)))
  }
})

/** A run of a plan on the wasm device, for `submit`. */
class Waiting {
  readonly vars: Vars
  readonly run: Effect.Effect<void, DeviceError>
  constructor(vars: Vars, run: Effect.Effect<void, DeviceError>) {
    this.vars = vars
    this.run = run
  }
}

/** The same with submissions, which tell of the tokens that are read in each. */
const submitting = (told: (tokens: number) => void) =>
  onItsOwn((device) => ({
    plan: (dispatches) =>
      Effect.map(device.plan(dispatches), (replay) => ({
        ...replay,
        stage: (vars) => new Waiting(vars, replay.run(vars))
      })),
    submit: (work) =>
      Effect.gen(function*() {
        told(work.filter((each) => "buffer" in each).length)
        const read: Array<Uint8Array> = []
        for (const each of work) {
          if ("buffer" in each) read.push(yield* device.read(each.buffer, each.offset, each.bytes))
          else if (each instanceof Waiting) yield* each.run
          else assert.fail("a run of another device")
        }
        return read
      })
  }))

describe("a device that draws by itself", () => {
  const prompt = ask("What is the capital of Peru?")
  const settings = [Sampler.greedy, { ...Sampler.greedy, temperature: 0.01, topK: 3, seed: 1 }]
  const text = Stream.runFold(() => "", (all: string, token: Token) => all + token.text)

  it.live("takes the host's tokens, masked or not", () =>
    Effect.gen(function*() {
      const { generate } = yield* fromModel(tinySource, tiny, { context: 96 })
      const all = new Uint32Array(40).fill(2 ** 32 - 1)
      const [, second] = codec.encode("Lima")
      const less = all.slice()
      less[second! >>> 5]! &= ~(1 << (second! & 31))
      const free = (mask: Uint32Array) => ({ mask: () => mask, accept: () => {}, isFinished: () => false })
      const answers = []
      for (const sampling of settings) {
        for (const constraint of [undefined, free(all), free(less)]) {
          answers.push(yield* text(generate({ tokens: prompt, sampling, constraint, maxTokens: 5 })))
        }
      }
      assertEquals(answers.filter((_, i) => i % 3 < 2), ["Lima", "Lima", "Lima", "Lima"])
      assert.isFalse(answers.filter((_, i) => i % 3 === 2).includes("Lima"))
    }).pipe(Effect.scoped, Effect.provide(onItsOwn())))

  it.live("gives the same texts however many steps are submitted together", () =>
    Effect.gen(function*() {
      const wild = { ...Sampler.greedy, temperature: 1.2, topK: 50, seed: 3 }
      const once = codec.encode("Once upon a time")
      const requests: ReadonlyArray<Request> = [
        { tokens: ask("What is 17 + 25?") },
        { tokens: ask("What is 17 + 25?"), maxTokens: 3 },
        { tokens: ask("What is 17 + 25?"), stop: ["42"] },
        { tokens: once, sampling: wild, maxTokens: 20 },
        // goes on behind steps that were computed for nothing
        { tokens: [...once, ...once], sampling: { ...wild, seed: 4 }, maxTokens: 12 },
        // until the context is full
        { tokens: once, sampling: wild }
      ]
      const counts: Array<number> = []
      const programs = ProgramMemo.make()
      const answers = Effect.fnUntraced(
        function*(together: number) {
          const { generate } = yield* fromModel(tinySource, tiny, { context: 40, programs }).pipe(
            Effect.provideService(StepsTogether, together)
          )
          const found = yield* Effect.forEach(requests, (request) => Stream.runCollect(generate(request)))
          return { found, counts: counts.splice(0) }
        },
        Effect.scoped
      )
      const [single, several] = yield* Effect.all([answers(1), answers(8)]).pipe(
        Effect.provide(submitting((tokens) => counts.push(tokens)))
      )
      assertEquals(several.found, single.found)
      assertEquals(single.found.map((tokens) => tokens.at(-1)?.stop), [
        "end",
        "length",
        "text",
        "length",
        "length",
        "context"
      ])
      assert.strictEqual(textOf(single.found[0]!), "17 + 25 = 42")
      assert.strictEqual(Math.max(...single.counts), 1)
      assertEquals(several.counts.slice(0, 4), [1, 2, 4, 8])
      assert.strictEqual(Math.max(...several.counts), 8)
    }))

  it.live("says that logits are no numbers", () =>
    Effect.gen(function*() {
      // the first token of the answer, when it is fed, makes all that follows NaN
      const tensor = tiny.gguf.tensorsByName.get(tiny.weights.tokenEmbedding.name)!
      const bytes = tinyBytes.slice()
      const rowBytes = tensor.bytes / tiny.config.vocabulary
      const first = codec.encode("Lima")[0]!
      assert.isFalse(prompt.includes(first))
      bytes.fill(0xff, tensor.offset + first * rowBytes, tensor.offset + (first + 1) * rowBytes)
      const { generate } = yield* fromModel(fromBytes("damaged", bytes), tiny, { context: 96 })
      const masked = { mask: () => new Uint32Array(40).fill(2 ** 32 - 1), accept: () => {}, isFinished: () => false }
      for (const sampling of settings) {
        for (const constraint of [undefined, masked]) {
          let count = 0
          const error = yield* generate({ tokens: prompt, sampling, constraint }).pipe(
            Stream.runForEach(() => Effect.sync(() => count++)),
            Effect.flip
          )
          assert.deepInclude(error, { _tag: "InvalidLogits", position: prompt.length })
          assert.strictEqual(count, 1)
        }
      }
    }).pipe(Effect.scoped, Effect.provide(onItsOwn())))
})

const engine = Engine.layer({ context: 96 }).pipe(Layer.provide([wasm, tinyLayer]))

layer(engine, { excludeTestServices: true })("generate", (it) => {
  it.effect("answers a question and ends by itself", () =>
    Effect.gen(function*() {
      const tokens = yield* collect({ tokens: ask("What is 17 + 25?"), maxTokens: 60 })
      assert.strictEqual(textOf(tokens), "17 + 25 = 42")
      assert.strictEqual(tokens.at(-1)?.stop, "end")
      assert.isTrue(codec.vocabulary.eog.has(tokens.at(-1)!.id))
      assert.isTrue(tokens.slice(0, -1).every((t) => t.stop === undefined))
    }))

  it.effect("ends at the length asked for", () =>
    Effect.gen(function*() {
      const tokens = yield* collect({ tokens: ask("What is 17 + 25?"), maxTokens: 3 })
      assert.strictEqual(tokens.length, 3)
      assert.strictEqual(tokens.at(-1)?.stop, "length")
    }))

  it.effect("gives the same for the same prompt, whatever was asked between", () =>
    Effect.gen(function*() {
      const first = yield* collect({ tokens: ask("What is the capital of Peru?") })
      yield* collect({ tokens: ask("Spell the word apple.") })
      assertEquals(yield* collect({ tokens: ask("What is the capital of Peru?") }), first)
      yield* (yield* Engine).reset
      assertEquals(yield* collect({ tokens: ask("What is the capital of Peru?") }), first)
    }))

  it.effect("equal seeds draw equal texts, others differ", () =>
    Effect.gen(function*() {
      const drawn = (seed: number) =>
        collect({
          tokens: codec.encode("Once upon a time"),
          maxTokens: 30,
          sampling: { ...Sampler.greedy, temperature: 1.2, topK: 50, seed }
        })
      const first = yield* drawn(1)
      assertEquals(yield* drawn(1), first)
      assert.notStrictEqual(textOf(yield* drawn(2)), textOf(first))
    }))

  it.effect("ends when the context is full, with the last token that is known", () =>
    Effect.gen(function*() {
      const prompt = codec.encode("Once upon a time").slice(0, 4)
      // two tokens fit behind the prompt; the third is known, but has no place any more
      const tokens = yield* collect({ tokens: Array.from({ length: 94 }, (_, i) => prompt[i % prompt.length]!) })
      assertEquals(tokens.map((token) => token.stop), [undefined, undefined, "context"])
    }))

  it.effect("refuses a prompt that is longer than the context, and goes on working", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(collect({ tokens: Array.from({ length: 97 }, () => 65) }))
      assertEquals(error._tag === "ContextFull" && [error.asked, error.limit], [97, 96])
      assert.strictEqual(textOf(yield* collect({ tokens: ask("What is 17 + 25?") })), "17 + 25 = 42")
    }))

  it.effect("refuses settings and tokens that make no sense", () =>
    Effect.gen(function*() {
      const bad = yield* Effect.flip(collect({ tokens: [1], sampling: { ...Sampler.greedy, topP: 2 } }))
      assert.strictEqual(bad._tag, "InvalidSampling")
      assert.strictEqual((yield* Effect.flip(collect({ tokens: [] })))._tag, "InvalidTokens")
      assert.strictEqual((yield* Effect.flip(collect({ tokens: [5000] })))._tag, "InvalidTokens")
    }))

  it.effect("a reader that stops early leaves the session usable", () =>
    Effect.gen(function*() {
      const { generate } = yield* Engine
      const two = yield* generate({ tokens: ask("What is 17 + 25?") }).pipe(Stream.take(2), Stream.runCollect)
      assert.strictEqual(two.length, 2)
      assert.strictEqual(textOf(yield* collect({ tokens: ask("What is 17 + 25?") })), "17 + 25 = 42")
    }))

  it.effect("two generations at once do not disturb each other", () =>
    Effect.gen(function*() {
      const [a, b] = yield* Effect.all([
        collect({ tokens: ask("What is 17 + 25?") }),
        collect({ tokens: ask("What is the capital of Peru?") })
      ], { concurrency: "unbounded" })
      assertEquals([textOf(a), textOf(b)], ["17 + 25 = 42", "Lima"])
    }))

  it.effect("logits: a row for each token, the largest is what greedy takes", () =>
    Effect.gen(function*() {
      const { logits } = yield* Engine
      const prompt = ask("What is 17 + 25?")
      const answer = yield* collect({ tokens: prompt })
      const rows = yield* Stream.runCollect(logits([...prompt, ...answer.map((t) => t.id)]))
      const all = rows.flatMap((part) =>
        Array.from({ length: part.length / 1280 }, (_, i) => Sampler.argmax(part.subarray(1280 * i, 1280 * (i + 1))))
      )
      assertEquals(all.slice(prompt.length - 1, -1), answer.map((t) => t.id))
    }))

  it.effect("logits refuse more tokens than fit before giving a row", () =>
    Effect.gen(function*() {
      const { logits } = yield* Engine
      let rows = 0
      const error = yield* logits(Array.from({ length: 97 }, () => 65)).pipe(
        Stream.tap(() => Effect.sync(() => rows++)),
        Stream.runDrain,
        Effect.flip
      )
      assertEquals([error._tag, rows], ["ContextFull", 0])
    }))
})
