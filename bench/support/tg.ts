/** Runs the command line for a benchmark: reports as JSON, what it says on the way as it says it. */
import { spawnSync } from "node:child_process"

/** The command line, as it is called in the repository. */
export const usual = "node scripts/cli.ts"

/** What a command prints; it ends the benchmark where it fails. */
export const output = (command: string, args: ReadonlyArray<string>, env: NodeJS.ProcessEnv = process.env): string => {
  const [program, ...first] = command.split(" ")
  const { error, status, stdout } = spawnSync(program!, [...first, ...args], {
    encoding: "utf8",
    env,
    maxBuffer: 2 ** 28,
    stdio: ["ignore", "pipe", "inherit"]
  })
  if (error !== undefined) throw new Error(`${command} cannot be run: ${error.message}`)
  if (status !== 0 && stdout === "") throw new Error(`${command} ${args.join(" ")} ended with ${status}`)
  return stdout
}

/** Rows of cells, as wide as the widest of each column. */
export const table = (rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)))
  return rows.map((row) => row.map((cell, i) => cell.padStart(widths[i]!)).join("  ")).join("\n")
}
