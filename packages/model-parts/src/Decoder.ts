/** The forward pass that decoder-only models have in common: embedding, blocks that share bodies, norm, output. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import type { Dim } from "@tg/core-uop/Shape"
import type { Arena } from "@tg/core-uop/UOp"
import * as Layout from "@tg/gguf/Layout"
import * as Nn from "@tg/tensor/Nn"
import { type Unit, unit } from "@tg/tensor/Program"
import { buffer, scalar, type Tensor } from "@tg/tensor/Tensor"
import type { Batch } from "./Attention.ts"
import * as Halves from "./Halves.ts"
import * as Order from "./Order.ts"
import * as Places from "./Places.ts"
import { type Activations, type Lookup, type Manner, operand, product } from "./Product.ts"
import { once, shared } from "./Schedule.ts"
import type { BlockWeights, ModelWeights, WeightRef } from "./Weights.ts"

/** The buffers of weights: a `u32 [layout.words]` tensor for each. */
export type WeightBuffers = (ref: WeightRef) => Tensor

/** What the forward pass of a model runs on. */
export interface ForwardInput {
  /** How products with quantised weights read activations; `float` if it is not said. */
  readonly activations?: Activations | undefined
  readonly buffers: WeightBuffers
  /** `u32 [T]`; T may be symbolic. */
  readonly tokens: Tensor
  /**
   * Many tokens, stored feature by feature: T is a multiple of `Order.tileTokens`, of which the last ones only fill up.
   */
  readonly batch?: Batch | undefined
  /** Tokens that count, if the last ones only fill up: a symbolic integer. A batch has its own. */
  readonly count?: Tensor | undefined
  /** Position of the first token: a symbolic integer (`index`, rank 0). */
  readonly startPos: Tensor
  /** One per block, as the model's storage says. Rows from `startPos` on are written. */
  readonly caches: ReadonlyArray<Tensor>
  /** What the host computes for each position, for each of the model's inputs: the rows of the tokens, `[T, ...row]`, unless `inputRows` says more. */
  readonly inputs: ReadonlyArray<Tensor>
  /** Whether inputs have a row for each token, or for each position, of which tokens take theirs; `tokens` if it is not said. */
  readonly inputRows?: "tokens" | "positions" | undefined
  /**
   * The tokens are several sequences of so many, from position 0: for training. Each sees itself only, where attention is over a
   * whole cache; one sequence if it is not said.
   */
  readonly sequence?: number | undefined
  /** Where tokens stand that are of any conversations, in the order of tokens; they stand behind `startPos` if it is not said. */
  readonly places?: Places.Places | undefined
  /** Logits of all tokens, of the last one, or of some by their numbers, `[R]`. */
  readonly rows: "all" | "last" | Tensor
  /** What costs are counted for; a usual device if it is not said. */
  readonly profile?: DeviceProfile | undefined
  /** Whether the experts that blocks choose are among the results; they are not, if it is not said. */
  readonly experts?: "kept" | undefined
  /** Takes a row of each token, as the output matrix reads it, in the manner of a cache (`Prediction.storage`); if it is there. */
  readonly states?: Tensor | undefined
}

/** `logits [T, 1 or R, vocabulary]`, and the writes to caches and states, which must reach the sink. */
export interface ForwardOutput {
  readonly logits: Tensor
  readonly effects: ReadonlyArray<Tensor>
  /** Of each block with experts, in order: those chosen, `u32 [T, used]`. Empty unless they are kept. */
  readonly experts: ReadonlyArray<Tensor>
}

/** What a block computes on. */
export interface BlockInput extends Manner {
  readonly weights: Lookup
  /** `[T, embedding]`. */
  readonly x: Tensor
  /** The host's input of this block, `[T, ...row]`. */
  readonly input: Tensor
  readonly cache: Tensor
  /** Position of the first token, dtype `index`. */
  readonly startPos: Tensor
  /** In the order of features. */
  readonly batch?: Batch | undefined
  /** Where the tokens stand, unless they stand behind `startPos`. */
  readonly places?: Places.Places | undefined
  /** Whether the tokens are a few, of a known number: what suits one token then suits them. */
  readonly isFew: boolean
  /** Tokens of each of several sequences. */
  readonly sequence?: number | undefined
}

