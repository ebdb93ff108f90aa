/** Whole programs: each distinct body of a call is one search, and what it finds is weighed as the compiler makes it. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import { slotOf, substitute, toposort, type UOp, varArg } from "@tg/core-uop/UOp"
import { margin } from "@tg/rangeify/Fusion"
import { assign, sink, storageOf, writtenStorage } from "@tg/tensor/Program"
import { buffer, Tensor } from "@tg/tensor/Tensor"
import { Effect } from "effect"
import { type Call, isCall } from "./Calls.ts"
import {
  choose,
  type Chosen,
  explanation,
  explore,
  type Explored,
  type Form,
  listing,
  type Search
} from "./Optimise.ts"
import { tileCounts } from "./Layout.ts"
import * as Operands from "./Operands.ts"
import type { Stop } from "./Saturate.ts"
import type { Situation } from "./TensorCost.ts"

/** What a body is when it is compiled, by the costs that place its values. */
export interface Weight {
  readonly launches: number
  /** What workgroups of its launches compute one after the other, behind barriers. */
  readonly stages: number
  /** Reductions that read each other, in pieces. */
  readonly pieces: number
  readonly micros: number
}

/** Asks the compiler for the weight of a body, by a program that is one call of it. */
export type Weigh<E> = (program: UOp, name: string) => Effect.Effect<Weight, E>

/** What became of a body. */
export interface BodyReport {
  readonly name: string
  /** The labels of its calls. */
  readonly sites: ReadonlyArray<string>
  /** How products read what they may round. */
  readonly operands: ReadonlyArray<Operands.OperandReport>
  /** Nodes looked at, and why no more; milliseconds of the search. */
  readonly nodes: number
  readonly stop: Stop | "too large"
  readonly millis: number
  /** Microseconds of one call by the cost model of the search: as written, and of the cheapest found. */
  readonly searched: { readonly written: number; readonly found: number }
  /** As compiled; nothing where the search found nothing else, or something that is cheaper beyond doubt. */
  readonly weighed: { readonly written: Weight; readonly found: Weight } | undefined
  /** Whether what was found is in the program. */
  readonly isTaken: boolean
  /** Why, for those who ask. */
  readonly reasons: () => Reasons
}

/** What is computed, and the rules that lead there; empty where nothing else was found. */
export interface Reasons {
  readonly chosen: ReadonlyArray<string>
  readonly because: ReadonlyArray<string>
}

/** A program with the cheapest bodies, and what became of each. */
export interface Optimised {
  readonly sink: UOp
  readonly bodies: ReadonlyArray<BodyReport>
}

/**
 * Whether one way to compile a body, which the search takes to be cheaper, is worth leaving another: with no more launches, unless a
 * quarter of the time is saved, and nothing in one piece that was in several, in clearly less time; or in no more time with fewer launches, or as many of fewer stages. Where
 * something is in pieces that was not, the search alone is right: costs of kernels count a loop of unknown length as a short one.
 */
export const isBetter = (found: Weight, written: Weight): boolean => {
  if (found.pieces < written.pieces) return false
  if (found.launches > written.launches) return found.micros <= (1 - plainGain.gpu) * written.micros
  if (found.pieces > written.pieces) return true
  if (found.micros <= (1 - margin) * written.micros) return true
  const isSimpler = found.launches < written.launches || found.stages < written.stages
  return isSimpler && found.micros <= written.micros
}

/** The functions of a program: each body once, those that others call first, with all of its calls. */
export const callsOf = (sink: UOp): ReadonlyMap<UOp, ReadonlyArray<Call>> =>
  Map.groupBy(toposort(sink).filter(isCall), (call) => call.src[0]!)

/** The labels of calls, each once. */
export const sitesOf = (calls: ReadonlyArray<Call>): ReadonlyArray<string> => [
  ...new Set(calls.flatMap((call) => call.arena.labelOf(call) ?? []))
]

/** How a program is searched and weighed. */
export interface Options<E> {
  readonly profile: Situation["profile"] & Partial<Pick<DeviceProfile, "kind">>
  readonly weigh: Weigh<E>
  /** The part of its time that a form saves by the search if it is taken unweighed; `plainGain` of the device if it is not said. */
  readonly unweighed?: number | undefined
  readonly search: Omit<Search, "residency">
}

/** A body may have so many nodes of those that a search may look at. */
const mostWritten = 0.75

/**
 * What is cheaper by so much is taken without compiling what was written, which would take longer than all of the search. Where the
 * search gained as much with the models there are, compiling both showed that more was gained: the absorbed form of attention, 0.43 to 0.73 of the
 * expanded one by the search, took 0.08 to 0.29 of it. On a CPU weights are launches and bytes, and the search knows operations, too: what it
 * sees beyond the error of costs, it decides alone.
 */
const plainGain = { gpu: 0.25, cpu: margin }

/** The program with each body as it takes least time; a search that ends without a gain leaves it as it was written. */
export const ofProgram = Effect.fnUntraced(function*<E>(program: UOp, options: Options<E>) {
  const now = new Map<UOp, UOp>()
  const bodies: Array<BodyReport> = []
  const written = writtenStorage(program)
  const vars = usualVars(program, options.profile.kind ?? "gpu")
  for (const [body, calls] of callsOf(program)) {
    const inner = substitute(body, now)
    const made = yield* ofBody({ body: inner, calls, written, vars }, options)
    bodies.push(made.report)
    if (made.body !== body) now.set(body, made.body)
  }
  const optimised: Optimised = { sink: substitute(program, now), bodies }
  return optimised
})

