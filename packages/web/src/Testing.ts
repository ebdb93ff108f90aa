/** The self-test of a device, in the worker. Fetched when it is asked for. */
import { Pipeline } from "@tg/jit/Pipeline"
import * as SelfTest from "@tg/self-test/SelfTest"
import * as Vectors from "@tg/self-test/Vectors"
import * as Verdict from "@tg/self-test/Verdict"
import { Context, Effect, Layer, Queue, Stream } from "effect"
import * as Devices from "./Devices.ts"
import { fromTagged, type ModelError } from "./ModelError.ts"
import type { OpenOptions, Tested, Testing } from "./Protocol.ts"
import { Compiling } from "./Replaying.ts"

/** Reads a file beside an address. */
const fetched = (base: string) => async (file: string): Promise<Uint8Array> => {
  const response = await fetch(new URL(file, base))
  if (!response.ok) throw new Error(`the server answers ${response.status}`)
  return new Uint8Array(await response.arrayBuffer())
}

/** The device that these options mean, in words: what `auto` takes is decided first. */
export const chosen = (options: typeof OpenOptions.Type) =>
  Layer.build(Devices.layer(options.device ?? "auto", { threads: options.threads, avoid: [] })).pipe(
    Effect.map(Context.get(Devices.Chosen)),
    Effect.scoped
  )

/** The stages of the compiler: operations are tested one by one. */
const compiling = Layer.effect(Pipeline, Effect.flatMap(Compiling, Effect.map(({ pipeline }) => pipeline)))

/** Tests the device of these options; `address` is that of the vectors' folder. */
export const run = (
  options: typeof OpenOptions.Type,
  address: string,
  families?: ReadonlyArray<Verdict.Family>
): Stream.Stream<typeof Testing.Type | typeof Tested.Type, ModelError> =>
  Stream.callback((queue) =>
    Effect.gen(function*() {
      const vectors = yield* Vectors.read(fetched(address))
      const { identity, kind, name } = yield* chosen(options)
      const verdict = yield* SelfTest.run(
        {
          device: name,
          identity,
          layer: (avoid) => compiling.pipe(Layer.provideMerge(Devices.layer(kind, { threads: options.threads, avoid })))
        },
        vectors,
        {
          cases: SelfTest.cases(vectors, families),
          onProgress: (progress) => Queue.offer(queue, { _tag: "Testing", ...progress })
        }
      )
      // of a part of the test nothing follows
      const isKept = families === undefined && (yield* Devices.verdicts.pipe(
        Effect.flatMap((store) => Verdict.keep(store, verdict)),
        Effect.match({ onFailure: () => false, onSuccess: (problem) => problem === undefined })
      ))
      yield* Queue.offer(queue, { _tag: "Tested", verdict, isKept })
      yield* Queue.end(queue)
    }).pipe(Effect.mapError(fromTagged))
  )

/** What the last self-test of this device found. */
export const last = (options: typeof OpenOptions.Type) =>
  Effect.gen(function*() {
    const { identity } = yield* chosen(options)
    const store = yield* Effect.orElseSucceed(Devices.verdicts, () => undefined)
    return store === undefined ? undefined : yield* Verdict.find(store, identity)
  }).pipe(Effect.mapError(fromTagged))
