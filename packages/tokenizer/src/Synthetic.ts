/** Vocabularies without meaning, of any size: for models with random weights. Any text can be encoded with them. */
import { letters } from "./internal/bytes.ts"

/** What a vocabulary is made of. */
export interface SyntheticOptions {
  /** Tokens in all; behind the special ones stand unused ones. */
  readonly size: number
  /** Id of the first special token: 0 in the families of SentencePiece. */
  readonly specialsAt: number
  readonly family: Family
}

/** The families whose special tokens and chat formats are known. */
export type Family = "glm4" | "deepseek-llm" | "youtu" | "llama-bpe" | "qwen2" | "mistral" | "gemma"

/** The tokens, and what a model file says about them. */
export interface Synthetic {
  /** As in `tokenizer.ggml.model`: byte-level BPE or SentencePiece. */
  readonly model: "gpt2" | "llama"
  readonly tokens: ReadonlyArray<string>
  /** As in `tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 5 unused, 6 byte. */
  readonly types: Int32Array
  /** Pairs of tokens with a space between; none in SentencePiece. */
  readonly merges: ReadonlyArray<string>
  /** SentencePiece: the priority of each piece. */
  readonly scores: Float32Array | undefined
  /** SentencePiece: whether text begins with a space. */
  readonly addSpacePrefix: boolean | undefined
  /** Ids by the name of their key: `bos` for `tokenizer.ggml.bos_token_id`. */
  readonly ids: ReadonlyMap<string, number>
  readonly addBos: boolean
  readonly chatTemplate: string
}

interface Specials {
  /** Of SentencePiece, and whether it puts a space in front of text. */
  readonly pieces?: { readonly addSpacePrefix: boolean }
  readonly tokens: ReadonlyArray<string>
  readonly ids: Readonly<Record<string, string>>
  readonly addBos: boolean
  readonly system: string
  readonly user: string
  readonly assistant: string
  readonly end: string
}

const families: Readonly<Record<Family, Specials>> = {
  glm4: {
    tokens: [
      "<|endoftext|>",
      "[MASK]",
      "[gMASK]",
      "[sMASK]",
      "<sop>",
      "<eop>",
      "<|system|>",
      "<|user|>",
      "<|assistant|>",
      "<|observation|>",
      "<think>",
      "</think>"
    ],
    ids: { bos: "[gMASK]", eos: "<|endoftext|>", eot: "<|user|>", unknown: "<|endoftext|>", padding: "[MASK]" },
    addBos: false,
    system: "<|system|>",
    user: "<|user|>",
    assistant: "<|assistant|>",
    end: ""
  },
  "deepseek-llm": {
    tokens: ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<|EOT|>"],
    ids: { bos: "<｜begin▁of▁sentence｜>", eos: "<｜end▁of▁sentence｜>", padding: "<｜end▁of▁sentence｜>" },
    addBos: true,
    system: "",
    user: "<｜User｜>",
    assistant: "<｜Assistant｜>",
    end: "<｜end▁of▁sentence｜>"
  },
  youtu: {
    tokens: ["<|begin_of_text|>", "<|end_of_text|>", "<|User|>", "<|Assistant|>", "<think>", "</think>"],
    ids: { bos: "<|begin_of_text|>", eos: "<|end_of_text|>", padding: "<|end_of_text|>" },
    addBos: true,
    system: "",
    user: "<|User|>",
    assistant: "<|Assistant|>",
    end: "<|end_of_text|>"
  },
  "llama-bpe": {
    tokens: [
      "<|begin_of_text|>",
      "<|end_of_text|>",
      "<|start_header_id|>",
      "<|end_header_id|>",
      "<|eot_id|>",
      "<|python_tag|>"
    ],
    ids: { bos: "<|begin_of_text|>", eos: "<|eot_id|>", padding: "<|end_of_text|>" },
    addBos: true,
    system: "<|start_header_id|>system<|end_header_id|>",
    user: "<|start_header_id|>user<|end_header_id|>",
    assistant: "<|start_header_id|>assistant<|end_header_id|>",
    end: "<|eot_id|>"
  },
  qwen2: {
    tokens: ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"],
    ids: { bos: "<|endoftext|>", eos: "<|im_end|>", padding: "<|endoftext|>" },
    addBos: false,
    system: "<|im_start|>system\n",
    user: "<|im_start|>user\n",
    assistant: "<|im_start|>assistant\n",
    end: "<|im_end|>"
  },
  mistral: {
    pieces: { addSpacePrefix: true },
    tokens: ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"],
    ids: { bos: "<s>", eos: "</s>", unknown: "<unk>" },
    addBos: true,
    system: "",
    user: "[INST]",
    assistant: "[/INST]",
    end: "</s>"
  },
  gemma: {
    pieces: { addSpacePrefix: false },
    tokens: ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>"],
    ids: { bos: "<bos>", eos: "<eos>", eot: "<end_of_turn>", unknown: "<unk>", padding: "<pad>" },
    addBos: true,
    system: "<start_of_turn>user\n",
    user: "<start_of_turn>user\n",
    assistant: "<start_of_turn>model\n",
    end: "<end_of_turn>"
  }
}

