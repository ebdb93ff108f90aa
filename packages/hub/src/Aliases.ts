/** Short names of models that tg is made for. */

/** Where a short name leads. */
export interface Alias {
  readonly owner: string
  readonly repo: string
  /** Taken where none is asked for. */
  readonly quant: string
}

/**
 * The names that ship. They are names of public repositories as other people's pages give them: nobody has fetched from
 * them for this list, and what is fetched is held to the hash that the hub tells, not to one written here.
 */
export const aliases: Readonly<Record<string, Alias>> = {
  "glm-4.7-flash": { owner: "unsloth", repo: "GLM-4.7-Flash-GGUF", quant: "Q4_K_M" },
  "deepseek-v2-lite-chat": { owner: "mradermacher", repo: "DeepSeek-V2-Lite-Chat-GGUF", quant: "Q4_K_M" },
  "youtu-llm-2b": { owner: "tencent", repo: "Youtu-LLM-2B-GGUF", quant: "Q8_0" }
}
