import * as DType from "@tg/core-uop/DType"
import type { Data } from "@tg/core-uop/EvaluateOps"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as Spec from "@tg/core-uop/Spec"
import { key, toposort, type UOp } from "@tg/core-uop/UOp"
import { buildProgram, minimize, randomProgram, randomSteps } from "@tg/tensor/Random"
import { describe, expect, it } from "vitest"

const idOf = (buffer: UOp): number => (buffer.arg as { readonly id: number }).id

describe("random programs", () => {
  it("are well formed, whatever the seed", () => {
    for (let seed = 0; seed < 200; seed++) {
      const { program } = randomProgram(seed, 30)
      expect(Spec.check("tensor", program.sink), `seed ${seed}`).toEqual([])
    }
  })

  it("are a pure function of seed and size", () => {
    expect(key(randomProgram(7, 40).program.sink)).toBe(key(randomProgram(7, 40).program.sink))
    expect(key(randomProgram(7, 40).program.sink)).not.toBe(key(randomProgram(8, 40).program.sink))
  })

  it("stay valid when steps are left out, and shrink to the step at fault", () => {
    const uses = (op: string) => (p: ReturnType<typeof buildProgram>): boolean =>
      toposort(p.program.sink).some((n) => n.op === op)
    const seed = Array.from({ length: 50 }, (_, i) => i).find((i) => uses("FLIP")(randomProgram(i, 40)))!
    const steps = minimize(randomSteps(seed, 40), uses("FLIP"))
    expect(steps.length).toBe(1)
    expect(Spec.check("tensor", buildProgram(steps).program.sink)).toEqual([])
  })

  it("keep floats well conditioned: single and double precision agree within the stated tolerance", () => {
    for (let seed = 0; seed < 150; seed++) {
      const p = randomProgram(seed, 30)
      const run = (float64: boolean): ReadonlyMap<number, ArrayLike<number>> => {
        const nodes = new Map(toposort(p.program.sink).filter((n) => n.op === "BUFFER").map((n) => [idOf(n), n]))
        const wide = (x: Data): Data => float64 && x instanceof Float32Array ? Float64Array.from(x) : x.slice()
        const data = new Map<number, Data>(p.inputs.map((i) => [i.id, wide(i.data)]))
        for (const o of p.outputs) {
          const count = o.capacity.reduce((n, d) => n * d, 1)
          data.set(o.id, wide(o.dtype === DType.f32 ? new Float32Array(count) : new Int32Array(count)))
        }
        const buffers = new Map([...data].filter(([id]) => nodes.has(id)).map(([id, d]) => [nodes.get(id)!, d]))
        evaluate([p.program.sink], { buffers, vars: p.vars, float64 })
        return data
      }
      const single = run(false)
      const double = run(true)
      for (const { id, tolerance } of p.outputs) {
        const a = single.get(id)!
        const b = double.get(id)!
        let worst = 0
        for (let i = 0; i < a.length; i++) worst = Math.max(worst, Math.abs(a[i]! - b[i]!))
        expect(worst, `seed ${seed}, output ${id}`).toBeLessThanOrEqual(tolerance)
        expect(Number.isFinite(worst)).toBe(true)
      }
    }
  })

  it("cover the operations of the tensor stage", () => {
    const seen = new Set<string>()
    for (let seed = 0; seed < 200; seed++) {
      for (const n of toposort(randomProgram(seed, 40).program.sink)) seen.add(n.op)
    }
    const wanted = [
      "CALL",
      "GATHER",
      "PAD",
      "SHRINK",
      "FLIP",
      "PERMUTE",
      "EXPAND",
      "REDUCE",
      "AFTER",
      "STORE",
      "VAR",
      "IOTA",
      "WHERE",
      "CAST",
      "FLOORMOD",
      "SHR",
      "DOT4I8",
      "EXP2",
      "HALF_TO_FLOAT"
    ]
    expect(wanted.filter((op) => !seen.has(op))).toEqual([])
  })
})
