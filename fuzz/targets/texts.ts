/** Files of JSON: tuned opts, kept programs, conversations. */
import { Schema } from "effect"
import * as Prompt from "../../apps/cli/src/Prompt.ts"
import { Arena, digest } from "../../packages/core-uop/src/UOp.ts"
import * as Expr from "../../packages/core-uop/src/Expr.ts"
import * as PlanText from "../../packages/jit/src/PlanText.ts"
import * as Store from "../../packages/tuner/src/Store.ts"
import type { Random } from "../Random.ts"
import { accepted, bytes, refused, type Target, text, wrong } from "../Target.ts"

const values = [
  "0",
  "-1",
  "1e999",
  "null",
  "true",
  "\"x\"",
  "[]",
  "{}",
  "NaN",
  "99999999999",
  "\"__proto__\"",
  "0.5",
  "[[]]"
]

/** JSON with something else in some places. */
const altered = (random: Random, json: string): string => {
  let made = json
  const times = 1 + random.below(4)
  for (let i = 0; i < times; i++) {
    const at = random.below(made.length + 1)
    switch (random.below(5)) {
      case 0:
        made = made.slice(0, at)
        break
      case 1:
        made = made.slice(0, at) + random.pick(["{", "}", "[", "]", ",", ":", "\"", "\0", "\\", "é"]) + made.slice(at)
        break
      case 2:
        made = made.slice(0, at) + made.slice(at + 1 + random.below(10))
        break
      default: {
        const found = [...made.matchAll(/-?\d+(?:\.\d+)?|"[^"]*"/g)]
        if (found.length === 0) break
        const one = random.pick(found)
        made = made.slice(0, one.index) + random.pick(values) + made.slice(one.index + one[0].length)
      }
    }
  }
  return random.oneIn(200) ? "[".repeat(100_000) : made
}

const tuned = JSON.stringify({
  version: 1,
  adapters: {
    wasm: { abc: { name: "k", opts: [["LOCAL", 0, 4], ["UPCAST", 1, 2]], micros: 1.5, usualMicros: 2 } },
    gpu: {}
  }
})

/** `tuned.json`. */
export const tunedFiles: Target = {
  name: "tuned",
  make: (random) => bytes(altered(random, tuned)),
  run: (input) => {
    const read = Store.decode(text(input), "tuned.json")
    if (read._tag === "Failure") return refused(read.failure)
    const again = Store.decode(Store.encode(read.success), "again")
    return again._tag === "Success" ? accepted : wrong("what was read cannot be written and read again")
  }
}

const plan = (() => {
  const arena = new Arena()
  const n = Expr.variable(arena, "n", 1, 64)
  const program = {
    name: "k",
    target: "wasm" as const,
    code: Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0),
    workgroup: [1, 1, 1] as const,
    grid: [Expr.mul(n, 2), 1, 1] as const,
    bindings: [{ slot: 0, access: "write" as const, bytes: 16 }],
    vars: ["n"],
    bounds: [{ min: 1, max: 64 }]
  }
  const slots = [{ kind: "buffer" as const, id: 0 }, {
    kind: "block" as const,
    block: 0,
    window: { offset: 0, bytes: 16 }
  }]
  const kept = PlanText.encode("key", {
    programs: [program],
    launches: [{ name: "k", program: 0, slots }],
    blocks: [64]
  })
  return kept!.slice(kept!.indexOf("\n") + 1)
})()

/** Programs that were kept; the digest is made anew, so that what is inside is looked at. */
export const keptPrograms: Target = {
  name: "cache",
  make: (random) => {
    const body = altered(random, plan)
    return bytes(random.oneIn(10) ? body : `${digest(body)}\n${body}`)
  },
  run: (input) => {
    const read = PlanText.decode("key", text(input))
    if (read._tag === "Failure") return refused(read.failure)
    return PlanText.encode("key", read.success) === undefined ? wrong("what was read cannot be kept") : accepted
  }
}

const conversation = JSON.stringify([
  { role: "system", content: "Be brief." },
  { role: "user", content: "Hi", tool_calls: [{ function: { name: "f", arguments: { a: [1, null] } } }] },
  { role: "assistant", content: "Hello.", reasoning_content: "..." },
  { role: "user", content: "Bye" }
])

const decodeMessages = Schema.decodeUnknownResult(Schema.fromJsonString(Prompt.Messages))

/** The file of `--messages`. */
export const messageFiles: Target = {
  name: "messages",
  make: (random) => bytes(altered(random, conversation)),
  run: (input) => {
    const read = decodeMessages(text(input))
    if (read._tag === "Failure") return { result: "refused", tag: "SchemaError" }
    const all = Prompt.conversation({ messages: read.success, prompt: undefined, system: undefined, raw: false })
    return Array.isArray(all) ? accepted : { result: "refused", tag: "UsageError" }
  }
}
