/** A user's folder for caches of these tests' own: empty before, gone after. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const folder = mkdtempSync(join(tmpdir(), "tg-tests-"))

export const setup = (): void => {
  process.env["XDG_CACHE_HOME"] = folder
}

export const teardown = (): void => rmSync(folder, { recursive: true, force: true })
