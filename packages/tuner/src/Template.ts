/** Opt lists made from a few numbers: the coarse part of the search space. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import { loopsBetween } from "@tg/core-uop/Workgroup"
import { largestPower } from "@tg/heuristics/Sizes"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import * as Postrange from "@tg/postrange/Postrange"

/** The launch shape of a kernel's last END, which stores its result. */
export interface Template {
  /** Opts of the ENDs before, which stage values in workgroup memory; and vector lanes. */
  readonly first: ReadonlyArray<Opt.Opt>
  /** Threads that share a reduction. */
  readonly group: number
  /** The loops of a reduction that are split first: neighbouring threads then read places that are far apart, or near. */
  readonly from: "outside" | "inside"
  /** Neighbouring outputs in the register tile of a thread. */
  readonly rows: number
  /** Neighbouring outputs of the threads of a workgroup. */
  readonly local: number
  /** The unroll factor of a reduction, besides vectors. */
  readonly unroll: number
  /** The remaining outputs: other workgroups, or a serial loop of each workgroup behind its stages. */
  readonly rest: "workgroups" | "loop"
}

/** The values that are tried. */
const choices: { readonly [K in Exclude<keyof Template, "first">]: ReadonlyArray<Template[K]> } = {
  group: [1, 8, 16, 32, 64, 128, 256],
  from: ["outside", "inside"],
  rows: [1, 2, 4, 8],
  local: [1, 2, 4, 8, 16, 64, 128],
  unroll: [1, 2, 4, 8, 16],
  rest: ["workgroups", "loop"]
}

/** Another value of one number. */
export type Change = Partial<Omit<Template, "first">>

/** What is tried: each value of each number. */
export const changes: ReadonlyArray<Change> = (Object.keys(choices) as ReadonlyArray<keyof typeof choices>)
  .flatMap((name) => choices[name].map((value): Change => ({ [name]: value })))

/** A template with another number; unchanged where the number does not apply to the kernel. */
export const change = (kernel: UOp, template: Template, { rest, ...changed }: Change): Template => ({
  ...template,
  ...changed,
  // without staged values there is nothing for a workgroup to reuse
  ...rest !== undefined && kernel.src.length > 1 ? { rest } : {}
})

/** The template nearest to the usual choice: its stages and vectors, a subgroup for each reduction. */
export const around = (kernel: UOp, usual: ReadonlyArray<Opt.Opt>, profile: DeviceProfile): Template => ({
  first: firstOf(kernel, usual),
  group: profile.subgroupSize ?? 16,
  from: "outside",
  rows: 1,
  local: 1,
  unroll: 1,
  rest: "workgroups"
})

const width = 4

/** The loops of an END and of the reductions in it. */
const loopsOf = (end: UOp): ReadonlyArray<Loops.Loop> => [
  ...Loops.ofEnd(end),
  ...Loops.reductions(end).flatMap(Loops.loopsOf)
]

const firstOf = (kernel: UOp, usual: ReadonlyArray<Opt.Opt>): ReadonlyArray<Opt.Opt> => {
  const own = new Set(loopsOf(kernel.src.at(-1)!).map(({ id }) => id))
  const stages = usual.filter(({ range }) => !own.has(range))
  const rest = usual.filter(({ range }) => own.has(range))
  const end = rest.findIndex(({ amount, kind }) => (kind !== "UNROLL" && kind !== "UPCAST") || amount !== width)
  return [...stages, ...(end < 0 ? rest : rest.slice(0, end))]
}

/** The list of a template, as far as the kernel and the device allow. */
export const build = (
  kernel: UOp,
  template: Template,
  profile: DeviceProfile,
  legal: Postrange.Legal = Postrange.legal
): ReadonlyArray<Opt.Opt> => {
  const opts: Array<Opt.Opt> = []
  let made = kernel
  const attempt = (opt: Opt.Opt): boolean => {
    if (opt.amount <= 1) return false
    const next = legal(made, [opt], profile)
    if (next instanceof Postrange.IllegalOpt) return false
    made = next
    opts.push(opt)
    return true
  }
  /** Splits `total` iterations off the serial loops of the reductions, loop by loop. */
  const take = (
    total: number,
    from: Template["from"],
    opt: (loop: Loops.Loop, left: number) => Opt.Opt,
    taken: Loops.Loop["axis"]
  ): void => {
    for (const number of Loops.reductions(made.src.at(-1)!).keys()) {
      const loops = Loops.loopsOf(Loops.reductions(made.src.at(-1)!)[number]!)
      const done = loops.filter((l) => l.axis === taken).reduce((n, l) => n * l.size, 1)
      let left = taken === "GROUP" ? Math.floor(total / done) : total
      const serial = loops.filter((l) => l.axis === "REDUCE")
      const known = serial.filter((l) => !l.isSymbolic)
      for (const loop of [...(from === "inside" ? known.toReversed() : known), ...serial.filter((l) => l.isSymbolic)]) {
        const chosen = opt(loop, left)
        if (left > 1 && attempt(chosen)) left = Math.floor(left / chosen.amount)
      }
    }
  }
  const amountOf = (loop: Loops.Loop, left: number): number => loop.isSymbolic ? left : largestPower(loop.size, left)
  for (const opt of template.first) attempt(opt)
  take(template.group, template.from, (loop, left) => Opt.group(loop.id, amountOf(loop, left)), "GROUP")
  /** Output loops without an opt, the fastest first. */
  const outputs = (): ReadonlyArray<Loops.Loop> => {
    const between = loopsBetween(made)
    return Loops.ofEnd(made.src.at(-1)!)
      .filter((l) => l.axis === "GLOBAL" && !l.isSymbolic && !between.has(l.node)).reverse()
  }
  const rows = outputs()[0]
  if (rows !== undefined) attempt(Opt.upcast(rows.id, largestPower(rows.size, template.rows)))
  const local = outputs()[0]
  if (local !== undefined) attempt(Opt.local(local.id, largestPower(local.size, template.local)))
  if (template.rest === "loop") { for (const loop of outputs()) attempt(Opt.loop(loop.id, loop.size)) }
  take(template.unroll, "inside", (loop, left) => Opt.unroll(loop.id, amountOf(loop, left)), "UNROLL")
  return opts
}
