import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Expr from "@tg/core-uop/Expr"
import * as Pass from "@tg/core-uop/Pass"
import * as Spec from "@tg/core-uop/Spec"
import { type Axis, openRanges, reduceArg, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Workgroup from "@tg/core-uop/Workgroup"
import { attempt } from "@tg/pattern-matcher/GraphRewrite"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { Context, Effect, Layer } from "effect"
import { IllegalOpt } from "./IllegalOpt.ts"
import * as Loops from "./Loops.ts"
import * as Matrix from "./Matrix.ts"
import { type Kind, type Opt, print } from "./Opt.ts"
import * as Workgroups from "./Workgroups.ts"

export { IllegalOpt } from "./IllegalOpt.ts"

const axisOf: Readonly<Record<Exclude<Kind, "OUTER">, Axis>> = {
  LOCAL: "LOCAL",
  GROUP: "GROUP",
  UPCAST: "UPCAST",
  SPREAD: "UPCAST",
  UNROLL: "UNROLL",
  LOOP: "LOOP",
  MATRIX: "MATRIX"
}

/** Kinds for which a loop may be of symbolic size. */
const ofAnySize: ReadonlySet<Kind> = new Set(["GROUP", "UNROLL", "MATRIX"])
const needsThreads: ReadonlySet<Kind> = new Set(["LOCAL", "GROUP"])
/** More copies of a kernel's body compile slowly and run slower: code size and register pressure. */
export const maxCopies = 256

/** Axes that an opt applies to. Loops over staged elements start as LOOP. */
const wantedAxes = ({ kind }: Opt): ReadonlyArray<Axis> =>
  kind === "OUTER"
    ? ["GLOBAL"]
    : kind === "MATRIX"
    ? ["GLOBAL", "LOOP", "REDUCE"]
    : ofAnySize.has(kind)
    ? ["REDUCE"]
    : ["GLOBAL", "LOOP"]

/** Why an opt may not be applied to this kernel, or `undefined` if it may. */
export const whyIllegal = (kernel: UOp, opt: Opt, profile: DeviceProfile): string | undefined => {
  const loops = Loops.all(kernel)
  const named = loops.filter((l) => l.id === opt.range)
  const wanted = wantedAxes(opt)
  const loop = named.find((l) => wanted.includes(l.axis))
  if (loop === undefined) {
    return named.length === 0
      ? `the kernel has no loop r${opt.range}; it has ${loops.map((l) => `r${l.id}`).join(", ")}`
      : `r${opt.range} is ${named[0]!.axis}, ${opt.kind} wants ${wanted[0]}`
  }
  if (opt.kind === "OUTER") {
    return opt.amount === loop.size ? undefined : `OUTER takes the whole of r${loop.id}, ${loop.size}`
  }
  if (loop.axis === "REDUCE" && Loops.outputs(kernel).some(({ node }) => node === loop.node)) {
    return `r${loop.id} adds to memory in order`
  }
  if (Workgroup.loopsBetween(kernel).has(loop.node)) {
    return `r${loop.id} tells workgroups apart: what they stage depends on it`
  }
  if (opt.kind === "MATRIX") {
    const reason = Matrix.whyNoPart(kernel, loop, opt.amount, profile)
    if (reason !== undefined) return reason
  }
  if (opt.kind === "LOOP") {
    return opt.amount === loop.size
      ? undefined
      : `LOOP takes the whole of r${loop.id}, ${loop.size}`
  }
  // a reduction is rounded up: what is behind its end adds nothing
  if (loop.isSymbolic && !ofAnySize.has(opt.kind)) {
    return `the size of r${loop.id} is symbolic, so ${opt.amount} may not divide it`
  }
  if (!loop.isSymbolic && loop.size % opt.amount !== 0) {
    return `${opt.amount} does not divide the ${loop.size} iterations of r${loop.id}`
  }
  if (needsThreads.has(opt.kind) && profile.kind !== "gpu") return `${profile.name} has no workgroups`
  const opted = applyOne(kernel, opt)
  const copies = Loops.copies(opted)
  if (copies > maxCopies) return `${copies} copies of the body, at most ${maxCopies} are sensible`
  return profile.kind === "gpu" ? Workgroups.whyIllegal(kernel, { loop, opt, opted }, profile) : undefined
}

/** Applies one legal opt: the loop is strip-mined, and the inner (or outer) part gets the opt's axis. */
const applyOne = (kernel: UOp, opt: Opt): UOp => {
  // whether an opt is legal is asked first, and often of the same kernels again
  const known = kernel.cache.opted ??= new Map()
  const text = print(opt)
  const before = known.get(text)
  if (before !== undefined) return before
  const made = applied(kernel, opt)
  known.set(text, made)
  return made
}

declare module "@tg/core-uop/UOp" {
  interface Cache {
    /** The kernel with an opt, by the opt's text. */
    opted?: Map<string, UOp>
  }
}

const applied = (kernel: UOp, opt: Opt): UOp => {
  const { arena } = kernel
  const loops = Loops.all(kernel)
  const loop = loops.find((l) => l.id === opt.range && wantedAxes(opt).includes(l.axis))!
  const size = loop.node.src[0]!
  if (opt.kind === "OUTER") return outermost(kernel, loop.node)
  if (opt.kind === "LOOP") {
    const range = Expr.range(arena, size, loop.id, "LOOP")
    return replaceLoop(kernel, loop.node, [range], range)
  }
  if (opt.amount === 1) return kernel
  if (loop.isSymbolic && opt.kind !== "MATRIX") return padded(kernel, loop, opt)
  if (opt.amount === loop.size && !loop.isSymbolic) {
    const range = Expr.range(arena, size, loop.id, axisOf[opt.kind])
    return replaceLoop(kernel, loop.node, [range], range)
  }
  const left = Symbolic.simplify(Expr.floordiv(size, opt.amount))
  const rest = Expr.range(arena, left, loop.id, loop.axis)
  const taken = Expr.range(arena, opt.amount, 1 + Math.max(...loops.map((l) => l.id)), axisOf[opt.kind])
  const value = opt.kind === "SPREAD"
    ? Expr.add(Expr.alu("MUL", taken, left), rest)
    : Expr.add(Expr.mul(rest, opt.amount), taken)
  return replaceLoop(kernel, loop.node, [rest, taken], value)
}

/** The kernel with this loop before all others, in each END that has it. */
const outermost = (kernel: UOp, loop: UOp): UOp =>
  kernel.with(kernel.src.map((end) => {
    const [store, ...loops] = end.src
    return loops.includes(loop) ? end.with([store!, loop, ...loops.filter((other) => other !== loop)]) : end
  }))

/**
 * GROUP or UNROLL of a loop of symbolic size: rounded up to whole groups. Iterations behind the end are predicated: they load nothing and
 * combine the identity.
 */
const padded = (kernel: UOp, loop: Loops.Loop, { amount, kind }: Opt): UOp => {
  const { arena } = kernel
  const size = loop.node.src[0]!
  const outer = Expr.range(arena, Expr.floordiv(Expr.add(size, amount - 1), amount), loop.id, "REDUCE")
  const next = 1 + Math.max(...Loops.all(kernel).map((l) => l.id))
  const inner = Expr.range(arena, amount, next, kind === "GROUP" ? "GROUP" : "UNROLL")
  const at = Expr.add(Expr.mul(outer, amount), inner)
  const exists = Expr.lt(at, size)
  const reduced = (reduction: UOp): UOp => {
    const body = gateLoads(substitute(reduction.src[0]!, new Map([[loop.node, at]])), inner, exists)
    const value = Expr.where(exists, body, Expr.identity(arena, reduceArg(reduction).op, body.dtype))
    return reduction.with([value, ...reduction.src.slice(1).flatMap((r) => r === loop.node ? [outer, inner] : [r])])
  }
  const users = Loops.reductions(kernel).filter((r) => r.src.indexOf(loop.node) > 0)
  return substitute(kernel, new Map(users.map((r) => [r, reduced(r)])))
}

/** Predicates every load that depends on the loop. */
const gateLoads = (root: UOp, loop: UOp, condition: UOp): UOp => {
  const done = new Map<UOp, UOp>()
  for (const node of toposort(root)) {
    const src = node.src.map((s) => done.get(s)!)
    const gated = node.op === "INDEX" && openRanges(node).has(loop)
      ? [src[0]!, src[1]!, Expr.gated(src[2], condition)]
      : src
    done.set(node, node.with(gated))
  }
  return done.get(root)!
}

/** Replaces a loop by others: `value` in expressions, `parts` in the lists of REDUCE and END. */
const replaceLoop = (kernel: UOp, loop: UOp, parts: ReadonlyArray<UOp>, value: UOp): UOp => {
  const done = new Map<UOp, UOp>([[loop, value]])
  for (const node of toposort(kernel)) {
    if (done.has(node)) continue
    // most nodes do not depend on the loop
    if (node.src.every((s) => done.get(s) === s)) {
      done.set(node, node)
      continue
    }
    const closes = node.op === "REDUCE" || node.op === "END"
    const src = node.src.flatMap((s, i) => closes && i > 0 && s === loop ? parts : [done.get(s)!])
    done.set(node, node.with(src))
  }
  return done.get(kernel)!
}

/** The device that a kernel is for, and the kernel's name in errors. */
export type Where = Matrix.Where

/** A pass of this stage. */
export type PostrangePass = Pass.Pass<Where, IllegalOpt>

/** The parts of the stage that can be replaced. */
export interface Rules {
  /** Why an opt may not be applied to a kernel, or `undefined` if it may. */
  readonly whyIllegal: typeof whyIllegal
  /** Passes behind the opts, in place of the usual ones, which keep values (spec `opted` to spec `opted`). */
  readonly passes: ReadonlyArray<PostrangePass>
}

/** The usual rules: `whyIllegal`, and behind the opts what stages operands for matrix units. */
export const usual: Rules = { whyIllegal, passes: Matrix.passes }

/** A list of opts is a list of passes: each is applied, or refused, by itself. */
export const passesOf = (
  opts: ReadonlyArray<Opt>,
  { passes, whyIllegal }: Rules = usual
): Pass.PassList<Where, IllegalOpt> => ({
  stage: "postrange",
  passes: [
    ...opts.map((opt, i): PostrangePass => ({
      name: print(opt),
      from: i === 0 ? "kernel" : "opted",
      to: "opted",
      run: (kernel, { kernel: name, profile }) => {
        const reason = whyIllegal(kernel, opt, profile)
        if (reason === undefined) return applyOne(kernel, opt)
        const message = `${name}: ${print(opt)} is not legal: ${reason}`
        return new IllegalOpt({ kernel: name, opt: print(opt), message })
      }
    })),
    ...passes
  ]
})

/** Applies opts in order; the first illegal one is the error. Same values for any legal list. */
export const apply = (
  name: string,
  kernel: UOp,
  opts: ReadonlyArray<Opt>,
  profile: DeviceProfile,
  { rules = usual, watch }: {
    readonly rules?: Rules | undefined
    readonly watch?: Pass.Watch | undefined
  } = {}
): UOp | IllegalOpt => {
  const made = attempt(() =>
    Pass.run(passesOf(opts, rules), kernel, { kernel: name, profile }, { kernel: name, watch })
  )
  if (made._tag === "Failure") {
    return new IllegalOpt({ kernel: name, opt: "", message: `${name}: ${made.failure.message}` })
  }
  return made.success instanceof Pass.BrokenPass
    ? new IllegalOpt({ kernel: name, opt: made.success.pass, message: made.success.message })
    : made.success
}

/** The kernel with these opts, or the first of them that is illegal. */
export type Legal = (kernel: UOp, opts: ReadonlyArray<Opt>, profile: DeviceProfile) => UOp | IllegalOpt

/** What is legal by these rules, without the passes behind the opts: whoever chooses opts asks before all of them are there. */
const legalBy = (rules: Rules): Legal => (kernel, opts, profile) =>
  apply("", kernel, opts, profile, { rules: { ...rules, passes: [] } })

/** What is legal by the usual rules. */
export const legal: Legal = legalBy(usual)

/** The postrange stage: applies a list of opts to a kernel (spec `kernel` to spec `opted`). */
export class Postrange extends Context.Service<Postrange, {
  /** Names what it makes, for those who keep it: equal for services that make the same. */
  readonly id?: string | undefined
  /** What `apply` allows. Pure, and without passes behind the opts: those who choose opts ask it thousands of times. */
  readonly legal: Legal
  readonly apply: (
    name: string,
    kernel: UOp,
    opts: ReadonlyArray<Opt>,
    profile: DeviceProfile
  ) => Effect.Effect<UOp, IllegalOpt>
}>()("@tg/postrange/Postrange") {
  /** A stage of these rules, the usual ones where none are given. What is compiled with others is not kept without an `id`. */
  static readonly layerOf = (given: Partial<Rules>, id?: string) => {
    const rules: Rules = { ...usual, ...given }
    return Layer.succeed(Postrange, {
      id,
      legal: legalBy(rules),
      apply: Effect.fn("Postrange.apply")(function*(name, kernel, opts, profile) {
        const violation = yield* Spec.firstViolation("kernel", kernel)
        if (violation !== undefined) {
          return yield* new IllegalOpt({ kernel: name, opt: "", message: violation })
        }
        const result = apply(name, kernel, opts, profile, { rules, watch: yield* Pass.watch })
        return result instanceof IllegalOpt ? yield* result : result
      })
    })
  }

  static readonly layer = this.layerOf({}, "@tg/postrange")
}
