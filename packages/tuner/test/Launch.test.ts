import { assert, describe, it } from "@effect/vitest"
import { type DeviceProfile, h200, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import * as Postrange from "@tg/postrange/Postrange"
import { members } from "@tg/rangeify/Horizontal"
import { choose } from "@tg/heuristics/Heuristics"
import { Effect } from "effect"
import * as Launch from "../src/Launch.ts"
import * as Moves from "../src/Moves.ts"
import * as Kernels from "./support/kernels.ts"

/** What the heuristics choose. */
const usualOf = (kernel: UOp, profile: DeviceProfile): Launch.Opts =>
  Effect.runSync(Launch.usual(kernel, { choose: (member) => Effect.succeed(choose(member, profile)) }))

const untouched = (opts: Launch.Opts): Launch.Candidate => opts.map((own) => ({ opts: own, template: undefined }))
const print = (opts: Launch.Opts): string => opts.map(Moves.print).join(" | ")

/** The lists around the usual ones, those that are allowed. */
const neighboursOf = (kernel: UOp, holding?: Launch.Options["holding"], profile = webgpuDefault) => {
  const usual = usualOf(kernel, profile)
  const space = Launch.space(kernel, { usual, holding: holding ?? usual.map(() => undefined), profile })
  const start = untouched(usual.map((opts, i) => holding?.[i] ?? opts))
  const found = space.neighbours(start).map(({ candidate }) => candidate).filter(space.accepts)
  return { usual, lists: found.map(Launch.optsOf).filter((opts) => print(opts) !== print(usual)) }
}

const threadsOf = (kernel: UOp, opts: Launch.Opts, profile = webgpuDefault): ReadonlyArray<number> =>
  members(kernel).map(({ ast }, i) => {
    const made = Postrange.apply("k", ast, opts[i]!, profile)
    if (made instanceof Postrange.IllegalOpt) throw made
    return Loops.threads(made)
  })

describe("space of a launch", () => {
  const kernel = Kernels.products([64, 16], 1024)

  it("changes one member, or all alike", () => {
    const { lists, usual } = neighboursOf(kernel)
    const isChanged = (opts: Launch.Opts): ReadonlyArray<boolean> =>
      opts.map((own, i) => Moves.print(own) !== Moves.print(usual[i]!))
    const kinds = new Set(lists.map((opts) => String(isChanged(opts))))
    assert.deepStrictEqual([...kinds].toSorted(), ["false,true", "true,false", "true,true"])
    const texts = new Set(lists.map(print))
    for (const group of [32, 128, 256]) {
      const each = [Opt.unroll(1, 4), Opt.group(1, group)]
      assert.isTrue(texts.has(print([each, each])), [...texts].join("\n"))
    }
  })

  it("has only what the device allows, with as many threads for all members", () => {
    for (const profile of [webgpuDefault, h200]) {
      for (const one of [kernel, Kernels.products([7, 64, 2], 60)]) {
        const { lists } = neighboursOf(one, undefined, profile)
        assert.isNotEmpty(lists)
        const counts = lists.map((opts) => threadsOf(one, opts, profile))
        for (const count of counts) assert.isAtMost(Math.max(...count), profile.maxWorkgroupThreads)
        assert.isTrue(counts.some((count) => new Set(count).size === 1))
      }
    }
  })

  it("gives equal members the same opts", () => {
    const { lists } = neighboursOf(Kernels.products([16, 64, 16], 1024))
    assert.isNotEmpty(lists)
    for (const [first, , last] of lists) assert.deepStrictEqual(first, last)
  })

  it("leaves members as they are that are held", () => {
    const held = [Opt.group(1, 64)]
    const { lists } = neighboursOf(kernel, [held, undefined])
    assert.isNotEmpty(lists)
    for (const [first] of lists) assert.deepStrictEqual(first, held)
    assert.isEmpty(neighboursOf(kernel, [held, held]).lists)
  })

  it("is the member's own where there is one", () => {
    const one = Kernels.product(64, 1024)
    const usual = usualOf(one, webgpuDefault)
    const own = Moves.space(one, usual[0]!, webgpuDefault).neighbours({ opts: usual[0]!, template: undefined })
    const space = Launch.space(one, { usual, holding: [undefined], profile: webgpuDefault })
    assert.deepStrictEqual(
      space.neighbours(untouched(usual)).map(({ candidate: [only], delay }) => ({ candidate: only, delay })),
      own
    )
  })
})
