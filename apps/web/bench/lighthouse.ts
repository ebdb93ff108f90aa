/**
 * What Lighthouse says of the page: performance, accessibility, best practices, and the bytes of the page's own code against a budget.
 *
 *     node apps/web/bench/lighthouse.ts
 *
 * Lighthouse comes from npm when it is asked for. Its performance is that of a machine that has nothing else to do.
 */
import { spawn } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { gzipSync } from "node:zlib"
import { executablePath } from "../../../packages/web/test/support/browser.ts"
import { serve } from "../../../packages/web/test/support/site.ts"
import { type Built, site } from "../src/Build.ts"

const version = "13.5.0"
/** Scores that are asked for. */
const least = { "performance": 0.9, "accessibility": 1, "best-practices": 0.95 }
/** Bytes of the page's own code, gzip: its scripts and all that they import, without the worker's. Only ever to be lowered. */
const mostBytes = 96_000

interface Report {
  readonly categories: Readonly<Record<string, { readonly score: number | null }>>
  readonly audits: Readonly<
    Record<string, { readonly title: string; readonly score: number | null; readonly displayValue?: string }>
  >
}

const run = async (url: string, out: string): Promise<Report> => {
  const code = await new Promise((resolve, reject) => {
    const flags = [
      "--quiet",
      "--output=json",
      `--output-path=${out}`,
      `--only-categories=${Object.keys(least).join(",")}`,
      "--preset=desktop",
      "--chrome-flags=--headless=new --no-sandbox"
    ]
    const lighthouse = spawn("npx", ["-y", `lighthouse@${version}`, url, ...flags], {
      stdio: ["ignore", "ignore", "inherit"],
      env: { ...process.env, CHROME_PATH: executablePath }
    })
    lighthouse.on("error", reject).on("close", resolve)
  })
  if (code !== 0) throw new Error(`lighthouse ended with ${code}`)
  return JSON.parse(fs.readFileSync(out, "utf8")) as Report
}

/** Bytes of a module and of all that it imports. */
const ownBytes = (folder: string, { name }: Built): number => {
  const at = (file: string): string => path.join(folder, name, file)
  const found = new Set<string>()
  const add = (file: string): void => {
    if (found.has(file)) return
    found.add(file)
    for (const [, next] of fs.readFileSync(at(file), "utf8").matchAll(/(?:from|import)\s*"\.\/([\w.-]+\.js)"/g)) {
      add(next!)
    }
  }
  add("boot.js")
  add("page.js")
  return [...found].reduce((sum, file) => sum + gzipSync(fs.readFileSync(at(file))).length, 0)
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-site-"))
const built = await site(path.join(folder, "site"))
const host = await serve({ "page/": `${folder}/site/` })
const { audits, categories } = await run(`${host.url}/isolated/page/`, path.join(folder, "report.json"))
await host.close()
let isRight = true
for (const [name, wanted] of Object.entries(least)) {
  const score = categories[name]?.score ?? 0
  isRight &&= score >= wanted
  console.log(`${name}: ${score} of ${wanted}`)
}
for (const { displayValue = "", score, title } of Object.values(audits)) {
  if (score !== null && score < 0.9) console.log(`  ${title}: ${score} ${displayValue}`)
}
const bytes = ownBytes(path.join(folder, "site"), built)
isRight &&= bytes <= mostBytes
console.log(`the page's own code: ${bytes} bytes gzip of ${mostBytes}`)
fs.rmSync(folder, { recursive: true })
if (!isRight) process.exitCode = 1
