import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { defineConfig } from "vitest/config"

const root = import.meta.dirname

/** Every package, app and example is a project of its own name: `vitest run --project @tg/rangeify`. */
const packages = ["packages", "apps", "examples"].flatMap((parent) =>
  fs.readdirSync(path.join(root, parent)).map((name) => path.join(root, parent, name))
).filter((folder) => fs.existsSync(path.join(folder, "package.json")))

const nameOf = (folder: string): string => {
  const manifest = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8")) as { readonly name: string }
  return manifest.name
}

/** What a project may have to be done before its tests, and after. */
const globalSetups = ["test/support/globalSetup.ts"]

const hangMillis = process.env["TG_FULL"] === "1" ? 3_600_000 : 900_000

export default defineConfig({
  test: {
    // a process for each file: Dawn's threads and WebAssembly memories go away with it
    pool: "forks",
    // one by one on two cores, which is the default, leaves one of them idle
    maxWorkers: Math.min(8, os.availableParallelism()),
    setupFiles: [path.join(root, "test/support/softwareVulkan.ts")],
    // for what hangs: a slow or busy machine takes its time, and software Vulkan computes whole models
    testTimeout: hangMillis,
    hookTimeout: hangMillis,
    projects: [
      ...packages.map((folder) => ({
        extends: true as const,
        test: {
          name: nameOf(folder),
          root: folder,
          include: ["test/**/*.test.ts"],
          globalSetup: globalSetups.filter((file) => fs.existsSync(path.join(folder, file)))
        }
      })),
      { extends: true as const, test: { name: "workspace", include: ["test/*.test.ts"] } }
    ]
  }
})
