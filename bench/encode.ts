/**
 * What the host has to encode for a token, by `--bind-groups`. The launches, bindings and bind groups are those of a decode
 * step on an H200, which need not be there. With an adapter they are also timed: as many dispatches with the same bindings and
 * pipelines, of kernels that do nothing, in turns, as single steps and several in a submission, each with a read of its token. What counts
 * is the time of the calling thread until the token is here, in ten rounds, and what it allocates in the JavaScript heap.
 *
 *     node bench/encode.ts [--count] [glm-4.7-flash:q4_0 ..]
 *
 * `--count` times nothing.
 */
import { Checked } from "../packages/core-uop/src/Spec.ts"
import * as ActivationPolicy from "../packages/engine/src/ActivationPolicy.ts"
import { offsetOf } from "../packages/engine/src/Loader.ts"
import * as Packing from "../packages/engine/src/Packing.ts"
import * as StepProgram from "../packages/engine/src/StepProgram.ts"
import { Compiler } from "../packages/jit/src/Compiler.ts"
import { Jit, type Prepared } from "../packages/jit/src/Jit.ts"
import { Pipeline } from "../packages/jit/src/Pipeline.ts"
import type * as Shared from "../packages/jit/src/Shared.ts"
import {
  type Binding,
  bufferOf,
  Device,
  type DeviceBuffer,
  type Replay,
  type Span,
  together as submitted
} from "../packages/runtime/src/Device.ts"
import * as Node from "../packages/runtime-webgpu/src/Node.ts"
import { Effect, Fiber, Layer } from "effect"
import * as Compiled from "./support/compiled.ts"
import { idle } from "./support/idle.ts"

const context = 4096
/** Each tensor in a buffer of its own; those of a block in one, of which launches bind windows; which launches of a block bind as a whole. */
const forms = ["alone", "dispatch", "block"] as const
type Form = typeof forms[number]
/** Steps of a submission. */
const together = [1, 4, 8] as const
const given = process.argv.slice(2)
const isCounted = given.includes("--count")
const named = given.filter((word) => !word.startsWith("--"))
const shapes = named.length > 0 ? named : ["glm-4.7-flash:q4_0", "glm-4.7-flash:q4_k_m"]

/** The host's buffers of a decode step, with the weights packed or alone. No memory is behind them. */
const buffersOf = (
  model: Effect.Success<ReturnType<typeof Compiled.modelOf>>,
  form: Form,
  most: number
) => {
  const { config, weights } = model
  const first = StepProgram.ids.firstCache + config.layers
  const buffers = new Map<number, Binding>()
  for (let id = 0; id < first; id++) buffers.set(id, { bytes: most, label: `buffer ${id}` })
  const ids = new Map(weights.all.map(({ name }, i) => [name, first + i]))
  const sizes = weights.all.map(({ layout, name }) => ({ name, bytes: 4 * layout.words }))
  for (const { bytes, label, parts } of form === "alone" ? Packing.alone(sizes) : Packing.pack(sizes, most)) {
    const buffer: DeviceBuffer = { bytes, label }
    for (const { bytes: own, name, offset } of parts) {
      buffers.set(ids.get(name)!, own === bytes ? buffer : { buffer, offset, bytes: own })
    }
  }
  return buffers
}

/** The decode step of a shape, prepared for a device that is not there. */
const prepared = Effect.fn("bench.encode.prepared")(
  function*(shape: string, form: Form) {
    const model = yield* Compiled.modelOf(shape)
    const pipeline = yield* Compiled.pipelineFor(Compiled.targets[0])
    const { profile } = pipeline
    const activations = ActivationPolicy.activationsOn(profile)
    const { sink } = StepProgram.decodeProgram(model, { activations, cache: "f16", context })
    const device = Layer.mock(Device, {
      profile,
      allocatedBytes: () => 0,
      allocate: (bytes, label) => Effect.succeed({ bytes, label }),
      load: (program) => Effect.succeed({ program }),
      plan: () => Effect.succeed({ run: () => Effect.void })
    })
    const jit = Jit.layer.pipe(
      Layer.provide([device, Compiler.layer]),
      Layer.provide(Layer.succeed(Pipeline, pipeline))
    )
    const buffers = buffersOf(model, form, profile.maxBindingBytes)
    const groups: Shared.BindGroups = form === "block" ? form : "dispatch"
    return yield* Effect.flatMap(Jit, (own) => own.prepare(sink, buffers, { groups })).pipe(Effect.provide(jit))
  },
  Effect.provideService(Checked, false),
  Effect.scoped
)

/** Of each window of a buffer. */
const smallBytes = 4096

