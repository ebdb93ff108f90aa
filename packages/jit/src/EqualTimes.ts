/** What finding other forms of bodies takes: the e-graph's share of compiling. */
import { Context, Effect } from "effect"

/** Of one program. */
export interface Took {
  /** Bodies that were searched. */
  readonly bodies: number
  /** Of them, those of which another form was found and weighed. */
  readonly weighed: number
  /** Of the e-graph: reading bodies, saturation, extraction. */
  readonly searchMillis: number
  /** Of making kernels of both forms. Those of the form that is taken are there when the program is scheduled. */
  readonly weighMillis: number
}

/** Is told of every program; nobody is unless one is provided. */
export const Listener = Context.Reference<((took: Took) => void) | undefined>("@tg/jit/EqualTimes/Listener", {
  defaultValue: () => undefined
})

const nothing: Took = { bodies: 0, weighed: 0, searchMillis: 0, weighMillis: 0 }

/** Of several programs. */
export const sum = (all: ReadonlyArray<Took>): Took =>
  all.reduce((a, b) => ({
    bodies: a.bodies + b.bodies,
    weighed: a.weighed + b.weighed,
    searchMillis: a.searchMillis + b.searchMillis,
    weighMillis: a.weighMillis + b.weighMillis
  }), nothing)

/** `6 bodies searched in 410 ms, 2 compared with another form in 900 ms` */
export const print = ({ bodies, searchMillis, weighMillis, weighed }: Took): string =>
  `${bodies} ${bodies === 1 ? "body" : "bodies"} searched in ${searchMillis.toFixed(0)} ms` +
  (weighed === 0 ? "" : `, ${weighed} compared with another form in ${weighMillis.toFixed(0)} ms`)

/** Runs work that can ask, at any time, what was taken so far. */
export const counting = <A, E, R>(work: (took: Effect.Effect<Took>) => Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const heard: Array<Took> = []
    return work(Effect.sync(() => sum(heard))).pipe(Effect.provideService(Listener, (took) => void heard.push(took)))
  })
