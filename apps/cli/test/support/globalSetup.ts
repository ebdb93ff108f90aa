/** A user's folder for caches of these tests' own: empty before, gone after. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

let folder: string | undefined

export const setup = (): void => {
  folder = mkdtempSync(join(tmpdir(), "tg-tests-"))
  process.env["XDG_CACHE_HOME"] = folder
}

export const teardown = (): void => {
  if (folder !== undefined) rmSync(folder, { recursive: true, force: true })
}