/** What a block computes: `x [T, embedding]`, its write to the cache, and the experts it chose, `[T, used]`, if it has any. */
export interface BlockOutput {
  readonly x: Tensor
  readonly write: Tensor
  readonly chosen: Tensor | undefined
}

/** One kind of block. Blocks of a kind with equal weights share one body. */
export interface BlockKind {
  /** A name of the body: `dense_block`. */
  readonly name: string
  /** Which of the host's inputs it takes. */
  readonly input: number
  readonly build: (input: BlockInput) => BlockOutput
}

/** A model as the forward pass needs it. */
export interface Decoder {
  readonly layers: number
  /** The number of the first block in the file; 0 if it is not said. */
  readonly firstBlock?: number | undefined
  readonly epsilon: number
  readonly weights: Pick<ModelWeights, "blocks" | "output" | "outputNorm" | "tokenEmbedding">
  readonly kindOf: (block: number) => BlockKind
  /** What becomes of embeddings; nothing if it is not said. */
  readonly embedded?: ((x: Tensor) => Tensor) | undefined
  /** What becomes of the output product; nothing if it is not said. */
  readonly logits?: ((z: Tensor, buffers: WeightBuffers) => Tensor) | undefined
}

/** A buffer for each weight, numbered from `firstId`. */
export const weightBuffers = (
  arena: Arena,
  { all }: Pick<ModelWeights, "all">,
  firstId: number
): WeightBuffers => {
  const made = new Map(
    all.map((ref, i) => [
      ref.name,
      buffer(arena, firstId + i, { shape: [ref.layout.words], dtype: DType.u32, label: ref.name })
    ])
  )
  return (ref) => made.get(ref.name)!
}

const orderOf = ({ batch }: ForwardInput): Order.Order => batch === undefined ? "tokens" : "features"

const isFew = ({ count, tokens }: ForwardInput): boolean => count !== undefined || tokens.dim(0) === 1

/** Builds the call of a block. */
type Blocks = (x: Tensor, index: number) => BlockOutput

/** Blocks of one kind share a body, which is built once: the weights come in as arguments. */
const blocksOf = (decoder: Decoder, input: ForwardInput): Blocks => {
  const kinds = new Map<string, Unit>()
  const places = input.places === undefined ? [] : Places.toArguments(input.places)
  return (x, index) => {
    const weights: BlockWeights = decoder.weights.blocks[index]!
    const own = decoder.kindOf(index)
    const roles = Object.keys(weights)
    const layouts = roles.map((role) => `${role} ${weights[role]!.layout.type} ${weights[role]!.layout.shape.join()}`)
    const kind = [own.name, ...layouts].join()
    const call = kinds.get(kind) ?? blockUnit(own, input, weights)
    kinds.set(kind, call)
    const words = roles.map((role) => input.buffers(weights[role]!))
    // `x` goes in and out as it is stored
    const storage = [x, input.inputs[own.input]!, input.caches[index]!]
    const [out, write, chosen] = call([...storage, input.startPos, ...words, ...places])
    // the call site: what tells the launches of equal blocks apart
    x.arena.label(out!.node.src[0]!, `blk.${(decoder.firstBlock ?? 0) + index}`)
    return { x: out!, write: write!, chosen }
  }
}

/** The rows of the host's input that belong to the tokens of a block. */
const rowsOf = (
  hostInput: Tensor,
  { inputRows }: ForwardInput,
  { places, startPos, tokens }: {
    readonly places: Places.Places | undefined
    readonly startPos: Tensor
    readonly tokens: Dim
  }
): Tensor => {
  if (inputRows !== "positions") return hostInput
  return places === undefined ? hostInput.slice(0, startPos, tokens) : hostInput.gather(places.position)
}

