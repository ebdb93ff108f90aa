/** Builds the page from its sources, and finds what was built. */
import { createHash } from "node:crypto"
import { existsSync, globSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import type { InlineConfig } from "vite"

const home = fileURLToPath(new URL("..", import.meta.url))

/** Where the built page lies: `index.html` and its assets. */
export const folder = join(home, "dist", "page")

/** How the page is built. */
export const options: InlineConfig = {
  root: home,
  base: "/",
  logLevel: "error",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: folder,
    emptyOutDir: true,
    target: "es2023",
    // inlined assets would be data: addresses, which the page's Content-Security-Policy refuses
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false }
  }
}

const stamp = join(home, "dist", "page.sources")

const sources = (): string => {
  const hash = createHash("sha256")
  const files = globSync(["src/**/*", "public/*", "index.html", "package.json"], { cwd: home, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
  for (const file of files.sort()) hash.update(file.slice(home.length)).update("\0").update(readFileSync(file))
  return hash.digest("hex")
}

/** The folder of the page as its sources are: built if it is missing or older. Only in the workspace. */
export const built = async (): Promise<string> => {
  const now = sources()
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === now) return folder
  const { build } = await import("vite")
  await build({ ...options, configFile: false })
  writeFileSync(stamp, now)
  return folder
}
