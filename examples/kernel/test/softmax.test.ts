import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import * as Devices from "@tg/node/Devices"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { Effect } from "effect"
import { run, softmaxProgram } from "../src/program.ts"

const shapes = [{ rows: 3, columns: 48 }, { rows: 8, columns: 5 }, { rows: 0, columns: 7 }, { rows: 1, columns: 1 }]

const agree = Effect.gen(function*() {
  const [written, tensors] = [softmaxProgram("hand"), softmaxProgram("tensors")]
  for (const vars of shapes) {
    const { launches, out } = yield* run(written, vars)
    assert.deepStrictEqual([launches.length, launches.indexOf("softmax")], [3, 1])
    const expected = (yield* run(tensors, vars)).out
    out.forEach((x, i) => assert.closeTo(x, expected[i]!, 1e-6, `${JSON.stringify(vars)}: element ${i}`))
    const inside = out.filter((_, i) => Math.floor(i / 48) < vars.rows && i % 48 < vars.columns)
    assert.closeTo(inside.reduce((sum, x) => sum + x - 1, 0), vars.rows, 1e-5)
  }
})

const hasWebGpu = (await availableAdapter()) !== undefined

describe("a softmax written by hand, between other kernels, gives what the tensor language gives", () => {
  it.live.skipIf(!hasWebGpu)("as WGSL", () => agree.pipe(Effect.provide(Devices.layer("webgpu"))))
  it.live("as WebAssembly", () => agree.pipe(Effect.provide(Devices.layer("wasm", { threads: 1 }))))
  it.live("as its reference", () => agree.pipe(Effect.provide(Devices.layer("reference"))))
})

describe("docs/how-to/write-a-kernel.md", () => {
  const page = readFileSync(new URL("../../../docs/how-to/write-a-kernel.md", import.meta.url), "utf8")
  it.each(["softmax.ts", "program.ts"])("holds %s as it is", (name) => {
    assert.include(page, readFileSync(new URL(`../src/${name}`, import.meta.url), "utf8"))
  })
})
