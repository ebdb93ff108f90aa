import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll, assert, it } from "vitest"
import { bundle, compressed, engine } from "../bundle.ts"

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-size-"))
afterAll(() => fs.rmSync(folder, { recursive: true }))

/** Bytes of what a page fetches, gzip. Only ever to be lowered: 200,000 and 260,000 are asked for; Effect is 159,000, the e-graph 14,000. */
const budget = { wasm: 390_000, both: 406_000 }

it("the engine is no larger than it was", async () => {
  const { both, wasm } = engine(await bundle(folder))
  assert.isAtMost(compressed(wasm), budget.wasm, "with WebAssembly")
  assert.isAtMost(compressed(both), budget.both, "with WebGPU too")
})
