/** To what the tokens of a prompt attend: by the cheapest of all programs that equal the paper's equations. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { evaluateIndex } from "@tg/core-uop/Program"
import { Arena, slotOf } from "@tg/core-uop/UOp"
import type { Residency } from "@tg/egraph/Analysis"
import * as Contraction from "@tg/egraph/Contraction"
import type { ENode } from "@tg/egraph/ENode"
import { choose, type Chosen, explanation, explore, type Explored, listing } from "@tg/egraph/Optimise"
import type { Attend } from "@tg/model-parts/Attention"
import type { AttendReport } from "@tg/model-parts/Family"
import * as Nn from "@tg/tensor/Nn"
import { param, type Tensor, variable } from "@tg/tensor/Tensor"
import { type Config, headSize } from "./Config.ts"

/** Tokens that are processed together, and positions in the cache, their own included. */
export interface Piece {
  readonly tokens: number
  readonly positions: number
}

/** Sizes that no config reaches: symbols in the equations. */
const most = 2 ** 24

/**
 * The equations of DeepSeek-V2 (section 2.1.2) on queries `[T, H, plain + rotated]` and cached rows: keys and values are made
 * from latents, every head attends to its own.
 */
const equations = (config: Config): { readonly output: Tensor; readonly residency: (slot: number) => Residency } => {
  const { heads, latent, plain, rotated, value } = config
  const arena = new Arena()
  const [tokens, positions] = [variable(arena, "tokens", 1, most).node, variable(arena, "positions", 1, most).node]
  const places: Array<Residency> = []
  const storage = (where: Residency, shape: Tensor["shape"]): Tensor =>
    param(arena, places.push(where) - 1, { shape, dtype: DType.f32 })
  const q = storage("activation", [tokens, heads, plain + rotated])
  const rows = storage("cache", [positions, latent + rotated])
  const latents = rows.slice(1, 0, latent)
  const up = (size: number): Tensor =>
    Nn.linear(latents, storage("weight", [heads * size, latent])).reshape([positions, heads, size])
  const products = (queries: Tensor, keys: Tensor): Tensor => queries.unsqueeze(2).mul(keys).sum(-1)
  const scores = products(q.slice(2, 0, plain), up(plain).permute([1, 0, 2]))
    .add(products(q.slice(2, plain, rotated), rows.slice(1, latent, rotated)))
  const weights = Nn.softmax(scores.mul(1 / Math.sqrt(headSize(config))))
  const output = products(weights, up(value).permute([1, 2, 0]))
  return { output, residency: (slot) => places[slot]! }
}

interface Known {
  readonly explored: Explored
  readonly choices: Map<string, Attend>
}

/** All programs that equal the equations. */
const search = (config: Config): Explored => {
  const { output, residency } = equations(config)
  return explore([output.node], { residency: (storage) => residency(slotOf(storage)) })
}

const searches = new WeakMap<Config, Known>()

const searchOf = (config: Config): Known => {
  const known = searches.get(config)
  if (known !== undefined) return known
  const made = { explored: search(config), choices: new Map<string, Attend>() }
  searches.set(config, made)
  return made
}

/**
 * `heads` where the cheapest program makes keys and values of all positions, `latents` where it does not. One search for each
 * configuration; a choice for each piece.
 */
export const attend = (
  config: Config,
  profile: Pick<DeviceProfile, "bytesPerMicro" | "dispatchMicros">,
  { positions, tokens }: Piece
): Attend => {
  const { choices, explored } = searchOf(config)
  const name = [tokens, positions, profile.bytesPerMicro, profile.dispatchMicros].join()
  const known = choices.get(name)
  if (known !== undefined) return known
  const made = formOf(choose(explored, { profile, vars: { tokens, positions } }), config)
  choices.set(name, made)
  return made
}

const formOf = ({ choice }: Chosen, config: Config): Attend =>
  choice === undefined || [...choice.values()].some((node) => isValues(node, config)) ? "heads" : "latents"

/** The same as a new search with all that it found. */
export const explain = (
  config: Config,
  profile: Pick<DeviceProfile, "bytesPerMicro" | "dispatchMicros">,
  vars: Piece
): AttendReport => {
  const explored = search(config)
  const situation = { profile, vars: { ...vars } }
  const chosen = choose(explored, situation)
  return {
    attend: formOf(chosen, config),
    micros: chosen.micros,
    headsMicros: chosen.writtenMicros,
    latentsMicros: choose(explored, { ...situation, without: isOfPositions }).micros,
    nodes: explored.graph.size,
    stop: explored.saturation.stop,
    chosen: listing(explored, chosen),
    because: explanation(explored, chosen)
  }
}

/** Whether it is a sum for each position whatever the token: keys or values of each head, in any order of their axes. */
const isOfPositions = (node: ENode): boolean => {
  if (node.kind !== "contract" || Contraction.summed(node.contraction).length === 0) return false
  const { output, sizes } = node.contraction
  const symbols = Contraction.shapeOf(sizes, output).filter((d) => typeof d !== "number")
  const marked = symbols.map((d) => evaluateIndex(d, { tokens: 1, positions: 2 }))
  return marked.length === 1 && marked[0] === 2
}

/** Whether it is the values of all positions: latents times the weight of values alone, as it is written. */
const isValues = (node: ENode, { heads, latent, value }: Config): boolean => {
  if (node.kind !== "contract") return false
  const { output, sizes } = node.contraction
  const shape = Contraction.shapeOf(sizes, output)
  const sums = Contraction.summed(node.contraction).map((i) => sizes[i])
  return sums.length === 1 && sums[0] === latent && shape.length === 2 && shape[1] === heads * value &&
    typeof shape[0] !== "number"
}
