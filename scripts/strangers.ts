/**
 * Uses the packages as a stranger would: packs them, installs the tarballs in empty projects outside the workspace, and there
 * type-checks, tests and runs the projects of `test/strangers`. Anything that goes wrong ends it with exit code 1.
 */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("..", import.meta.url))

/** The projects, with the packages each asks for by name. Everything else they get has to follow from those. */
const projects = [
  { name: "heuristics", wants: ["@tg/heuristics"] },
  { name: "compile", wants: ["@tg/tensor", "@tg/jit", "@tg/codegen-wgsl", "@tg/codegen-wasm"] }
]
/** What a stranger brings along, in the versions of the workspace. */
const companions = ["effect", "typescript", "vitest", "@effect/vitest"]

interface Manifest {
  readonly name: string
  readonly version: string
  readonly dependencies?: Readonly<Record<string, string>>
  readonly exports?: unknown
}
const readManifest = (file: string): Manifest => JSON.parse(fs.readFileSync(file, "utf8")) as Manifest

const run = (cwd: string, command: string, ...args: ReadonlyArray<string>): string => {
  const result = spawnSync(command, args, { cwd, encoding: "utf8", maxBuffer: 2 ** 26 })
  if (result.error !== undefined) throw new Error(`${command}: ${result.error.message}`)
  if (result.status !== 0) {
    throw new Error(
      `${[command, ...args].join(" ")} in ${cwd} ended with ${result.status}\n${result.stdout}${result.stderr}`
    )
  }
  return result.stdout
}

const step = <A>(title: string, body: () => A): A => {
  const start = performance.now()
  const result = body()
  console.log(`${title}: ${((performance.now() - start) / 1000).toFixed(1)} s`)
  return result
}

/** Everything under `dist` comes from this build: what an earlier one left of deleted sources would be packed too. */
const build = (): void => {
  for (const parent of ["packages", "apps"]) {
    for (const name of fs.readdirSync(path.join(root, parent))) {
      fs.rmSync(path.join(root, parent, name, "dist"), { recursive: true, force: true })
    }
  }
  run(root, path.join(root, "node_modules/.bin/tsc"), "-b")
}

/** Every entry of a package's `exports` has to exist, with types and code, for every source file. */
const missingFiles = (unpacked: string): ReadonlyArray<string> => {
  const sources = fs.readdirSync(path.join(unpacked, "src"), { recursive: true, encoding: "utf8" })
  return sources.filter((file) => file.endsWith(".ts")).flatMap((file) => {
    const stem = file.slice(0, -".ts".length)
    return [`dist/${stem}.js`, `dist/${stem}.d.ts`].filter((out) => !fs.existsSync(path.join(unpacked, out)))
  })
}

/** Tarballs by package name, each looked through. */
const pack = (folder: string): ReadonlyMap<string, { readonly tarball: string; readonly manifest: Manifest }> => {
  run(root, "npx", "-y", "pnpm@12.21.0", "-r", "pack", "--pack-destination", folder)
  const packed = new Map<string, { readonly tarball: string; readonly manifest: Manifest }>()
  for (const file of fs.readdirSync(folder)) {
    const tarball = path.join(folder, file)
    const unpacked = fs.mkdtempSync(path.join(folder, "unpacked-"))
    run(folder, "tar", "-xzf", tarball, "-C", unpacked)
    const manifest = readManifest(path.join(unpacked, "package/package.json"))
    run(
      folder,
      path.join(root, "node_modules/.bin/publint"),
      "run",
      path.join(unpacked, "package"),
      "--pack",
      "false",
      "--strict"
    )
    const missing = missingFiles(path.join(unpacked, "package"))
    if (missing.length > 0) throw new Error(`${file} lacks ${missing.join(", ")}`)
    const problem = /"(?:workspace|catalog):/.exec(JSON.stringify(manifest))
    if (problem !== null) throw new Error(`${file}: its package.json still says ${problem[0]}`)
    packed.set(manifest.name, { tarball, manifest })
  }
  return packed
}

/** The packages wanted and what they depend on, from this workspace. */
const closure = (wants: ReadonlyArray<string>, packed: ReturnType<typeof pack>): ReadonlyArray<string> => {
  const found = new Set<string>()
  const visit = (name: string): void => {
    if (found.has(name)) return
    const known = packed.get(name)
    if (known === undefined) throw new Error(`${name} was not packed`)
    found.add(name)
    for (const other of Object.keys(known.manifest.dependencies ?? {})) if (other.startsWith("@tg/")) visit(other)
  }
  wants.forEach(visit)
  return [...found].sort()
}

const tryProject = (
  folder: string,
  { name, wants }: typeof projects[number],
  packed: ReturnType<typeof pack>
): void => {
  const project = path.join(folder, name)
  fs.cpSync(path.join(root, "test/strangers", name), project, { recursive: true })
  const ours = closure(wants, packed)
  const tarballs = Object.fromEntries(ours.map((each) => [each, `file:${packed.get(each)!.tarball}`]))
  const devDependencies = Object.fromEntries(
    companions.map((each) => [each, readManifest(path.join(root, "node_modules", each, "package.json")).version])
  )
  const manifest = { name: `stranger-${name}`, private: true, type: "module", dependencies: tarballs, devDependencies }
  fs.writeFileSync(path.join(project, "package.json"), JSON.stringify(manifest, undefined, 2))
  step(
    `${name}: install ${ours.join(", ")}`,
    () => run(project, "npm", "install", "--no-audit", "--no-fund", "--prefer-offline")
  )

  const installed = fs.readdirSync(path.join(project, "node_modules/@tg")).map((each) => `@tg/${each}`).sort()
  if (installed.join() !== ours.join()) {
    throw new Error(`${name}: installed ${installed.join()} instead of ${ours.join()}`)
  }
  for (const each of ours) {
    const { version } = readManifest(path.join(project, "node_modules", each, "package.json"))
    if (version !== packed.get(each)!.manifest.version) {
      throw new Error(`${name}: ${each} ${version} is not the packed one`)
    }
    const nested = path.join(project, "node_modules", each, "node_modules/@tg")
    // node identity crosses packages, so there has to be one copy of each
    if (fs.existsSync(nested)) {
      throw new Error(`${name}: ${each} brought copies of its own: ${fs.readdirSync(nested).join()}`)
    }
  }

  const bin = (tool: string): string => path.join(project, "node_modules/.bin", tool)
  step(`${name}: types`, () => {
    run(project, bin("tsc"), "-p", "tsconfig.json")
    run(project, bin("tsc"), "-p", "tsconfig.tests.json")
  })
  step(`${name}: tests`, () => run(project, bin("vitest"), "run", "--passWithNoTests=false"))
  console.log(step(`${name}: run`, () => run(project, process.execPath, "src/main.ts")).trimEnd())
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-strangers-"))
try {
  const tarballs = path.join(folder, "tarballs")
  fs.mkdirSync(tarballs)
  step("build", build)
  const packed = step("pack", () => pack(tarballs))
  for (const project of projects) tryProject(folder, project, packed)
  fs.rmSync(folder, { recursive: true, force: true })
  console.log("strangers: all well")
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  console.error(`strangers: failed; the projects are left in ${folder}`)
  process.exitCode = 1
}
