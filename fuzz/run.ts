/**
 * `node fuzz/run.ts --seed S --seconds N [--only NAME] [--cases N]`: damaged input for everything that reads some. Prints what
 * it finds, with the seed and the number of the case, and keeps its input in `fuzz/found`. Exits with 1 if there is something.
 */
import { fork } from "node:child_process"
import { mkdirSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { random } from "./Random.ts"
import type { Target } from "./Target.ts"
import { targets } from "./targets/index.ts"
import type { Message } from "./worker.ts"

/** Nothing takes so long. */
const hangMillis = 10_000 + 2_000
/** What loading everything may take on a busy machine. */
const loadMillis = 120_000

interface Part {
  readonly seed: number
  readonly from: number
  readonly count: number
  readonly until: number
}

interface Ended {
  readonly next: number
  readonly most: number
  readonly counts: Readonly<Record<string, number>>
  readonly findings: ReadonlyArray<readonly [index: number, finding: string]>
}

/** Runs cases in a process of its own, and ends it when it hangs. */
const runPart = (target: Target, { count, from, seed, until }: Part): Promise<Ended> =>
  new Promise((resolve) => {
    const args = { name: target.name, seed, from, count, until }
    const child = fork(
      fileURLToPath(new URL("worker.ts", import.meta.url)),
      Object.entries(args).map(([key, value]) => `--${key}=${value}`),
      { stdio: ["ignore", "ignore", "inherit", "ipc"] }
    )
    const findings: Array<readonly [number, string]> = []
    let at = from
    let heard = Date.now()
    let hasBegun = false
    let isDone = false
    const end = (ended: Omit<Ended, "findings">): void => {
      if (isDone) return
      isDone = true
      clearInterval(watch)
      resolve({ ...ended, findings })
    }
    child.on("message", (message: Message) => {
      heard = Date.now()
      hasBegun = true
      if (message.kind === "begin") at = message.index
      else if (message.kind === "finding") findings.push([message.index, message.finding])
      else end(message)
    })
    child.on("exit", (code, signal) => {
      if (isDone) return
      findings.push([at, `the process ended with ${code ?? signal}, in this case or soon after it`])
      end({ next: at + 1, most: 0, counts: {} })
    })
    const watch = setInterval(() => {
      if (Date.now() - heard < (hasBegun ? hangMillis : loadMillis)) return
      child.kill("SIGKILL")
    }, 500)
  })

const keep = (target: Target, seed: number, index: number): string => {
  const folder = new URL("found/", import.meta.url)
  mkdirSync(folder, { recursive: true })
  const file = new URL(`${target.name}-${seed}-${index}`, folder)
  writeFileSync(file, target.make(random(seed, index)))
  return fileURLToPath(file)
}

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: "1" },
    seconds: { type: "string", default: "60" },
    cases: { type: "string", default: "1000000000" },
    from: { type: "string", default: "0" },
    only: { type: "string" }
  }
})
const chosen = targets.filter(({ name }) => values.only === undefined || name === values.only)
if (chosen.length === 0) {
  console.error(`there is no target ${values.only}; known are ${targets.map(({ name }) => name).join(", ")}`)
  process.exit(2)
}
const seed = Number(values.seed)
let found = 0
for (const target of chosen) {
  const until = Date.now() + Number(values.seconds) * 1000 / chosen.length
  const last = Number(values.from) + Number(values.cases)
  const counts: Record<string, number> = {}
  let most = 0
  let next = Number(values.from)
  while (next < last && Date.now() < until) {
    const ended = await runPart(target, { seed, from: next, count: last - next, until })
    for (const [index, finding] of ended.findings) {
      found++
      console.log(`${target.name}, seed ${seed}, case ${index}: ${finding}\n  ${keep(target, seed, index)}`)
    }
    for (const [key, n] of Object.entries(ended.counts)) counts[key] = (counts[key] ?? 0) + n
    most = Math.max(most, ended.most)
    next = ended.next
  }
  const shown = Object.entries(counts).toSorted((a, b) => b[1] - a[1]).map(([key, n]) => `${n} ${key}`).join(", ")
  console.log(`${target.name}: ${next - Number(values.from)} cases; ${shown}; at most ${most.toFixed(0)} MB more`)
}
console.log(found === 0 ? "nothing found" : `${found} found`)
process.exit(found === 0 ? 0 : 1)
