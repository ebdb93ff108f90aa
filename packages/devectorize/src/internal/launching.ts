/** What the phases of a persistent launch share, and what each of them takes. */
import type * as Phases from "@tg/core-uop/Phases"
import type { RendererCaps } from "@tg/core-uop/Program"
import { argOf, type UOp } from "@tg/core-uop/UOp"
import { type Shape, type Side, sideOf } from "../Beside.ts"
import * as Concatenate from "../Concatenate.ts"
import { type Copying, type Phase, type Rule, type Staged, stagedOf, widest } from "../Staging.ts"

/** The shape of a persistent launch. */
export interface Launch extends Phases.PersistentArg, Rule {
  readonly caps: Pick<RendererCaps, "ops">
  /** The slot of the barrier's buffer. */
  readonly meeting: number
}

/** A phase with its launch shape, the arguments that it stages, and how many of its workgroups one of the launch runs side by side. */
export interface Placed extends Concatenate.Member, Phase, Staged {
  readonly side: Side
  /** Its memory as long as all of these together need it. */
  readonly memory: ReadonlyMap<UOp, UOp>
}

/** The state that the phases of a launch share. */
export interface Making extends Copying {
  readonly launch: Launch
  readonly workgroup: UOp
}

/** Threads of a workgroup of the launch. */
export const threadsOf = (parts: ReadonlyArray<Phase>, { threads }: Shape): number =>
  Math.max(threads, Concatenate.threadsOf(parts.map(({ linear }) => Concatenate.memberOf(linear))))

export const memberOf = (part: Phase, rule: Rule): Placed => {
  const member = { ...Concatenate.memberOf(part.linear), ...part, staged: stagedOf(part, rule) }
  const side = sideOf(member, rule)
  const locals = member.linear.src.filter(({ op }) => op === "LOCAL")
  return {
    ...member,
    side,
    memory: new Map(locals.map((node) => {
      const { id } = argOf(node, "LOCAL")
      return [
        node,
        side.beside === 1
          ? node
          : node.arena.make("LOCAL", node.dtype, [], { id, length: ownLength(node) * side.beside })
      ]
    }))
  }
}

/** Workgroup memory of a phase: its own, and that of what it copies. */
export const memoryOf = ({ memory, staged }: Placed): ReadonlyArray<UOp> => [
  ...memory.values(),
  ...[...staged.values()].map(({ local }) => local)
]

/** Words from the memory of one workgroup to that of the next one beside it. */
export const ownLength = (local: UOp): number => widest * Math.ceil(argOf(local, "LOCAL").length / widest)
