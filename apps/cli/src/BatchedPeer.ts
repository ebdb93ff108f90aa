/** llama.cpp's `llama-batched-bench` on the same file, to compare `bench --parallel` with. It is built by whoever wants to compare. */
import { existsSync } from "node:fs"
import { delimiter, dirname, join, resolve } from "node:path"
import { Effect } from "effect"
import { ChildProcess } from "effect/process"
import * as Output from "./Output.ts"
import { output, PeerError, reasons } from "./Peer.ts"
import * as Words from "./Words.ts"

/** The program that is looked for. */
export const program = process.platform === "win32" ? "llama-batched-bench.exe" : "llama-batched-bench"

/** What to measure. */
export interface Job {
  /** Where the program is; looked for in the folders of PATH if it is not said. */
  readonly program: string | undefined
  readonly model: string
  /** Whether on its GPU, with all layers, or on so many threads. */
  readonly on: "gpu" | { readonly threads: number }
  readonly counts: ReadonlyArray<number>
  readonly prompt: number
  readonly generate: number
}

/** The speed of so many conversations, in tokens a second of all together. */
export interface Speed {
  readonly parallel: number
  readonly tokensPerSecond: number
  readonly promptTokensPerSecond: number
}

const cells = (line: string): ReadonlyArray<string> => line.split("|").slice(1, -1).map((cell) => cell.trim())

/** The rows of the table that the program prints, wherever it stands; nothing where there is none. */
export const parse = (text: string): ReadonlyArray<Speed> => {
  const lines = text.split("\n").filter((line) => /\|.*\|/.test(line)).map((line) =>
    line.slice(line.indexOf("|")).trim()
  )
  const header = lines.map(cells).find((names) => names.includes("S_TG t/s"))
  if (header === undefined) return []
  const at = (row: ReadonlyArray<string>, name: string): number => Number(row[header.indexOf(name)] ?? NaN)
  return lines.map(cells).flatMap((row) => {
    const speed: Speed = {
      parallel: at(row, "B"),
      tokensPerSecond: at(row, "S_TG t/s"),
      promptTokensPerSecond: at(row, "S_PP t/s")
    }
    const isWhole = Number.isInteger(speed.parallel) && speed.parallel > 0
    return row.length === header.length && isWhole && Object.values(speed).every(Number.isFinite) ? [speed] : []
  })
}

/** What it is called with: prompts of their own, and a context that holds all of them. */
export const argumentsOf = ({ counts, generate, model, on, prompt }: Omit<Job, "program">): ReadonlyArray<string> => [
  ...["-m", resolve(model)],
  ...["-c", String(Math.max(...counts) * (prompt + generate))],
  ...["-npp", String(prompt), "-ntg", String(generate), "-npl", counts.join(",")],
  ...on === "gpu" ? ["-ngl", "99", "-fa", "on"] : ["-ngl", "0", "-t", String(on.threads), "-tb", String(on.threads)]
]

/** The program, if it can be found. */
export const find = (asked: string | undefined, path: string): string | PeerError => {
  const places = asked === undefined
    ? path.split(delimiter).filter(Boolean).map((folder) => join(folder, program))
    : [asked]
  const found = places.find((place) => existsSync(place))
  return found ?? new PeerError({
    reason: "Install",
    message: asked === undefined
      ? `${program} is in no folder of PATH; build llama.cpp's target of that name, and say where it is with ` +
        `--peer-program FILE, or measure without --peer`
      : `there is no ${asked}; give the path of ${program} with --peer-program, or measure without --peer`
  })
}

/** Measures llama.cpp, in a process of its own. Its libraries are looked for beside it, too. */
export const measure = Effect.fn("BatchedPeer.measure")(function*(job: Job) {
  const own = find(job.program, process.env["PATH"] ?? "")
  if (own instanceof PeerError) return yield* own
  const failed = (found: string): PeerError =>
    new PeerError({ reason: "Run", message: `${own} did not run ${job.model}: ${found}` })
  const { LD_LIBRARY_PATH: libraries } = process.env
  const env = {
    LD_LIBRARY_PATH: [dirname(resolve(own)), ...libraries === undefined ? [] : [libraries]].join(delimiter)
  }
  yield* Output.note(`${own} ${argumentsOf(job).join(" ")}`)
  const { code, stderr, stdout } = yield* output(
    ChildProcess.make(own, [...argumentsOf(job)], { env, extendEnv: true })
  ).pipe(Effect.mapError((error) => failed(Words.cause(error))))
  if (code !== 0) return yield* failed(reasons(stderr).slice(-4).join("\n"))
  // some versions print the table where they log
  const speeds = [stdout, stderr].map(parse).find(({ length }) => length > 0)
  return speeds ?? (yield* failed(`it printed no table: ${JSON.stringify(stdout.slice(-200))}`))
})
