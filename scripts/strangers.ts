/**
 * Uses the packages as a stranger would: packs them, installs the tarballs in empty projects outside the workspace, and there
 * type-checks, tests and runs the projects of `test/strangers`. The command line is installed with `npm i -g` and runs under every Node
 * that is promised. Anything that goes wrong ends it with exit code 1.
 */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("..", import.meta.url))

/** The projects, with the packages each asks for by name. Everything else they get has to follow from those. */
const projects: ReadonlyArray<{
  readonly name: string
  readonly wants: ReadonlyArray<string>
  /** Where the project lies; `test/strangers/NAME` if it is not said. */
  readonly from?: string
  /** What its program is given. */
  readonly args?: ReadonlyArray<string>
  /** A model that the project reads, from this repository. */
  readonly model?: string
}> = [
  { name: "chat", wants: ["@tg/node"], model: "apps/cli/models/tg-tiny-Q4_0.gguf" },
  { name: "family", wants: ["@tg/node", "@tg/model-parts", "@tg/core-uop", "@tg/tensor", "@tg/gguf", "@tg/tokenizer"] },
  { name: "heuristics", wants: ["@tg/heuristics"] },
  { name: "compile", wants: ["@tg/tensor", "@tg/jit", "@tg/codegen-wgsl", "@tg/codegen-wasm"] },
  {
    name: "train",
    from: "examples/train",
    args: ["--steps", "20"],
    wants: [
      "@tg/node",
      "@tg/grad",
      "@tg/tensor",
      "@tg/core-uop",
      "@tg/jit",
      "@tg/runtime",
      "@tg/gguf",
      "@tg/model-parts",
      "@tg/models-deepseek2",
      "@tg/tokenizer"
    ]
  }
]
/** What a stranger brings along, in the versions of the workspace. */
const companions = ["effect", "typescript", "vitest", "@effect/vitest", "@types/node"]

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

/**
 * Every entry of a package's `exports` has to exist, with types and code, for every source file. The command line is one program
 * and has no sources.
 */
const missingFiles = (unpacked: string): ReadonlyArray<string> => {
  if (!fs.existsSync(path.join(unpacked, "src"))) {
    return ["tg.mjs"].filter((f) => !fs.existsSync(path.join(unpacked, f)))
  }
  const sources = fs.readdirSync(path.join(unpacked, "src"), { recursive: true, encoding: "utf8" })
  return sources.filter((file) => file.endsWith(".ts")).flatMap((file) => {
    const stem = file.slice(0, -".ts".length)
    return [`dist/${stem}.js`, `dist/${stem}.d.ts`].filter((out) => !fs.existsSync(path.join(unpacked, out)))
  })
}

/** Tarballs by package name, each looked through. */
const pack = (folder: string): ReadonlyMap<string, { readonly tarball: string; readonly manifest: Manifest }> => {
  const published = ["--filter", "./packages/*", "--filter", "./apps/*"]
  run(root, "npx", "-y", "pnpm@12.21.0", "-r", ...published, "pack", "--pack-destination", folder)
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
  { args = [], from, model, name, wants }: typeof projects[number],
  packed: ReturnType<typeof pack>
): void => {
  const project = path.join(folder, name)
  fs.cpSync(path.join(root, from ?? `test/strangers/${name}`), project, {
    recursive: true,
    filter: (file) => path.basename(file) !== "node_modules"
  })
  if (model !== undefined) fs.copyFileSync(path.join(root, model), path.join(project, "model.gguf"))
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
  console.log(step(`${name}: run`, () => run(project, process.execPath, "src/main.ts", ...args)).trimEnd())
}

/** The Node versions that the command line has to run under, as npm packages have them for this platform. */
const nodeVersions = ["24.x", "26.10.0"]

