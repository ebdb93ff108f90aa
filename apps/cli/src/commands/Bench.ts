/** `tg bench`: how fast a model reads a prompt and writes text, and what it takes. */
import * as Drafter from "@tg/engine/Drafter"
import { Engine } from "@tg/engine/Engine"
import * as Sampler from "@tg/engine/Sampler"
import { ContextFull, type Session } from "@tg/engine/Session"
import type * as Speculation from "@tg/engine/Speculation"
import * as Profiler from "@tg/jit/Profiler"
import { Device } from "@tg/runtime/Device"
import { Clock, Duration, Effect, Option, Result, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import * as BatchedPeer from "../BatchedPeer.ts"
import { Chosen, cores } from "../Devices.ts"
import * as Drafts from "../Drafts.ts"
import * as Flags from "../Flags.ts"
import * as ForcedDrafts from "../ForcedDrafts.ts"
import * as HostProfile from "../HostProfile.ts"
import {
  type Asked,
  type Measured,
  neededTokens,
  parseDepths,
  round,
  type Spread,
  spread,
  tokenIds
} from "../Measurement.ts"
import * as Models from "../Models.ts"
import * as Names from "../Names.ts"
import * as Output from "../Output.ts"
import * as ParallelBench from "../ParallelBench.ts"
import * as Peaks from "../Peaks.ts"
import * as Peer from "../Peer.ts"
import { UsageError } from "../Report.ts"
import * as StepSizes from "../StepSizes.ts"
import * as Words from "../Words.ts"

const Positive = Schema.Int.check(Schema.isGreaterThan(0))

const flags = {
  model: Flags.model,
  prompt: Flag.Int("prompt").pipe(
    Flag.withAlias("p"),
    Flag.withSchema(Positive),
    Flag.withDescription("Tokens of a prompt (default: 512)"),
    Flag.withDefault(512)
  ),
  generate: Flag.Int("generate").pipe(
    Flag.withAlias("n"),
    Flag.withSchema(Positive),
    Flag.withDescription("Tokens to generate (default: 128)"),
    Flag.withDefault(128)
  ),
  depths: Flag.String("depth").pipe(
    Flag.withAlias("d"),
    Flag.withMetavar("0,4096"),
    Flag.withDescription("Tokens that are in the cache already, with commas between (default: 0)"),
    Flag.withDefault("0")
  ),
  repeat: Flag.Int("repeat").pipe(
    Flag.withAlias("r"),
    Flag.withSchema(Positive),
    Flag.withDescription("How often each is measured, after one run to warm up (default: 3)"),
    Flag.withDefault(3)
  ),
  ...Models.runFlags,
  ...Drafts.flags,
  accept: Flag.Finite("accept").pipe(
    Flag.withMetavar("0.8"),
    Flag.withDescription("With drafts: measure what they gain if this part of them is right"),
    Flag.optional
  ),
  parallel: Flag.String("parallel").pipe(
    Flag.withMetavar("1,2,4,8"),
    Flag.withDescription("Measure so many conversations in the same steps instead: of all together, and of each"),
    Flag.optional
  ),
  steps: Flag.String("steps").pipe(
    Flag.withMetavar("1,2,4,8"),
    Flag.withDescription(
      "Measure steps that read so many tokens instead: of each its time, and times that of one token"
    ),
    Flag.optional
  ),
  peer: Flag.Literals("peer", Peer.names).pipe(
    Flag.withDescription(
      "Measure this program too, on the CPU; it is installed into the user's cache when first used. With --parallel: " +
        "llama-batched-bench of PATH, on the GPU if that is our device"
    ),
    Flag.optional
  ),
  peerProgram: Flag.File("peer-program", { mustExist: true }).pipe(
    Flag.withDescription("Where llama-batched-bench is, for --parallel with --peer"),
    Flag.optional
  ),
  host: Flag.Boolean("host").pipe(
    Flag.withDescription("Profile the host too: what it calls for a token, and how long that takes (WebGPU)"),
    Flag.withDefault(false)
  ),
  json: Flags.json
} as const

type Given = Command.Command.Config.Infer<typeof flags>

/** Measures a model on a device. */
export const command = Command.make(
  "bench",
  flags,
  Effect.fn("cli.bench")(function*(given) {
    if (Option.isSome(given.peerProgram) && (Option.isNone(given.peer) || Option.isNone(given.parallel))) {
      return yield* new UsageError({
        message: "--peer-program says where llama-batched-bench is: give --parallel 1,2,4 and --peer llama.cpp with it"
      })
    }
    if (Option.isSome(given.parallel)) return yield* together(given, given.parallel.value)
    const depths = parseDepths(given.depths)
    if (depths instanceof UsageError) return yield* depths
    if (Option.isSome(given.steps)) return yield* stepSizes({ ...given, depths }, given.steps.value)
    const peaks = yield* Peaks.watch
    const context = yield* contextFor(given.model, given.context, neededTokens({ ...given, depths }))
    const started = yield* Clock.currentTimeMillis
    const [duration, report] = yield* Effect.timed(
      Models.withModel(
        { ...given, context: Option.some(context) },
        Models.forTokens,
        run({ ...given, depths, started })
      )
    )
    const { externalBytes, heapBytes } = yield* peaks
    const all = { ...report, peakHeapBytes: heapBytes, peakExternalBytes: externalBytes }
    if (!given.json) yield* Output.print(asText(all))
    if (Option.isNone(given.peer)) {
      if (given.json) yield* Output.printJson(all)
    } else yield* compare(all, peerReport({ ...given, depths, context, ownMillis: Duration.toMillis(duration) }), given)
    yield* Output.note(`measured in ${Duration.toSeconds(duration).toFixed(1)} s`)
  }, Effect.scoped)
).pipe(Command.withDescription("Measure how fast a model reads and writes on this machine, and the memory it takes"))

/** `--parallel`: the speed of several conversations. */
const together = Effect.fnUntraced(function*(given: Given, text: string) {
  const counts = ParallelBench.parseCounts(text)
  if (counts instanceof UsageError) return yield* counts
  const { generate, prompt, repeat } = given
  const accept = yield* Effect.fromResult(ForcedDrafts.acceptTogether(given))
  const context = yield* contextFor(given.model, given.context, prompt + generate + (accept === undefined ? 1 : 24))
  const own = yield* Models.withSteps(
    { ...given, context: Option.some(context) },
    { parallel: counts.at(-1)!, prepare: Models.forTokens.prepare },
    ParallelBench.run({ accept, counts, prompt, generate, repeat })
  )
  const threads = Option.getOrElse(given.threads, cores)
  // behind our own measurement, so that neither disturbs the other; whatever becomes of it, ours is told
  const peer = Option.isNone(given.peer) ? undefined : yield* Effect.result(BatchedPeer.measure({
    program: Option.getOrUndefined(given.peerProgram),
    model: yield* Names.resolve(given.model),
    on: own.device === "wasm" || own.device === "reference" ? { threads } : "gpu",
    counts,
    prompt,
    generate
  }))
  const all = peer !== undefined && Result.isSuccess(peer) ? { ...own, peer: peer.success } : own
  if (given.json) yield* Output.printJson(all)
  else yield* Output.print(ParallelBench.asText(all))
  if (peer !== undefined && Result.isFailure(peer)) return yield* peer.failure
})

/** `--steps`: the time of steps of several tokens. */
const stepSizes = Effect.fnUntraced(
  function*(given: Omit<Given, "depths"> & { readonly depths: ReadonlyArray<number> }, text: string) {
    const sizes = StepSizes.parseSizes(text)
    if (sizes instanceof UsageError) return yield* sizes
    const { depths, repeat } = given
    const context = yield* contextFor(given.model, given.context, Math.max(...depths) + sizes.at(-1)!)
    const report = yield* Models.withModel(
      { ...given, context: Option.some(context) },
      Models.forTokens,
      StepSizes.run({ depths, repeat, sizes })
    )
    yield* given.json ? Output.printJson(report) : Output.print(StepSizes.asText(report))
  }
)

/** The context to measure with: what was asked, or the usual one, longer if the depths need it. Refused before loading. */
const contextFor = Effect.fn("cli.bench.context")(
  function*(model: string, asked: Option.Option<number>, needed: number) {
    const { config } = (yield* Models.open(model)).file
    const modelLimit = config.contextLength
    const limit = Math.min(modelLimit, Option.getOrElse(asked, () => Math.max(4096, needed)))
    if (needed > limit) return yield* new ContextFull({ asked: needed, limit, modelLimit })
    return Option.getOrElse(asked, () => limit)
  },
  Effect.scoped
)

/** Measures a peer behind our own measurement, so that neither disturbs the other. Whatever becomes of it, ours is told. */
const compare = <E extends { readonly message: string }, R>(
  own: Report,
  peer: Effect.Effect<PeerReport, E, R>,
  { json }: { readonly json: boolean }
) =>
  Effect.gen(function*() {
    const found = yield* Effect.result(peer)
    if (json) {
      yield* Output.printJson({
        ...own,
        peer: Result.isSuccess(found) ? found.success : { error: found.failure.message }
      })
    }
    if (Result.isFailure(found)) return yield* Effect.fail(found.failure)
    if (!json) yield* Output.print(peerAsText(own, found.success))
  })

/** The same measurements by a peer, with as many threads. */
const peerReport = Effect.fn("cli.bench.peer")(
  function*(
    given: Asked & {
      readonly model: string
      readonly context: number
      readonly repeat: number
      readonly threads: Option.Option<number>
      /** What our own measurement took. */
      readonly ownMillis: number
    }
  ) {
    const { context, depths, generate, model, ownMillis, prompt, repeat } = given
    const threads = Option.getOrElse(given.threads, cores)
    yield* Output.note(`llama.cpp with ${threads} threads of the CPU`)
    const { times, ...rest } = yield* Peer.measure({
      model: yield* Names.resolve(model),
      threads,
      prompt,
      generate,
      depths,
      repeat,
      context,
      ownMillis
    })
    const measured = (tokens: number, what: "prefill" | "decode"): ReadonlyArray<Measured> =>
      times.map((at) => ({ tokens, depth: at.depth, tokensPerSecond: spread(tokens, at[what]) }))
    return { ...rest, prefill: measured(prompt, "prefill"), decode: measured(generate, "decode") }
  }
)

/** Decoding, with the time of a step. */
interface Decoded extends Measured {
  readonly gpuMsPerToken: number
  readonly encodeMsPerToken: number
  /** With `--draft`: what became of the drafts of all rounds, and what steps of several tokens take. */
  readonly drafts?: Speculation.Drafts
  readonly verify?: ReadonlyArray<{ readonly tokens: number; readonly ms: number }>
}

// Steps behind one another that the time of a step is divided from.
const steps = 32

interface Job extends Asked {
  readonly model: string
  readonly kv: "f16" | "f32"
  readonly repeat: number
  readonly started: number
  readonly accept: Option.Option<number>
  /** Whether the host is profiled. */
  readonly host: boolean
}

const run = Effect.fn("cli.bench.run")(function*(job: Job) {
  const { loadTimes, model, session } = yield* Engine
  const drafter = yield* Drafter.Drafter
  const chosen = yield* Chosen
  if (job.host) yield* HostProfile.check
  const refusal = Option.isSome(job.accept) ? ForcedDrafts.refusal(job.accept.value, drafter) : undefined
  if (refusal !== undefined) return yield* refusal
  const device = yield* Device
  const loadMs = (yield* Clock.currentTimeMillis) - job.started
  yield* Output.note(`${model.config.name} on ${chosen.name}, context ${session.context}`)
  if (chosen.fallback !== undefined) yield* Output.note(`no GPU is used: ${chosen.fallback}`)
  const prefill: Array<Measured> = []
  const decode: Array<Decoded> = []
  const drafting = Drafts.stepping(session, drafter)
  for (const depth of job.depths) {
    const vars = { T: 1, startPos: Math.max(depth, 1) }
    const warm = Effect.flatMap(session.decodeStep(vars.startPos), (step) => Profiler.warm(step, vars))
    const times = yield* repeated(
      job.repeat,
      warm,
      (round) => timePrefill(session, { depth, count: job.prompt, round })
    )
    prefill.push({ tokens: job.prompt, depth, tokensPerSecond: spread(job.prompt, times) })
    yield* Output.note(`prefill ${job.prompt} at ${depth}: ${shown(prefill.at(-1)!.tokensPerSecond)} tokens/s`)
    const before = drafting.drafts()
    const decoded = yield* repeated(
      job.repeat,
      warm,
      () => timeDecode(session, { depth, count: job.generate, stepping: drafting.stepping })
    )
    const verify = drafter === undefined ? {} : {
      drafts: Drafts.difference(drafting.drafts(), before),
      verify: yield* timeVerify(session, { depth, repeat: job.repeat })
    }
    // of the device that there is now: another one may have been made meanwhile
    const step = yield* session.decodeStep(vars.startPos)
    yield* Profiler.backToBack(step, vars, 1)
    const { micros } = yield* Profiler.backToBack(step, vars, device.profile.kind === "cpu" ? 4 : steps)
    const encodeMicros = yield* Profiler.encoding(step, vars, steps)
    decode.push({
      tokens: job.generate,
      depth,
      tokensPerSecond: spread(job.generate, decoded),
      gpuMsPerToken: round(micros / 1000),
      encodeMsPerToken: round(encodeMicros / 1000),
      ...verify
    })
    yield* Output.note(`decode ${job.generate} at ${depth}: ${shown(decode.at(-1)!.tokensPerSecond)} tokens/s`)
  }
  const forced = Option.isNone(job.accept) ? {} : { forced: yield* timeForced(session, job, job.accept.value) }
  const host = job.host ? { host: yield* profileHost(session, { depth: job.depths[0]!, count: job.generate }) } : {}
  return {
    model: model.config.name,
    file: model.gguf.name,
    device: chosen.name,
    ...(chosen.threads !== undefined && { threads: chosen.threads }),
    context: session.context,
    kv: job.kv,
    activations: session.activations,
    loadMs,
    weightsMs: round(loadTimes.weights),
    compileMs: round(loadTimes.compile),
    prefill,
    decode,
    dispatchesPerToken: (yield* session.decodeStep(Math.max(job.depths[0]!, 1))).dispatches.length,
    gpuMsPerToken: decode[0]!.gpuMsPerToken,
    encodeMsPerToken: decode[0]!.encodeMsPerToken,
    gpuBytes: device.allocatedBytes(),
    ...forced,
    ...host
  }
})

/** The times of all rounds but the first, which compiles, while a GPU idles and lowers its clock: `warm` raises it behind that. */
const repeated = <E, R, F, S>(
  count: number,
  warm: Effect.Effect<void, F, S>,
  measure: (round: number) => Effect.Effect<number, E, R>
) =>
  measure(0).pipe(
    Effect.andThen(warm),
    Effect.andThen(Effect.forEach(Array.from({ length: count }, (_, i) => i + 1), measure))
  )

/** Puts `depth` tokens into the cache and nothing else, and waits for it. */
const fill = Effect.fnUntraced(function*(session: Session, depth: number) {
  const tokens = tokenIds(depth, 0, session.vocabulary)
  if (depth === 0) yield* session.reset
  else yield* session.advance(tokens)
  yield* Profiler.settle(yield* session.decodeStep(depth))
  return tokens
})

const micros = <A, E, R>(work: Effect.Effect<A, E, R>): Effect.Effect<number, E, R> =>
  Effect.map(Effect.timed(work), ([time]) => Duration.toMillis(time) * 1000)

/** Until the logits after the prompt are here. */
const timePrefill = Effect.fnUntraced(function*(
  session: Session,
  { count, depth, round }: { readonly depth: number; readonly count: number; readonly round: number }
) {
  const before = yield* fill(session, depth)
  const tokens = [...before, ...tokenIds(count, round + 1, session.vocabulary)]
  return yield* micros(session.advance(tokens))
})

/** Tokens of a step whose time is measured. */
const verified = [1, 2, 4, 8, 16]

/** What steps of several tokens take until the tokens behind each are here, in milliseconds: the shortest of all rounds. */
const timeVerify = Effect.fnUntraced(function*(
  session: Session,
  { depth, repeat }: { readonly depth: number; readonly repeat: number }
) {
  const tokens = yield* fill(session, Math.max(1, depth))
  const room = Math.min(...verified.filter((n) => n > session.context - tokens.length), Infinity)
  const sizes = verified.filter((n) => n < room)
  // what compiling leaves behind slows the host for a while, and the device idles meanwhile: all of it comes first
  yield* Effect.forEach(sizes, (n) => session.prepareDrafts(n, Sampler.greedy), { discard: true })
  return yield* Effect.forEach(
    sizes,
    Effect.fnUntraced(function*(n) {
      yield* Profiler.warm(yield* session.decodeStep(tokens.length), { T: 1, startPos: tokens.length })
      const verify = (seed: number) =>
        ForcedDrafts.verifiedOf(session, tokens, tokenIds(n - 1, seed, session.vocabulary))
      const times = yield* repeated(repeat, Effect.void, (round) => micros(verify(round + 1)))
      return { tokens: n, ms: round(Math.min(...times) / 1000) }
    })
  )
})

interface Decoding {
  readonly depth: number
  readonly count: number
}

/** Greedy decoding as `generate` does it: the effect takes a token when it is there. The one after the prompt is taken already. */
const decoding = Effect.fnUntraced(function*(steps: Pick<Session, "next">, session: Session, depth: number) {
  const tokens = [...(yield* fill(session, Math.max(1, depth)))]
  const next = Effect.gen(function*() {
    const id = yield* steps.next(tokens)
    if (Number.isNaN(id)) {
      return yield* new Sampler.InvalidLogits({ position: tokens.length - 1, vocab: session.vocabulary })
    }
    tokens.push(id)
  })
  yield* next
  return next
})

const timeDecode = Effect.fnUntraced(function*(
  session: Session,
  { count, depth, stepping }: Pick<Drafts.Stepping, "stepping"> & Decoding
) {
  const next = yield* decoding(stepping(), session, depth)
  return yield* micros(Effect.replicateEffect(next, count, { discard: true }))
})

/** What the drafts in force gain if this part of them is right. */
const timeForced = Effect.fnUntraced(function*(session: Session, job: Job, accept: number) {
  const depth = job.depths[0]!
  const given = { depth, count: job.generate, stepping: () => session }
  const times = yield* repeated(job.repeat, Effect.void, () => timeDecode(session, given))
  const tokens = tokenIds(Math.max(1, depth), 0, session.vocabulary)
  const plain = job.generate * 1e6 / Math.min(...times)
  const vars = { T: 1, startPos: tokens.length }
  const warm = Effect.flatMap(session.decodeStep(vars.startPos), (step) => Profiler.warm(step, vars))
  return yield* ForcedDrafts.measure(session, { accept, tokens, count: job.generate, plain, warm })
})

/** What the host does for each token, from where steps run ahead. */
const profileHost = Effect.fnUntraced(function*(session: Session, { count, depth }: Decoding) {
  const next = yield* decoding(session, session, depth)
  yield* next
  return yield* HostProfile.of(Effect.replicateEffect(next, count, { discard: true }), count)
})

const shown = ({ max, mean, min }: Spread): string => `${mean} (${min} to ${max})`

type Report = Effect.Success<ReturnType<typeof run>> & {
  readonly peakHeapBytes: number
  readonly peakExternalBytes: number
}
type PeerReport = Effect.Success<ReturnType<typeof peerReport>>

const line = (what: string, { depth, tokens, tokensPerSecond: { max, mean, min } }: Measured): string =>
  [`${what} ${tokens}`.padEnd(16), String(depth).padStart(7), ...[mean, min, max].map((x) => String(x).padStart(10))]
    .join("")

const asText = (report: Report): string => {
  return [
    `${report.model} on ${report.device}${threadsOf(report)}, context ${report.context}, cache ${report.kv}, ` +
    `${report.activations} activations`,
    `ready in ${report.loadMs} ms: loaded in ${report.weightsMs} ms, and compiled in ${report.compileMs} ms meanwhile`,
    "",
    `${"tokens".padEnd(16)}${"depth".padStart(7)}${["mean/s", "min/s", "max/s"].map((x) => x.padStart(10)).join("")}`,
    ...report.prefill.map((measured) => line("prefill", measured)),
    ...report.decode.map((measured) => line("decode", measured)),
    "",
    ...report.decode.map(({ depth, encodeMsPerToken, gpuMsPerToken }) =>
      `a step at ${depth}, behind one another: ${gpuMsPerToken} ms, of which the host encodes ${encodeMsPerToken} ms`
    ),
    ...report.decode.flatMap(({ depth, drafts, verify }) => Drafts.measured(depth, drafts, verify)),
    ...report.forced === undefined ? [] : [ForcedDrafts.asText(report.forced)],
    ...report.host === undefined ? [] : [HostProfile.asText(report.host)],
    `${Words.count(report.dispatchesPerToken, "launch", "launches")} per token`,
    `${mebibytes(report.gpuBytes)} on the device; at most ${
      mebibytes(report.peakHeapBytes)
    } in the JavaScript heap and ` +
    `${mebibytes(report.peakExternalBytes)} beside it`,
    ""
  ].join("\n")
}

const peerAsText = (own: Report, peer: PeerReport): string =>
  [
    "",
    `${peer.name} ${peer.release} (${peer.package}) on the CPU${threadsOf(peer)}`,
    ...peer.prefill.map((measured) => line("prefill", measured)),
    ...peer.decode.map((measured) => line("decode", measured)),
    `decode at ${own.decode[0]!.depth}: ${
      (own.decode[0]!.tokensPerSecond.mean / peer.decode[0]!.tokensPerSecond.mean).toFixed(2)
    } of its speed`,
    ""
  ].join("\n")

const threadsOf = ({ threads }: { readonly threads?: number }): string =>
  threads === undefined ? "" : `, ${Words.count(threads, "thread")}`

const mebibytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`
