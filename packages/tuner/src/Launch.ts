/**
 * The search space of a launch: the opts of all its members. A workgroup has the threads of the most demanding member, so opts that are
 * the fastest for one member alone may slow the others down.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import type { Stages } from "@tg/jit/Pipeline"
import type * as Opt from "@tg/postrange/Opt"
import { members } from "@tg/rangeify/Horizontal"
import { Effect } from "effect"
import type { Legal } from "@tg/postrange/Postrange"
import * as Moves from "./Moves.ts"
import type { Neighbour, Space } from "./Search.ts"
import * as Template from "./Template.ts"

/** Opts of the members of a kernel (`Horizontal.members`), in their order. */
export type Opts = ReadonlyArray<ReadonlyArray<Opt.Opt>>

/** The same with their templates. Equal members have equal opts: the compiler looks opts up by structure. */
export type Candidate = ReadonlyArray<Moves.Candidate>

export const optsOf = (candidate: Candidate): Opts => candidate.map(({ opts }) => opts)

/** What a pipeline chooses for the members of a kernel. */
export const usual = (kernel: UOp, { choose }: Pick<Stages, "choose">): Effect.Effect<Opts> =>
  Effect.forEach(members(kernel), ({ ast }) => choose(ast))

/** The parameters of a space. */
export interface Options {
  /** By member: the opts from which its templates take their vectors. */
  readonly usual: Opts
  /** By member: the fixed opts of one that is held. */
  readonly holding: ReadonlyArray<ReadonlyArray<Opt.Opt> | undefined>
  readonly profile: DeviceProfile
  /** Legality of opts; by default the usual rules. */
  readonly legal?: Legal | undefined
}

/** Threads of a workgroup that are tried for all members at once. */
const threads = [16, 32, 64, 128, 256, 512]

/** Changes of all members at once: the same number, or the same threads, for a reduction or for several outputs. */
const together: ReadonlyArray<(template: Template.Template) => Template.Change> = [
  ...Template.changes.map((change) => () => change),
  ...threads.flatMap((count) => [
    ({ local }: Template.Template) => ({ group: Math.max(1, count / local) }),
    ({ group }: Template.Template) => ({ local: Math.max(1, count / group) })
  ])
]

/**
 * The space of a kernel (spec `kernel`, of any number of members): one member's opts change as in its own space (`Moves`), or all
 * members change alike. A kernel of one member has the space of that member.
 */
export const space = (kernel: UOp, { holding, legal, profile, usual }: Options): Space<Candidate> => {
  const all = members(kernel).map(({ ast }) => ast)
  const spaces = new Map(all.map((member, i) => [member, Moves.space(member, usual[i]!, profile, legal)]))
  const free = new Set(all.filter((_, i) => holding[i] === undefined))
  const changeAll = (from: Candidate, change: (own: Moves.Candidate, member: UOp) => Moves.Candidate): Candidate =>
    from.map((own, i) => free.has(all[i]!) ? change(own, all[i]!) : own)
  return {
    keyOf: (candidate) => candidate.map((own, i) => spaces.get(all[i]!)!.keyOf(own)).join("; "),
    neighbours: (from) => {
      const single = [...free].flatMap((member) =>
        spaces.get(member)!.neighbours(from[all.indexOf(member)]!).map((
          { candidate, delay }
        ): Neighbour<Candidate> => ({
          candidate: changeAll(from, (own, other) => other === member ? candidate : own),
          delay
        }))
      )
      const isJoined = free.size > 1 && profile.kind === "gpu"
      const joint = (isJoined ? together : []).map((changeOf): Neighbour<Candidate> => ({
        candidate: changeAll(from, (own, member) => spaces.get(member)!.changed(own, changeOf)),
        delay: 1
      }))
      return [...joint, ...single]
    },
    accepts: (candidate) => candidate.every((own, i) => spaces.get(all[i]!)!.accepts(own))
  }
}
