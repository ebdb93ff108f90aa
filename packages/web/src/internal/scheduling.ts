/** How fibers of the worker take turns. */
import { Layer } from "effect"
import * as Scheduler from "effect/Scheduler"

/**
 * Runs a function when the messages that have come are taken: after those that wait now, before those that come later. `setTimeout`
 * would do the same after 4 ms; a token takes less.
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

/** Fibers yield to the worker's messages, and go on at once when there are none. */
export const layer: Layer.Layer<never> = Layer.sync(
  Scheduler.Scheduler,
  () => new Scheduler.MixedScheduler("async", afterMessages())
)
