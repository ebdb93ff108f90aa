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
import { build } from "esbuild"

const home = fileURLToPath(new URL("..", import.meta.url))
const root = path.join(home, "../..")
const at = (name: string): string => fileURLToPath(import.meta.resolve(name))

/** Where the built page lies. */
export const folder = path.join(home, "dist", "site")

/** What esbuild does for what is no module: styles, and scripts by themselves. */
const alone = {
  bundle: true,
  minify: true,
  legalComments: "none",
  target: "es2024",
  absWorkingDir: home,
  write: false
} as const

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

const programsFolder = "programs"

/** The programs of the model that comes with the page, by their files' names. They take seconds, so those of the last build are kept. */
const programs = async (name: string): Promise<ReadonlyArray<readonly [file: string, json: string]>> => {
  const kept = path.join(home, "dist", `programs-${name}.json`)
  const isKept = fs.existsSync(kept)
  const all = isKept
    ? JSON.parse(fs.readFileSync(kept, "utf8")) as Awaited<ReturnType<typeof compile>>
    : await compile(fs.readFileSync(tiny), name)
  if (!isKept) {
    for (const old of fs.globSync("dist/programs-*.json", { cwd: home })) {
      fs.rmSync(path.join(home, old), { force: true })
    }
    write(kept, JSON.stringify(all))
  }
  return Object.entries(all).map(([kind, own]) => [`${programsFolder}/${kind}.json`, JSON.stringify(own)])
}

/** Builds into a folder, which is emptied. */
export const site = async (out: string): Promise<Built> => {
  const { modules: made, name } = await Bundling.modules({
    page: path.join(home, "src/main.tsx"),
    device: path.join(home, "src/device.tsx"),
    worker: at("@tg/web/worker")
  }, { define: { TG_PROGRAMS: JSON.stringify(programsFolder) }, jsx: "preact" })
  fs.rmSync(out, { recursive: true, force: true })
  const modules = [...made, { file: "style.css", text: await styles() }]
    .map(({ file, text }) => ({ path: `${name}/${file}`, text }))
  for (const file of modules) write(path.join(out, file.path), file.text)
  const compiled = (await programs(name)).map(([file, json]) => ({ path: `${name}/${file}`, text: json }))
  for (const file of compiled) write(path.join(out, file.path), file.text)
  for (const [to, from] of Object.entries({ ...others, ...vectors })) write(path.join(out, to), fs.readFileSync(from))
  const html = fs.readFileSync(path.join(home, "public/index.html"), "utf8")
  for (const [file, { script, title }] of Object.entries(pages)) {
    const preloads = [...Bundling.closure(made, script)].filter((file) => file !== script).map((module) =>
      `<link rel="modulepreload" href="BUILD/${module}">`
    )
    write(
      path.join(out, file),
      html.replaceAll("BUILD/page.js", `BUILD/${script}`).replace(/<title>.*<\/title>/, `<title>${title}</title>`)
        .replace("<!-- modules -->", preloads.join("\n    "))
        .replace(file === "index.html" ? "" : `<script src="BUILD/boot.js"></script>\n    `, "")
        .replaceAll("BUILD/", `${name}/`)
    )
  }
  const parts = [...[...modules, ...compiled].map(({ path }) => path), ...Object.keys(others)]
  write(path.join(out, name, "boot.js"), await script("boot.ts"))
  const kept = ["./", "device.html", `${name}/boot.js`, ...parts]
  const define = { TG_BUILD: JSON.stringify(name), TG_FILES: JSON.stringify(kept) }
  write(path.join(out, "service-worker.js"), await script("ServiceWorker.ts", define))
  return { folder: out, name }
}

const write = (file: string, content: string | Uint8Array): void => {
  fs.mkdirSync(path.dirname(file), { recursive: true })
  fs.writeFileSync(file, content)
}

/** The styles of all pages. */
const styles = async (): Promise<string> => {
  const { outputFiles } = await build({ ...alone, entryPoints: [path.join(home, "src/style.css")] })
  return outputFiles[0]!.text
}

/** A script by itself, which is no module. */
const script = async (file: string, define: Readonly<Record<string, string>> = {}): Promise<string> => {
  const { outputFiles } = await build({
    ...alone,
    format: "iife",
    entryPoints: [path.join(home, "src", file)],
    define: { ...define }
  })
  return outputFiles[0]!.text
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
