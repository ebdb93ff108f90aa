/** Where the values of a body live: one search, by what its kernels then cost. */
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import type { UOp } from "@tg/core-uop/UOp"
import { type BodyGraph, bodyGraph } from "./BodyGraph.ts"
import type { Considered, Home, Verdict } from "./Explain.ts"
import { type FusionCost, grain, type KernelMicros } from "./Fusion.ts"
import { apartMicros, joinedMicros } from "./JoinedCost.ts"
import type { Limits } from "./Limits.ts"
import type { Homes } from "./Lower.ts"
import type { Placement } from "./Placement.ts"
import { type Weighed, weigher } from "./Weigh.ts"

/** Where the values of a body live, and what spoke for it. */
export interface Placed extends Homes {
  /** The homes of each value that could be moved, the chosen one first. */
  readonly considered: ReadonlyMap<UOp, ReadonlyArray<Considered>>
}

/** Without costs: every value that may be stored is. */
export const allStored = ({ stored }: Placement): Placed => ({ stored, staged: new Set(), considered: new Map() })

/** The width of the beam: with one partial placement kept, two moves that pay only together would not be found. */
export const usualBeam = 4

/** Rounds of coordinate descent after the beam, at most. */
const mostRounds = 4

/** The score of a placement, in lexicographic order: kernels that cannot run, then microseconds. */
interface Score {
  readonly forbidden: number
  readonly micros: number
}

interface State extends Score {
  readonly homes: Homes
  /** Its cost with a launch for each kernel. */
  readonly apart: number
}

const isBetter = (a: Score, b: Score): boolean =>
  a.forbidden === b.forbidden ? a.micros < b.micros - grain : a.forbidden < b.forbidden

/** The values of a body with one of them elsewhere. */
const moved = ({ staged, stored }: Homes, value: UOp, home: Home): Homes => {
  const next = { staged: new Set(staged), stored: new Set(stored) }
  next.staged.delete(value)
  next.stored.delete(value)
  if (home === "global") next.stored.add(value)
  if (home === "workgroup") next.staged.add(value)
  return next
}

const homeOf = (value: UOp, { staged, stored }: Homes): Home =>
  stored.has(value) ? "global" : staged.has(value) ? "workgroup" : "inline"

/** The context of a search: a body, and the costs of a device. */
interface Asked {
  readonly placement: Placement
  readonly graph: BodyGraph
  readonly weigh: (root: UOp, homes: Homes) => Weighed
  /** Microseconds of these kernels as the device runs them. */
  readonly cost: (roots: ReadonlyArray<UOp>, homes: Homes) => number
  readonly stateOf: (homes: Homes) => State
}

const asking = (placement: Placement, limits: Limits, fusion: FusionCost, rules: Symbolic.Rules): Asked => {
  const graph = bodyGraph(placement)
  const weigh = weigher(fusion, limits, { insideOf: graph.insideOf, rules })
  const joined = (roots: ReadonlyArray<UOp>, kernels: ReadonlyArray<KernelMicros>): number =>
    limits.joinsKernels === true
      ? joinedMicros(kernels, graph.levelsOf(roots))
      : apartMicros(kernels)
  return {
    placement,
    graph,
    weigh,
    cost: (roots, homes) => joined(roots, roots.map((root) => weigh(root, homes).micros)),
    stateOf: (homes) => {
      const roots = [...graph.fixed, ...graph.candidates.filter((value) => homes.stored.has(value))]
      const weighed = roots.map((root) => weigh(root, homes))
      const kernels = weighed.map(({ micros }) => micros)
      const forbidden = weighed.filter(({ verdict }) => verdict._tag !== "Cost").length
      return { homes, forbidden, micros: joined(roots, kernels), apart: apartMicros(kernels) }
    }
  }
}

/**
 * Searches the homes of movable values, users first: a value that two kernels read is kept once if these two have become one. A
 * beam search, then coordinate descent: each value is moved with the others fixed, until none moves.
 * Of equally cheap homes the first of `homesOf` wins, so the result is deterministic.
 */
