/**
 * Writes what people install into a folder: the npm package of the command line, and for this platform a folder that runs without
 * npm, with an archive of it.
 *
 *     node scripts/release.ts [--out dist]
 */
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"

const root = fileURLToPath(new URL("..", import.meta.url))
const { values: { out: given } } = parseArgs({ options: { out: { type: "string", default: path.join(root, "dist") } } })
const out = path.resolve(given)

const { version } = JSON.parse(fs.readFileSync(path.join(root, "apps/cli/package.json"), "utf8")) as {
  readonly version: string
}
const run = (cwd: string, command: string, ...args: ReadonlyArray<string>): void => {
  execFileSync(command, args, { cwd, stdio: ["ignore", "ignore", "inherit"] })
}

const name = `tg-${version}-${process.platform}-${process.arch}`
const folder = path.join(out, name)
const tarball = path.join(out, `tg-cli-${version}.tgz`)
fs.mkdirSync(out, { recursive: true })
run(path.join(root, "apps/cli"), "npx", "-y", "pnpm@12.21.0", "pack", "--out", tarball)
run(root, process.execPath, path.join(root, "scripts/bundle.ts"), "--out", folder)
run(out, "tar", "-czf", `${name}.tar.gz`, name)

console.log(`npm i -g ${tarball}`)
console.log(`${path.join(folder, "tg")}, and ${folder}.tar.gz for another machine of this kind`)
