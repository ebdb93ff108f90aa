/** Whole models: prompts in tiles, tokens one by one, and with activations of 8 bits, by the bounds of the oracle. */
import { fromModel, type Options } from "@tg/engine/Engine"
import * as ModelFile from "@tg/engine/ModelFile"
import { fromBytes } from "@tg/gguf/ByteSource"
import * as Models from "@tg/models/Models"
import { Effect, Stream } from "effect"
import { type Case, WrongResult } from "./Case.ts"
import * as Vectors from "./Vectors.ts"

/** Logits after each token, one behind the other. */
const logitsOf = Effect.fnUntraced(
  function*(vectors: Vectors.Vectors, { file, name, tokens }: Vectors.Model, options: Options) {
    const source = fromBytes(name, yield* vectors.model(file))
    const model = yield* ModelFile.open(source).pipe(Effect.provide(Models.layer))
    const engine = yield* fromModel(source, model, { cache: "f16", ...options })
    const pieces = yield* Stream.runCollect(engine.logits(tokens))
    return { logits: Float32Array.from(pieces.flatMap((piece) => Array.from(piece))), width: model.config.vocabulary }
  }
)

/** What is asked of float arithmetic with a cache of half precision. */
const limits = { rms: 5e-3, largest: 3e-2 }

/** How far a list of numbers is from another. What is no number is infinitely far. */
const distance = (found: Float32Array, expected: Float32Array) => {
  let squares = 0
  let largest = 0
  for (let i = 0; i < expected.length; i++) {
    const d = Math.abs(found[i]! - expected[i]!)
    squares += d * d
    largest = Math.max(largest, Number.isNaN(d) ? Infinity : d)
  }
  return { rms: Math.sqrt(squares / expected.length), largest }
}

const isFar = ({ largest, rms }: ReturnType<typeof distance>): boolean =>
  !(rms <= limits.rms && largest <= limits.largest)

const median = (values: ReadonlyArray<number>): number => values.toSorted((a, b) => a - b)[values.length >> 1]!

const exact = (vectors: Vectors.Vectors, model: Vectors.Model, options: Options) =>
  Effect.gen(function*() {
    const { logits, width } = yield* logitsOf(vectors, model, { ...options, activations: "float" })
    const off = distance(logits, Vectors.floatsAt(vectors, model.logits, model.tokens.length * width))
    if (!isFar(off)) return
    return yield* new WrongResult({
      message:
        `logits are off by ${off.rms} (RMS) and ${off.largest} at most; ${limits.rms} and ${limits.largest} are allowed`
    })
  })

/** Products as the device has them by default: with bytes, where those are faster. */
const near = (vectors: Vectors.Vectors, model: Vectors.Model, options: Options) =>
  Effect.gen(function*() {
    const { logits, width } = yield* logitsOf(vectors, model, { ...options, activations: "auto" })
    const expected = Vectors.floatsAt(vectors, model.logits, model.tokens.length * width)
    const distances = model.tokens.map((_, i) =>
      distance(logits.subarray(i * width, (i + 1) * width), expected.subarray(i * width, (i + 1) * width)).rms
    )
    const allowed = 1.25 * median(model.int8)
    if (median(distances) <= allowed) return
    return yield* new WrongResult({
      message: `logits of rounded activations are off by ${median(distances)} (median RMS); ${allowed} is allowed`
    })
  })

const tokenByToken: Options = { batchFrom: Infinity, chunk: 1 }
const inTiles: Options = { batchFrom: 2 }

/** The cases. */
export const cases = (vectors: Vectors.Vectors): ReadonlyArray<Case> =>
  vectors.index.models.flatMap((model): ReadonlyArray<Case> => {
    const what = `${model.name} (${model.about})`
    return [
      { family: "steps", name: `${what}, a prompt`, check: exact(vectors, model, inTiles) },
      { family: "steps", name: `${what}, token by token`, check: exact(vectors, model, tokenByToken) },
      { family: "steps", name: `${what}, as used`, check: near(vectors, model, tokenByToken) }
    ]
  })
