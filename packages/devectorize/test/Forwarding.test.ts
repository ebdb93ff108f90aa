import { assert, describe, it } from "@effect/vitest"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import * as Phases from "@tg/core-uop/Phases"
import { signature } from "@tg/core-uop/Program"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, isCoherent, slotOf, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { slotsStaged } from "../src/Phases.ts"
import { withBarriers } from "./support/barriers.ts"
import * as Forwarding from "./support/forwarding.ts"
import { gpu, linear } from "./support/stages.ts"

const { argumentsOf, forwarding, heads, launchOf, positions, resultsIn, width } = Forwarding

/** What the phases leave one after the other. */
const wanted = (made: ReadonlyArray<Phases.Phase>, position: number): ReadonlyArray<Float32Array> => {
  const args = argumentsOf(position)
  const rule = { workgroups: 3, threads: 8, spins: 1000, stagedBytes: 0, ahead: [] }
  evaluateKernel(Phases.persistent(made[0]!.kernel.arena, made, rule), args, { position })
  return resultsIn(args)
}

const isCacheStore = (node: UOp): boolean =>
  node.op === "STORE" && accessOf(node).buffer.op === "PARAM" && slotOf(accessOf(node).buffer) === 2

describe("forwarded rows", () => {
  it("are a window of variables and constants, which is written whole", () => {
    const kernel = Forwarding.row(new Arena())
    const window = Phases.windowOf(kernel, 0)
    assert.strictEqual(window?.words, width)
    assert.strictEqual(Phases.windowOf(kernel, 1), undefined)
    assert.strictEqual(Phases.windowOf(Forwarding.scores(new Arena()), 2), undefined)
  })

  it("do not cross phases in their slot: the reader alone writes it", () => {
    assert.deepStrictEqual([...Phases.crossing(forwarding(new Arena()))], [1])
  })

  it("reach the reader in each position, with workgroups in any order, one or several turns, and parts of a value for each", () => {
    const shapes = [[3, 16], [1, 40], [2, 8], [1, 8], [4, 24], [6, 8], [2, 64]] as const
    for (const [workgroups, threads] of shapes) {
      const made = forwarding(new Arena())
      // the query as a whole has no room
      const stagedBytes = 4 * width * (heads - 1)
      const one = launchOf(made, { workgroups, threads, stagedBytes, ahead: made.map(() => 4) })
      assert.deepStrictEqual(Spec.check("linear", one), [], `${workgroups} x ${threads}`)
      for (let position = 0; position < positions; position++) {
        const args = argumentsOf(position)
        evaluateLinear(one, args, { position }, { seed: position })
        assert.deepStrictEqual(resultsIn(args), wanted(made, position), `${workgroups} x ${threads}, ${position}`)
      }
    }
  })

  it("are stored once by each workgroup, as vectors, and nowhere else", () => {
    const made = forwarding(new Arena())
    const stores = launchOf(made).src.filter(isCacheStore)
    assert.deepStrictEqual(stores.map((node) => node.src[1]!.dtype.lanes), [4])
    const barriers = launchOf(made).src.findLastIndex(({ op }) => op === "GRID_BARRIER")
    assert.isAbove(launchOf(made).src.findIndex(isCacheStore), barriers)
  })

  it("are waited for in the first of several turns, together with what it reads", () => {
    const made = forwarding(new Arena())
    const { src } = launchOf(made, { workgroups: 2, threads: 8, stagedBytes: 4 * width * (heads - 1) })
    const store = src.findIndex(isCacheStore)
    const loop = src.slice(0, store).findLast(({ op }) => op === "RANGE")!
    const inTurn = src.slice(src.indexOf(loop), store)
    assert.include(toposort(accessOf(src[store]!).gate!), loop)
    // the row's words and the query's are on their way before the first of them is looked at
    const [first, ...others] = inTurn.filter(({ op }) => op === "AWAIT")
    assert.isAbove(others.length, 0)
    const loads = inTurn.filter((node) => node.op === "LOAD" && isCoherent(accessOf(node).buffer))
    assert.strictEqual(loads.length, others.length + 1)
    assert.isTrue(loads.every((load) => inTurn.indexOf(load) < inTurn.indexOf(first!)))
  })

  it("come in time where nobody waits at any barrier, with workgroups in any order", () => {
    const made = forwarding(new Arena())
    const one = launchOf(made)
    const passed = withBarriers(one, { passes: 1 })
    assert.deepStrictEqual(Spec.check("linear", passed), [])
    for (let seed = 0; seed < 20; seed++) {
      const args = argumentsOf(5)
      evaluateLinear(passed, args, { position: 5 }, { seed })
      assert.deepStrictEqual(resultsIn(args), wanted(made, 5), `${seed}`)
    }
    // the query's words, which are the last ones
    const last = passed.src.findLast((node) => node.op === "STORE" && isCoherent(accessOf(node).buffer))
    const without = one.with(passed.src.filter((node) => node !== last))
    assert.throws(() => evaluateLinear(without, argumentsOf(5), { position: 5 }), /waits for a word that nobody writes/)
  })

  it("are bound with the words that they are awaited in", () => {
    const made = forwarding(new Arena())
    const shape = { workgroups: 3, threads: 8, spins: 1000, stagedBytes: 0, ahead: [] }
    const { bindings } = signature(Phases.persistent(made[0]!.kernel.arena, made, shape))
    assert.deepStrictEqual(bindings.map(({ access, bytes, slot }) => [slot, access, bytes]).slice(1, 3), [
      [1, "write", 4 * (128 + width)],
      [2, "write", 4 * width * positions]
    ])
  })
})

describe("parts of a value", () => {
  const own = (threads: number, workgroups: number, stagedBytes: number): ReadonlyArray<number> => {
    const part = { ...forwarding(new Arena())[2]!, linear: linear(Forwarding.scores(new Arena()), [], gpu) }
    return [...slotsStaged(part, { coherent: new Set([1]), stagedBytes, threads, workgroups })]
  }

  it("are copied where the whole has no room", () => {
    assert.deepStrictEqual(own(1, 6, 4 * heads * width), [1])
    assert.deepStrictEqual(own(1, 6, 4 * width), [1])
    assert.deepStrictEqual(own(1, 6, 4 * width - 4), [])
    // two side by side have two parts
    assert.deepStrictEqual(own(2, 3, 4 * width), [])
  })
})
