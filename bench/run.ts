/**
 * Runs the scripts of every package's `bench` folder, each in a process of its own, and prints what they measured:
 * `pnpm bench`, or `pnpm bench codegen-wasm` for the packages whose folder contains the word.
 */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("..", import.meta.url))
const words = process.argv.slice(2)

const scripts = ["packages", "apps"].flatMap((parent) =>
  fs.readdirSync(path.join(root, parent)).flatMap((name) => {
    const folder = path.join(root, parent, name, "bench")
    if (!fs.existsSync(folder) || !words.every((word) => name.includes(word))) return []
    const files = fs.readdirSync(folder).filter((file) => file.endsWith(".ts")).sort()
    return files.map((file) => ({ name, file, script: path.join(folder, file) }))
  })
)

/** One row of the table for each line a script prints; a script that fails is a row, and the exit code. */
const rows = scripts.flatMap(({ file, name, script }) => {
  const start = performance.now()
  const result = spawnSync(process.execPath, [script], { cwd: root, encoding: "utf8" })
  const seconds = `${((performance.now() - start) / 1000).toFixed(1)} s`
  if (result.status !== 0) process.exitCode = 1
  const output = result.status === 0 ? result.stdout : `failed with ${result.status}\n${result.stderr}`
  return output.trimEnd().split("\n").map((line, i) => [i === 0 ? `${name}/${file}` : "", i === 0 ? seconds : "", line])
})

const widthOf = (column: number): number => Math.max(0, ...rows.map((row) => row[column]!.length))
const [first, second] = [widthOf(0), widthOf(1)]
console.log(`Node ${process.version}, ${os.availableParallelism()} cores, ${os.cpus()[0]?.model ?? "an unknown CPU"}\n`)
for (const [name, seconds, line] of rows) {
  console.log(`${name!.padEnd(first)}  ${seconds!.padStart(second)}  ${line}`.trimEnd())
}
if (scripts.length === 0) {
  console.error(`no package whose name contains ${words.join(" and ")} has a bench folder`)
  process.exitCode = 1
}
