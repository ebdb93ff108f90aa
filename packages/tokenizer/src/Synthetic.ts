/** Vocabularies without meaning, of any size: for models with random weights. Any text can be encoded with them. */
import { letters } from "./internal/bytes.ts"

/** What a vocabulary is made of. */
export interface SyntheticOptions {
  /** Tokens in all; behind the special ones stand unused ones. */
  readonly size: number
  /** Id of the first special token. */
  readonly specialsAt: number
  readonly family: Family
}

/** The families whose special tokens and chat formats are known. */
export type Family = "glm4" | "deepseek-llm" | "youtu" | "llama-bpe" | "qwen2"

/** The tokens, and what a model file says about them. */
export interface Synthetic {
  readonly tokens: ReadonlyArray<string>
  /** As in `tokenizer.ggml.token_type`: 1 normal, 3 control, 5 unused. */
  readonly types: Int32Array
  /** Two tokens and a space between. */
  readonly merges: ReadonlyArray<string>
  /** Ids by the name of their key: `bos` for `tokenizer.ggml.bos_token_id`. */
  readonly ids: ReadonlyMap<string, number>
  readonly addBos: boolean
  readonly chatTemplate: string
}

interface Specials {
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
  }
}

/** Whether a text names a family. */
export const isFamily = (name: string): name is Family => Object.hasOwn(families, name)

/** Special tokens of a family: a vocabulary has at least 256 + as many tokens. */
export const specialCount = (family: Family): number => families[family].tokens.length

/** Makes a vocabulary: the bytes, then syllables and words of lower-case letters, then special tokens. */
export const make = ({ family, size, specialsAt }: SyntheticOptions): Synthetic => {
  const { addBos, assistant, end, ids, system, tokens: specials, user } = families[family]
  if (specialsAt < 256 || specialsAt + specials.length > size) {
    throw new RangeError(`${size} tokens with special ones from ${specialsAt} cannot hold 256 bytes and ${family}`)
  }
  const { merges, tokens: words } = wordsOf(specialsAt - 256)
  const tokens = [...letters, ...words, ...specials]
  const types = new Int32Array(size).fill(1)
  types.fill(3, specialsAt, tokens.length)
  types.fill(5, tokens.length)
  while (tokens.length < size) tokens.push(`[PAD${tokens.length}]`)
  const turn = (role: string, mark: string): string =>
    `{% if m.role == '${role}' %}${mark}{{ m.content }}${role === "assistant" ? end : ""}{% endif %}`
  return {
    tokens,
    types,
    merges,
    ids: new Map(Object.entries(ids).map(([name, text]) => [name, specialsAt + specials.indexOf(text)])),
    addBos,
    chatTemplate: `{% for m in messages %}${turn("system", system)}${turn("user", user)}${
      turn("assistant", assistant)
    }{% endfor %}{% if add_generation_prompt %}${assistant}{% endif %}`
  }
}

/** A space in the byte alphabet. */
const space = letters[32]!
const alphabet = Array.from("etaoinshrdlucmfwypvbgkjqxz")
const longest = 9

/** Merges of two earlier tokens each: first the pairs of letters and of space and letter, then ever longer words. */
const wordsOf = (count: number): { readonly tokens: ReadonlyArray<string>; readonly merges: ReadonlyArray<string> } => {
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
