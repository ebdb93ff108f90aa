/** Which type each tensor of a quantised file has: the rules behind names such as `q4_k_m`. */
import { type Name as TypeName, table } from "@tg/gguf/GgufType"

/** What a mix depends on. */
export interface Quantised {
  readonly layers: number
  readonly tied: boolean
  readonly experts: unknown
}

type Rule = readonly [tensors: RegExp, type: TypeName | ((block: number, layers: number) => TypeName)]

interface Mix {
  /** The label `general.file_type`. */
  readonly fileType: number
  readonly rules: (model: Quantised) => ReadonlyArray<Rule>
}

/** Blocks whose down projections get more bits: the first and last eighth, and every third between. */
const hasMoreBits = (block: number, layers: number): boolean => {
  const eighth = Math.floor(layers / 8)
  return block < eighth || block >= Math.floor(7 * layers / 8) || (block - eighth) % 3 === 2
}

/** Down projections, and values of grouped-query attention, which are small. */
const downWithMoreBits: Rule = [
  /ffn_down|attn_v\./,
  (block, layers) => hasMoreBits(block, layers) ? "Q6_K" : "Q4_K"
]

/** The output matrix, or the embedding in its place. */
const output = (model: Quantised): Rule => [model.tied ? /^token_embd/ : /^output\.weight/, "Q6_K"]

// What published files of models with sigmoid routing do beyond the standard mixes.
const sharedExperts: ReadonlyArray<Rule> = [
  [/ffn_(gate|up)_shexp/, "Q5_K"],
  [/ffn_down_shexp/, "Q6_K"],
  [/attn_(kv_a_mqa|k_b|v_b)/, "Q8_0"]
]

const isGlm = ({ experts }: Quantised): boolean =>
  typeof experts === "object" && experts !== null && "gating" in experts && experts.gating === "sigmoid"

const mixes = {
  q4_0: {
    fileType: 2,
    rules: (model) => [output(model), ...(isGlm(model) ? sharedExperts : []), [/./, "Q4_0"]]
  },
  q4_k_m: {
    fileType: 15,
    rules: (model) => [output(model), ...(isGlm(model) ? sharedExperts : []), downWithMoreBits, [/./, "Q4_K"]]
  },
  f16: { fileType: 1, rules: () => [[/./, "F16"]] }
} as const satisfies Record<string, Mix>

/** The name of a mix. */
export type Name = keyof typeof mixes

/** All mixes. */
export const names = Object.keys(mixes) as ReadonlyArray<Name>

/** Whether a text names a mix. */
export const isName = (text: string): text is Name => Object.hasOwn(mixes, text)

/** The value of `general.file_type`. */
export const fileType = (mix: Name): number => mixes[mix].fileType

/** What stands in for a type whose blocks do not divide a row; F16 where this does not, either. */
const fallbacks: { readonly [N in TypeName]?: TypeName } = { Q4_K: "Q5_0", Q5_K: "Q5_1", Q6_K: "Q8_0" }

/** The type of each matrix by its name and the length of its rows. */
export const typesOf = (mix: Name, model: Quantised): (name: string, row: number) => TypeName => {
  const rules: ReadonlyArray<Rule> = mixes[mix].rules(model)
  const fits = (type: TypeName, row: number): boolean => row % table[type].blockValues === 0
  return (name, row) => {
    const block = Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? -1)
    const [, rule] = rules.find(([tensors]) => tensors.test(name))!
    const type = typeof rule === "string" ? rule : rule(block, model.layers)
    if (fits(type, row)) return type
    const other = fallbacks[type] ?? "F16"
    return fits(other, row) ? other : "F16"
  }
}
