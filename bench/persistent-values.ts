/**
 * Which persistent launch of a model's steps computes something else than its instructions say, on the GPU at hand, and where first:
 *
 *     node bench/persistent-values.ts c06.gguf 201,361,158,14 [REPEATS [MODES]]
 *
 * Tokens go through steps of up to 16, without persistent launches and in each of the modes (`auto,on`; profile h200). Of each persistent launch
 * it says whether a barrier gave up, and which; whether what it reads has NaN before it begins; the first word that differs from what the evaluator
 * computes from the same memory, with the phase that writes it; and, run again from the same memory as often as REPEATS says, the first
 * word that differs from run to run. Then it says how far the logits of each step are from those of separate launches. `EVALUATOR=1` has the evaluator
 * for a GPU.
 */
import { openAsBlob } from "node:fs"
import * as Wgsl from "../packages/codegen-wgsl/src/Wgsl.ts"
import * as WgslRenderer from "../packages/codegen-wgsl/src/WgslRenderer.ts"
import { h200, Profile } from "../packages/core-uop/src/DeviceProfile.ts"
import { evaluateLinear } from "../packages/core-uop/src/EvaluateLinear.ts"
import { meetingWords } from "../packages/core-uop/src/Phases.ts"
import { type Program, Renderer } from "../packages/core-uop/src/Program.ts"
import { Checked } from "../packages/core-uop/src/Spec.ts"
import { isCoherent, slotOf, type UOp } from "../packages/core-uop/src/UOp.ts"
import * as Loader from "../packages/engine/src/Loader.ts"
import * as Loading from "../packages/engine/src/Loading.ts"
import * as ModelFile from "../packages/engine/src/ModelFile.ts"
import * as Session from "../packages/engine/src/Session.ts"
import { fromBytes } from "../packages/gguf/src/ByteSource.ts"
import * as Gguf from "../packages/gguf/src/Gguf.ts"
import { Compiler } from "../packages/jit/src/Compiler.ts"
import { Jit, settled } from "../packages/jit/src/Jit.ts"
import * as Persistent from "../packages/jit/src/Persistent.ts"
import { Pipeline } from "../packages/jit/src/Pipeline.ts"
import { known } from "../packages/models/src/Models.ts"
import { type Binding, bufferOf, Device, type DeviceShape, type Dispatch } from "../packages/runtime/src/Device.ts"
import { plannedAs } from "../packages/runtime/src/Limited.ts"
import * as Reference from "../packages/runtime/src/Reference.ts"
import * as Node from "../packages/runtime-webgpu/src/Node.ts"
import * as WebGpuInfo from "../packages/runtime-webgpu/src/WebGpuInfo.ts"
import { Effect, Layer, Result } from "effect"

const [, , path = "", ids = "", repeats = "20", modes = "auto,on"] = process.argv
const bytes = new Uint8Array(await (await openAsBlob(path)).arrayBuffer())
const file = Result.getOrThrow(
  Result.flatMap(Gguf.fromBytes(path, bytes), (gguf) => ModelFile.fromGguf(gguf, known))
)
const tokens = ids.split(",").map(Number)

/** The memory of a launch, binding by binding, as words. */
type Memory = ReadonlyArray<Uint32Array>

const wordsOf = ({ buffer, byteLength, byteOffset }: Uint8Array): Uint32Array =>
  new Uint32Array(buffer, byteOffset, byteLength / 4)

/** Reads all that a launch binds, and writes what it writes. */
const memoryOf = (device: DeviceShape, { buffers, executable }: Dispatch) => {
  const offsetOf = (place: Binding): number => "buffer" in place ? place.offset : 0
  return {
    read: Effect.forEach(
      buffers,
      (place) => Effect.map(device.read(bufferOf(place), offsetOf(place), place.bytes), wordsOf)
    ),
    restore: (all: Memory) =>
      Effect.forEach(
        buffers,
        (place, i) =>
          executable.program.bindings[i]!.access === "write"
            ? device.write(bufferOf(place), new Uint8Array(all[i]!.slice().buffer), offsetOf(place))
            : Effect.void,
        { discard: true }
      )
  }
}

/** The instructions of each program, by its code. */
const linears = new Map<unknown, UOp>()

/** What the instructions up to the end of a phase (the last one, if it is not said) leave of this memory. */
const evaluated = (
  { bindings, code }: Program,
  { before, phase, vars }: {
    readonly before: Memory
    readonly vars: Readonly<Record<string, number>>
    readonly phase?: number
  }
): Memory => {
  const linear = linears.get(code)!
  const ends = linear.src.flatMap(({ op }, place) => op === "GRID_BARRIER" ? [place] : [])
  const after = before.map((words) => words.slice())
  const args = new Map(bindings.map(({ slot }, i) => [slot, after[i]!]))
  const end = phase === undefined ? undefined : ends[phase]
  evaluateLinear(end === undefined ? linear : linear.with(linear.src.slice(0, end)), args, vars, { checkRaces: false })
  return after
}

