/** Programs over the same buffers, each compiled when it is first needed. */
import { Jit, type JitError, type Prepared } from "@tg/jit/Jit"
import type { Binding, DeviceError } from "@tg/runtime/Device"
import type { TensorProgram } from "@tg/tensor/Program"
import { Effect, Scope } from "effect"

/** Gives the program of a name, which `program` makes the first time. What is prepared belongs to the Scope of this. */
export const prepared = Effect.fnUntraced(function*(bound: ReadonlyMap<number, Binding>) {
  const jit = yield* Jit
  const scope = yield* Effect.scope
  const made = new Map<string, Prepared>()
  return Effect.fnUntraced(
    function*(name: string, program: () => TensorProgram): Effect.fn.Return<Prepared, JitError | DeviceError> {
      const known = made.get(name) ??
        (yield* Effect.suspend(() => jit.prepare(program().sink, bound)).pipe(Scope.provide(scope)))
      made.set(name, known)
      return known
    }
  )
})
