/** Where the values of a body live: one search, by what its kernels then cost. */
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import type { UOp } from "@tg/core-uop/UOp"
import { type BodyGraph, bodyGraph, type Level } from "./BodyGraph.ts"
import { chain, cheapest } from "./Cost.ts"
import type { Considered, Home, Verdict } from "./Explain.ts"
import { addedMicros, type FusionCost, grain, type KernelMicros, launchOf, margin } from "./Fusion.ts"
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

/** How many ways to place the values decided so far are kept: two that pay only together are in the better ones of these. */
export const usualBeam = 4

/** After this many rounds of second thoughts the search ends, better or not: each changes what it can. */
const mostRounds = 4

/** A body as it would be with its values here or there. Fewer kernels that cannot run come first, then what costs less. */
interface Score {
  readonly forbidden: number
  readonly micros: number
}

interface State extends Score {
  readonly homes: Homes
  /** What it would cost if each kernel were a launch. */
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

/** What kernels cost one after the other. */
const apartMicros = (kernels: ReadonlyArray<KernelMicros>): number => chain(kernels.map((kernel) => launchOf([kernel])))

/**
 * What kernels cost that are joined as far as that may be: there are as many launches as the longest chain has kernels, and
 * each kernel beside it is part of the launch in which it costs least.
 */
const joinedMicros = (kernels: ReadonlyArray<KernelMicros>, levels: ReadonlyArray<Level>): number => {
  const launches: Array<Array<KernelMicros>> = []
  const free: Array<number> = []
  for (const [i, { first, last }] of levels.entries()) {
    if (first === last) (launches[first] ??= []).push(kernels[i]!)
    else free.push(i)
  }
  for (const i of free.sort((a, b) => kernels[b]!.work - kernels[a]!.work || a - b)) {
    const { first, last } = levels[i]!
    const own = launches.slice(first, last + 1)
    const [launch] = cheapest(own, (members) => addedMicros(members, kernels[i]!))
    launch!.push(kernels[i]!)
  }
  return chain(launches.map((members) => launchOf(members)))
}

/** What a search asks about a body and the costs of a device. */
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
    limits.joinsKernels === true ? joinedMicros(kernels, graph.levelsOf(roots)) : apartMicros(kernels)
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
 * Searches the homes of the values that may be anywhere, users first: what two kernels read is kept once if these two have
 * become one. A beam keeps the best ways so far; then each value is asked again, with all others where they are, until
 * none moves. Of equally cheap homes the first of `homesOf` is taken, so the same body has the same homes everywhere.
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
  // what starts where it is used is asked when the others have a home
  const first = usersFirst.filter((value) => placement.stored.has(value))
  let states: ReadonlyArray<State> = [asked.stateOf({ stored: placement.stored, staged: new Set() })]
  for (const value of first) {
    states = kept(
      states.flatMap((state) =>
        placement.homesOf(value).map((home) =>
          home === "global" ? state : asked.stateOf(moved(state.homes, value, home))
        )
      ),
      beam
    )
  }
  const best = settled(asked, states[0]!, usersFirst)
  const { homes } = best
  const weighed = usersFirst.filter((value) => placement.stored.has(value) || mayPay(asked, value, best))
  return { ...homes, together: togetherIn(asked, homes), considered: explained(asked, homes, weighed) }
}

/**
 * Whether it may pay to keep a value that starts where it is used: what the kernels take that compute it, beside what they wait
 * for and move, is the most that this can save.
 */
const mayPay = ({ graph, weigh }: Asked, value: UOp, { homes, micros }: State): boolean => {
  if (homeOf(value, homes) !== "inline") return true
  const kernels = [...graph.kernelsOf(value, homes.stored)].map((root) => weigh(root, homes).micros)
  return chain(kernels.map((kernel) => launchOf([kernel]) - launchOf([{ ...kernel, work: 0 }]))) > margin * micros
}

/** The state with each value where it costs least, given the others. */
const settled = (asked: Asked, from: State, values: ReadonlyArray<UOp>): State => {
  const { placement: { homesOf, stored }, stateOf } = asked
  let state = from
  for (let round = 0, isMoving = true; isMoving && round < mostRounds; round++) {
    isMoving = false
    for (const value of values) {
      const startsInline = !stored.has(value)
      if (startsInline && !mayPay(asked, value, state)) continue
      for (const home of homesOf(value)) {
        const other = stateOf(moved(state.homes, value, home))
        if (!isBetter(other, state)) continue
        // a gain that the costs cannot tell from none
        const isDoubtful = startsInline && home !== "inline" && other.micros > (1 - margin) * state.micros
        if (isDoubtful && other.forbidden === state.forbidden) continue
        state = other
        isMoving = true
      }
    }
  }
  return state
}

/** For each value what its homes cost the kernels that compute or read it, all others being where they are. */
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
 * As many states as the beam is wide, the best one first: half of them by what they cost, the others by what they would if
 * each kernel were a launch. A launch ends only with the last of its kernels: the second order sees what the first of them is
 * worth.
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

/** All of these kernels: the first one that cannot be run speaks for them. */
const verdict = (each: ReadonlyArray<Verdict>, micros: number): Verdict => {
  const impossible = each.find(({ _tag }) => _tag !== "Cost")
  if (impossible?._tag === "Overwrites") return impossible
  return impossible?._tag === "Forbidden" ? { ...impossible, micros } : { _tag: "Cost", micros }
}
