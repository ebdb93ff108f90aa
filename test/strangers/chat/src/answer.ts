import { Model } from "@tg/node"

/** A model's answer to a question, whole. */
export const answer = async (file: string, question: string): Promise<string> => {
  await using model = await Model.open(file, { device: "wasm", threads: 2 })
  let text = ""
  for await (const part of model.chat(question, { maxTokens: 100 })) text += part
  return text
}
