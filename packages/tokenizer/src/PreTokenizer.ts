/** Pre-tokenization: a text is split into pieces, and merges do not cross them. */
import { cased } from "./internal/cased.ts"

/** A pre-tokenizer: its expressions, and the defaults that come with its name. */
export interface PreTokenizer {
  readonly name: string
  /** Applied one after the other, each to every piece left by the one before. */
  readonly expressions: ReadonlyArray<RegExp>
  /** A piece that is a token as a whole is taken directly. */
  readonly ignoreMerges: boolean
  /** Used where the file does not say. */
  readonly addBos: boolean
}

/** SentencePiece cuts nothing. */
export const noPreTokenizer: PreTokenizer = { name: "default", expressions: [], ignoreMerges: false, addBos: true }

// `\s` is the Unicode property White_Space: JavaScript's own has U+FEFF and lacks U+0085.
const white = String.raw`\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000`
const s = `[${white}]`
const spaces = String.raw`${s}*[\r\n]+|${s}+(?![^${white}])|${s}+`
const contraction = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
const symbols = String.raw` ?[^${white}\p{L}\p{N}]+`

const words = (numbers: string): RegExp =>
  new RegExp(
    String.raw`${contraction}|[^\r\n\p{L}\p{N}]?\p{L}+|${numbers}|${symbols}[\r\n]*|${spaces}`,
    "gu"
  )

const gpt2 = new RegExp(
  String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|${symbols}|${s}+(?![^${white}])|${s}+`,
  "gu"
)

const deepseekLlm = [
  /[\r\n]/gu,
  new RegExp(`${s}?[${cased}]+`, "gu"),
  new RegExp(String.raw`${s}?[!-\/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+`, "gu"),
  new RegExp(`(?<!${s})${s}+$`, "gu"), // the look-behind changes no match, it only keeps long runs linear
  /[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+/gu,
  /\p{N}+/gu
]

const deepseekV3 = [
  /\p{N}{1,3}/gu,
  /[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+/gu,
  new RegExp(
    "[!\"#$%&'()*+,\\-.\\/:;<=>?@\\[\\\\\\]\\^_`\\{\\|\\}~][A-Za-z]+" +
      String.raw`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|${spaces}`,
    "gu"
  )
]

const lower = String.raw`\p{Ll}\p{Lm}\p{Lo}\p{M}`
const upper = String.raw`\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}`
const before = String.raw`[^\r\n\p{L}\p{N}]?`
const youtu = [
  new RegExp(
    [
      String.raw`[\uac00-\ud7a3\u3131-\u318e]+`,
      String.raw`[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+`,
      String.raw`[\u3105-\u312f]+`,
      String.raw`[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+`
    ].join("|"),
    "gu"
  ),
  new RegExp(
    [
      `${before}[${upper}]*[${lower}]+${contraction}?`,
      `${before}[${upper}]+[${lower}]*${contraction}?`,
      String.raw`\p{N}`,
      String.raw`${symbols}[\r\n\/]*`,
      spaces
    ].join("|"),
    "gu"
  )
]

const make = (name: string, expressions: ReadonlyArray<RegExp>, defaults?: {
  readonly ignoreMerges?: boolean
  readonly addBos?: boolean
}): PreTokenizer => ({
  name,
  expressions,
  ignoreMerges: defaults?.ignoreMerges ?? false,
  addBos: defaults?.addBos ?? false
})

const three = words(String.raw`\p{N}{1,3}`)

/** The known pre-tokenizers by their name in `tokenizer.ggml.pre`. */
export const known: ReadonlyMap<string, PreTokenizer> = new Map(
  [
    make("glm4", [three]),
    make("chatglm-bpe", [three]),
    make("deepseek-llm", deepseekLlm),
    make("deepseek-v3", deepseekV3),
    make("youtu", youtu, { ignoreMerges: true }),
    make("llama-bpe", [three], { ignoreMerges: true, addBos: true }),
    make("qwen2", [words(String.raw`\p{N}`)]),
    make("gpt-2", [gpt2])
  ].map((one) => [one.name, one])
)

/** Cuts a text into pieces. Nothing is dropped: what lies between two matches is a piece too. */
export const split = (text: string, self: PreTokenizer): ReadonlyArray<string> => {
  let pieces: ReadonlyArray<string> = text === "" ? [] : [text]
  for (const expression of self.expressions) pieces = pieces.flatMap((piece) => splitOne(piece, expression))
  return pieces
}

/**
 * Splits a piece by an expression. A run of millions of characters of one kind exceeds the host's regular expressions: it is bisected,
 * at the end of a line if there is one, and its tokens there may differ from those of the whole run.
 */
const splitOne = (piece: string, expression: RegExp): ReadonlyArray<string> => {
  try {
    return splitAtMatches(piece, expression)
  } catch (error) {
    if (!(error instanceof RangeError) || piece.length < leastCut) throw error
    const at = middleOf(piece)
    return splitOne(piece.slice(0, at), expression).concat(splitOne(piece.slice(at), expression))
  }
}

/** A length that any host can match. */
const leastCut = 65536

const middleOf = (piece: string): number => {
  const half = piece.length >>> 1
  const line = piece.indexOf("\n", half)
  if (line >= 0 && line < piece.length - 1) return line + 1
  return (piece.charCodeAt(half) & 0xfc00) === 0xdc00 ? half + 1 : half
}

const splitAtMatches = (piece: string, expression: RegExp): ReadonlyArray<string> => {
  const matches = piece.match(expression)
  if (matches === null) return [piece]
  const length = matches.reduce((sum, match) => sum + match.length, 0)
  if (length === piece.length) return matches
  const parts: Array<string> = []
  let end = 0
  for (const match of piece.matchAll(expression)) {
    if (match.index > end) parts.push(piece.slice(end, match.index))
    parts.push(match[0])
    end = match.index + match[0].length
  }
  if (end < piece.length) parts.push(piece.slice(end))
  return parts
}
