import { assert, describe, it } from "@effect/vitest"
import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import * as Expr from "@tg/core-uop/Expr"
import * as Phases from "@tg/core-uop/Phases"
import { signature } from "@tg/core-uop/Program"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, argOf, isCoherent, slotOf, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import * as Opt from "@tg/postrange/Opt"
import * as Concatenate from "../src/Concatenate.ts"
import * as PhaseCosts from "../src/PhaseCosts.ts"
import { besideOf, phases } from "../src/Phases.ts"
import {
  argumentsOf,
  awaitedArguments,
  awaitedIn,
  awaitedLaunchOf,
  awaitedValues,
  copiesIn,
  inVariants,
  launchOf,
  length,
  type Made,
  map,
  partIn,
  random,
  randomAwaited,
  repeat,
  sum,
  vars
} from "./support/phases.ts"
import { withBarriers } from "./support/barriers.ts"
import { gpu, linear } from "./support/stages.ts"

const { group, local, unroll } = Opt

const isBarrier = ({ op }: UOp): boolean => op === "GRID_BARRIER"

const run = (made: Made, evaluate: (args: Map<number, Float32Array>) => void): Map<number, Float32Array> => {
  const args = argumentsOf(made)
  evaluate(args)
  return args
}

/** A launch of one kernel twice, of which the second reads what the first wrote in slots 2 and 3; values are in slots 0 and 1. */
const twice = (
  own: UOp,
  slots: ReadonlyArray<ReadonlyArray<number>>,
  shape: { readonly workgroups: number; readonly threads: number }
): UOp =>
  phases(slots.map((each) => ({ linear: own, slots: each, offsets: each.map(() => 0) })), {
    caps: gpu,
    ...shape,
    spins: 1000,
    coherent: new Set([2, 3]),
    meeting: 6,
    stagedBytes: 0,
    ahead: []
  })

/** What such a launch leaves in slots 2 to 5. */
const resultsOf = (one: UOp): ReadonlyArray<Float32Array> => {
  const args = new Map(Array.from({ length: 7 }, (_, slot) => [
    slot,
    Float32Array.from({ length }, (_, i) => slot < 2 ? (i * 13 + slot * 7) % 29 - 14 : 0)
  ]))
  assert.deepStrictEqual(Spec.check("linear", one), [])
  evaluateLinear(one, args)
  return [...args.values()].slice(2, 6)
}

