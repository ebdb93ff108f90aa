/** The table of accepted and refused schemas for the README: `node packages/constrain/bench/suite.ts [--refused]`. */
import { type Outcome, runSuite } from "../test/support/suite.ts"

const outcomes = runSuite()
const files = Map.groupBy(outcomes, (outcome) => outcome.file)
const count = (list: ReadonlyArray<Outcome>, keep: (outcome: Outcome) => boolean): number => list.filter(keep).length
const row = (name: string, list: ReadonlyArray<Outcome>): string => {
  const accepted = list.filter(({ refused }) => refused === undefined)
  const tests = accepted.reduce((sum, outcome) => sum + outcome.tests, 0)
  const wrong = list.reduce((sum, outcome) => sum + outcome.wrong.length, 0)
  return `| ${name} | ${accepted.length} | ${
    count(list, ({ refused }) => refused !== undefined)
  } | ${tests} | ${wrong} |`
}
console.log("| file | accepted | refused | values tried | wrong |\n| --- | ---: | ---: | ---: | ---: |")
for (const [file, list] of files) console.log(row(`\`${file.replace(".json", "")}\``, list))
console.log(row("all", outcomes))
for (const { description, file, refused, wrong } of outcomes) {
  for (const line of wrong) console.log(`WRONG ${file}: ${description}: ${line}`)
  if (refused !== undefined && process.argv.includes("--refused")) console.log(`${file}: ${description}: ${refused}`)
}