/** The block of all weights with these layouts. */
const blockUnit = (kind: BlockKind, input: ForwardInput, weights: BlockWeights): Unit => {
  const roles = Object.keys(weights)
  const order = orderOf(input)
  const isBatch = order === "features"
  return unit(kind.name, (...params) => {
    const [own, hostInput, rows, startPos] = params
    const x = isBatch ? Order.load(own!) : own!
    const places = input.places === undefined ? undefined : Places.fromArguments(params.slice(4 + roles.length))
    const made = kind.build({
      // of many tokens, nothing is read by few rows
      activations: isBatch && input.activations === "int8" ? "int8-all" : input.activations ?? "float",
      weights: (role) => {
        const at = roles.indexOf(role)
        return at < 0 ? undefined : { layout: weights[role]!.layout, words: params[4 + at]! }
      },
      x,
      input: rowsOf(hostInput!, input, { places, startPos: startPos!, tokens: x.dim(0) }),
      cache: rows!,
      startPos: startPos!,
      order,
      profile: input.profile,
      isFew: isFew(input),
      batch: input.batch,
      places,
      sequence: input.sequence
    })
    const out = isBatch ? Order.store(made.x) : made.x
    return input.experts === undefined || made.chosen === undefined
      ? [out, made.write]
      : [out, made.write, made.chosen]
  })
}

/** What the blocks make of `x [T, embedding]`. */
export interface Through extends Pick<ForwardOutput, "effects" | "experts"> {
  readonly x: Tensor
}

/** Through all blocks, one behind the other. */
export const through = (decoder: Decoder, input: ForwardInput, x: Tensor): Through => {
  const isBatch = input.batch !== undefined
  const effects: Array<Tensor> = []
  const experts: Array<Tensor> = []
  const blockAt = blocksOf(decoder, input)
  let stored = isBatch ? Order.store(x) : x
  for (let i = 0; i < decoder.layers; i++) {
    const made = blockAt(stored, i)
    stored = made.x
    effects.push(made.write)
    if (made.chosen !== undefined) experts.push(made.chosen)
  }
  return { x: isBatch ? Order.load(stored) : stored, effects, experts }
}

/** The rows that logits are wanted of, normalised, and what the output matrix makes of them. */
export interface Headed {
  /** `[T, 1 or R, embedding]`. */
  readonly normed: Tensor
  /** `[T, 1 or R, vocabulary]`. */
  readonly logits: Tensor
}

/** `x [T, embedding]` behind the norm with this gain, as the output matrix reads it. */
const headNorm = ({ epsilon, weights: { outputNorm } }: Decoder, buffers: WeightBuffers, order: Order.Order) => {
  const gain = Layout.dequantise(outputNorm.layout, buffers(outputNorm))
  return (x: Tensor): Tensor => x.mul(shared({ order }, Nn.rmsScale(x, epsilon))).mul(gain).label("output_norm")
}

/** The logits of what comes out of the blocks. */
export const head = (decoder: Decoder, input: ForwardInput, x: Tensor): Headed => {
  const { activations = "float", batch, buffers } = input
  const { output: ref } = decoder.weights
  const order = input.rows === "all" ? orderOf(input) : "tokens"
  const row = x.slice(0, (batch?.count ?? input.count ?? scalar(x.arena, x.dim(0))).sub(1), 1)
  // rows of a batch are spread over memory, and every row of the output matrix reads them: they are laid out first
  const laid = (rows: Tensor): Tensor => batch === undefined ? rows : once(rows)
  const kept = input.rows === "all" ? x : laid(input.rows === "last" ? row : x.gather(input.rows))
  const normed = headNorm(decoder, buffers, order)(kept)
  const output = { layout: ref.layout, words: buffers(ref) }
  const read = operand(
    shared({ order }, normed),
    batch === undefined || activations === "int8-all" ? activations : "float"
  )
  const z = product(read, output).label("output")
  return { normed, logits: shared({ order }, decoder.logits?.(z, buffers) ?? z) }
}

/** Tokens to logits. */
export const forward = (decoder: Decoder, input: ForwardInput): ForwardOutput => {
  const { buffers, places, startPos, states, tokens } = input
  const { tokenEmbedding } = decoder.weights
  const rows = Layout.dequantise(tokenEmbedding.layout, buffers(tokenEmbedding), tokens).label("token_embd")
  const { effects, experts, x } = through(decoder, input, decoder.embedded?.(rows) ?? rows)
  const { logits } = head(decoder, input, x)
  if (states === undefined) return { logits, effects, experts }
  const own = Halves.toRows(states, headNorm(decoder, buffers, orderOf(input))(x))
  const kept = Places.write(states, own, { first: startPos, places }).label("states")
  return { logits, effects: [...effects, kept], experts }
}