describe("phases", () => {
  it("keeps the values of random programs, with workgroups in any order", () => {
    for (let seed = 0; seed < 16; seed++) {
      const made = random(seed, 2 + seed % 5, [undefined, 4, 8][seed % 3])
      const { arena } = made.linears[0]!
      const launch = Phases.persistent(arena, made.phases, {
        workgroups: 3,
        threads: 1,
        spins: 1000,
        stagedBytes: 0,
        ahead: []
      })
      assert.deepStrictEqual(Spec.check("kernel", launch), [])
      const want = run(made, (args) => evaluateKernel(launch, args, vars))
      for (const workgroups of [1, 2, 5]) {
        for (const stagedBytes of [0, 4 * length]) {
          const one = launchOf(made, { workgroups, stagedBytes, threads: 1 + 31 * (seed % 2), ahead: seed % 3 * 4 })
          assert.deepStrictEqual(Spec.check("linear", one), [], `seed ${seed}`)
          assert.deepStrictEqual(run(made, (args) => evaluateLinear(one, args, vars, { seed })), want, `seed ${seed}`)
        }
      }
    }
  })

  it("keeps them where words are awaited, some twice, and clears those of another launch", () => {
    let copied = 0
    for (let seed = 0; seed < 12; seed++) {
      const part = seed % Phases.waiting.parts
      const made = randomAwaited(seed, 2 + seed % 5, { part, subgroupSize: [undefined, 4, 8][seed % 3] })
      // inputs that share a slot are read as they are
      assert.deepStrictEqual([...Phases.crossing(made.phases)], [2 + part])
      const one = awaitedLaunchOf(made, part, { workgroups: 1 + seed % 4, threads: 1 + 31 * (seed % 2), ahead: 4 })
      assert.deepStrictEqual(Spec.check("linear", one), [], `seed ${seed}`)
      const args = awaitedArguments(made, part)
      evaluateLinear(one, args, vars, { seed })
      const plain = awaitedArguments(made, part)
      const apart = launchOf(made, { meeting: 5, coherent: new Set([2 + part]) })
      evaluateLinear(apart, plain, vars)
      const floats = new Float32Array(partIn(plain, part).buffer)
      const want = made.phases.map(({ offsets: [first] }) => floats.slice(first, first! + length))
      assert.deepStrictEqual(awaitedValues(made, partIn(args, part)), want, `seed ${seed}`)
      const copies = copiesIn(made, args)
      copied += copies.filter((copy) => copy !== undefined).length
      assert.deepStrictEqual(copies, want.map((values, i) => copies[i] && values), `seed ${seed}`)
      for (let other = 0; other < Phases.waiting.parts; other++) {
        const left = partIn(args, other)
        assert.strictEqual(left.every((word) => word === 0), other === (part + 1) % Phases.waiting.parts)
      }
    }
    assert.isAbove(copied, 6)
  })

  it("runs the phases of its variant, as a launch of these alone does", () => {
    for (let seed = 0; seed < 12; seed++) {
      const made = inVariants(random(seed, 2 + seed % 5, [undefined, 4, 8][seed % 3]))
      const shape = { workgroups: 1 + seed % 3, threads: 1 + 31 * (seed % 2), spins: 1000 }
      const stagedBytes = seed % 2 * 4 * length
      const ones = [0, 1].map((number) => launchOf(made, { ...shape, stagedBytes, ahead: 4, variant: [number, 2] }))
      // one program
      assert.strictEqual(ones[0], ones[1])
      assert.deepStrictEqual(Spec.check("linear", ones[0]!), [], `seed ${seed}`)
      const found = [0, 1].map((number) => {
        const arg = { ...shape, stagedBytes: 0, ahead: made.phases.map(() => 4), variant: [number, 2] as const }
        const launch = Phases.persistent(made.linears[0]!.arena, made.phases, arg)
        const want = run(made, (args) => evaluateKernel(Phases.ofVariant(launch), args, vars))
        assert.deepStrictEqual(run(made, (args) => evaluateKernel(launch, args, vars)), want)
        const values = { ...vars, [Phases.variantName]: number }
        assert.deepStrictEqual(run(made, (args) => evaluateLinear(ones[0]!, args, values, { seed })), want, `${seed}`)
        assert.strictEqual(
          argOf(Phases.ofVariant(launch), "PERSISTENT").ahead.length,
          Math.ceil(made.phases.length * 2 / 3)
        )
        return want
      })
      assert.notDeepEqual(found[0], found[1])
    }
  })

  it("copies values in loops of their own, each with its own indices", () => {
    const arena = new Arena()
    const words = 1024
    const param = (slot: number): UOp => arena.make("PARAM", DType.f32, [Expr.int(arena, words)], { slot })
    const storing = (value: (i: UOp) => UOp): UOp => {
      const i = Expr.range(arena, words, 0, "GLOBAL")
      const store = Expr.store(Expr.element(param(0), i), value(i))
      return arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, i])])
    }
    const read = (slot: number, at: UOp): UOp => Expr.load(Expr.element(param(slot), at))
    const double = storing((i) => Expr.mul(read(1, i), 2))
    const both = storing((i) => Expr.add(read(1, i), read(2, Expr.sub(Expr.int(arena, words - 1), i))))
    const kernels = [double, double, both]
    const parts = kernels.map((kernel, i) => ({
      linear: linear(kernel, [local(0, 8)], gpu),
      slots: i < 2 ? [1 + i, 0] : [3, 1, 2],
      offsets: [0, 0, 0]
    }))
    const shape = { caps: gpu, workgroups: 3, threads: 8, spins: 1000, meeting: 4, stagedBytes: 4 * words, ahead: [] }
    const one = phases(parts, { ...shape, coherent: new Set([1, 2]) })
    const args = [0, 1, 2, 3].map((slot) => Float32Array.from({ length: words }, (_, i) => slot === 0 ? i % 19 : 0))
    evaluateLinear(one, [...args, new Float32Array(Phases.meetingWords.count)], vars)
    const x = args[0]!
    assert.deepStrictEqual(args[3], x.map((value, i) => 2 * (value + x[words - 1 - i]!)))
  })

  it("does not use a word that may come later before it is there", () => {
    const made = randomAwaited(1, 3, { part: 1, subgroupSize: undefined })
    const one = launchOf(made, { awaited: awaitedIn(1), meeting: 5, stagedBytes: 0 })
    assert.match(Spec.check("linear", one).map(({ reason }) => reason).join(), /may not be there yet/)
    const args = awaitedArguments(made, 1)
    const launch = awaitedLaunchOf(made, 1)
    const first = launch.src.findIndex(isBarrier)
    const isResult = (node: UOp): boolean => node.op === "STORE" && accessOf(node).buffer.op === "PARAM"
    const broken = launch.with(launch.src.filter((node, i) => i > first || !isResult(node)))
    assert.throws(() => evaluateLinear(broken, args, vars), /waits for a word that nobody writes/)
  })

  it("launches as many workgroups as it was told, with the threads of the largest phase", () => {
    const arena = new Arena()
    const both = [map(arena), sum(arena)]
    const linears = [linear(both[0]!, [local(0, 4)], gpu), linear(both[1]!, [group(1, 16)], gpu)]
    const made: Made = {
      linears,
      phases: both.map((kernel, i) => ({ kernel, slots: [2 + i, 0, 1 + i], offsets: [0, 0, 0] }))
    }
    const { bindings, grid, vars, workgroup } = signature(launchOf(made))
    assert.deepStrictEqual([grid, workgroup, vars], [[3, 1, 1], [16, 1, 1], []])
    assert.deepStrictEqual(bindings.map(({ access, slot }) => `${slot} ${access}`), [
      "0 read",
      "1 read",
      "2 write",
      "3 write",
      "4 write"
    ])
  })

  it("runs workgroups side by side, with barriers and memory of their own, and branches that neighbours agree about", () => {
    const arena = new Arena()
    const kernel = sum(arena)
    const each = linear(kernel, [group(1, 16)], { ...gpu, subgroupSize: undefined })
    // two kernels beside each other: 48 workgroups of the one, then 48 of the other
    const two = Concatenate.concatenate([{ linear: each, slots: [0, 1, 2] }, { linear: each, slots: [3, 4, 5] }], {
      caps: gpu,
      maxGrid: 65535
    })
    const launched = (workgroups: number, threads: number): UOp =>
      twice(two, [[2, 0, 1, 3, 1, 0], [4, 2, 3, 5, 3, 2]], { workgroups, threads })
    const want = resultsOf(launched(3, 16))
    for (const [workgroups, threads] of [[3, 64], [5, 64], [7, 48], [40, 100], [24, 1024]] as const) {
      const one = launched(workgroups, threads)
      const turns = one.src.filter(({ op }) => op === "RANGE").map((node) => Bounds.of(node.src[0]!).max)
      const beside = besideOf(two, { workgroups, threads })
      assert.isAbove(beside, 1)
      assert.strictEqual(48 % beside, 0)
      assert.strictEqual(turns.some((n) => n < 16), 96 / beside > workgroups)
      assert.deepStrictEqual(resultsOf(one), want)
    }
  })

  it("runs workgroups side by side whose number is no multiple of that: the last ones are missing", () => {
    const arena = new Arena()
    const caps = { ...gpu, subgroupSize: undefined }
    const each = linear(sum(arena), [group(1, 16)], caps)
    const last = linear(map(arena, Expr.int(arena, 16)), [local(0, 16)], caps)
    const joined = Concatenate.concatenate([{ linear: each, slots: [0, 1, 2] }, { linear: last, slots: [3, 1, 2] }], {
      caps,
      maxGrid: 65535
    })
    const results = (workgroups: number, threads: number): ReadonlyArray<Float32Array> =>
      resultsOf(twice(joined, [[2, 0, 1, 3], [4, 2, 3, 5]], { workgroups, threads }))
    const want = results(3, 16)
    for (const [workgroups, threads] of [[5, 64], [24, 32], [7, 256], [1, 128], [2, 64], [2, 128], [3, 256]] as const) {
      assert.deepStrictEqual(results(workgroups, threads), want)
    }
    // 48 workgroups with barriers and one without, in one turn: seven neighbours are missing. In several turns that is not seen to agree
    assert.strictEqual(besideOf(joined, { workgroups: 7, threads: 256 }), 8)
    assert.strictEqual(49 % besideOf(joined, { workgroups: 2, threads: 128 }), 0)
  })

  it("leaves what computes the place of a copied word as it is", () => {
    // x[y[i]] of a value that is copied: the place follows from a load
    const arena = new Arena()
    const i = Expr.range(arena, length, 0, "GLOBAL")
    const [out, x, y] = [0, 1, 2].map((slot) => arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot }))
    const at = Expr.max(Expr.min(Expr.cast(Expr.load(Expr.element(y!, i)), DType.index), length - 1), 0)
    const store = Expr.store(Expr.element(out!, i), Expr.load(Expr.element(x!, at)))
    const pick = arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, i])])
    const made = [map(arena), pick]
    const linears = made.map((kernel) => linear(kernel, [local(0, 16)], { ...gpu, subgroupSize: undefined }))
    const slots = [[2, 0, 1], [3, 2, 1]]
    const one = phases(linears.map((own, k) => ({ linear: own, slots: slots[k]!, offsets: [0, 0, 0] })), {
      caps: gpu,
      workgroups: 2,
      threads: 16,
      spins: 1000,
      coherent: new Set([2]),
      meeting: 4,
      stagedBytes: 4 * length,
      ahead: []
    })
    assert.deepStrictEqual(Spec.check("linear", one), [])
    const casts = (root: UOp): number => root.src.filter(({ op }) => op === "CAST").length
    assert.isAbove(casts(linears[1]!), 0)
    assert.strictEqual(casts(one), casts(linears[1]!))
    const inputs = [0, 1].map((slot) => Float32Array.from({ length }, (_, k) => (k * 13 + slot * 7) % 29))
    const args = new Map([...inputs, new Float32Array(length), new Float32Array(length), new Float32Array(4)].entries())
    evaluateLinear(one, args)
    const first = Array.from({ length }, (_, k) => inputs[0]![k]! / 2 + inputs[1]![(k + 7) % length]!)
    assert.deepStrictEqual([...args.get(3)!], inputs[1]!.values().map((k) => first[k]!).toArray())
  })

  it("copies to workgroup memory what other workgroups wrote", () => {
    const made = random(4, 3, undefined)
    const isFromOthers = (node: UOp): boolean => node.op === "LOAD" && isCoherent(accessOf(node).buffer)
    const copies = (one: UOp): ReadonlyArray<UOp> =>
      one.src.filter((node) =>
        node.op === "STORE" && accessOf(node).buffer.op === "LOCAL" && isFromOthers(node.src[1]!)
      )
    /** Loads of what other workgroups wrote, besides those for copies. */
    const loads = (one: UOp): number => {
      const copied = new Set(copies(one).map((store) => store.src[1]!))
      return one.src.filter((node) => isFromOthers(node) && !copied.has(node)).length
    }
    assert.deepStrictEqual(copies(launchOf(made)), [])
    assert.isAbove(loads(launchOf(made)), 0)
    assert.strictEqual(loads(launchOf(made, { stagedBytes: 4 * length })), 0)
  })

  it("loads in front of a barrier what no phase writes, as many words as it was told", () => {
    const arena = new Arena()
    const both = [map(arena), sum(arena)]
    const made: Made = {
      linears: [linear(both[0]!, [local(0, 16)], gpu), linear(both[1]!, [], gpu)],
      // the second one reads one argument that the first one writes, and one that nobody writes
      phases: [[2, 0, 1], [3, 1, 2]].map((slots, i) => ({ kernel: both[i]!, slots, offsets: [0, 0, 0] }))
    }
    const ahead = (words: number): ReadonlyArray<number> => {
      const { src } = launchOf(made, { ahead: words })
      const barrier = src.findIndex(({ op }) => op === "GRID_BARRIER")
      const stored = src.slice(0, barrier).findLastIndex(({ op }) => op === "STORE")
      return src.slice(stored, barrier).flatMap((node) => node.op === "LOAD" ? [slotOf(accessOf(node).buffer)] : [])
    }
    // of the loop's 16 turns, or however many it has, the first ones
    assert.deepStrictEqual([0, 1, 3].map(ahead), [[], [1], [1, 1, 1]])
    const want = run(made, (args) => evaluateLinear(launchOf(made), args, vars))
    for (const words of [1, 3, 8, 1000]) {
      assert.deepStrictEqual(run(made, (args) => evaluateLinear(launchOf(made, { ahead: words }), args, vars)), want)
    }
    // with all turns in front of the barrier none is left behind it
    const behind = (words: number): number => {
      const { src } = launchOf(made, { ahead: words })
      const barrier = src.findIndex(({ op }) => op === "GRID_BARRIER")
      return src.slice(barrier).filter((node) => node.op === "LOAD" && slotOf(accessOf(node).buffer) === 1).length
    }
    assert.isAbove(behind(3), 0)
    assert.strictEqual(behind(1000), 0)
  })

  it("has those wait who have less to do than others in front of a barrier, and all of them where more than words cross", () => {
    const arena = new Arena()
    const opts = [[], [local(0, 16)]] as const
    const wholly = linear(map(arena), [], gpu)
    const passes = (
      first: UOp,
      { between = [], reads = 2, workgroups }: {
        readonly workgroups: number
        readonly between?: ReadonlyArray<UOp>
        readonly reads?: number
      }
    ): ReadonlyArray<number | undefined> => {
      const all = [
        { linear: first, slots: [2, 0, 1], copies: [6, -1, -1] },
        ...between.map((linear) => ({ linear, slots: [2, 0, 2] })),
        { linear: wholly, slots: [3, reads, 1] }
      ]
      const offsets = all.map((_, i) => [i === all.length - 1 ? 0 : 64 * i, 0, 0])
      const one = phases(all.map((part, i) => ({ ...part, offsets: offsets[i]! })), {
        caps: gpu,
        workgroups,
        threads: 16,
        spins: 1000,
        coherent: new Set([2, ...reads === 2 ? [] : [reads]]),
        meeting: 5,
        stagedBytes: 4 * length,
        ahead: all.map(() => 0),
        awaited: [2, 4, 64]
      })
      assert.deepStrictEqual(Spec.check("linear", one), [])
      const barriers = one.src.flatMap((node) => node.is("GRID_BARRIER") ? [node.arg] : [])
      // who passes all the same reads what may not be there
      if (reads !== 2) {
        assert.match(Spec.check("linear", withBarriers(one, { passes: 1 }))[0]!.reason, /^slot 6 crosses/)
      }
      return barriers.map(({ passes }) => passes)
    }
    const [alone, threads] = opts.map((own) => linear(map(arena), own, gpu)) as [UOp, UOp]
    // three workgroups of 16 threads: one each and none for the fourth, one each, two for the first of two
    assert.deepStrictEqual([4, 3, 2].map((workgroups) => passes(threads, { workgroups })), [[3], [3], [1]])
    // 48 of one thread: as many side by side, or ten and nine
    assert.deepStrictEqual([4, 5].map((workgroups) => passes(alone, { workgroups })), [[4], [5]])
    const variable = linear(map(arena, Expr.variable(arena, "n", 1, length)), [], gpu)
    assert.deepStrictEqual(passes(variable, { workgroups: 4 }), [undefined])
    assert.deepStrictEqual(passes(threads, { workgroups: 4, reads: 6 }), [undefined])
    assert.deepStrictEqual(passes(threads, { workgroups: 4, reads: 6, between: [threads] }), [3, undefined])
  })

  it("loads ahead for the branch that is taken alone, and for its first turn", () => {
    const arena = new Arena()
    const before = linear(map(arena), [local(0, 16)], gpu)
    const each = linear(repeat(arena), [local(0, 16)], gpu)
    // two kernels beside each other, three workgroups of each: they load the same of one argument, or of two
    for (const slot of [1, 0]) {
      const parts = [[3, 2, 1], [4, 2, slot]].map((slots) => ({ linear: each, slots }))
      const both = Concatenate.concatenate(parts, { caps: gpu, maxGrid: 65535 })
      const results = (workgroups: number, words: number): ReadonlyArray<Float32Array> => {
        const two = [{ linear: before, slots: [2, 0, 1] }, { linear: both, slots: [0, 1, 2, 3, 4] }]
        const one = phases(two.map((part) => ({ ...part, offsets: part.slots.map(() => 0) })), {
          caps: gpu,
          workgroups,
          threads: 16,
          spins: 1000,
          coherent: new Set([2]),
          meeting: 5,
          stagedBytes: 0,
          ahead: [0, words]
        })
        assert.deepStrictEqual(Spec.check("linear", one), [])
        const args = new Map([0, 1, 2, 3, 4, 5].map((slot) => [
          slot,
          Float32Array.from({ length }, (_, i) => slot < 2 ? (i * 13 + slot * 7) % 29 - 14 : 0)
        ]))
        evaluateLinear(one, args)
        return [args.get(3)!, args.get(4)!]
      }
      // with six the second kernel has workgroups of its own, with fewer they come to it in a later turn
      for (const workgroups of [6, 4, 1]) assert.deepStrictEqual(results(workgroups, 8), results(workgroups, 0))
    }
  })

  it("counts words that are read one by one, registers and code", () => {
    const arena = new Arena()
    const kernels = [linear(sum(arena), [], gpu), linear(sum(arena), [unroll(1, 4)], gpu)]
    assert.deepStrictEqual(kernels.map((kernel) => PhaseCosts.wordsOfSlots(kernel).get(1)), [16, 16])
    const [[code, unrolled], [words, more]] = [PhaseCosts.codeBytes, PhaseCosts.wordsInUse].map((of) => kernels.map(of))
    assert.isAbove(unrolled!, code!)
    assert.isAbove(more!, words!)
    assert.isAbove(words!, 1)
  })

  describe("what the spec and the evaluator refuse", () => {
    const arena = new Arena()
    const made: Made = {
      linears: [linear(map(arena), [local(0, 4)], gpu), linear(sum(arena), [group(1, 16)], gpu)],
      phases: [map(arena), sum(arena)].map((kernel, i) => ({ kernel, slots: [2 + i, i * 2, 1], offsets: [0, 0, 0] }))
    }
    const plain = launchOf(made, { coherent: new Set() })
    const args = (): Map<number, Float32Array> => argumentsOf(made)

    it("a plain argument that crosses phases", () => {
      assert.match(Spec.check("linear", plain)[0]!.reason, /slot 2 is written in one phase and touched in another/)
      assert.throws(() => evaluateLinear(plain, args()), /slot 2: thread \d+ reads element \d+, which thread \d+ wrote/)
    })

    it("a missing barrier", () => {
      const whole = launchOf(made)
      const without = whole.with(whole.src.filter(({ op }) => op !== "GRID_BARRIER"))
      assert.throws(() => evaluateLinear(without, args()), /slot 2: thread \d+ (reads|writes) element/)
    })

    it("a barrier inside of a branch", () => {
      const whole = launchOf(made)
      const barrier = whole.src.find(({ op }) => op === "GRID_BARRIER")!
      const others = whole.src.filter((node) => node !== barrier)
      const at = others.findIndex(({ op }) => op === "RANGE" || op === "IF") + 1
      const moved = whole.with([...others.slice(0, at), barrier, ...others.slice(at)])
      assert.match(Spec.check("linear", moved)[0]!.reason, /GRID_BARRIER inside of/)
    })

    it("a barrier at which nobody waits, where words are not awaited", () => {
      const passed = withBarriers(launchOf(made), { passes: 1 })
      assert.match(
        Spec.check("linear", passed)[0]!.reason,
        /workgroups pass a GRID_BARRIER, and do not wait where words are read/
      )
      // another slot than that of words
      const crossed = withBarriers(passed, { awaits: 99 })
      assert.match(Spec.check("linear", crossed)[0]!.reason, /slot 2 crosses a GRID_BARRIER that workgroups pass/)
    })
  })
})
