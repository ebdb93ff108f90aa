/**
 * Writes the npm package of the command line into a folder: one JavaScript file that has all packages of the workspace in it, the
 * model that comes with tg, the chat pages, and a manifest whose only dependency is Dawn. `pnpm pack` in apps/cli packs that folder.
 *
 *     node scripts/stage.ts apps/cli/dist/package
 */
import * as fs from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { build } from "esbuild"
import { built } from "../apps/page/src/Build.ts"
import { built as builtSite } from "../apps/web/src/Build.ts"

const root = fileURLToPath(new URL("..", import.meta.url))
const cli = path.join(root, "apps/cli")

// some of what is bundled are CommonJS modules, which expect these
const banner = `import { createRequire as tgCreateRequire } from "node:module"
const require = tgCreateRequire(import.meta.url), __filename = import.meta.filename, __dirname = import.meta.dirname
if (Number(process.versions.node.split(".")[0]) < 24) {
  console.error(
    "error: tg needs Node 24 or newer, and this is " + process.versions.node + "; install one, or bundle with --node"
  )
  process.exit(1)
}`

/** The whole command line as one file. Dawn stays outside: it looks for its native part beside itself. */
const bundleProgram = async (out: string): Promise<void> => {
  await build({
    entryPoints: [path.join(cli, "src/bin.ts")],
    outfile: path.join(out, "tg.mjs"),
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node24",
    // what builds the page is not there where the page comes built
    external: ["webgpu", "@tg/page/Build", "@tg/web-page/Build"],
    banner: { js: banner },
    legalComments: "eof",
    logLevel: "warning"
  })
}

interface Manifest {
  readonly name: string
  readonly version: string
  readonly description: string
  readonly license: string
  readonly engines: unknown
}
const readManifest = (file: string): Manifest => JSON.parse(fs.readFileSync(file, "utf8")) as Manifest

/** The version of Dawn that the workspace is tested with: exactly that one is asked for. */
const dawnVersion = (): string =>
  readManifest(path.join(root, "packages/runtime-webgpu/node_modules/webgpu/package.json")).version

/** The manifest of what is installed. The packages of the workspace are in the program, so it names none of them. */
const manifest = () => {
  const { description, engines, license, name, version } = readManifest(path.join(cli, "package.json"))
  return {
    name,
    version,
    description,
    type: "module",
    license,
    engines,
    bin: { tg: "./tg.mjs" },
    exports: { "./package.json": "./package.json" },
    dependencies: { webgpu: dawnVersion() }
  }
}

/** Writes the package into a folder, which is emptied. */
export const stage = async (out: string): Promise<void> => {
  fs.rmSync(out, { recursive: true, force: true })
  fs.mkdirSync(out, { recursive: true })
  await bundleProgram(out)
  fs.chmodSync(path.join(out, "tg.mjs"), 0o755)
  fs.cpSync(await built(), path.join(out, "page"), { recursive: true })
  fs.cpSync(await builtSite(), path.join(out, "site"), { recursive: true })
  fs.cpSync(path.join(cli, "models"), path.join(out, "models"), { recursive: true })
  fs.writeFileSync(path.join(out, "package.json"), `${JSON.stringify(manifest(), undefined, 2)}\n`)
  fs.copyFileSync(path.join(cli, "release/README.md"), path.join(out, "README.md"))
  fs.copyFileSync(path.join(root, "LICENSE"), path.join(out, "LICENSE"))
}

if (import.meta.main) {
  const [out] = process.argv.slice(2)
  if (out === undefined) throw new Error("stage.ts: say which folder")
  await stage(path.resolve(out))
}
