/** Runs cases one after the other, in a process that can be ended. Says before each which it is. */
import { parseArgs } from "node:util"
import { random } from "./Random.ts"
import { run } from "./Target.ts"
import { targets } from "./targets/index.ts"

/** What the process tells. */
export type Message =
  | { readonly kind: "begin"; readonly index: number }
  | { readonly kind: "finding"; readonly index: number; readonly finding: string }
  | {
    readonly kind: "done"
    readonly counts: Readonly<Record<string, number>>
    readonly next: number
    readonly most: number
  }

const { values } = parseArgs({
  options: {
    name: { type: "string" },
    seed: { type: "string" },
    from: { type: "string" },
    until: { type: "string" },
    count: { type: "string" }
  }
})
const target = targets.find(({ name }) => name === values.name)
if (target === undefined) throw new Error(`there is no target ${values.name}`)

const say = (message: Message): void => void process.send?.(message)
const megabytes = (): number => process.resourceUsage().maxRSS / 1024
const seed = Number(values.seed)
const last = Number(values.from) + Number(values.count)
const until = Number(values.until)
const counts: Record<string, number> = {}

// the first case loads what all need
await run(target, target.make(random(seed, 0)))
const before = megabytes()
let index = Number(values.from)
let told = 0
for (; index < last && Date.now() < until; index++) {
  // a message for each case would take longer than the case
  if (Date.now() - told > 200) {
    told = Date.now()
    say({ kind: "begin", index })
    await new Promise((resolve) => setImmediate(resolve))
  }
  const input = target.make(random(seed, index))
  const allowed = 3 * input.length / 1e6 + 300
  const started = performance.now()
  const outcome = await run(target, input)
  const seconds = (performance.now() - started) / 1000
  const key = `${outcome.result}${outcome.tag === undefined ? "" : ` ${outcome.tag}`}`
  counts[key] = (counts[key] ?? 0) + 1
  const grown = megabytes() - before
  const finding = outcome.finding ??
    (seconds > 10 ? `took ${seconds.toFixed(1)} s` : grown > allowed ? `took ${grown.toFixed(0)} MB` : undefined)
  if (finding !== undefined) say({ kind: "finding", index, finding })
  // the largest there ever was does not shrink: a new process measures anew
  if (grown > allowed) {
    index++
    break
  }
}
say({ kind: "done", counts, next: index, most: megabytes() - before })
process.disconnect?.()
process.exit(0)
