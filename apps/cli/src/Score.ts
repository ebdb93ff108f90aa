/** Whether an answer to a question with a known answer is right. */
import { Schema } from "effect"
import { Message } from "./Prompt.ts"

/** How an answer is checked: the exact text, or an object with these keys and types. */
export const Check = Schema.Union([
  Schema.Struct({ kind: Schema.Literal("exact") }),
  Schema.Struct({
    kind: Schema.Literal("json"),
    types: Schema.Record(Schema.String, Schema.Literals(["string", "number"]))
  })
])
/** How an answer is checked. */
export type Check = typeof Check.Type

/** A line of a file of questions. */
export const Question = Schema.Struct({
  id: Schema.String,
  task: Schema.String,
  messages: Schema.Array(Message),
  thinking: Schema.optionalKey(Schema.Boolean),
  expected: Schema.String,
  check: Check,
  /** Completions of another program, by quantisation. */
  llama_cpp: Schema.optionalKey(Schema.Record(Schema.String, Schema.Struct({ text: Schema.String })))
})
/** A line of a file of questions. */
export type Question = typeof Question.Type

/** What counts as the answer: all of it, or what follows the thoughts. */
export const answerOf = (completion: string, thinking: boolean): string =>
  thinking ? completion.split("</think>").at(-1)! : completion

/** Whether the completion of a question is right. */
export const isRight = (question: Question, completion: string): boolean => {
  const answer = answerOf(completion, question.thinking ?? false)
  switch (question.check.kind) {
    case "exact":
      return answer === question.expected
    case "json":
      return hasTypes(answer, question.check.types)
  }
}

/** An object with just these keys in this order; a `number` is an integer written without point or exponent. */
const hasTypes = (text: string, types: Readonly<Record<string, "string" | "number">>): boolean => {
  let value: unknown
  try {
    value = JSON.parse(
      text,
      (_, item: unknown, context?: { readonly source?: string }) =>
        typeof item === "number" && !/^-?\d+$/.test(context?.source ?? String(item)) ? new NotInteger() : item
    )
  } catch {
    return false
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false
  const entries = Object.entries(value)
  const names = Object.keys(types)
  return entries.length === names.length &&
    entries.every(([name, item], i) => name === names[i] && typeof item === types[name])
}

class NotInteger {}

/** The names of quantisations by `general.file_type`, as files of completions use them. */
const fileTypes: ReadonlyMap<number, string> = new Map([
  [0, "F32"],
  [1, "F16"],
  [2, "Q4_0"],
  [3, "Q4_1"],
  [7, "Q8_0"],
  [8, "Q5_0"],
  [9, "Q5_1"],
  [10, "Q2_K"],
  [11, "Q3_K_S"],
  [12, "Q3_K_M"],
  [13, "Q3_K_L"],
  [14, "Q4_K_S"],
  [15, "Q4_K_M"],
  [16, "Q5_K_S"],
  [17, "Q5_K_M"],
  [18, "Q6_K"],
  [32, "BF16"]
])

/** The name of a file's quantisation: its `general.file_type`, or the type of most of its bytes. */
export const quantisationOf = (
  fileType: number | undefined,
  tensors: ReadonlyArray<{ readonly type: string; readonly bytes: number }>
): string => {
  const named = fileType === undefined ? undefined : fileTypes.get(fileType)
  if (named !== undefined) return named
  const bytes = new Map<string, number>()
  for (const t of tensors) bytes.set(t.type, (bytes.get(t.type) ?? 0) + t.bytes)
  return [...bytes].reduce((a, b) => b[1] > a[1] ? b : a, ["F32", 0] as const)[0]
}
