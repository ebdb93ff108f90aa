/** Another program on the same file, to compare with: llama.cpp on the CPU, as the npm package `node-llama-cpp` runs it. */
import { existsSync } from "node:fs"
import { join, resolve } from "node:path"
import { Duration, Effect, FileSystem, Schema, Stream } from "effect"
import { UserDirectories } from "effect/persistence"
import { ChildProcess } from "effect/process"
import * as Output from "./Output.ts"
import * as Words from "./Words.ts"

/** The values of `--peer`. */
export const names = ["llama.cpp"] as const

/** Why there is nothing to compare with. */
export class PeerError extends Schema.TaggedError<PeerError>()("PeerError", {
  reason: Schema.Literals(["Unsupported", "Install", "Run"]),
  message: Schema.String
}) {}

// Its binary is a package of its own, with the same version.
const packageName = "node-llama-cpp"
const packageVersion = "3.22.1"

const binaries: Readonly<Record<string, string>> = {
  "linux-x64": "linux-x64",
  "linux-arm64": "linux-arm64",
  "darwin-x64": "mac-x64",
  "darwin-arm64": "mac-arm64-metal",
  "win32-x64": "win-x64",
  "win32-arm64": "win-arm64"
}

/** The package with the binary for a platform, as Node names it. */
export const binaryOf = (platform: string): string | PeerError => {
  const name = binaries[platform]
  return name === undefined
    ? new PeerError({
      reason: "Unsupported",
      message: `${packageName} has no binary for ${platform}; it has some for ${Object.keys(binaries).join(", ")}: ` +
        `measure without --peer`
    })
    : `@node-llama-cpp/${name}`
}

/** What installing may take: 60 MB, from a registry that answers. */
const installLimit = Duration.minutes(3)
/** What measuring may take, beside many times what ours took. */
const measureLimit = Duration.minutes(5)

/** What a program prints, and its exit code. */
export const output = Effect.fnUntraced(function*(command: ChildProcess.Command) {
  const handle = yield* command
  const [stdout, stderr, code] = yield* Effect.all([
    Stream.mkString(Stream.decodeText(handle.stdout)),
    Stream.mkString(Stream.decodeText(handle.stderr)),
    handle.exitCode
  ], { concurrency: "unbounded" })
  return { code: Number(code), stdout, stderr }
}, Effect.scoped)

/** The lines of a failure that say what went wrong, not where. */
export const reasons = (text: string): ReadonlyArray<string> =>
  text.trim().split("\n").filter((line) => !/^\s+at |^Node\.js v|^npm warn|^\s*$/.test(line))

/**
 * The folder in which the peer is installed: in the user's cache, never in a workspace. Installed when it is first asked
 * for; 60 MB. No script of the packages runs.
 */
const install = Effect.fn("Peer.install")(function*() {
  const binary = binaryOf(`${process.platform}-${process.arch}`)
  if (binary instanceof PeerError) return yield* binary
  const folder = join(yield* UserDirectories.make().cache("tg"), `${packageName}-${packageVersion}`)
  const isThere = (name: string): boolean => existsSync(join(folder, "node_modules", name, "package.json"))
  if (isThere(packageName) && isThere(binary)) return folder
  yield* Output.note(`installing ${packageName} ${packageVersion} into ${folder}`)
  const packages = [packageName, binary].map((name) => `${name}@${packageVersion}`)
  const args = [
    "install",
    "--prefix",
    folder,
    "--ignore-scripts",
    "--omit=optional",
    "--no-audit",
    "--no-fund",
    "--fetch-timeout=20000",
    "--fetch-retries=1",
    "--fetch-retry-mintimeout=1000"
  ]
  const refused = (found: string): PeerError =>
    new PeerError({
      reason: "Install",
      message: `llama.cpp could not be installed: ${found}\n` +
        `It comes from the npm registry; where that can be reached, run\n  npm ${[...args, ...packages].join(" ")}\n` +
        `and then this command again, or measure without --peer`
    })
  const { code, stderr } = yield* output(
    ChildProcess.make("npm", [...args, ...packages], { shell: process.platform === "win32" })
  ).pipe(
    Effect.mapError((error) => refused(Words.cause(error))),
    Effect.timeoutOrElse({
      duration: installLimit,
      orElse: () => Effect.fail(refused(`it took more than ${Duration.toSeconds(installLimit)} s`))
    })
  )
  if (code !== 0) return yield* refused(reasons(stderr).slice(0, 4).join("\n"))
  return folder
})

/** What to measure. */
export interface Job {
  readonly model: string
  readonly threads: number
  readonly prompt: number
  readonly generate: number
  readonly depths: ReadonlyArray<number>
  readonly repeat: number
  /** Tokens that are in the cache at most. */
  readonly context: number
  /** What our own measurement took. */
  readonly ownMillis: number
}