interface Body {
  /** With the bodies that it calls as they are now. */
  readonly body: UOp
  readonly calls: ReadonlyArray<Call>
  /** Storage that the program writes. */
  readonly written: ReadonlySet<UOp>
  readonly vars: Situation["vars"]
}

const ofBody = Effect.fnUntraced(
  function*<E>(given: Body, { profile, search, unweighed = plainGain[profile.kind ?? "gpu"], weigh }: Options<E>) {
    const { calls, vars } = given
    const { name } = calls[0]!.arg
    const { now = () => 0 } = search
    const start = now()
    const { body, reports: operands } = Operands.ofBody(given.body, profile)
    const own = { ...given, body }
    const found = searched(own, { ...search, residency: residencyIn(own) }, { profile, vars, hides: true })
    const millis = now() - start
    const report = { name, sites: sitesOf(calls), operands, millis, ...found.report }
    const { settled } = found
    const base = body.with(settled.roots)
    if (found.roots === undefined) return { body: base, report: { ...report, isTaken: base !== body } }
    const other = body.with(found.roots)
    if (found.report.searched.found <= (1 - unweighed) * settled.micros) {
      return { body: other, report: { ...report, isTaken: true } }
    }
    const weighed = {
      written: yield* weigh(callOf(base, calls[0]!), name),
      found: yield* weigh(callOf(other, calls[0]!), name)
    }
    const isTaken = isBetter(weighed.found, weighed.written)
    const told: BodyReport = { ...report, weighed, isTaken }
    return { body: isTaken ? other : base, report: told }
  }
)

/** What a search finds in place of the results of a body, if anything, what it decides alone, and what is told of both. */
const searched = (
  { body }: Body,
  search: Search,
  situation: Situation
): {
  readonly roots?: ReadonlyArray<UOp> | undefined
  readonly settled: Pick<Form, "roots" | "micros">
  readonly report: Omit<BodyReport, "name" | "operands" | "sites" | "millis">
} => {
  const size = toposort(body).length
  const none = { weighed: undefined, isTaken: false, reasons: () => noReasons }
  if (size > mostWritten * (search.bounds?.nodes ?? Infinity)) {
    const report = { ...none, nodes: size, stop: "too large", searched: { written: 0, found: 0 } } as const
    return { settled: { roots: body.src, micros: 0 }, report }
  }
  const explored = explore(body.src, search)
  const chosen = choose(explored, situation)
  const report = {
    ...none,
    nodes: explored.graph.size,
    stop: explored.saturation.stop,
    searched: { written: chosen.writtenMicros, found: chosen.micros }
  }
  const { choice, roots, settled } = chosen
  return {
    roots: roots.every((root, i) => root === settled.roots[i]) ? undefined : roots,
    settled,
    report: choice === undefined ? report : { ...report, reasons: () => reasonsOf(explored, chosen) }
  }
}

const noReasons: Reasons = { chosen: [], because: [] }

const reasonsOf = (explored: Explored, chosen: Chosen): Reasons => ({
  chosen: listing(explored, chosen),
  because: explanation(explored, chosen)
})

/** Buffers of a program that is a body alone are numbered from here: beyond those of models. */
const firstOwn = 2 ** 20

/** A program that is one call of a body, with storage of its own in place of all that it is given and gives. */
const callOf = (body: UOp, call: Call): UOp => {
  const { arena } = body
  let next = firstOwn
  const storage = ({ dtype, node, shape }: Tensor): Tensor => {
    const whole = buffer(node.arena, next++, { shape: shape.map(Shape.maxOf), dtype })
    return shape.reduce<Tensor>((x, size, axis) => typeof size === "number" ? x : x.slice(axis, 0, size), whole)
  }
  const given = call.src.slice(1).map((arg) => arg.dtype === DType.index ? arg : storage(new Tensor(arg)).node)
  const made = arena.make("CALL", call.dtype, [body, ...given], call.arg)
  return sink(body.src.map((result, i) => {
    const value = new Tensor(arena.make("GETTUPLE", result.dtype, [made], i))
    return result.dtype === DType.none ? value : assign(storage(value), value)
  }))
}

/** Whether most batches of a device are full: those of a CPU are small, and taken where a prompt fills half of one. */
const areFull = { gpu: false, cpu: true }

/**
 * Values of the variables that a search counts costs for: a quarter of the way to what they may be at most, as a context is seldom full; of batches, as many
 * tiles of tokens as they have.
 */
const usualVars = (root: UOp, kind: DeviceProfile["kind"]): Situation["vars"] => {
  const nodes = toposort(root)
  const tiles = areFull[kind] ? tileCounts(nodes) : new Set()
  return Object.fromEntries(
    nodes.filter((node) => node.op === "VAR").map((node) => {
      const { max, min, name } = varArg(node)
      return [name, tiles.has(node) ? max : Math.max(Math.ceil(max / 4), min + Math.floor((max - min) / 4))]
    })
  )
}

/** Where the parameters of a body are, by its first call: what a program only reads are weights, what it writes its caches. */
const residencyIn = ({ body, calls, written }: Body): Search["residency"] => {
  const own = writtenStorage(body)
  return (param) => {
    if (own.has(param)) return "cache"
    const argument = param.is("PARAM") ? calls[0]!.src[1 + slotOf(param)] : param
    const storage = argument === undefined || argument.dtype === DType.index ? undefined : storageOf(argument)
    if (storage === undefined || storage.op !== "BUFFER") return "activation"
    return written.has(storage) ? "cache" : "weight"
  }
}
