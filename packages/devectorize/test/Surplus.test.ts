import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import * as Expr from "@tg/core-uop/Expr"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import * as Opt from "@tg/postrange/Opt"
import { leaveOut } from "../src/Surplus.ts"
import { argumentsOf, launchOf, type Made, map, sum } from "./support/phases.ts"
import { gpu, linear } from "./support/stages.ts"

const { group, local } = Opt
const threads = 8
const working = 4

/** The instructions of these statements in order, each with what it needs in front of it, those in `head` excepted. */
const listed = (statements: ReadonlyArray<UOp>, head: ReadonlySet<UOp>): ReadonlyArray<UOp> => {
  const made: Array<UOp> = []
  for (const statement of statements) {
    for (const node of toposort(statement)) if (!head.has(node) && !made.includes(node)) made.push(node)
  }
  return made
}

/** `out[i] = f(in[i], in[3 - i])` by four of eight threads, through workgroup memory; the last four repeat what the fourth does. */
const exchange = (isTaken: boolean) => {
  const arena = new Arena()
  const argument = (slot: number): UOp => arena.make("PARAM", DType.f32, [Expr.int(arena, working)], { slot })
  const thread = arena.make("SPECIAL", DType.index, [Expr.int(arena, threads)], { name: "lidx0" })
  const isThread = Expr.lt(thread, working)
  const own = Expr.min(thread, working - 1)
  const memory = arena.make("LOCAL", DType.f32, [], { id: 0, length: working })
  const x = Expr.load(Expr.element(argument(1), own))
  const filled = Expr.store(Expr.element(memory, own, isThread), x)
  const other = Expr.load(Expr.element(memory, Expr.sub(Expr.int(arena, working - 1), own)))
  // what is loaded in front of the barrier is used behind it, or not
  const value = isTaken ? Expr.sub(x, Expr.mul(other, 2)) : Expr.mul(other, 2)
  const stored = Expr.store(Expr.element(argument(0), own, isThread), value)
  const head = [...toposort(isThread), ...toposort(Expr.int(arena, 0))]
  const barrier = arena.make("BARRIER", DType.none, [], 0)
  const body = listed([filled, barrier, stored], new Set(head))
  return { arena, body, head, isThread }
}

const results = (arena: Arena, nodes: ReadonlyArray<UOp>): Float32Array => {
  const whole = arena.make("LINEAR", DType.none, [...new Set(nodes)])
  assert.deepStrictEqual(Spec.check("linear", whole), [])
  const out = new Float32Array(working)
  evaluateLinear(whole, new Map([[0, out], [1, Float32Array.of(3, 5, 7, 11)]]))
  return out
}

/** Loads, and whether surplus threads are kept from each: by a branch around it, or by its gate. */
const loads = (nodes: ReadonlyArray<UOp>, isThread: UOp): ReadonlyArray<boolean> => {
  const open: Array<UOp> = []
  return nodes.flatMap((node) => {
    if (node.op === "ENDIF") open.pop()
    if (node.op === "IF") open.push(node)
    return node.op === "LOAD"
      ? [accessOf(node).gate === isThread || open.some((around) => around.src[0] === isThread)]
      : []
  })
}

describe("surplus threads", () => {
  for (const isTaken of [false, true]) {
    it(`come to barriers alone, where values ${isTaken ? "are" : "are not"} taken over one`, () => {
      const { arena, body, head, isThread } = exchange(isTaken)
      let numbers = 0
      const made = leaveOut(body, { isThread, count: working, fresh: () => numbers++ })
      assert.deepStrictEqual(results(arena, [...head, ...made]), results(arena, [...head, ...body]))
      assert.deepStrictEqual(loads(made, isThread), [true, true])
    })
  }

  it("load no more in a launch whose phases have fewer threads than what is wanted behind a barrier", () => {
    const arena = new Arena()
    const both = [map(arena), sum(arena)]
    const made: Made = {
      linears: [linear(both[0]!, [local(0, 4)], gpu), linear(both[1]!, [group(1, 16)], gpu)],
      phases: both.map((kernel, i) => ({ kernel, slots: [2 + i, i * 2, 1], offsets: [0, 0, 0] }))
    }
    const values = (size: number): { readonly one: UOp; readonly args: Map<number, Float32Array> } => {
      const one = launchOf(made, { threads: size, workgroups: 48 })
      const args = argumentsOf(made)
      assert.deepStrictEqual(Spec.check("linear", one), [])
      evaluateLinear(one, args)
      return { one, args }
    }
    const { args, one } = values(64)
    assert.deepStrictEqual(args, values(16).args)
    const conditions = one.src.filter(({ op }) => op === "IF").map(({ src }) => src[0]!)
    const around = conditions.map((condition) => loads(one.src, condition))
    const isGuarded = around[0]!.map((_, place) => around.some((own) => own[place]!))
    // what is subtracted from the sum is loaded in front of the barrier, and outlives a branch there: it has a gate
    assert.notInclude(isGuarded, false)
    assert.isAbove(isGuarded.length, 1)
  })

  it("stay with threads that reduce a value together", () => {
    const { arena, body, isThread } = exchange(false)
    const reduced = arena.make("SUBGROUP_REDUCE", DType.f32, [body.find(({ op }) => op === "LOAD")!], {
      op: "ADD",
      threads: 8
    })
    const all = [...body, reduced]
    assert.strictEqual(leaveOut(all, { isThread, count: working, fresh: () => 0 }), all)
  })
})
