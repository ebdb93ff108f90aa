import { Effect } from "effect"
import * as Gguf from "@tg/gguf/Gguf"
import { fromBytes } from "@tg/gguf/ByteSource"
import { readFileSync } from "node:fs"
for (const f of ["oracle/c01.gguf","oracle/c04.gguf","oracle/tokenizer/glm4.vocab.gguf","models/tg-tiny-Q4_0.gguf"]) {
const g = await Effect.runPromise(Gguf.read(fromBytes("x", readFileSync("/work/shared/"+f))))
console.log(f, g.tensors.length, [...g.metadata].map(([k,v])=>k+"="+(v.type==="array"?`[${v.value.length}]`:String(v.value).slice(0,30))).join("\n  "))
}
