/** Which code this is. */
import { createHash } from "node:crypto"
import { existsSync, readdirSync, readFileSync } from "node:fs"
// a name that an older Node lacks is no reason not to start: the program tells which Node it needs
import * as nodeModule from "node:module"
import { basename, dirname, join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"

interface Manifest {
  readonly name: string
  readonly version: string
  readonly dependencies?: Readonly<Record<string, string>>
}

const own = /^@tg\//

/**
 * What decides what a package does: its code, in the folder that runs (sources in the workspace, compiled modules
 * elsewhere), the code of the packages of ours that it uses, and the versions of others.
 */
function* partsOf(manifestFile: string, folderName: string, seen: Set<string>): Generator<string | Uint8Array> {
  if (seen.has(manifestFile)) return
  seen.add(manifestFile)
  const { dependencies = {}, name, version } = readManifest(manifestFile)
  yield `${name} ${version}`
  if (!own.test(name)) return
  const folder = join(dirname(manifestFile), folderName)
  for (const file of readdirSync(folder, { recursive: true, encoding: "utf8" }).sort()) {
    if (!/\.(ts|js|json)$/.test(file) || file.endsWith(".d.ts")) continue
    yield file
    yield readFileSync(join(folder, file))
  }
  for (const dependency of Object.keys(dependencies).sort()) {
    const found = nodeModule.findPackageJSON(dependency, pathToFileURL(manifestFile))
    if (found !== undefined) yield* partsOf(found, folderName, seen)
  }
}

const readManifest = (file: string): Manifest => JSON.parse(readFileSync(file, "utf8")) as Manifest

/** The command line's package, if the file is one of its modules. */
const manifestOf = (file: string): string | undefined => {
  const found = join(dirname(file), "..", "package.json")
  return existsSync(found) && readManifest(found).name === "@tg/cli" ? found : undefined
}

const hashOf = (parts: Iterable<string | Uint8Array>): string => {
  const hash = createHash("sha256")
  for (const part of parts) hash.update(String(part.length)).update(" ").update(part)
  return hash.digest("hex")
}

/** A name of the code that belongs to a file: of the packages it uses, or of the file itself if that is a bundle. */
export const identityOf = (file: string): string => {
  const found = manifestOf(file)
  const code = found === undefined ? [readFileSync(file)] : partsOf(found, basename(dirname(file)), new Set())
  return hashOf([process.version, ...code])
}

let known: string | undefined

/**
 * A name of all code of tg as it runs, and of what it depends on: another one as soon as a byte of it changes. All files
 * are read for it, once.
 */
export const identity = (): string => known ??= identityOf(fileURLToPath(import.meta.url))
