import * as fs from "node:fs"
import * as path from "node:path"
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { Arena } from "@tg/core-uop/UOp"
import { buffer, type Tensor } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { once, shared, stored, tiled } from "../src/Schedule.ts"

const arena = new Arena()
const x = buffer(arena, 0, { shape: [2, 3, 4], dtype: DType.f32 })
const y = x.mul(2)
const [tokens, features] = [{ order: "tokens" }, { order: "features" }] as const

const valuesOf = (z: Tensor): ReadonlyArray<number> =>
  Array.from(
    evaluate([z.node], { buffers: new Map([[x.node, Float32Array.from({ length: 24 }, (_, i) => i)]]) })[0]!.data
  )

describe("schedule annotations", () => {
  it("change no value and no shape", () => {
    for (
      const z of [shared(tokens, y), shared(features, y), stored(tokens, y), stored(features, y), once(y), tiled(y)]
    ) {
      expect(z.shape).toEqual(y.shape)
      expect(valuesOf(z)).toEqual(valuesOf(y))
    }
  })

  it("of a few tokens the compiler decides about what is shared, and queries are stored", () => {
    expect(shared(tokens, y)).toBe(y)
    expect(stored(tokens, y).node.op).toBe("CONTIGUOUS")
  })

  it("of many tokens one feature of neighbouring tokens lies together", () => {
    const [stored] = shared(features, y).node.src
    expect(stored!.op).toBe("CONTIGUOUS")
    expect(tiled(y).node.src[0]!.op).toBe("CONTIGUOUS")
  })

  it("store once, however often they are said, of other axes too", () => {
    for (const say of [shared, stored]) {
      const z = say(features, y)
      expect(say(features, z)).toBe(z)
      const flat = z.reshape([2, 12])
      expect(say(features, flat)).toBe(flat)
    }
    expect(once(once(y))).toEqual(once(y))
    expect(stored(tokens, stored(tokens, y))).toEqual(stored(tokens, y))
  })

  it("are all that models say about memory", () => {
    const root = path.join(import.meta.dirname, "../..")
    const folders = fs.readdirSync(root).filter((name) => name.startsWith("models-") || name === "model-parts")
    const files = folders.flatMap((name) =>
      fs.readdirSync(path.join(root, name, "src")).map((file) => path.join(root, name, "src", file))
    )
    const saying = files.filter((file) => fs.readFileSync(file, "utf8").includes(".contiguous("))
    expect(files.length).toBeGreaterThan(30)
    // `store` lays out the stream between blocks
    expect(saying.map((file) => path.basename(file)).toSorted()).toEqual(["Order.ts", "Schedule.ts"])
  })
})
