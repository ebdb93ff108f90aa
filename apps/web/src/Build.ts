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
import * as Vectors from "@tg/self-test/Vectors"
import * as Bundling from "@tg/web/NodeBundling"
import { compile } from "@tg/web/NodePrograms"
import { build, type Metafile } from "esbuild"

const home = fileURLToPath(new URL("..", import.meta.url))
const root = path.join(home, "../..")
const at = (name: string): string => fileURLToPath(import.meta.resolve(name))

/** Where the built page lies. */
export const folder = path.join(home, "dist", "site")

const shared = { ...Bundling.options, absWorkingDir: home, jsx: "automatic", jsxImportSource: "preact" } as const

const tiny = path.join(root, "apps/cli/models/tg-tiny-Q4_0.gguf")

/** Files of the folder that are not modules, by what they are there. */
const others = {
  "icon.svg": at("@tg/page/icon.svg"),
  "icon-512.png": path.join(home, "public/icon-512.png"),
  "manifest.webmanifest": path.join(home, "public/manifest.webmanifest"),
  "models/tg-tiny-Q4_0.gguf": tiny
}

/** What was built. */
export interface Built {
  /** Where. */
  readonly folder: string
  /** Changes when any module does. */
  readonly name: string
  readonly metafile: Metafile
}

/** Files of the self-test: fetched when it is run, and not kept. */
const vectors = Object.fromEntries(
  Vectors.files.map((file) => [`self-test/${file}`, at(`@tg/self-test/vectors/${file}`)])
)

/** The pages: what each is called, the script that it runs, and what is said of it. */
const pages = {
  "index.html": { script: "page.js", title: "tg" },
  "device.html": { script: "device.js", title: "tg: this device" }
}

const programsFile = "programs.json"

/** The programs of the model that comes with the page, as JSON. They take seconds, so those of the last build are kept. */
const programs = async (name: string): Promise<string> => {
  const kept = path.join(home, "dist", `programs-${name}.json`)
  if (fs.existsSync(kept)) return fs.readFileSync(kept, "utf8")
  const json = JSON.stringify(await compile(fs.readFileSync(tiny), name))
  for (const old of fs.globSync("dist/programs-*.json", { cwd: home })) fs.rmSync(path.join(home, old), { force: true })
  write(kept, json)
  return json
}

/** Builds into a folder, which is emptied. */
export const site = async (out: string): Promise<Built> => {
  const { metafile, outputFiles } = await build({
    ...shared,
    entryPoints: {
      page: path.join(home, "src/main.tsx"),
      device: path.join(home, "src/device.tsx"),
      style: path.join(home, "src/style.css"),
      worker: at("@tg/web/worker")
    },
    outdir: out,
    define: { ...shared.define, TG_PROGRAMS: JSON.stringify(programsFile) }
  })
  const { files, name } = Bundling.named(outputFiles)
  fs.rmSync(out, { recursive: true, force: true })
  const modules = files.map((file) => ({ ...file, path: `${name}/${path.relative(out, file.path)}` }))
  for (const file of modules) write(path.join(out, file.path), file.text)
  write(path.join(out, name, programsFile), await programs(name))
  for (const [to, from] of Object.entries({ ...others, ...vectors })) write(path.join(out, to), fs.readFileSync(from))
  const html = fs.readFileSync(path.join(home, "public/index.html"), "utf8")
  for (const [file, { script, title }] of Object.entries(pages)) {
    write(
      path.join(out, file),
      html.replaceAll("BUILD/page.js", `BUILD/${script}`).replace(/<title>.*<\/title>/, `<title>${title}</title>`)
        .replaceAll("BUILD/", `${name}/`)
    )
  }
  const parts = [...modules.map(({ path }) => path), `${name}/${programsFile}`, ...Object.keys(others)]
  await serviceWorker(out, name, ["./", "device.html", ...parts])
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
    splitting: false,
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
  const files = fs.globSync([
    "packages/*/src/**/*",
    "packages/self-test/vectors/*",
    "apps/{page,web}/{src,public}/**/*",
    "pnpm-lock.yaml"
  ], {
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
