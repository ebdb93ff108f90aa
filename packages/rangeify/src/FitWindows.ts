/**
 * Kernels over buffers that are larger than a binding: they are split into kernels whose arguments are windows of the buffers.
 *
 * An access that depends on the output loops is narrowed by strip-mining those: several launches, each over its rows. What every
 * output reads as a whole is split along the reduction. An indirect access (its index is loaded) selects among windows, or has one
 * launch for each range of the index.
 */
import * as Expr from "@tg/core-uop/Expr"
import { argOf, rebuild, slotOf, type UOp } from "@tg/core-uop/UOp"
import { fixedSize } from "@tg/core-uop/View"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { passes, select, storedIn, targetsOf } from "./FitIndices.ts"
import {
  atFirst,
  chainReduction,
  cutOutput,
  cutReduction,
  fits,
  type Kernel,
  outputsOf,
  outputToCut,
  pieces,
  reductionToCut,
  type Temporary
} from "./FitLoops.ts"
import type { Ref } from "./Schedule.ts"
import { renumberRanges } from "./SplitRanges.ts"
import {
  type Access,
  accessesOf,
  type BindingLimits,
  cover,
  pack,
  type Sizes,
  type Span,
  windowFor,
  wordBytes
} from "./Windows.ts"

/** Kernels equivalent to this one that has large parameters, as `fit` says. */
export const cutToFit = (
  kernel: Kernel,
  { limits, sizes, temporary }: {
    readonly limits: BindingLimits
    readonly sizes: Sizes
    readonly temporary: Temporary
  }
): ReadonlyArray<Kernel> | undefined => {
  const wideIn = (ast: UOp): ReadonlyArray<Access> =>
    accessesOf(ast, sizes).accesses.filter((access) => windowFor(access, sizes) === undefined)

  const split = (given: Kernel): ReadonlyArray<Kernel> | undefined => {
    const wide = wideIn(given.ast)
    if (wide.length === 0) return bound(given)
    const outputs = outputsOf(given.ast)
    const rows = wide.filter(({ node }) => fits(atFirst(node, outputs), sizes))
    if (rows.length > 0) return each(cutOutput(given, outputToCut(given.ast, rows, sizes)))
    const targets = targetsOf(given.ast)
    const store = wide.find(({ node }) => targets.includes(node))
    if (store !== undefined) {
      return narrowed(
        given,
        cover(store, sizes).map((span) => storedIn(given, store.node, span))
      )
    }
    const cut = reductionToCut(given.ast, wide, sizes)
    // a kernel with more windows than bindings need not be tried
    const together = cut === undefined
      ? bound(select(given, wide, sizes))
      : pieces(cut) < limits.maxStorageBuffers
      ? split(cutReduction(given, cut))
      : undefined
    if (together !== undefined) return together
    const guarded = passes(given, wide, sizes)
    if (guarded !== undefined) return narrowed(given, guarded)
    return cut === undefined ? undefined : each(chainReduction(given, cut, temporary))
  }

  const each = (kernels: ReadonlyArray<Kernel>): ReadonlyArray<Kernel> | undefined => {
    const made: Array<Kernel> = []
    for (const part of kernels) {
      const parts = split(part)
      if (parts === undefined) return undefined
      made.push(...parts)
    }
    return made
  }

  const reach = ({ ast }: Kernel): number => wideIn(ast).reduce((sum, { hi, lo }) => sum + hi - lo, 0)

  /** Kernels with guards that should narrow accesses, if they do. Those that never store drop out. */
  const narrowed = (given: Kernel, all: ReadonlyArray<Kernel>): ReadonlyArray<Kernel> | undefined => {
    const parts = all.filter(({ ast }) => targetsOf(ast).some((target) => target.src[2]?.arg !== false))
    return parts.every((part) => reach(part) < reach(given)) ? each(parts) : undefined
  }

  /** The kernel with windows as arguments, if that takes few enough of them. */
  const bound = ({ args, ast }: Kernel): ReadonlyArray<Kernel> | undefined => {
    const { accesses, whole } = accessesOf(ast, sizes)
    if (accesses.some((access) => windowFor(access, sizes) === undefined)) return undefined
    const large = [...Map.groupBy(accesses, ({ param }) => param)].map(([param, own]) => ({
      param,
      own,
      windows: pack(own, sizes)
    }))
    const bindings = whole.length + large.reduce((n, { windows }) => n + windows.length, 0)
    return bindings > limits.maxStorageBuffers ? undefined : [rebound({ args, ast }, whole, large)]
  }

  return split(kernel)
}

/** A parameter, what is read or written of it, and the windows that hold that. */
interface Large {
  readonly param: UOp
  readonly own: ReadonlyArray<Access>
  readonly windows: ReadonlyArray<Span>
}

/** The kernel over new parameters, the output first: those that are bound whole, and the windows of the others. */
const rebound = ({ args, ast }: Kernel, whole: ReadonlyArray<UOp>, large: ReadonlyArray<Large>): Kernel => {
  const { arena } = ast
  const made: Array<Ref> = []
  const param = (like: UOp, length: number, ref: Ref): UOp => {
    made.push(ref)
    return arena.make("PARAM", like.dtype, [Expr.int(arena, length)], {
      ...argOf(like, "PARAM"),
      slot: made.length - 1
    })
  }
  const params = new Map<UOp, UOp>()
  const windowOf = new Map<UOp, { readonly param: UOp; readonly lo: number }>()
  const [output] = targetsOf(ast).map((target) => target.src[0]!)
  const order = [...whole, ...large.map((l) => l.param)].sort((a, b) =>
    Number(b === output) - Number(a === output) || slotOf(a) - slotOf(b)
  )
  for (const old of order) {
    const ref = args[slotOf(old)]!
    const windowed = large.find((l) => l.param === old)
    if (windowed === undefined) {
      params.set(old, param(old, fixedSize(old)!, ref))
      continue
    }
    for (const { hi, lo } of windowed.windows) {
      const window = param(old, hi - lo, { ...ref, window: { offset: wordBytes * lo, bytes: wordBytes * (hi - lo) } })
      for (const access of windowed.own) {
        if (lo <= access.lo && access.hi <= hi) windowOf.set(access.node, { param: window, lo })
      }
    }
  }
  const windowed = rebuild(ast, (node, src) => {
    const window = windowOf.get(node)
    return window === undefined
      ? node.with(src)
      : Expr.element(window.param, Expr.sub(src[1]!, window.lo), src[2])
  }, params)
  return { ast: renumberRanges(Symbolic.simplify(windowed)), args: made }
}
