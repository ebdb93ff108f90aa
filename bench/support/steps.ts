/** What steps of a model take on the GPU at hand: compiled by the usual stages, and as they are written. */
import { closeSync, openSync, readSync, statSync } from "node:fs"
import { type DeviceProfile, Profile } from "../../packages/core-uop/src/DeviceProfile.ts"
import { Checked } from "../../packages/core-uop/src/Spec.ts"
import * as WgslRenderer from "../../packages/codegen-wgsl/src/WgslRenderer.ts"
import * as Loader from "../../packages/engine/src/Loader.ts"
import * as Loading from "../../packages/engine/src/Loading.ts"
import * as ModelFile from "../../packages/engine/src/ModelFile.ts"
import * as Session from "../../packages/engine/src/Session.ts"
import type { ByteSource } from "../../packages/gguf/src/ByteSource.ts"
import { Compiler } from "../../packages/jit/src/Compiler.ts"
import { Jit, type Prepared } from "../../packages/jit/src/Jit.ts"
import { Pipeline } from "../../packages/jit/src/Pipeline.ts"
import * as Profiler from "../../packages/jit/src/Profiler.ts"
import { known } from "../../packages/models/src/Models.ts"
import * as Devices from "../../packages/node/src/Devices.ts"
import { Device } from "../../packages/runtime/src/Device.ts"
import { plannedAs } from "../../packages/runtime/src/Limited.ts"
import * as Node from "../../packages/runtime-webgpu/src/Node.ts"
import * as WebGpuInfo from "../../packages/runtime-webgpu/src/WebGpuInfo.ts"
import { shipped } from "../../packages/tuner/src/Tuned.ts"
import { Families } from "../../packages/model-parts/src/Family.ts"
import { Effect, Layer, type Scope } from "effect"

/** Tokens that are processed behind others. */
export interface Place {
  readonly tokens: number
  readonly behind: number
}

/** The room that a conversation of so many tokens is given. */
export const contextFor = ({ behind, tokens }: Place): number =>
  2 ** Math.ceil(Math.log2(Math.max(1024, behind + tokens)))

/** What all steps of some tokens take together. */
export interface Taken {
  readonly launches: number
  readonly micros: number
}

/** One step of a place, and how many times what it takes is counted. */
interface Step {
  readonly prepared: Prepared
  readonly vars: Readonly<Record<string, number>>
  readonly weight: number
}

const opened = (name: string): Effect.Effect<ByteSource["Service"], never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(Effect.sync(() => openSync(name, "r")), (file) => Effect.sync(() => closeSync(file))),
    (file) => ({
      name,
      size: statSync(name).size,
      read: (offset, length) =>
        Effect.sync(() => {
          const bytes = new Uint8Array(length)
          for (let filled = 0; filled < length;) {
            const count = readSync(file, bytes, filled, Math.min(length - filled, 2 ** 30), offset + filled)
            if (count === 0) throw new Error(`${name} ends before byte ${offset + length}`)
            filled += count
          }
          return bytes
        })
    })
  )

const profiled = Layer.effect(Profile, Effect.map(Device, ({ profile }) => profile))

/** The compiler with these stages in place of the usual ones. */
const compilerWith = (stages: Layer.Layer<never>) =>
  Jit.layer.pipe(
    Layer.provide(Compiler.layer),
    Layer.provide(Layer.fresh(
      Devices.pipeline(shipped, WebGpuInfo.layerOf(WgslRenderer.layer)).pipe(
        Layer.provide(stages),
        Layer.provide(profiled)
      )
    ))
  )

/** The steps of a place: the first and the last of several stand for those between, as the time is linear in the position. */
const stepsOf = Effect.fnUntraced(function*(session: Session.Session, { behind, tokens }: Place) {
  // each program runs once on tokens that choose different experts
  const begin = (count: number) =>
    session.advance(Array.from({ length: count }, (_, i) => (7919 * i + 13) % session.vocabulary))
  yield* session.reset
  if (tokens === 1) {
    yield* begin(1)
    return [{ prepared: yield* session.decodeStep(behind), vars: { T: 1, startPos: behind }, weight: 1 }]
  }
  const first = yield* session.promptStep(behind, tokens)
  yield* begin(first.length)
  const count = Math.ceil(tokens / first.length)
  if (count === 1) return [{ ...first, weight: 1 }]
  // all pieces of a prompt take one program: asked for as many tokens again, the session says the same one
  const last = yield* session.promptStep(behind + (count - 1) * first.length, tokens)
  return [{ ...first, weight: count / 2 }, { ...last, weight: count / 2 }]
})

/** From here on the host's clock of one run is within a percent of the device's, and the first of several steps takes as long as the last. */
const longMicros = 500_000
/** Samples of a step by the device's clock, whose median counts. */
const samples = (micros: number): number => micros > 50_000 ? 3 : 9

const timed = Effect.fnUntraced(function*(steps: ReadonlyArray<Step>) {
  const all = steps.reduce((sum, { prepared, weight }) => sum + weight * prepared.dispatches.length, 0)
  let [micros, weights] = [0, 0]
  for (const { prepared, vars, weight } of steps) {
    const once = yield* Profiler.backToBack(prepared, vars, 1)
    const isLong = once.micros > longMicros
    const clock = isLong ? undefined : yield* Profiler.onDevice(prepared, vars, samples(once.micros))
    micros += weight * (clock ?? once.micros)
    weights += weight
    if (isLong) break
  }
  const count = steps.reduce((sum, { weight }) => sum + weight, 0)
  return { launches: all, micros: micros * count / weights }
})

/** Whose steps are measured: a file, at these places, on a device that is taken for a profile. */
export interface Job {
  readonly file: string
  readonly places: ReadonlyArray<Place>
  readonly profile: DeviceProfile
}

/** Measures steps of a file without the e-graph and with it. Those of one room for tokens are compiled first, then timed in turns. */
export const measure = (
  { file, places, profile }: Job,
  tell: (place: Place, taken: { readonly off: Taken; readonly on: Taken }) => void
) =>
  Effect.gen(function*() {
    const source = yield* opened(file)
    const model = yield* ModelFile.open(source).pipe(Effect.provideService(Families, known))
    const wanted = Loading.wantedOf(model)
    const weights = yield* Loader.allocate(wanted)
    yield* Loader.fill(source, wanted, weights, {}).pipe(Effect.provide(compilerWith(Layer.empty)))
    for (const [context, near] of Map.groupBy(places, contextFor)) {
      yield* Effect.gen(function*() {
        const open = Session.make(model, weights, { context })
        const off = yield* open.pipe(Effect.provide(yield* Layer.build(compilerWith(Pipeline.asWritten))))
        const on = yield* open.pipe(Effect.provide(yield* Layer.build(compilerWith(Layer.empty))))
        const all = yield* Effect.forEach(near, (place) =>
          Effect.all({ place: Effect.succeed(place), off: stepsOf(off, place), on: stepsOf(on, place) }))
        yield* Profiler.warm(all[0]!.on[0]!.prepared, all[0]!.on[0]!.vars)
        for (const { off, on, place } of all) {
          tell(place, { off: yield* timed(off), on: yield* timed(on) })
        }
      }).pipe(Effect.scoped)
    }
  }).pipe(
    Effect.scoped,
    Effect.provideService(Checked, false),
    Effect.provide(plannedAs(profile)(Node.layer({ allowSoftware: true })))
  )
