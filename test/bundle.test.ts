import { execFile } from "node:child_process"
import { existsSync } from "node:fs"
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { assert, describe, it } from "vitest"

const root = fileURLToPath(new URL("..", import.meta.url))
const run = promisify(execFile)

describe("bundle", () => {
  it("answers somewhere else, and has what Dawn is loaded from", async () => {
    const folder = await mkdtemp(join(tmpdir(), "tg-bundle-"))
    try {
      await run(process.execPath, [join(root, "scripts/bundle.ts"), "--out", join(folder, "made")], { cwd: folder })
      await cp(join(folder, "made"), join(folder, "moved"), { recursive: true })
      await rm(join(folder, "made"), { recursive: true })
      const asked = [join(folder, "moved/tg.mjs"), "generate", "--device", "wasm", "What is 17 + 25?"]
      const { stdout } = await run(process.execPath, asked, { cwd: folder })
      assert.strictEqual(stdout, "17 + 25 = 42\n")
      const dawn = process.platform === "darwin" ? "darwin-universal" : `${process.platform}-${process.arch}`
      assert.isTrue(existsSync(join(folder, "moved/node_modules/webgpu/dist", dawn, "dawn.node")))
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  it("refuses a folder with other things in it", async () => {
    const folder = await mkdtemp(join(tmpdir(), "tg-bundle-"))
    try {
      await writeFile(join(folder, "mine.txt"), "mine")
      const failed = await run(process.execPath, [join(root, "scripts/bundle.ts"), "--out", folder]).then(
        () => undefined,
        (error: { readonly code: number; readonly stderr: string }) => error
      )
      assert.strictEqual(failed?.code, 1)
      assert.match(failed!.stderr, /^error: .* has other things in it/)
      assert.isTrue(existsSync(join(folder, "mine.txt")))
    } finally {
      await rm(folder, { recursive: true })
    }
  })
})
