/** What the cases compare with: recorded weights and their values, and small models with their logits. */
import { Effect, Schema } from "effect"

/** Recorded weights of one type: where they lie in `vectors.bin`, in bytes. */
export const Type = Schema.Struct({
  type: Schema.String,
  /** Values of `blocks`, of which `values` has the float32s. */
  count: Schema.Int,
  rows: Schema.Int,
  cols: Schema.Int,
  /** RMS error of llama.cpp's product, which rounds `x` to 8 bits. */
  rmsError: Schema.Finite,
  blocks: Schema.Int,
  values: Schema.Int,
  matrix: Schema.Int,
  x: Schema.Int,
  y: Schema.Int
})
/** Recorded weights of one type. */
export type Type = typeof Type.Type

/** A small model, and what it answers. */
export const Model = Schema.Struct({
  name: Schema.String,
  /** What it exercises. */
  about: Schema.String,
  file: Schema.String,
  tokens: Schema.Array(Schema.Int),
  /** The likeliest token after each. */
  argmax: Schema.Array(Schema.Int),
  /** Where its logits lie in `vectors.bin`, a row for each token. */
  logits: Schema.Int,
  /** Of llama.cpp's logits with activations of 8 bits, the RMS distance of each row to them. */
  int8: Schema.Array(Schema.Finite)
})
/** A small model, and what it answers. */
export type Model = typeof Model.Type

/** What there is. */
export const Index = Schema.Struct({ types: Schema.Array(Type), models: Schema.Array(Model) })
/** What there is. */
export type Index = typeof Index.Type

/** The vectors could not be read. */
export class VectorsMissing extends Schema.TaggedError<VectorsMissing>()("VectorsMissing", {
  file: Schema.String,
  message: Schema.String
}) {}

/** The vectors, in memory. */
export interface Vectors {
  readonly index: Index
  readonly bytes: Uint8Array
  /** A model's file. */
  readonly model: (name: string) => Effect.Effect<Uint8Array, VectorsMissing>
}

/** The names of the files. */
export const files = ["index.json", "vectors.bin", "c05.gguf", "m01.gguf"] as const

const explain = (file: string) => (cause: unknown): VectorsMissing =>
  new VectorsMissing({
    file,
    message: `${file}, which the self-test compares with, cannot be read: ${
      cause instanceof Error ? cause.message : String(cause)
    }; install tg again`
  })

/** Reads the vectors by a function that reads a file of them. */
export const read = Effect.fn("Vectors.read")(function*(bytesOf: (file: string) => Promise<Uint8Array>) {
  const file = (name: string) => Effect.tryPromise({ try: () => bytesOf(name), catch: explain(name) })
  // one after the other: where both are missing, the error always names the same one
  const text = yield* file("index.json")
  const bytes = yield* file("vectors.bin")
  const index = yield* Schema.decodeEffect(Schema.fromJsonString(Index))(new TextDecoder().decode(text)).pipe(
    Effect.mapError(explain("index.json"))
  )
  const vectors: Vectors = { index, bytes, model: file }
  return vectors
})

/** Bytes of the vectors that nobody else writes to. */
export const bytesAt = ({ bytes }: Vectors, offset: number, length: number): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(bytes.subarray(offset, offset + length))

/** Floats of the vectors. */
export const floatsAt = (vectors: Vectors, offset: number, count: number): Float32Array =>
  new Float32Array(bytesAt(vectors, offset, 4 * count).buffer)