/** The folder of a Node, or why there is none. */
const fetchNode = (folder: string, version: string): { readonly bin: string } | { readonly missing: string } => {
  const name = `node-${process.platform}-${process.arch}`
  fs.mkdirSync(folder, { recursive: true })
  fs.writeFileSync(path.join(folder, "package.json"), JSON.stringify({ private: true }))
  try {
    run(
      folder,
      "npm",
      "install",
      "--no-audit",
      "--no-fund",
      "--prefer-offline",
      "--ignore-scripts",
      `${name}@${version}`
    )
    return { bin: path.join(folder, "node_modules", name, "bin") }
  } catch (error) {
    return { missing: error instanceof Error ? error.message.split("\n").slice(0, 3).join(" ") : String(error) }
  }
}

/** Runs the installed `tg` in a folder with a model, as `PATH` finds it. */
const tryProgram = (folder: string, tg: string, nodeBin: string): void => {
  const env = {
    ...process.env,
    PATH: [nodeBin, path.dirname(tg), process.env["PATH"]].join(path.delimiter),
    XDG_CACHE_HOME: path.join(folder, "cache"),
    XDG_CONFIG_HOME: path.join(folder, "config")
  }
  const asked = (...args: ReadonlyArray<string>): string => {
    const { status, stderr, stdout } = spawnSync("tg", args, { cwd: folder, encoding: "utf8", env })
    if (status !== 0) throw new Error(`tg ${args.join(" ")} ended with ${status}\n${stdout}${stderr}`)
    return stdout
  }
  const expect = (found: string, wanted: string | RegExp): void => {
    const isRight = typeof wanted === "string" ? found === wanted : wanted.test(found)
    if (!isRight) throw new Error(`tg printed ${JSON.stringify(found.slice(0, 300))} instead of ${wanted}`)
  }
  expect(asked("generate", "--device", "wasm", "What is 17 + 25?"), "17 + 25 = 42\n")
  expect(
    asked("generate", "-m", "./here.gguf", "-t", "2", "--device", "wasm", "-p", "What is 17 + 25?"),
    "17 + 25 = 42\n"
  )
  expect(asked("inspect", "-m", "here.gguf"), /^here\.gguf: GGUF version 3/)
  expect(asked("doctor"), /128-bit SIMD yes/)
  expect(asked("version"), /^tg v\d+\.\d+\.\d+\n$/)
}

/** Installs the command line as `npm i -g` does, somewhere else, and runs it under each Node. */
const tryCommandLine = (folder: string, tarball: string): void => {
  const place = path.join(folder, "cli")
  const prefix = path.join(place, "prefix")
  const stands = path.join(place, "stands")
  fs.mkdirSync(stands, { recursive: true })
  fs.copyFileSync(path.join(root, "apps/cli/models/tg-tiny-Q4_0.gguf"), path.join(stands, "here.gguf"))
  const flags = ["--no-audit", "--no-fund", "--prefer-offline", "--ignore-scripts"]
  step("tg: npm i -g", () => run(stands, "npm", "install", "-g", "--prefix", prefix, ...flags, tarball))
  for (const version of nodeVersions) {
    const node = step(`tg: fetch Node ${version}`, () => fetchNode(path.join(place, `node-${version}`), version))
    if ("missing" in node) console.warn(`SKIPPED: tg under Node ${version}, which cannot be fetched: ${node.missing}`)
    else {
      const name = run(stands, path.join(node.bin, "node"), "--version").trim()
      step(`tg: runs under Node ${name}`, () => tryProgram(stands, path.join(prefix, "bin/tg"), node.bin))
    }
  }
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-strangers-"))
try {
  const tarballs = path.join(folder, "tarballs")
  fs.mkdirSync(tarballs)
  step("build", build)
  const packed = step("pack", () => pack(tarballs))
  tryCommandLine(folder, packed.get("@tg/cli")!.tarball)
  for (const project of projects) tryProject(folder, project, packed)
  fs.rmSync(folder, { recursive: true, force: true })
  console.log("strangers: all well")
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  console.error(`strangers: failed; the projects are left in ${folder}`)
  process.exitCode = 1
}
