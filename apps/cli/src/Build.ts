/** Which code this is. */
import { createHash } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"
import { findPackageJSON } from "node:module"
import { basename, dirname, join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"

interface Manifest {
  readonly name: string
  readonly version: string
  readonly dependencies?: Readonly<Record<string, string>>
}

/** The file of this code: a source, a compiled module, or a bundle of everything. */
const self = fileURLToPath(import.meta.url)

const own = /^@tg\//

/** What decides what the code of a package does: its own code, and the versions of the others it uses. */
function* partsOf(manifestFile: string, seen: Set<string>): Generator<string | Uint8Array> {
  if (seen.has(manifestFile)) return
  seen.add(manifestFile)
  const { dependencies = {}, name, version } = JSON.parse(readFileSync(manifestFile, "utf8")) as Manifest
  yield `${name} ${version}`
  if (!own.test(name)) return
  // the folder that runs: sources in the workspace, compiled modules elsewhere
  const folder = join(dirname(manifestFile), basename(dirname(self)))
  for (const file of readdirSync(folder, { recursive: true, encoding: "utf8" }).sort()) {
    if (!/\.(ts|js|json)$/.test(file) || file.endsWith(".d.ts")) continue
    yield file
    yield readFileSync(join(folder, file))
  }
  for (const dependency of Object.keys(dependencies).sort()) {
    const found = findPackageJSON(dependency, pathToFileURL(manifestFile))
    if (found !== undefined) yield* partsOf(found, seen)
  }
}

/** The command line's package; in a bundle there is none. */
const manifest = (): string | undefined => {
  const found = findPackageJSON("..", import.meta.url)
  return found !== undefined && (JSON.parse(readFileSync(found, "utf8")) as Manifest).name === "@tg/cli"
    ? found
    : undefined
}

const hashOf = (parts: Iterable<string | Uint8Array>): string => {
  const hash = createHash("sha256")
  for (const part of parts) hash.update(String(part.length)).update(" ").update(part)
  return hash.digest("hex")
}

let known: string | undefined

/**
 * A name of all code of tg as it runs, and of what it depends on: another one as soon as a byte of it changes. All files
 * are read for it, once.
 */
export const identity = (): string => {
  if (known !== undefined) return known
  const file = manifest()
  const code = file === undefined ? [readFileSync(self)] : partsOf(file, new Set())
  known = hashOf([process.version, ...code])
  return known
}
