/**
 * Builds the page into a folder that any host of static files can serve: modules under the name of the build, and beside them
 * the service worker and the model that comes with the page.
 *
 *     node apps/web/src/Build.ts [folder]
 */
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { build, type BuildOptions, type Metafile, type Plugin } from "esbuild"

const home = fileURLToPath(new URL("..", import.meta.url))
const root = path.join(home, "../..")
const at = (name: string): string => fileURLToPath(import.meta.resolve(name))

/** Where the built page lies. */
export const folder = path.join(home, "dist", "site")

/** The hub's library has another build for browsers, which bundlers do not find by themselves behind its `exports`. */
const browserHub: Plugin = {
  name: "browser-hub",
  setup: ({ onResolve, resolve }) => {
    onResolve({ filter: /^@huggingface\/hub$/ }, async ({ importer, kind, path, pluginData, resolveDir }) => {
      if (pluginData === browserHub) return undefined
      const found = await resolve(path, { importer, kind, resolveDir, pluginData: browserHub })
      return { path: found.path.replace(/([\\/])dist([\\/])index/, "$1dist$2browser$2index"), errors: found.errors }
    })
  }
}

/** Stands for the name of the build until what it names is there. */
const unnamed = "tg-build-without-a-name"

const shared: BuildOptions & { readonly metafile: true; readonly write: false } = {
  absWorkingDir: home,
  bundle: true,
  minify: true,
  format: "esm",
  platform: "browser",
  target: "es2024",
  jsx: "automatic",
  jsxImportSource: "preact",
  plugins: [browserHub],
  legalComments: "none",
  metafile: true,
  write: false
}

/** Files of the folder that are not modules, by what they are there. */
const others = {
  "icon.svg": at("@tg/page/icon.svg"),
  "icon-512.png": path.join(home, "public/icon-512.png"),
  "manifest.webmanifest": path.join(home, "public/manifest.webmanifest"),
  "models/tg-tiny-Q4_0.gguf": path.join(root, "apps/cli/models/tg-tiny-Q4_0.gguf")
}

/** What was built. */
export interface Built {
  /** Where. */
  readonly folder: string
  /** Changes when any module does. */
  readonly name: string
  readonly metafile: Metafile
}

/** Builds into a folder, which is emptied. */
export const site = async (out: string): Promise<Built> => {
  const { metafile, outputFiles } = await build({
    ...shared,
    entryPoints: {
      page: path.join(home, "src/main.tsx"),
      style: path.join(home, "src/style.css"),
      worker: at("@tg/web/worker")
    },
    outdir: out,
    splitting: true,
    define: { TG_BUILD: JSON.stringify(unnamed) }
  })
  const hash = createHash("sha256")
  for (const { contents } of outputFiles) hash.update(contents)
  const name = hash.digest("hex").slice(0, 16)
  fs.rmSync(out, { recursive: true, force: true })
  for (const file of outputFiles) {
    write(path.join(out, name, path.relative(out, file.path)), file.text.replaceAll(unnamed, name))
  }
  for (const [to, from] of Object.entries(others)) write(path.join(out, to), fs.readFileSync(from))
  write(
    path.join(out, "index.html"),
    fs.readFileSync(path.join(home, "public/index.html"), "utf8").replaceAll("BUILD/", `${name}/`)
  )
  const files = outputFiles.map((file) => `${name}/${path.relative(out, file.path)}`)
  await serviceWorker(out, name, ["./", ...files, ...Object.keys(others)])
  return { folder: out, name, metafile }
}

const write = (file: string, content: string | Uint8Array): void => {
  fs.mkdirSync(path.dirname(file), { recursive: true })
  fs.writeFileSync(file, content)
}

/** The service worker knows what there is, so that it can keep it. */
const serviceWorker = async (out: string, name: string, files: ReadonlyArray<string>): Promise<void> => {
  const { outputFiles } = await build({
    ...shared,
    format: "iife",
    entryPoints: { "service-worker": path.join(home, "src/ServiceWorker.ts") },
    outdir: out,
    define: { TG_BUILD: JSON.stringify(name), TG_FILES: JSON.stringify(files) }
  })
  write(path.join(out, "service-worker.js"), outputFiles[0]!.text)
}

const stamp = path.join(home, "dist", "site.sources")

/** Everything that the page is made of: bundling is a second, so all sources of the workspace count. */
const sources = (): string => {
  const hash = createHash("sha256")
  const files = fs.globSync(["packages/*/src/**/*", "apps/{page,web}/{src,public}/**/*", "pnpm-lock.yaml"], {
    cwd: root,
    withFileTypes: true
  }).filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name))
  for (const file of files.sort()) hash.update(file.slice(root.length)).update("\0").update(fs.readFileSync(file))
  return hash.digest("hex")
}

/** The folder of the page as its sources are: built if it is missing or older. Only in the workspace. */
export const built = async (): Promise<string> => {
  const now = sources()
  if (fs.existsSync(stamp) && fs.readFileSync(stamp, "utf8") === now) return folder
  await site(folder)
  fs.writeFileSync(stamp, now)
  return folder
}

if (import.meta.main) {
  const out = path.resolve(process.argv[2] ?? folder)
  const { name } = await site(out)
  process.stdout.write(`${out}: build ${name}\n`)
}
