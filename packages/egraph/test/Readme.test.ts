import { execFileSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { expect, it } from "vitest"

it("the README's example prints what it says", () => {
  const root = fileURLToPath(new URL("..", import.meta.url))
  const readme = readFileSync(`${root}/README.md`, "utf8")
  const [code, printed] = ["ts", "text"].map((kind) => new RegExp(`\`\`\`${kind}\n([^]*?)\`\`\``).exec(readme)![1]!)
  const options = { cwd: root, encoding: "utf8", input: code! } as const
  expect(execFileSync(process.execPath, ["--input-type=module-typescript", "-"], options)).toBe(printed)
})
