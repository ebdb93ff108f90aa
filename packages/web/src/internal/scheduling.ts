/** How fibers take turns, of the worker and of the page that talks to it. */
import { Context, Layer } from "effect"
import * as Scheduler from "effect/Scheduler"

/**
 * Runs a function when the messages that have come are taken: after those that wait now, before those that come later. `setTimeout`
 * would do the same after 4 ms; a token takes less. In the page as in the worker: the next token waits until the page has said that it has this one.
 */
const afterMessages = (): (f: () => void) => () => void => {
  const { port1, port2 } = new MessageChannel()
  const waiting = new Map<number, () => void>()
  let last = 0
  port1.addEventListener("message", ({ data }: MessageEvent<number>) => {
    const f = waiting.get(data)
    waiting.delete(data)
    f?.()
  })
  port1.start()
  return (f) => {
    const id = ++last
    waiting.set(id, f)
    port2.postMessage(id)
    return () => void waiting.delete(id)
  }
}

let made: Scheduler.Scheduler | undefined

/** One for all: its messages take no more than one channel. */
const scheduler = (): Scheduler.Scheduler => made ??= new Scheduler.MixedScheduler("async", afterMessages())

/** Fibers yield to the messages of their thread, and go on at once when there are none. */
export const layer: Layer.Layer<never> = Layer.sync(Scheduler.Scheduler, scheduler)

/** The same, for what is run from promises. */
export const context = (): Context.Context<never> => Context.make(Scheduler.Scheduler, scheduler())
