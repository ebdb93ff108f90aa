/** How fibers take turns, of the worker and of the page that talks to it. */
import { Context, Layer } from "effect"
import * as Scheduler from "effect/Scheduler"

/** Milliseconds until timers and what is fetched have their turn, where the page has sent nothing. */
const turnMillis = 2

/**
 * Messages that the page has sent to this worker, counted in memory that both share, and those that have come: equal if none is on its
 * way. In a page nobody counts, and NaN is equal to nothing.
 */
export const mail: { sent: Int32Array; come: number } = { sent: new Int32Array(1), come: NaN }

/**
 * Runs a function when the messages that have come are taken: after those that wait now, before those that come later. `setTimeout`
 * would do the same after 4 ms; a token takes less. In the page as in the worker. A worker that knows of no message on its way
 * goes on at once: a hop through the channel takes as long as a fiftieth of a token of tg-tiny.
 */
const afterMessages = (): (f: () => void) => () => void => {
  const { port1, port2 } = new MessageChannel()
  const waiting: Array<() => void> = []
  let turned = 0
  port1.addEventListener("message", () => waiting.shift()!())
  port1.start()
  return (f) => {
    let wanted: (() => void) | undefined = f
    const run = () => wanted?.()
    const now = performance.now()
    if (mail.come === Atomics.load(mail.sent, 0) && now < turned + turnMillis) queueMicrotask(run)
    else {
      turned = now
      waiting.push(run)
      port2.postMessage(0)
    }
    return () => void (wanted = undefined)
  }
}

let made: Scheduler.Scheduler | undefined

/** One for all: its messages take no more than one channel. */
const scheduler = (): Scheduler.Scheduler => made ??= new Scheduler.MixedScheduler("async", afterMessages())

/** Fibers yield to the messages of their thread, and go on at once when there are none. */
export const layer: Layer.Layer<never> = Layer.sync(Scheduler.Scheduler, scheduler)

/** The same, for what is run from promises. */
export const context = (): Context.Context<never> => Context.make(Scheduler.Scheduler, scheduler())
