/**
 * Dawn's ticks in Node. While something is awaited of a GPU, each turn of the event loop runs one, which asks whether it is there and makes the function of the next one. Such a function
 * has a finalizer, so V8 moves it to the old generation, whatever becomes of it: with a tick every few microseconds that is 100 MB a second, and collections that stop the host for 50 to
 * 185 ms, the longer the larger its heap has become. So ticks are apart.
 */
import { Effect, Layer } from "effect"
import { setImmediate as ownImmediate } from "node:timers"

/** From one tick to the next, at least: 2% of what a GPU takes for a token of a large model. */
const apartMillis = 0.05

type Run = () => void
/** Has the event loop run a function in a later turn. */
type Later = (run: Run) => NodeJS.Immediate

/** Functions of JavaScript that stand for ticks. */
const standing = new WeakSet<Run>()

/** The function as one that stands for a tick, for those who count them. */
export const asTick = (run: Run): Run => {
  standing.add(run)
  return run
}

/** Whether it is a tick: a function that is no JavaScript, or stands for one. */
export const isTick = (run: Run): boolean =>
  standing.has(run) || Function.prototype.toString.call(run).endsWith("{ [native code] }")

/** A tick that is early keeps a turn for so long. Turns in which the clock is looked at once would be garbage, too; and whoever else has a turn does not wait longer. */
const turnMillis = 0.005

/** Runs functions in a later turn, ticks not before their time. */
export const paced = (later: Later, now: () => number = () => performance.now()): Later => {
  let due = -Infinity
  const tick = (run: Run): void => {
    const until = Math.min(due, now() + turnMillis)
    while (now() < until);
    if (now() < due) return void later(() => tick(run))
    due = now() + apartMillis
    run()
  }
  return (run) => later(isTick(run) ? () => tick(run) : run)
}

/** Paces ticks, unless somebody else decides about turns of the event loop already. */
export const layer: Layer.Layer<never> = Layer.effectDiscard(
  Effect.acquireRelease(
    Effect.sync(() => {
      if (globalThis.setImmediate !== ownImmediate) return undefined
      const pacing = paced(ownImmediate)
      const own = (run: (...args: ReadonlyArray<unknown>) => void, ...args: ReadonlyArray<unknown>) =>
        args.length === 0 ? pacing(run) : ownImmediate(run, ...args)
      return globalThis.setImmediate = Object.assign(own, ownImmediate)
    }),
    (own) =>
      Effect.sync(() => {
        if (globalThis.setImmediate === own) globalThis.setImmediate = ownImmediate
      })
  )
)
