/** What schemas and masks cost with 154 880 tokens: `node packages/constrain/bench/masks.ts`. */
import { Result } from "effect"
import { type Grammar, JsonSchema, Matcher, TokenTable } from "../src/index.ts"
import { large, tokenise } from "../test/support/vocabularies.ts"
import { documents } from "./documents.ts"

const time = <A>(run: () => A): readonly [millis: number, value: A] => {
  const start = performance.now()
  const value = run()
  return [performance.now() - start, value]
}

/** The least of each of several rows of times: what a busy machine adds is not counted. */
const least = (rows: ReadonlyArray<ReadonlyArray<number>>): ReadonlyArray<number> =>
  rows[0]!.map((_, i) => Math.min(...rows.map((row) => row[i]!)))

const repeats = Number(process.argv[2] ?? 7)

const quantile = (times: ReadonlyArray<number>, q: number): string => {
  const sorted = times.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))]!.toFixed(3)
}

const vocabulary = large()
const [tableMillis, table] = time(() => TokenTable.make(vocabulary))
console.log(`${table.size} tokens, ${table.tree.byte.length} nodes: table ${tableMillis.toFixed(0)} ms`)
console.log("| schema | compile ms | again ms | prepare ms | tokens | first p50 | first p99 | first max | again p99 |")
console.log("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
const cold: Array<number> = []
const warm: Array<number> = []
for (const { name, schema, value } of documents) {
  const [compileMillis, grammar] = time(() => Result.getOrThrow(JsonSchema.compile(schema)))
  const ids = tokenise(table, JSON.stringify(value))
  const run = (grammar: Grammar.Grammar): ReadonlyArray<number> => {
    const matcher = Matcher.make(grammar, table)
    const times = ids.map((id) => {
      const [millis, mask] = time(() => matcher.mask())
      if (((mask[id >>> 5]! >>> (id & 31)) & 1) === 0) throw new Error(`${name}: the mask forbids a token of the value`)
      return millis + time(() => matcher.accept(id))[0]
    })
    if (!matcher.isComplete()) throw new Error(`${name}: the value is not complete`)
    return times
  }
  const [prepareMillis] = time(() => Matcher.make(grammar, table))
  // a grammar of its own each time: it has computed nothing yet
  const fresh = Array.from({ length: repeats }, () => time(() => Result.getOrThrow(JsonSchema.compile(schema))))
  const first = least(fresh.map(([, grammar]) => run(grammar)))
  const second = least(fresh.map(([, grammar]) => run(grammar)))
  const again = Math.min(...fresh.map(([millis]) => millis))
  cold.push(...first)
  warm.push(...second)
  console.log(
    `| ${name} | ${compileMillis.toFixed(1)} | ${again.toFixed(1)} | ${prepareMillis.toFixed(1)} | ${ids.length} | ` +
      `${quantile(first, 0.5)} | ${quantile(first, 0.99)} | ${quantile(first, 1)} | ${quantile(second, 0.99)} |`
  )
}
console.log(`all, first time: p50 ${quantile(cold, 0.5)} ms, p99 ${quantile(cold, 0.99)} ms, of ${cold.length}`)
console.log(`all, again: p50 ${quantile(warm, 0.5)} ms, p99 ${quantile(warm, 0.99)} ms`)
