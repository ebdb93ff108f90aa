/** `tg config`: the defaults in force, and where each comes from. */
import { Effect, FileSystem } from "effect"
import { Command } from "effect/cli"
import * as Flags from "../Flags.ts"
import * as Output from "../Output.ts"
import * as Settings from "../Settings.ts"

/** Shows the user's file, and for every setting its value, or what holds without one. */
export const command = Command.make(
  "config",
  { json: Flags.json },
  Effect.fn("cli.config")(function*({ json }) {
    const file = yield* Settings.file
    const exists = yield* Effect.flatMap(FileSystem.FileSystem, (files) => files.exists(file))
    const kept = yield* Settings.InForce
    const rows = Settings.keys.map((key) => ({ key, variable: Settings.variableOf(key), ...kept.get(key) }))
    if (json) return yield* Output.printJson({ file, exists, settings: rows })
    yield* Output.print([
      `${file}${exists ? "" : " (there is none)"}`,
      "",
      ...columns([
        ["flag", "value", "from", "in the environment"],
        ...rows.map(({ from, key, value, variable }) => [
          `--${key}`,
          value === undefined ? Settings.known[key].builtIn : String(value),
          from ?? "built in",
          variable
        ])
      ]),
      ""
    ].join("\n"))
  })
).pipe(
  Command.withDescription("Show the defaults that are kept in a file or in the environment"),
  Command.withExamples([
    { command: "tg config" },
    { command: "TG_DEVICE=wasm tg config --json", description: "The environment wins over the file" }
  ])
)

const columns = (rows: ReadonlyArray<ReadonlyArray<string>>): ReadonlyArray<string> => {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]!.length)))
  return rows.map((row) => row.map((cell, column) => cell.padEnd(widths[column]!)).join("  ").trimEnd())
}
