/** The most memory this process had, looked at often. */
import { Effect, type Scope } from "effect"

/** Largest values seen, in bytes. */
export interface Peaks {
  /** Used by JavaScript's own values. */
  readonly heapBytes: number
  /** Memory of array buffers and of native code that JavaScript values keep; WebAssembly's memories are among them. */
  readonly externalBytes: number
}

const intervalMillis = 20

/** Looks until the Scope closes. Asking looks once more. */
export const watch: Effect.Effect<Effect.Effect<Peaks>, never, Scope.Scope> = Effect.gen(function*() {
  let heapBytes = 0
  let externalBytes = 0
  const look = (): Peaks => {
    const { external, heapUsed } = process.memoryUsage()
    heapBytes = Math.max(heapBytes, heapUsed)
    externalBytes = Math.max(externalBytes, external)
    return { heapBytes, externalBytes }
  }
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      look()
      return setInterval(look, intervalMillis).unref()
    }),
    (timer) => Effect.sync(() => clearInterval(timer))
  )
  return Effect.sync(look)
})
