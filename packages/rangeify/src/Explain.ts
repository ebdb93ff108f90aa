/** Why each kernel of a schedule exists, recorded as it is decided. */
import * as DType from "@tg/core-uop/DType"
import type { UOp } from "@tg/core-uop/UOp"
import { isStorage, mostPlaces } from "./Values.ts"
import type { Step } from "./Schedule.ts"

/** Who asks for a value in memory, whatever it costs. */
export type Demand =
  /** A function's result. */
  | "output"
  /** What a call is given. */
  | "argument"
  /** `contiguous()`. */
  | "contiguous"
  /** An assignment to a buffer. */
  | "effect"
  /** Its kernel would read the buffer at other places than it writes, so the value is computed first. */
  | "overwritten"
  /** A hand-written kernel. */
  | "custom"
  /** Its elements are added in memory, or it is what they are added from. */
  | "accumulated"

/** Why a value is stored by the rules. Where the device has costs, all but `Required` are weighed again. */
export type Cause =
  | { readonly _tag: "Required"; readonly by: Demand }
  /** A broadcast repeats each element `times` times. */
  | { readonly _tag: "Repeated"; readonly times: number }
  /** It contains a reduction, and another reduction reads it: `times` elements at a time. */
  | { readonly _tag: "Reduced"; readonly times: number }
  /** An operand or the index of a gather, of more than a few operations. */
  | { readonly _tag: "Gathered" }
  /** `places` sites would compute it; saturates at `mostPlaces`. */
  | { readonly _tag: "Shared"; readonly places: number }
  /** A write waits for stored values that read what it reads: it shares a launch with them. */
  | { readonly _tag: "Sibling" }
  /** Without it one kernel would bind more buffers than it may. */
  | { readonly _tag: "Bindings"; readonly needs: number; readonly has: number }

/** A limit that a kernel would exceed. Workgroup memory in bytes. */
export interface Forbidden {
  readonly _tag: "Forbidden"
  readonly limit: "workgroupBytes" | "bindings"
  /** Absent if it is known only at launch, or if the windows of buffers are too many. */
  readonly needs?: number
  readonly has: number
  /** The kernel that would. */
  readonly kernel: string
}

/** The verdict on one placement. */
export type Verdict =
  /** Of all kernels that compute the value or read it. */
  | { readonly _tag: "Cost"; readonly micros: number }
  /** `micros` is what it would cost if it were allowed. */
  | Forbidden & { readonly micros: number }
  /** The kernel would read what it overwrites. */
  | { readonly _tag: "Overwrites"; readonly kernel: string }
  /** Not considered: each use would run a reduction of so many iterations again. */
  | { readonly _tag: "Repeats"; readonly iterations: number }

/** Where a value may live: computed by each user, kept by the workgroups that use it, or stored by a kernel of its own. */
export type Home = "inline" | "workgroup" | "global"

/** One placement of a value, and the verdict on it. */
export interface Considered {
  readonly home: Home
  readonly verdict: Verdict
}

/** Why a kernel is, or is not, in the launch of another one. */
export type Launch =
  /** It does: in the launch of this kernel. */
  | { readonly _tag: "Joined"; readonly with: string }
  /** Nothing of its function, since the last call, runs before it. */
  | { readonly _tag: "First" }
  /** It depends on this kernel. */
  | { readonly _tag: "After"; readonly kernel: string }
  /** The launch of its level has no room. */
  | Forbidden
  /** The device runs one kernel after the other, or it is written by hand. */
  | { readonly _tag: "Alone" }

/** A value that could be stored and is not. */
export interface Inside {
  /** The model line. */
  readonly value: string
  /** Why it would be stored. */
  readonly cause: Cause
  /** The one that was chosen first. */
  readonly placements: ReadonlyArray<Considered>
}

/** A kernel boundary: a value that is stored, or an effect. */
export interface Boundary {
  /** The kernel's name. Joined kernels have a boundary each. */
  readonly kernel: string
  /** The model line. */
  readonly value: string
  /** Model lines of the kernels and calls that read it; none if only the program's caller does. */
  readonly users: ReadonlyArray<string>
  readonly cause: Cause
  /** The one that was chosen, `global`, first. Empty where nothing else is possible, and where the device has no costs. */
  readonly placements: ReadonlyArray<Considered>
  /** Values that were moved into the kernel: those that each of its workgroups keeps, or that it computes where it uses them. */
  readonly inside: ReadonlyArray<Inside>
  readonly launch: Launch
  /** Why it is a phase of a launch, or none: where persistent launches are asked for. */
  readonly phased?: Phased | undefined
}

/** Why a launch of its own became a phase of another one, or did not. */
export type Phased =
  /** It is a phase of a persistent launch, which saves so many microseconds against single launches; that may be one of so many variants of a program. */
  | {
    readonly _tag: "Phase"
    readonly phases: number
    readonly workgroups: number
    readonly saves: number
    readonly variants?: number
  }
  /** It stays alone: as a phase behind the kernel before it, it would cost so many microseconds more. */
  | { readonly _tag: "Costs"; readonly micros: number }
  /** It stays alone: a launch with the kernel before it is impossible. */
  | { readonly _tag: "Refused"; readonly why: string }