export const search = (
  placement: Placement,
  limits: Limits,
  { beam = usualBeam, rules = Symbolic.usual }: {
    readonly beam?: number | undefined
    readonly rules?: Symbolic.Rules | undefined
  } = {}
): Placed => {
  const { fusion } = limits
  if (fusion === undefined || placement.movable.size === 0) return allStored(placement)
  const asked = asking(placement, limits, fusion, rules)
  const usersFirst = asked.graph.candidates.toReversed()
  let states: ReadonlyArray<State> = [asked.stateOf({ stored: placement.stored, staged: new Set() })]
  for (const value of usersFirst) {
    if (placement.siblings.has(value)) continue
    states = kept(
      states.flatMap((state) =>
        placement.homesOf(value).map((home) =>
          home === "global" ? state : asked.stateOf(moved(state.homes, value, home))
        )
      ),
      beam
    )
  }
  const { homes } = settled(asked, states[0]!, usersFirst)
  return { ...homes, together: togetherIn(asked, homes), considered: explained(asked, homes, usersFirst) }
}

/** Coordinate descent: the state with each value where it costs least, given the others. */
const settled = (asked: Asked, from: State, values: ReadonlyArray<UOp>): State => {
  const { placement: { homesOf }, stateOf } = asked
  let state = from
  for (let round = 0, isMoving = true; isMoving && round < mostRounds; round++) {
    isMoving = false
    for (const value of values) {
      for (const home of homesOf(value)) {
        const other = stateOf(moved(state.homes, value, home))
        if (!isBetter(other, state)) continue
        state = other
        isMoving = true
      }
    }
  }
  return state
}

/** For each value the verdict on its homes: the cost of the kernels that compute or read it, with the others fixed. */
const explained = (
  { cost, graph, placement, weigh }: Asked,
  homes: Homes,
  values: ReadonlyArray<UOp>
): ReadonlyMap<UOp, ReadonlyArray<Considered>> => {
  const verdictOn = (value: UOp, home: Home): Verdict => {
    const at = moved(homes, value, home)
    const roots = [...home === "global" ? [value] : [], ...graph.kernelsOf(value, at.stored)]
    return verdict(roots.map((root) => weigh(root, at).verdict), cost(roots, at))
  }
  return new Map(values.map((value) => {
    const legal = placement.homesOf(value)
    const chosen = homeOf(value, homes)
    const others = (["global", "workgroup", "inline"] as const).filter((home) =>
      home !== chosen && legal.includes(home)
    )
    const { iterations } = placement.workOf(value)
    const repeats: ReadonlyArray<Considered> = legal.includes("inline")
      ? []
      : [{ home: "inline", verdict: { _tag: "Repeats", iterations } }]
    return [value, [
      ...[chosen, ...others].map((home) => ({ home, verdict: verdictOn(value, home) })),
      ...repeats
    ]]
  }))
}

/** The kernels of which one workgroup computes a whole axis. */
const togetherIn = ({ graph, weigh }: Asked, homes: Homes): ReadonlyMap<UOp, number> => {
  const roots = new Set([...homes.staged].flatMap((value) => [...graph.kernelsOf(value, homes.stored)]))
  return new Map([...roots].flatMap((root) => {
    const { axis } = weigh(root, homes)
    return axis === undefined ? [] : [[root, axis] as const]
  }))
}

/**
 * The states of the beam, the best one first: half of them by cost, the others by cost with a launch for each kernel. A joined
 * launch ends with its last kernel, so only the second order sees a gain in one of its other kernels.
 */
const kept = (states: ReadonlyArray<State>, beam: number): ReadonlyArray<State> => {
  const ranked = (by: (state: State) => Score): ReadonlyArray<State> =>
    states.map((state, i) => ({ state, score: by(state), i }))
      .sort((a, b) => isBetter(a.score, b.score) ? -1 : isBetter(b.score, a.score) ? 1 : a.i - b.i)
      .map(({ state }) => state)
  const joined = ranked((state) => state)
  const first = joined.slice(0, Math.ceil(beam / 2))
  const others = ranked(({ apart, forbidden }) => ({ forbidden, micros: apart })).filter((state) =>
    !first.includes(state)
  )
  return [...first, ...others].slice(0, beam)
}

/** The verdict on several kernels: that of the first one that cannot run, else the cost. */
const verdict = (each: ReadonlyArray<Verdict>, micros: number): Verdict => {
  const impossible = each.find(({ _tag }) => _tag !== "Cost")
  if (impossible?._tag === "Overwrites") return impossible
  return impossible?._tag === "Forbidden" ? { ...impossible, micros } : { _tag: "Cost", micros }
}
