/**
 * Functions have at most 80 lines (blank lines and comments not counted), by lint. What is longer is listed in the overrides of
 * `.oxlintrc.json`, each file with the tens of lines that it needs: it may not grow, and an entry that is no longer needed, or
 * larger than needed, fails here. So the list only shrinks.
 */
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { describe, expect, it } from "vitest"

const root = fileURLToPath(new URL("..", import.meta.url))
const rule = "eslint/max-lines-per-function"

type Setting = "off" | readonly ["error", { readonly max: number; readonly skipBlankLines: boolean }]

interface Config {
  readonly rules: Readonly<Record<string, Setting>>
  readonly overrides: ReadonlyArray<{
    readonly files: ReadonlyArray<string>
    readonly rules: Readonly<Record<string, Setting>>
  }>
}

const config: Config = JSON.parse(fs.readFileSync(path.join(root, ".oxlintrc.json"), "utf8"))
const setting = config.rules[rule]!

/** What the list allows, by file. */
const allowed = config.overrides.flatMap(({ files, rules }) => {
  const own = rules[rule]
  return own === undefined || own === "off" ? [] : files.map((file) => ({ file, max: own[1].max }))
})

/** Lines of the longest function of each file that has one over the limit. */
const longest = (files: ReadonlyArray<string>): ReadonlyMap<string, number> => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-sizes-"))
  try {
    const only = path.join(folder, "oxlintrc.json")
    fs.writeFileSync(only, JSON.stringify({ plugins: ["eslint"], categories: {}, rules: { [rule]: setting } }))
    const script = path.join(root, "node_modules/oxlint/bin/oxlint")
    const found = new Map<string, number>()
    for (const line of lint([script, "-c", only, "-f", "unix", ...files])) {
      const [, file, lines] = /^(\S+?):\d+:\d+: .*too many lines \((\d+)\)/.exec(line) ?? []
      if (file !== undefined) found.set(file, Math.max(found.get(file) ?? 0, Number(lines)))
    }
    return found
  } finally {
    fs.rmSync(folder, { recursive: true })
  }
}

/** Lines of output; that there are findings is no failure here. */
const lint = (args: ReadonlyArray<string>): ReadonlyArray<string> => {
  try {
    return execFileSync(process.execPath, args, { cwd: root, encoding: "utf8" }).split("\n")
  } catch (error) {
    const { stdout } = error as { readonly stdout?: string }
    if (stdout === undefined || stdout === "") throw error
    return stdout.split("\n")
  }
}

describe("functions", () => {
  it("have at most 80 lines", () => {
    expect(setting).toMatchObject(["error", { max: 80, skipBlankLines: true, skipComments: true }])
  })

  it("that are longer are allowed no more lines than they have, in tens", () => {
    const found = longest(allowed.map(({ file }) => file))
    const needed = allowed.map(({ file }) => {
      const lines = found.get(file)
      return lines === undefined
        ? `${file}: every function fits; remove the entry from .oxlintrc.json`
        : { file, max: 10 * Math.ceil(lines / 10) }
    })
    expect(allowed).toEqual(needed)
  })
})