/** Whether a text names a family. */
export const isFamily = (name: string): name is Family => Object.hasOwn(families, name)

/** Special tokens of a family: a vocabulary has at least 256 + as many tokens. */
export const specialCount = (family: Family): number => families[family].tokens.length

/** Makes a vocabulary: bytes, syllables and words of lower-case letters, and special tokens. */
export const make = (options: SyntheticOptions): Synthetic => {
  const { family, specialsAt } = options
  const { addBos, ids, pieces, tokens: specials } = families[family]
  const words = pieces === undefined ? bytePairs(options) : sentencePieces(options, pieces)
  return {
    ...words,
    ids: new Map(Object.entries(ids).map(([name, text]) => [name, specialsAt + specials.indexOf(text)])),
    addBos,
    chatTemplate: templateOf(family)
  }
}

type Words = Pick<Synthetic, "addSpacePrefix" | "merges" | "model" | "scores" | "tokens" | "types">

/** The bytes, words, special tokens, and unused ones behind them. */
const bytePairs = ({ family, size, specialsAt }: SyntheticOptions): Words => {
  const { tokens: specials } = families[family]
  if (specialsAt < 256 || specialsAt + specials.length > size) {
    throw new RangeError(`${size} tokens with special ones from ${specialsAt} cannot hold 256 bytes and ${family}`)
  }
  const { merges, tokens: words } = wordsOf(space, specialsAt - 256)
  const tokens = [...letters, ...words, ...specials]
  const types = new Int32Array(size).fill(kinds.normal)
  types.fill(kinds.control, specialsAt, tokens.length)
  types.fill(kinds.unused, tokens.length)
  while (tokens.length < size) tokens.push(`[PAD${tokens.length}]`)
  return { model: "gpt2", tokens, types, merges, scores: undefined, addSpacePrefix: undefined }
}

/** Special tokens, bytes, words, and letters, with falling scores: an earlier piece is merged first. */
const sentencePieces = (
  { family, size, specialsAt }: SyntheticOptions,
  { addSpacePrefix }: NonNullable<Specials["pieces"]>
): Words => {
  const { ids, tokens: specials } = families[family]
  const characters = [mark, ...Array.from({ length: 94 }, (_, i) => String.fromCharCode(33 + i))]
  const count = size - specials.length - 256 - characters.length
  if (specialsAt !== 0 || count < 0) {
    throw new RangeError(`${size} tokens with special ones from ${specialsAt} cannot hold 256 bytes and ${family}`)
  }
  const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, "0")}>`)
  const words = wordsOf(mark, count).tokens
  const first = specials.length + bytes.length
  const types = new Int32Array(size).fill(kinds.normal)
  types.fill(kinds.control, 0, specials.length)
  types[specials.indexOf(ids.unknown!)] = kinds.unknown
  types.fill(kinds.byte, specials.length, first)
  return {
    model: "llama",
    tokens: [...specials, ...bytes, ...words, ...characters],
    types,
    merges: [],
    scores: Float32Array.from({ length: size }, (_, i) => -Math.max(0, i - first)),
    addSpacePrefix
  }
}

const kinds = { normal: 1, unknown: 2, control: 3, unused: 5, byte: 6 } as const

const templateOf = (family: Family): string => {
  const { assistant, end, system, user } = families[family]
  const turn = (role: string, mark: string): string =>
    `{% if m.role == '${role}' %}${mark}{{ m.content }}${role === "assistant" ? end : ""}{% endif %}`
  return `{% for m in messages %}${turn("system", system)}${turn("user", user)}${
    turn("assistant", assistant)
  }{% endfor %}{% if add_generation_prompt %}${assistant}{% endif %}`
}

/** A space in the byte alphabet. */
const space = letters[32]!
/** A space in pieces. */
const mark = "\u2581"
const alphabet = Array.from("etaoinshrdlucmfwypvbgkjqxz")
const longest = 9

/** Merges of two earlier tokens each: first the pairs of letters and of space and letter, then ever longer words. */
const wordsOf = (
  space: string,
  count: number
): { readonly tokens: ReadonlyArray<string>; readonly merges: ReadonlyArray<string> } => {
  const tokens: Array<string> = []
  const merges: Array<string> = []
  const known = new Set<string>()
  const add = (a: string, b: string): void => {
    if (tokens.length === count || known.has(a + b) || a.length + b.length > longest) return
    known.add(a + b)
    tokens.push(a + b)
    merges.push(`${a} ${b}`)
  }
  for (const b of alphabet) add(space, b)
  for (const a of alphabet) for (const b of alphabet) add(a, b)
  // a pair of what there is already, and the next letter: 700 times 26 tokens, then 26 times as many
  for (let i = 0; tokens.length < count; i++) for (const b of alphabet) add(tokens[i]!, b)
  return { tokens, merges }
}
