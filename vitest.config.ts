import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { defineConfig } from "vitest/config"

const root = import.meta.dirname

/** Every package, app and example is a project of its own name: `vitest run --project @tg/rangeify`. */
const packages = ["packages", "apps", "examples"].flatMap((parent) =>
  fs.readdirSync(path.join(root, parent)).map((name) => path.join(root, parent, name))
).filter((folder) => fs.existsSync(path.join(folder, "package.json")))

interface Manifest {
  readonly name: string
  readonly dependencies?: Readonly<Record<string, string>>
  readonly devDependencies?: Readonly<Record<string, string>>
}

const manifestOf = (folder: string): Manifest =>
  JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8")) as Manifest

/** What starts Dawn, whose threads go away with the process of a test file. */
const dawn = ["@tg/node", "@tg/runtime-webgpu", "webgpu"]

/** Whether each test file has a process of its own. Else one is good for many files, which load their modules once. */
const isIsolated = ({ dependencies, devDependencies }: Manifest): boolean =>
  dawn.some((name) => name in { ...dependencies, ...devDependencies })

/** What a project may have to be done before its tests, and after. */
const globalSetups = ["test/support/globalSetup.ts"]

// sources without their types, compiled, are kept in the folder for temporary files, as `scripts/cli.ts` does: the workers, and
// the commands that tests start, load the same modules hundreds of times
process.env["NODE_COMPILE_CACHE"] ??= path.join(os.tmpdir(), "node-compile-cache")

const hangMillis = process.env["TG_FULL"] === "1" ? 3_600_000 : 900_000

export default defineConfig({
  test: {
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
      ...packages.map((folder) => {
        const manifest = manifestOf(folder)
        return {
          extends: true as const,
          test: {
            name: manifest.name,
            isolate: isIsolated(manifest),
            root: folder,
            include: ["test/**/*.test.ts"],
            globalSetup: globalSetups.filter((file) => fs.existsSync(path.join(folder, file)))
          }
        }
      }),
      { extends: true as const, test: { name: "workspace", include: ["test/*.test.ts"] } }
    ]
  }
})