/** Times at one depth, in microseconds: of a prompt, and of generating text. */
const Times = Schema.Struct({
  depth: Schema.Int,
  prefill: Schema.Array(Schema.Number),
  decode: Schema.Array(Schema.Number)
})
const Result = Schema.fromJsonString(Schema.Struct({ release: Schema.String, times: Schema.Array(Times) }))

/** What a peer measured. */
export interface Measured {
  readonly name: typeof names[number]
  readonly release: string
  readonly package: string
  readonly threads: number
  readonly times: ReadonlyArray<typeof Times.Type>
}

/**
 * Runs where `node-llama-cpp` is installed. The job is the last argument, the result the only line of stdout. Each is
 * measured once to warm up; the token after a prompt is not counted, as in our own measurement.
 */
const script = `
const { getLlama } = await import(${JSON.stringify(packageName)})
const job = JSON.parse(process.argv.at(-1))
const llama = await getLlama({
  gpu: false, build: "never", skipDownload: true, maxThreads: job.threads, progressLogs: false, logLevel: "error"
})
const model = await llama.loadModel({ modelPath: job.model, gpuLayers: 0 })
const threads = { ideal: job.threads, min: job.threads }
const context = await model.createContext({ contextSize: job.context, sequences: 1, threads })
const sequence = context.getSequence()
const vocabulary = model.fileInfo.metadata.tokenizer.ggml.tokens.length
const ids = (count, seed) =>
  Array.from({ length: count }, (_, i) =>
    (Math.imul(i + 1, 0x9e3779b1) + Math.imul(seed, 0x85ebca6b) >>> 8) % vocabulary)
const micros = async (work) => {
  const started = performance.now()
  await work()
  return (performance.now() - started) * 1000
}
const fill = async (depth) => {
  await sequence.clearHistory()
  if (depth > 0) await sequence.evaluateWithoutGeneratingNewTokens(ids(depth, 0))
}
const times = []
for (const depth of job.depths) {
  const prefill = []
  const decode = []
  for (let round = 0; round <= job.repeat; round++) {
    await fill(depth)
    prefill.push(await micros(() => sequence.evaluateWithoutGeneratingNewTokens(ids(job.prompt, round + 1))))
  }
  for (let round = 0; round <= job.repeat; round++) {
    await fill(Math.max(0, depth - 1))
    const tokens = sequence.evaluate(ids(1, 1), { temperature: 0, yieldEogToken: true })
    await tokens.next()
    decode.push(await micros(async () => {
      for (let i = 0; i < job.generate; i++) await tokens.next()
    }))
    await tokens.return()
  }
  times.push({ depth, prefill: prefill.slice(1), decode: decode.slice(1) })
}
console.log(JSON.stringify({ release: llama.llamaCppRelease.release, times }))
await llama.dispose()
process.exit(0)
`

/** Measures llama.cpp on the CPU, in a process of its own. */
export const measure = Effect.fn("Peer.measure")(function*(job: Job) {
  const cwd = yield* install()
  const failed = (found: string): PeerError =>
    new PeerError({
      reason: "Run",
      message:
        `llama.cpp did not run ${job.model}: ${found}\nIt is installed in ${cwd}; remove that folder to install ` +
        `it again, or measure without --peer`
    })
  const limit = Duration.sum(measureLimit, Duration.millis(20 * job.ownMillis))
  const argument = JSON.stringify({ ...job, model: resolve(job.model) })
  // a file, because the package starts this Node again with the same options
  const file = join(cwd, "measure.mjs")
  const fs = yield* FileSystem.FileSystem
  const { code, stderr, stdout } = yield* fs.writeFileString(file, script).pipe(
    Effect.andThen(output(ChildProcess.make(process.execPath, [file, argument], { cwd }))),
    Effect.mapError((error) => failed(Words.cause(error))),
    Effect.timeoutOrElse({
      duration: limit,
      orElse: () => Effect.fail(failed(`it took more than ${Math.round(Duration.toSeconds(limit))} s`))
    })
  )
  if (code !== 0) return yield* failed(reasons(stderr).slice(-4).join("\n"))
  const line = stdout.trim().split("\n").at(-1) ?? ""
  const { release, times } = yield* Schema.decodeEffect(Result)(line).pipe(
    Effect.mapError(() => failed(`it printed ${JSON.stringify(line.slice(0, 200))}`))
  )
  const measured: Measured = {
    name: "llama.cpp",
    release,
    package: `${packageName}@${packageVersion}`,
    threads: job.threads,
    times
  }
  return measured
})