const floatOf = (word: number): number => new Float32Array(Uint32Array.of(word).buffer)[0]!

/** Whether two words are the same, or floats that differ by no more than the order of a sum. */
const isNear = (a: number, b: number): boolean => {
  const [x, y] = [floatOf(a), floatOf(b)]
  return a === b || Math.abs(x - y) <= 2e-3 * (1e-2 + Math.max(Math.abs(x), Math.abs(y)))
}

/** The first word of what is written where two states of memory differ, and how many there are. */
const difference = (program: Program, [want, found]: readonly [Memory, Memory], isSame: typeof isNear) => {
  const meeting = program.bindings.length - 1
  const all = want.flatMap((words, binding) =>
    program.bindings[binding]!.access === "write" && binding !== meeting
      ? [...words.keys()].flatMap((at) => isSame(words[at]!, found[binding]![at]!) ? [] : [{ binding, at }])
      : []
  )
  const [first] = all
  return first === undefined ? undefined : { ...first, count: all.length }
}

const printed = (word: number): string => `${floatOf(word)} (0x${word.toString(16)})`

/** Where a launch left other values than its instructions do. */
const againstEvaluator = (
  program: Program,
  { after, before, vars }: {
    readonly before: Memory
    readonly after: Memory
    readonly vars: Readonly<Record<string, number>>
  }
): string => {
  const want = evaluated(program, { before, vars })
  const first = difference(program, [want, after], isNear)
  if (first === undefined) return "as on the evaluator"
  const { at, binding, count } = first
  const phases = linears.get(program.code)!.src.filter(({ op }) => op === "GRID_BARRIER").length + 1
  const wrote = Array.from({ length: phases }, (_, phase) => phase).find((phase) =>
    evaluated(program, { before, vars, phase })[binding]![at] === want[binding]![at]
  )
  return `${count} words DIFFER from the evaluator's; the first is word ${at} of slot ${
    program.bindings[binding]!.slot
  }, written by phase ${wrote} of ${phases}: expected ${printed(want[binding]![at]!)}, found ${
    printed(after[binding]![at]!)
  }, ${printed(before[binding]![at]!)} before the launch`
}

/** Arguments of floats that have NaN before a launch begins: not its own doing. */
const alreadyNaN = ({ bindings, code }: Program, before: Memory): ReadonlyArray<string> => {
  const floats = new Set(
    linears.get(code)!.src.flatMap((node) =>
      node.op === "PARAM" && node.dtype.scalar === "f32" && !isCoherent(node) ? [slotOf(node)] : []
    )
  )
  return bindings.flatMap(({ slot }, i) => {
    const count = floats.has(slot) ? before[i]!.reduce((n, word) => n + (Number.isNaN(floatOf(word)) ? 1 : 0), 0) : 0
    return count === 0 ? [] : [`${count} NaN in slot ${slot} BEFORE it`]
  })
}

/** Whether a barrier gave up, as the words of the launch's last binding say. */
const gaveUp = ({ code }: Program, after: Memory): ReadonlyArray<string> => {
  const words = after.at(-1)!
  const wanted = words[meetingWords.gaveUp]!
  if (wanted === 0) return []
  const barrier = linears.get(code)!.src.find((node) => node.is("GRID_BARRIER"))
  const workgroups = barrier?.is("GRID_BARRIER") === true ? barrier.arg.workgroups : 1
  return [
    `barrier ${wanted / workgroups}, behind phase ${wanted / workgroups - 1}, GAVE UP: ${
      words[meetingWords.came]
    } of ${wanted} arrivals`
  ]
}

/** Runs a persistent launch, and says what is to be said of it. */
const watch = (
  device: DeviceShape,
  dispatch: Dispatch,
  run: Effect.Effect<void, unknown>,
  vars: Record<string, number>
) =>
  Effect.gen(function*() {
    const { program } = dispatch.executable
    const { read, restore } = memoryOf(device, dispatch)
    const before = yield* read
    yield* run
    const after = yield* read
    const again: Array<string> = []
    for (let n = 0; n < Number(repeats); n++) {
      yield* restore(before)
      yield* run
      const other = yield* read
      const first = difference(program, [after, other], (a, b) => a === b)
      if (first === undefined) continue
      const { at, binding, count } = first
      again.push(
        `${count} words, the first is word ${at} of slot ${program.bindings[binding]!.slot}: ${
          printed(after[binding]![at]!)
        } and ${printed(other[binding]![at]!)}`
      )
    }
    const lines = [
      ...alreadyNaN(program, before),
      ...gaveUp(program, after),
      againstEvaluator(program, { before, after, vars }),
      `${again.length} of ${repeats} runs differ from the first${again.length === 0 ? "" : `: ${again[0]}`}`
    ]
    console.log(`${program.name} ${JSON.stringify(vars)}\n  ${lines.join("\n  ")}`)
  })

