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

// sources without their types, compiled, are kept in the folder for temporary files, as `scripts/cli.ts` does: the workers, and
// the commands that tests start, load the same modules hundreds of times
process.env["NODE_COMPILE_CACHE"] ??= path.join(os.tmpdir(), "node-compile-cache")

const hangMillis = process.env["TG_FULL"] === "1" ? 3_600_000 : 900_000

export default defineConfig({
  test: {
    // a process for each file: Dawn's threads and WebAssembly memories go away with it
    pool: "forks",
    // Node loads the sources as they are, by type stripping; nothing here mocks a module
    experimental: { viteModuleRunner: false, nodeLoader: false },
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
