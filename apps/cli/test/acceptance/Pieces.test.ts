import { assert, describe, it } from "@effect/vitest"
import * as Loader from "@tg/engine/Loader"
import * as Rings from "@tg/engine/Rings"
import * as Session from "@tg/engine/Session"
import { Effect } from "effect"
import * as Devices from "../../src/Devices.ts"
import * as Oracle from "./support/oracle.ts"
import { open } from "./support/open.ts"

/** Logits of all tokens, given to the session so many at a time. */
const inPieces = Effect.fn("inPieces")(function*(
  session: Session.Session,
  tokens: ReadonlyArray<number>,
  length: number
) {
  yield* session.reset
  const parts = yield* Effect.forEach(
    Rings.pieces(0, tokens.length, { chunk: length }),
    (piece) => session.append(tokens.slice(piece.start, piece.start + piece.length))
  )
  return parts.flatMap((part) => Array.from(part))
})

/** Logits after the last two tokens, which are given one by one behind all others. Only those are computed. */
const lastTwo = Effect.fn("lastTwo")(function*(session: Session.Session, tokens: ReadonlyArray<number>) {
  yield* session.reset
  yield* session.advance(tokens.slice(0, -2))
  const rows = yield* Effect.forEach([1, 0], (n) => session.advance(tokens.slice(0, tokens.length - n)))
  return rows.flatMap((row) => Array.from(row))
})

/**
 * A program for pieces of another length may add in another order, which changes float32 sums by 2^-24 of their terms. If
 * that takes a value over the middle between two halves, a cache of halves turns it into 2^-11.
 */
const limits = { f32: 1e-5, f16: 5e-3 } as const

describe("logits on wasm do not depend on the pieces that a prompt is processed in", () => {
  for (const [name, cache] of [["c01", "f32"], ["c04", "f32"], ["c01", "f16"]] as const) {
    it.live(`${name}, ${cache} cache`, () =>
      Effect.gen(function*() {
        const source = Oracle.source(name)
        const model = yield* open(source)
        const weights = yield* Loader.load(
          source,
          model.weights.all.map(({ layout, name }) => ({ layout, tensor: model.gguf.tensorsByName.get(name)! }))
        )
        // the run with the longest prompt
        const tokens = Oracle.tokensOf(Oracle.runsOf(name).at(-1)!)
        const session = yield* Session.make(model, weights, {
          activations: "float",
          cache,
          chunk: tokens.length,
          batchFrom: Infinity
        })
        const whole = yield* inPieces(session, tokens, tokens.length)
        assert.lengthOf(whole, tokens.length * session.vocabulary)
        const near = (found: ReadonlyArray<number>, expected: ReadonlyArray<number>, what: string): void =>
          assert.isAtMost(Oracle.distance(found, expected).largest, limits[cache], what)
        for (const length of [32, 5, 1]) {
          near(yield* inPieces(session, tokens, length), whole, `pieces of ${length}`)
          const made = yield* Session.make(model, weights, {
            activations: "float",
            cache,
            chunk: length,
            batchFrom: Infinity
          })
          near(yield* inPieces(made, tokens, length), whole, `a program for pieces of ${length}`)
        }
        near(yield* lastTwo(session, tokens), whole.slice(-2 * session.vocabulary), "the last two")
        // a program for each number of tokens, of which a prompt may leave some unused
        const sized = yield* Session.make(model, weights, {
          activations: "float",
          cache,
          batchFrom: Infinity,
          sizes: [1, 2, 4, 8, 16]
        })
        const usual = Oracle.limits[cache].largest
        for (const length of [7, 2]) {
          const pieces = yield* inPieces(sized, tokens.slice(0, 40), length)
          assert.isAtMost(
            Oracle.distance(pieces, whole.slice(0, pieces.length)).largest,
            usual,
            `pieces of ${length} in programs of their own`
          )
        }
        const rows = yield* lastTwo(sized, tokens)
        assert.isAtMost(Oracle.distance(rows, whole.slice(-2 * session.vocabulary)).largest, usual, "prompts in them")
        // in tiles of tokens, as on a GPU; a piece behind another starts in the middle of a run of positions
        const tiles = yield* Session.make(model, weights, {
          activations: "float",
          cache,
          batchFrom: 2,
          chunk: tokens.length
        })
        const tiled = yield* inPieces(tiles, tokens, tokens.length)
        near(yield* inPieces(tiles, tokens, 17), tiled, "pieces of 17 in tiles")
        // single tokens have the program of a token, which adds everything in another order
        const behind = Oracle.distance(yield* lastTwo(tiles, tokens), tiled.slice(-2 * session.vocabulary))
        assert.isAtMost(behind.largest, Oracle.limits[cache].largest, "the last two, behind tiles")
      }).pipe(Effect.scoped, Effect.provide(Devices.layer("wasm"))))
  }
})