/** The device, whose persistent launches are watched. */
const watched = (device: DeviceShape): DeviceShape => ({
  ...device,
  submit: undefined,
  plan: (dispatches) =>
    Effect.map(Effect.forEach(dispatches, (dispatch) => device.plan([dispatch])), (replays) => ({
      run: (vars) =>
        Effect.forEach(dispatches, (dispatch, i) => {
          const run = replays[i]!.run(vars)
          const isPersistent = linears.get(dispatch.executable.program.code)?.src.some(({ op }) =>
            op === "GRID_BARRIER"
          )
          return isPersistent === true ? Effect.orDie(watch(device, dispatch, run, { ...vars })) : run
        }, { discard: true })
    }))
})

/** The renderer, whose programs are remembered with their instructions. */
const remembering = Layer.effect(
  Renderer,
  Effect.map(Renderer, (renderer) => ({
    ...renderer,
    render: (name: string, linear: UOp) =>
      Effect.tap(renderer.render(name, linear), ({ code }) => Effect.sync(() => linears.set(code, linear)))
  }))
)

/** The logits of each step. */
const logits = <R>(mode: Persistent.Mode, rendered: Layer.Layer<Renderer, never, R>) =>
  Effect.gen(function*() {
    const wanted = Loading.wantedOf(file)
    const weights = yield* Loader.allocate(wanted)
    yield* Loader.fill(fromBytes(path, bytes), wanted, weights, {})
    const session = yield* Session.make(file, weights, { activations: "float", cache: "f32" })
    const rows: Array<Float32Array> = []
    for (let at = 0; at < tokens.length; at += 16) {
      const step = yield* Effect.result(session.append(tokens.slice(at, at + 16)))
      if (Result.isFailure(step)) console.log(`${mode}, tokens from ${at}: ${step.failure.message}`)
      rows.push(Result.isSuccess(step) ? step.success : new Float32Array(0))
    }
    const read = yield* Effect.result(settled({ device: yield* Device, jit: yield* Jit }, []))
    if (Result.isFailure(read)) console.log(`${mode}: ${read.failure.message}`)
    return rows
  }).pipe(
    Effect.scoped,
    Effect.provide(
      Jit.layer.pipe(
        Layer.provide(Compiler.layer),
        Layer.provide(Layer.fresh(Pipeline.layer)),
        Layer.provide(Layer.effect(Profile, Effect.map(Device, ({ profile }) => profile))),
        Layer.provide(remembering),
        Layer.provide(rendered),
        Layer.provide(Layer.succeed(Persistent.Persistent, { ...Persistent.off, mode }))
      )
    )
  )

/** How far logits are apart, at the most; NaN where one of them is. */
const apart = (want: Float32Array, found: Float32Array): number =>
  want.reduce((most, value, at) => {
    const own = Math.abs(value - (found[at] ?? NaN))
    return Number.isNaN(own) || Number.isNaN(most) ? NaN : Math.max(most, own)
  }, 0)

/** Runs the steps in each mode. */
const compared = Effect.fn("compared")(function*<R>(rendered: Layer.Layer<Renderer, never, R>) {
  const device = yield* Device
  const want = yield* logits("off", rendered)
  for (const mode of modes.split(",")) {
    if (mode !== "auto" && mode !== "on") return console.log(`${mode}: modes are auto and on`)
    const found = yield* logits(mode, rendered).pipe(Effect.provideService(Device, watched(device)))
    want.forEach((rows, i) =>
      console.log(`${mode}, tokens from ${16 * i}: the logits differ by at most ${apart(rows, found[i]!)}`)
    )
  }
}, Effect.provideService(Checked, false))

const caps = Wgsl.caps({ subgroupSize: 32, halfSubnormals: true, packedDot: true })

await (process.env["EVALUATOR"] === "1"
  ? compared(Reference.renderer(caps)).pipe(Effect.provideService(Device, { ...Reference.make(), profile: h200 }))
  : compared(WebGpuInfo.layerOf(WgslRenderer.layer)).pipe(
    Effect.provide(plannedAs(h200)(Node.layer({ allowSoftware: true })))
  )).pipe(Effect.runPromise)
