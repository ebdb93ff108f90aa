/**
 * Writes a folder that runs the command line on a machine with nothing but Node 24 and a graphics driver: what the npm package
 * has, Dawn for one platform beside it, and a launcher. With `--node` the folder brings this Node too.
 *
 *     node scripts/bundle.ts [--out .bundle/tg] [--platform linux-x64] [--node]
 */
import * as fs from "node:fs"
import { createRequire } from "node:module"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { stage } from "./stage.ts"

const root = fileURLToPath(new URL("..", import.meta.url))
const here = `${process.platform}-${process.arch}`

const { values: options } = parseArgs({
  options: {
    out: { type: "string", default: path.join(root, ".bundle/tg") },
    platform: { type: "string", default: here },
    node: { type: "boolean", default: false }
  }
})

/** Ends with a line of explanation. */
const refuse = (why: string): never => {
  console.error(`error: ${why}`)
  process.exit(1)
}

/** The folder of Dawn's native part: its package has one for each platform. */
const dawnFolder = (platform: string): string => platform.startsWith("darwin-") ? "darwin-universal" : platform

/** Where Dawn's package is, once it is known to have a native part for the platform. */
const findDawn = (platform: string): string => {
  const requireOfRuntime = createRequire(path.join(root, "packages/runtime-webgpu/package.json"))
  const source = path.dirname(requireOfRuntime.resolve("webgpu"))
  const known = fs.readdirSync(path.join(source, "dist"))
  return known.includes(dawnFolder(platform))
    ? source
    : refuse(`Dawn has no native part for ${platform}; it has ${known.join(", ")}`)
}

/** Dawn as its package has it, for one platform. */
const copyDawn = (source: string, out: string, platform: string): void => {
  const target = path.join(out, "node_modules/webgpu")
  for (const part of ["package.json", "index.js", "LICENSE.md", path.join("dist", dawnFolder(platform))]) {
    fs.cpSync(path.join(source, part), path.join(target, part), { recursive: true, dereference: true })
  }
}

const posixLauncher = `#!/bin/sh
folder=$(dirname "$(readlink -f "$0")")
if [ -x "$folder/node" ]; then node="$folder/node"; else node=node; fi
exec "$node" "$folder/tg.mjs" "$@"
`
const windowsLauncher = `@if exist "%~dp0node.exe" ("%~dp0node.exe" "%~dp0tg.mjs" %*) else (node "%~dp0tg.mjs" %*)\r\n`

const sizeOf = (folder: string): number =>
  fs.readdirSync(folder, { recursive: true, withFileTypes: true })
    .reduce((sum, entry) => sum + (entry.isFile() ? fs.statSync(path.join(entry.parentPath, entry.name)).size : 0), 0)

const main = async (): Promise<void> => {
  const out = path.resolve(options.out)
  const { platform } = options
  if (options.node && platform !== here) {
    refuse(`--node brings the Node of this machine, ${here}; ${platform} needs its own`)
  }
  const dawn = findDawn(platform)
  if (fs.existsSync(out) && fs.readdirSync(out).length > 0 && !fs.existsSync(path.join(out, "tg.mjs"))) {
    refuse(`${out} has other things in it; give an empty folder, or one of an earlier bundle`)
  }
  fs.rmSync(out, { recursive: true, force: true })
  fs.mkdirSync(out, { recursive: true })
  await stage(out)
  copyDawn(dawn, out, platform)
  const isWindows = platform.startsWith("win32-")
  fs.writeFileSync(path.join(out, isWindows ? "tg.cmd" : "tg"), isWindows ? windowsLauncher : posixLauncher, {
    mode: 0o755
  })
  if (options.node) {
    const node = path.join(out, isWindows ? "node.exe" : "node")
    fs.copyFileSync(fs.realpathSync(process.execPath), node)
    fs.chmodSync(node, 0o755)
  }
  console.log(`${out}: tg for ${platform}, ${(sizeOf(out) / 2 ** 20).toFixed(1)} MiB`)
}

await main()