/** The same launches of kernels that do nothing, on small buffers of the device at hand. */
const idling = Effect.fnUntraced(function*({ dispatches }: Pick<Prepared, "dispatches">) {
  const device = yield* Device
  const programs = [...new Set(dispatches.map(({ executable }) => executable.program))]
  const executables = yield* Effect.forEach(programs, (program, i) => device.load(idle(program, i)))
  const buffers = [...new Set(dispatches.flatMap((dispatch) => dispatch.buffers.map(bufferOf)))]
  const windows = buffers.map((buffer) => [
    ...new Set(
      dispatches.flatMap((dispatch) =>
        dispatch.buffers.flatMap((own) => bufferOf(own) === buffer ? [offsetOf(own)] : [])
      )
    )
  ])
  const small = yield* Effect.forEach(
    buffers,
    ({ label }, i) => device.allocate(smallBytes * windows[i]!.length, label)
  )
  const windowOf = (binding: Binding): Binding => {
    const i = buffers.indexOf(bufferOf(binding))
    return { buffer: small[i]!, offset: smallBytes * windows[i]!.indexOf(offsetOf(binding)), bytes: smallBytes }
  }
  return yield* device.plan(dispatches.map(({ buffers: bound, executable }) => ({
    executable: executables[programs.indexOf(executable.program)]!,
    buffers: bound.map(windowOf)
  })))
})

const cpuMicros = (): number => {
  const { system, user } = process.threadCpuUsage()
  return system + user
}

const rounds = 10
/** Steps of a round. */
const steps = 32

/** What a round of a way took for a step: microseconds, and bytes. */
interface Round {
  readonly micros: number
  readonly bytes: number
}

/** A way to run a step: its plan, and how many of them at once. */
interface Way {
  readonly replay: Replay
  readonly count: number
}

/** A round of a way. */
const roundOf = Effect.fnUntraced(function*({ count, replay }: Way, token: Span) {
  const device = yield* Device
  const work = Array.from({ length: count }, (_, i) => [{ replay, vars: { startPos: i + 1 } }, token]).flat()
  let micros = 0
  let bytes = 0
  for (let n = 0; n < steps; n += count) {
    const heap = process.memoryUsage().heapUsed
    const before = cpuMicros()
    const reading = yield* Effect.forkChild(submitted(device, work), { startImmediately: true })
    micros += cpuMicros() - before
    // a collection meanwhile tells nothing of what is allocated
    bytes += Math.max(0, process.memoryUsage().heapUsed - heap)
    yield* Fiber.join(reading)
  }
  return { micros: micros / steps, bytes: bytes / steps }
})

/** Rounds of all ways, in turns: of each the least and the middle time of the calling thread, and what it allocates in the middle. */
const timed = Effect.fnUntraced(function*(ways: ReadonlyArray<Way>) {
  const device = yield* Device
  const token: Span = { buffer: yield* device.allocate(16, "token"), offset: 0, bytes: 4 }
  const found = ways.map((): Array<Round> => [])
  for (let round = 0; round < rounds; round++) {
    for (const [i, way] of ways.entries()) found[i]!.push(yield* roundOf(way, token))
  }
  return found.map((own) => {
    const sorted = own.map(({ micros }) => micros).toSorted((a, b) => a - b)
    const bytes = own.map((each) => each.bytes).toSorted((a, b) => a - b)
    return { least: sorted[0]!, middle: sorted[rounds >> 1]!, bytes: bytes[rounds >> 1]! }
  })
})

/** How often a bind group is set: again where a number of it would need another buffer. */
const setsOf = ({ dispatches }: Pick<Prepared, "dispatches">): number => {
  let sets = 0
  let held = new Map<number, DeviceBuffer>()
  for (const { buffers, executable: { program } } of dispatches) {
    const own = program.bindings.map(({ at }, i) => [at ?? i, bufferOf(buffers[i]!)] as const)
    if (sets === 0 || program.group === undefined || own.some(([at, buffer]) => (held.get(at) ?? buffer) !== buffer)) {
      sets++
      held = new Map()
    }
    for (const [at, buffer] of own) held.set(at, buffer)
  }
  return sets
}

/** What a plan has the host do. */
const counts = (step: Pick<Prepared, "dispatches" | "plan">): string => {
  const { dispatches, plan } = step
  const buffers = dispatches.reduce(
    (sum, { executable: { program } }) => sum + (program.group ?? program.bindings).length,
    0
  )
  return `${plan.launches.length} launches of ${plan.programs.length} programs, ${setsOf(step)} bind groups set, of ${
    (buffers / dispatches.length).toFixed(1)
  } buffers`
}

const main = Effect.gen(function*() {
  for (const shape of shapes) {
    const prepareds = yield* Effect.forEach(forms, (form) => prepared(shape, form))
    for (const [i, form] of forms.entries()) console.log(`${shape}, ${form}: ${counts(prepareds[i]!)}`)
    if (isCounted) continue
    const timing = Effect.gen(function*() {
      const plans = yield* Effect.forEach(prepareds, idling)
      return yield* timed(plans.flatMap((replay) => together.map((count) => ({ replay, count }))))
    }).pipe(Effect.scoped, Effect.provide(Node.layer({ allowSoftware: true })), Effect.result)
    const found = yield* timing
    if (found._tag === "Failure") {
      console.log(`not timed: ${String(found.failure)}`)
      continue
    }
    const [before] = found.success
    for (const [i, { bytes, least, middle }] of found.success.entries()) {
      const form = forms[Math.floor(i / together.length)]!
      console.log(
        `${shape}, ${form}, ${together[i % together.length]} together: ${least.toFixed(0)} us at least, ${
          middle.toFixed(0)
        } in the middle, ${(least / before!.least).toFixed(2)} and ${
          (middle / before!.middle).toFixed(2)
        } of the first; ${bytes.toFixed(0)} bytes of heap`
      )
    }
  }
})

await Effect.runPromise(main)
