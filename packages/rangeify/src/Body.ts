/**
 * Where the values of a body live, as part of its graph, and the passes that decide it. A body is a SINK of its effects and
 * results. A value with a home is the source of a CONTIGUOUS that names the home, as a further root, so the semantics stay.
 */
import type * as Pass from "@tg/core-uop/Pass"
import type { UOp } from "@tg/core-uop/UOp"
import type * as Symbolic from "@tg/pattern-matcher/Symbolic"
import type { Considered, Home } from "./Explain.ts"
import type { Limits } from "./Limits.ts"
import type { Homes } from "./Lower.ts"
import { place, type Placement } from "./Placement.ts"
import { search } from "./Search.ts"

/** The context of the passes over a body, and their results beside the homes. */
export interface Body {
  readonly limits: Limits
  readonly rules: Symbolic.Rules
  readonly results: ReadonlyArray<UOp>
  /** Buffers that a kernel may read. */
  readonly maxReads: number
  /** Fewer of them, for the kernels that compute these nodes. */
  readonly tighter?: ReadonlyMap<UOp, number> | undefined
  readonly found: Found
}

/** Results of the passes beside the graph: why values live where they do, and how kernels are to be lowered. */
export interface Found {
  placement?: Placement
  /** The homes that were weighed for each movable value. */
  considered?: ReadonlyMap<UOp, ReadonlyArray<Considered>>
  /** An axis of a kernel's output that one workgroup computes as a whole. */
  together?: ReadonlyMap<UOp, number>
}

/** A pass over a body. */
export type BodyPass = Pass.Pass<Body>

/** The home of a value, and the others that it may have. */
export interface Marked {
  readonly home: Home
  /** Those that are legal; one if the value must be there. */
  readonly legal: ReadonlyArray<Home>
}

const homes: ReadonlyArray<Home> = ["global", "inline", "workgroup"]

const isHome = (text: unknown): text is Home => homes.some((home) => home === text)

/** The node that says where a value lives. */
const mark = (value: UOp, { home, legal }: Marked): UOp =>
  value.arena.make("CONTIGUOUS", value.dtype, [value], { home, legal: legal.join() })

const markedBy = (root: UOp): Marked | undefined => {
  const { arg, op } = root
  if (op !== "CONTIGUOUS" || typeof arg !== "object" || !("home" in arg)) return undefined
  return isHome(arg.home) ? { home: arg.home, legal: String(arg.legal).split(",").filter(isHome) } : undefined
}

/** The values of a body that have homes. */
export const marksOf = (body: UOp): ReadonlyMap<UOp, Marked> =>
  new Map(body.src.flatMap((root) => {
    const marked = markedBy(root)
    return marked === undefined ? [] : [[root.src[0]!, marked] as const]
  }))

/** The effects and results of a body. */
const rootsOf = (body: UOp): ReadonlyArray<UOp> => body.src.filter((root) => markedBy(root) === undefined)

/** The body with homes for these values and no others. */
export const withMarks = (body: UOp, marks: Iterable<readonly [UOp, Marked]>): UOp =>
  body.with([...rootsOf(body), ...Array.from(marks, ([value, marked]) => mark(value, marked))])

/** Homes as lowering takes them. */
export const homesIn = (body: UOp): Pick<Homes, "staged" | "stored"> => {
  const marks = [...marksOf(body)]
  const at = (home: Home): ReadonlySet<UOp> =>
    new Set(marks.flatMap(([value, marked]) => marked.home === home ? [value] : []))
  return { stored: at("global"), staged: at("workgroup") }
}

/** Gives stored values the home `global`, and movable ones their legal homes. */
export const store: BodyPass["run"] = (body, { found, maxReads, results, tighter }) => {
  const placement = place(rootsOf(body), results, maxReads, tighter)
  found.placement = placement
  const markOf = (value: UOp): Marked => ({
    home: "global",
    legal: placement.movable.has(value) ? placement.homesOf(value) : ["global"]
  })
  return withMarks(body, [...placement.stored].map((value) => [value, markOf(value)]))
}

/** Gives each movable value the home with which the body costs least. */
export const choose: BodyPass["run"] = (body, { found, limits, rules }) => {
  const { placement } = found
  if (placement === undefined || limits.fusion === undefined) return body
  const { considered, staged, stored, together } = search(placement, limits, { rules })
  found.considered = considered
  if (together !== undefined) found.together = together
  const homeOf = (value: UOp): Home => stored.has(value) ? "global" : staged.has(value) ? "workgroup" : "inline"
  return withMarks(body, [...marksOf(body)].map(([value, { legal }]) => [value, { home: homeOf(value), legal }]))
}

/** From a body to the homes of its values. */
export const passes: Pass.PassList<Body> = {
  stage: "rangeify",
  passes: [
    { name: "store", from: "tensor", to: "tensor", run: store },
    { name: "choose homes", from: "tensor", to: "tensor", run: choose }
  ]
}