/** The nearest model line: the node's own, or the first one found among what it computes. Calls have names. */
export const labelOf = (root: UOp): string => {
  if (root.is("CALL") || root.is("CUSTOM")) return root.arena.labelOf(root) ?? root.arg.name
  const queue = [root]
  const seen = new Set<UOp>(queue)
  for (let i = 0; i < queue.length && i < 64; i++) {
    const node = queue[i]!
    const label = node.arena.labelOf(node)
    if (label !== undefined) return label
    if (i > 0 && isStorage(node)) continue
    for (const s of node.src) {
      if (seen.has(s) || s.dtype === DType.index) continue
      seen.add(s)
      queue.push(s)
    }
  }
  return root.op === "STORE" ? "store" : root.op.toLowerCase()
}

const demands: Readonly<Record<Demand, string>> = {
  output: "it is a result of the function",
  argument: "a call takes it",
  contiguous: "the program asks for it with contiguous()",
  effect: "the program writes it to a buffer",
  overwritten: "its target is read elsewhere while it is written",
  custom: "it is written by hand",
  accumulated: "elements are added in memory"
}

const printCause = (cause: Cause): string => {
  switch (cause._tag) {
    case "Required":
      return demands[cause.by]
    case "Repeated":
      return `a broadcast uses each element ${cause.times} times`
    case "Reduced":
      return `a reduction reads the results of another one, ${cause.times} of them`
    case "Gathered":
      return "memory decides what of it is read"
    case "Shared":
      return `${cause.places}${cause.places === mostPlaces ? " or more" : ""} places use it`
    case "Sibling":
      return "it shares the launch of others that read the same"
    case "Bindings":
      return `without it a kernel binds ${cause.needs} buffers of ${cause.has}`
  }
}

const printForbidden = ({ has, kernel, limit, needs }: Forbidden): string =>
  limit === "bindings"
    ? `${kernel} would bind ${needs ?? "too many windows of"} buffers of ${has}`
    : `${kernel} would take ${needs ?? "an unknown number of"} bytes of workgroup memory of ${has}`

const printVerdict = (verdict: Verdict): string => {
  switch (verdict._tag) {
    case "Cost":
      return `${verdict.micros.toFixed(2)} us`
    case "Forbidden":
      return `forbidden (${printForbidden(verdict)}; ${verdict.micros.toFixed(2)} us otherwise)`
    case "Overwrites":
      return `forbidden (${verdict.kernel} would read what it overwrites)`
    case "Repeats":
      return `not weighed (each use would run a reduction of ${verdict.iterations})`
  }
}

const printPlacements = (placements: ReadonlyArray<Considered>): string =>
  placements.map(({ home, verdict }) => `${home} ${printVerdict(verdict)}`).join(", ")

const printLaunch = (launch: Launch): string => {
  switch (launch._tag) {
    case "Joined":
      return `runs beside ${launch.with}`
    case "First":
      return "nothing runs before it"
    case "After":
      return `needs ${launch.kernel}`
    case "Forbidden":
      return `no room in the launch before it: ${printForbidden(launch)}`
    case "Alone":
      return "runs alone"
  }
}

const printPhased = (phased: Phased): string => {
  switch (phased._tag) {
    case "Phase":
      return `one of ${phased.phases} phases by ${phased.workgroups} workgroups, which saves ${
        phased.saves.toFixed(2)
      } us${phased.variants === undefined ? "" : `; a program of ${phased.variants} variants`}`
    case "Costs":
      return `a launch: as a phase it would cost ${phased.micros.toFixed(2)} us more`
    case "Refused":
      return `a launch: ${phased.why}`
  }
}

/** A boundary as text: why it is stored, what else was weighed, what it keeps inside, why it is a launch of its own. */
export const print = ({ cause, inside, launch, phased, placements, users }: Boundary): ReadonlyArray<string> => [
  `stored: ${printCause(cause)}${users.length === 0 ? "" : `; read by ${users.join(", ")}`}`,
  ...placements.length === 0 ? [] : [`weighed: ${printPlacements(placements)}`],
  ...inside.map((moved) => `inside: ${moved.value}: ${printCause(moved.cause)}; ${printPlacements(moved.placements)}`),
  `launch: ${printLaunch(launch)}`,
  ...phased === undefined ? [] : [`persistent: ${printPhased(phased)}`]
]

/** A launch of a function body, and why it is there. */
export interface ExplainedLaunch {
  readonly name: string
  /** In all sites together. */
  readonly calls: number
  readonly boundaries: ReadonlyArray<Boundary>
}

/** The launches of one body: of a function wherever it is called with equal schedules, or of what is in no function. */
export interface ExplainedBody {
  /** The function's name; none outside of all functions. */
  readonly body?: string
  /** The labels of its calls: `blk.1`. */
  readonly sites: ReadonlyArray<string>
  readonly launches: ReadonlyArray<ExplainedLaunch>
}

/** Each boundary of a schedule once, by the body it is in, in the order of the first launch. */
export const byBody = (steps: ReadonlyArray<Step>): ReadonlyArray<ExplainedBody> => {
  const launches = [...Map.groupBy(steps, ({ boundaries }) => boundaries)].map(([boundaries, same]) => {
    const { body, name } = same[0]!
    const sites = [...new Set(same.flatMap(({ site }) => site === undefined ? [] : [site]))]
    return { body, sites, launch: { name, calls: same.length, boundaries } }
  })
  const bodies = Map.groupBy(launches, ({ body, sites }) => [body, ...sites].join("\n"))
  return [...bodies.values()].map((own) => ({
    ...own[0]!.body === undefined ? {} : { body: own[0]!.body },
    sites: own[0]!.sites,
    launches: own.map(({ launch }) => launch)
  }))
}
