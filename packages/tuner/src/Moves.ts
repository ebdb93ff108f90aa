/** The neighbourhood of a member's opt list: legal lists that may be tried next. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import * as Postrange from "@tg/postrange/Postrange"
import type { Neighbour, Space } from "./Search.ts"
import * as Template from "./Template.ts"

/** Opts for a kernel, and the template they were made from, if any. */
export interface Candidate {
  readonly opts: ReadonlyArray<Opt.Opt>
  readonly template: Template.Template | undefined
}

/** More copies of a body compile slowly and are not tried. */
const mostCopies = 128
/** The delay of small changes: coarse ones of equally good lists come first. */
const smallChange = 1.1

const isReduced = (kind: Opt.Kind): boolean => kind === "GROUP" || kind === "UNROLL"
/** The alternative of each kind for the same iterations. */
const others = { LOCAL: "UPCAST", UPCAST: "LOCAL", SPREAD: "UPCAST", GROUP: "UNROLL", UNROLL: "GROUP" } as const

/** `UNROLL(r6, 4), GROUP(r3, 32)` */
export const print = (opts: ReadonlyArray<Opt.Opt>): string => opts.map(Opt.print).join(", ")

const primes = [2, 3, 5, 7, 11, 13, 17, 19]

/** Lists that differ from this one in one step. Not all of them are legal. */
const edits = (kernel: UOp, opts: ReadonlyArray<Opt.Opt>): ReadonlyArray<ReadonlyArray<Opt.Opt>> => {
  const loops = Loops.all(kernel)
  const stages = kernel.src.length > 1
  const loopOf = (range: number): Loops.Loop | undefined => loops.find((l) => l.id === range)
  const factors = (range: number): ReadonlyArray<number> => {
    const loop = loopOf(range)
    return loop === undefined || loop.isSymbolic ? [2] : primes.filter((p) => loop.size % p === 0)
  }
  const at = (i: number, ...to: ReadonlyArray<Opt.Opt>) => opts.toSpliced(i, 1, ...to.filter((o) => o.amount > 1))
  const scaled = (opt: Opt.Opt, factor: number): Opt.Opt =>
    new Opt.Opt({ kind: opt.kind, range: opt.range, amount: Math.round(opt.amount * factor) })
  const lists: Array<ReadonlyArray<Opt.Opt>> = []
  for (const [i, opt] of opts.entries()) {
    const up = factors(opt.range)
    const down = up.filter((p) => opt.amount % p === 0)
    lists.push(opts.toSpliced(i, 1))
    for (const p of up) lists.push(at(i, scaled(opt, p)))
    for (const p of down) {
      lists.push(at(i, scaled(opt, 1 / p)))
      // a factor moves from this opt to another one
      for (const [j, other] of opts.entries()) {
        if (j === i || !factors(other.range).includes(p)) continue
        lists.push(
          opts.map((o, k) => k === i ? scaled(opt, 1 / p) : k === j ? scaled(other, p) : o)
            .filter((o) => o.amount > 1)
        )
      }
    }
    // another kind for the same iterations, and the same kind for another loop
    if (opt.kind !== "LOOP" && opt.kind !== "OUTER" && opt.kind !== "MATRIX") {
      lists.push(at(i, new Opt.Opt({ ...opt, kind: others[opt.kind] })))
    }
    for (const loop of loops) {
      if (loop.id !== opt.range && (loop.axis === "REDUCE") === isReduced(opt.kind)) {
        lists.push(at(i, new Opt.Opt({ ...opt, range: loop.id })))
      }
    }
    // swaps the order of two opts of one loop: its inner iterations become the outer ones
    const next = opts.findIndex((o, j) => j > i && o.range === opt.range)
    if (next > 0) lists.push(opts.map((o, k) => k === i ? opts[next]! : k === next ? opt : o))
  }
  for (const loop of loops) {
    const kinds = loop.axis === "REDUCE" ? (["GROUP", "UNROLL"] as const) : (["LOCAL", "UPCAST"] as const)
    for (const kind of kinds) {
      for (const amount of new Set([...factors(loop.id), 4])) {
        lists.push([...opts, new Opt.Opt({ kind, range: loop.id, amount })])
      }
    }
    // the iterations that the other opts leave
    const taken = opts.filter((o) => o.range === loop.id).reduce((n, o) => n * o.amount, 1)
    if (stages && loop.axis === "GLOBAL" && loop.size % taken === 0) {
      lists.push([...opts, Opt.loop(loop.id, loop.size / taken)])
    }
  }
  return lists
}

/** The space of one member. */
export interface MemberSpace extends Space<Candidate> {
  /** The list of the candidate's template with one number changed; by default of the template near the usual list. */
  readonly changed: (candidate: Candidate, changeOf: (template: Template.Template) => Template.Change) => Candidate
}

/** Memoises by a text. */
const once = <A, B>(textOf: (a: A) => string, calculate: (a: A) => B): (a: A) => B => {
  const known = new Map<string, B>()
  return (a) => {
    const text = textOf(a)
    if (!known.has(text)) known.set(text, calculate(a))
    return known.get(text)!
  }
}

/**
 * The space of a kernel (spec `kernel`, one member) on a device: from a list to the lists of other templates, and to those that
 * differ in one amount, opt, loop or order. `usual` are the opts that its templates take their vectors from.
 */
export const space = (
  kernel: UOp,
  usual: ReadonlyArray<Opt.Opt>,
  profile: DeviceProfile,
  legal: Postrange.Legal = Postrange.legal
): MemberSpace => {
  const near = Template.around(kernel, usual, profile)
  const fromTemplate = once(
    (template: Template.Template) => JSON.stringify(template),
    (template): Candidate => ({ opts: Template.build(kernel, template, profile, legal), template })
  )
  const changed: MemberSpace["changed"] = ({ template = near }, changeOf) =>
    fromTemplate(Template.change(kernel, template, changeOf(template)))
  const isGpu = profile.kind === "gpu"
  return {
    changed,
    // opts of different loops may stand in any order
    keyOf: ({ opts }) => print(opts.toSorted((a, b) => a.range - b.range)),
    neighbours: (from) => {
      const coarse = isGpu ? Template.changes.map((change) => changed(from, () => change)) : []
      const small = edits(kernel, from.opts).map((list): Candidate => ({ opts: list, template: undefined }))
      const all: ReadonlyArray<Neighbour<Candidate>> = [
        ...coarse.map((candidate) => ({ candidate, delay: 1 })),
        ...small.map((candidate) => ({ candidate, delay: smallChange }))
      ]
      return all
    },
    accepts: once(({ opts }) => print(opts), ({ opts }) => {
      const made = legal(kernel, opts, profile)
      return !(made instanceof Postrange.IllegalOpt) && Loops.copies(made) <= mostCopies
    })
  }
}
