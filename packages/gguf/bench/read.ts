/** Times reading a header the size of a real vocabulary: `node packages/gguf/bench/read.ts`. */
import { Result } from "effect"
import * as Gguf from "../src/Gguf.ts"
import * as GgufWriter from "../src/GgufWriter.ts"
import * as Metadata from "../src/Metadata.ts"

const tokens = Array.from({ length: 150_000 }, (_, index) => index % 3 === 0 ? `tok${index}` : `Ġtökén${index}`)
const merges = Array.from({ length: 300_000 }, (_, index) => `Ġa${index % 1000} b${index}`)
const bytes = Result.getOrThrow(GgufWriter.write({
  metadata: [
    ["tokenizer.ggml.tokens", Metadata.strings(tokens)],
    ["tokenizer.ggml.token_type", Metadata.int32s(new Int32Array(tokens.length))],
    ["tokenizer.ggml.merges", Metadata.strings(merges)]
  ],
  tensors: Array.from({ length: 1000 }, (_, index) => ({
    name: `blk.${index}.ffn_up.weight`,
    type: "Q4_0",
    dims: [32, 32],
    data: new Uint8Array(576)
  }))
}))

const times = Array.from({ length: 9 }, () => {
  const start = performance.now()
  Result.getOrThrow(Gguf.fromBytes("bench.gguf", bytes))
  return performance.now() - start
}).toSorted((a, b) => a - b)
const [least, median, most] = [times[0]!, times[4]!, times[8]!].map((millis) => millis.toFixed(1))
console.log(`${tokens.length + merges.length} strings, ${bytes.length} bytes: ${median} ms (${least} to ${most})`)
