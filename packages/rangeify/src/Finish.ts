/** The passes over a lowered kernel: simplification, loop-invariant code motion, loop splitting and fusion, numbering. */
import * as Pass from "@tg/core-uop/Pass"
import { openRanges, type UOp } from "@tg/core-uop/UOp"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { hoistFactors } from "./HoistFactors.ts"
import { mergeReductions } from "./MergeReductions.ts"
import { peel } from "./Peel.ts"
import { renumberRanges, splitRanges } from "./SplitRanges.ts"

const kernelPass = (name: string, run: Pass.Pass<undefined>["run"]): Pass.Pass<undefined> => ({
  name,
  from: "kernel",
  to: "kernel",
  run
})

const simplify: Pass.Pass<undefined>["run"] = (kernel, _, trace) =>
  Symbolic.simplify(kernel, trace === undefined ? {} : { trace })

/** A workgroup that needs only `r // 6` stages nothing for each `r % 6`. */
const dropUnusedLoops = (kernel: UOp): UOp =>
  kernel.with(kernel.src.map((end, i) => {
    const open = openRanges(end.src[0]!)
    return i === kernel.src.length - 1
      ? end
      : end.with([end.src[0]!, ...end.src.slice(1).filter((r) => open.has(r))])
  }))

const numbering = "number loops"
const peeling = "peel"

/** The passes between lowering and the schedule. */
export const passes: Pass.PassList<undefined> = {
  stage: "rangeify",
  passes: [
    kernelPass("simplify", simplify),
    kernelPass("hoist factors", hoistFactors),
    kernelPass("split loops", splitRanges),
    kernelPass("simplify again", simplify),
    kernelPass("drop unused loops", dropUnusedLoops),
    kernelPass("merge reductions", mergeReductions),
    kernelPass(peeling, (kernel, context, trace) => {
      const peeled = peel(kernel)
      return peeled === kernel ? kernel : simplify(peeled, context, trace)
    }),
    kernelPass(numbering, renumberRanges)
  ]
}

/** Those for a kernel that is only weighed: what it costs does not depend on the numbers of its loops, and is the same in one END or two. */
export const unnumbered: Pass.PassList<undefined> = {
  stage: passes.stage,
  passes: passes.passes.filter(({ name }) => name !== numbering && name !== peeling)
}

/** A lowered kernel after these passes. Simplified by the rules of its arena. */
export const finish = (
  kernel: UOp,
  name = "a kernel",
  { list = passes, watch }: {
    readonly list?: Pass.PassList<undefined> | undefined
    readonly watch?: Pass.Watch | undefined
  } = {}
): UOp => {
  const made = Pass.run(list, kernel, undefined, { kernel: name, watch })
  if (made instanceof Pass.BrokenPass) throw made
  return made
}
