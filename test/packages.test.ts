import * as fs from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { describe, expect, it } from "vitest"
import * as Exports from "../scripts/exports.ts"

/**
 * The rows of the house. A package may depend on packages of earlier rows only, so that every stage can be used, replaced and
 * tested without the ones below it. Development dependencies are free, as long as no cycle appears.
 */
const rows: ReadonlyArray<ReadonlyArray<string>> = [
  ["core-uop"],
  ["pattern-matcher"],
  ["tensor"],
  ["grad"],
  ["rangeify"],
  ["egraph"],
  ["postrange"],
  ["heuristics"],
  ["devectorize"],
  ["codegen-wgsl"],
  ["codegen-wasm"],
  ["runtime"],
  ["runtime-webgpu", "runtime-wasm"],
  ["jit"],
  ["tuner"],
  ["gguf"],
  ["hub"],
  ["tokenizer"],
  ["constrain"],
  ["dialogue"],
  ["model-parts"],
  ["models-deepseek2", "models-llama"],
  ["models"],
  ["engine"],
  ["self-test"],
  ["serve"],
  ["node", "web"],
  ["ai"],
  ["page"],
  ["web-page"],
  ["cli"]
]

const root = fileURLToPath(new URL("..", import.meta.url))
const rowOf = (name: string): number => rows.findIndex((row) => row.includes(name.replace("@tg/", "")))

type Dependencies = Readonly<Record<string, string>>
interface Manifest {
  readonly name: string
  readonly license?: string
  readonly type?: string
  readonly dependencies?: Dependencies
  readonly peerDependencies?: Dependencies
  readonly devDependencies?: Dependencies
  readonly exports?: Readonly<Record<string, unknown>>
  readonly publishConfig?: { readonly exports?: Readonly<Record<string, unknown>> }
}
interface TsConfig {
  readonly compilerOptions?: { readonly types?: ReadonlyArray<string> }
  readonly references?: ReadonlyArray<{ readonly path: string }>
}

const readJson = <A>(file: string): A => JSON.parse(fs.readFileSync(path.join(root, file), "utf8")) as A

const sources = (folder: string): ReadonlyArray<string> =>
  fs.existsSync(path.join(root, folder))
    ? fs.readdirSync(path.join(root, folder), { recursive: true, encoding: "utf8" })
      .filter((file) => /\.tsx?$/.test(file) && !file.includes("node_modules"))
      .map((file) => path.join(folder, file))
    : []

const statement = /^(?:import|export)\s(?:[^"]*?\sfrom\s+)?"([^"]+)"/gm
const dynamic = /\bimport\("([^"]+)"\)/g

/**
 * What a package's folders import: package names, `node:` modules as they are, and relative files outside of the package by
 * their path. Files of its own are left out. A file from the tests of another package is an import of that package.
 */
const importsOf = (home: string, ...folders: ReadonlyArray<string>): ReadonlySet<string> =>
  importsIn(home, folders.flatMap((folder) => sources(`${home}/${folder}`)))

const importsIn = (home: string, files: ReadonlyArray<string>): ReadonlySet<string> => {
  const found = new Set<string>()
  for (const file of files) {
    const text = fs.readFileSync(path.join(root, file), "utf8")
    for (const [, specifier] of [...text.matchAll(statement), ...text.matchAll(dynamic)]) {
      if (specifier === undefined) continue
      const parts = specifier.split("/")
      if (!specifier.startsWith(".")) found.add(specifier.startsWith("@") ? parts.slice(0, 2).join("/") : parts[0]!)
      else {
        const target = path.join(path.dirname(file), specifier)
        const [, shared] = /^packages\/([^/]+)\/test\//.exec(target) ?? []
        if (!target.startsWith(`${home}/`)) found.add(shared === undefined ? target : `@tg/${shared}`)
      }
    }
  }
  return found
}

const folders = ["packages", "apps"].flatMap((parent) =>
  fs.readdirSync(path.join(root, parent)).map((name) => `${parent}/${name}`)
    .filter((folder) => fs.existsSync(path.join(root, folder, "package.json")))
)

const keys = (dependencies: Dependencies | undefined): ReadonlyArray<string> => Object.keys(dependencies ?? {})
const isOurs = (name: string): boolean => name.startsWith("@tg/")
const isNode = (name: string): boolean => name.startsWith("node:")

/** A module that says in its name that it needs Node, and that no other module of its package imports. */
const isForNode = (file: string): boolean => /^Node[A-Z]/.test(path.basename(file))

const packages = folders.map((folder) => {
  const manifest = readJson<Manifest>(`${folder}/package.json`)
  return {
    folder,
    manifest,
    name: manifest.name,
    run: keys(manifest.dependencies),
    peer: keys(manifest.peerDependencies),
    dev: keys(manifest.devDependencies),
    imports: importsOf(folder, "src"),
    portable: importsIn(folder, sources(`${folder}/src`).filter((file) => !isForNode(file))),
    testImports: importsOf(folder, "test", "bench", "examples"),
    tsconfig: readJson<TsConfig>(`${folder}/tsconfig.json`)
  }
})

const rootDev = keys(readJson<Manifest>("package.json").devDependencies)

describe("packages that name their modules", () => {
  it("export those that others import, that documents show and that their index has, and no others", () => {
    expect(Exports.explicit.filter((name) => !rows.some((row) => row.includes(name)))).toEqual([])
    expect(Exports.differences()).toEqual([])
  })
})

describe.each(packages)(
  "$name",
  ({ folder, manifest, name, run, peer, dev, imports, portable, testImports, tsconfig }) => {
    it("has its place in the rows and a license", () => {
      expect(rowOf(name)).toBeGreaterThanOrEqual(0)
      expect(manifest).toMatchObject({ license: "MIT", type: "module" })
    })

    it("keeps its internals to itself", () => {
      if (!fs.existsSync(path.join(root, folder, "src/internal"))) return
      for (const exports of [manifest.exports, manifest.publishConfig?.exports]) {
        // a package that names its modules has no pattern that internals fit
        if (exports?.["./*"] !== undefined) expect(exports["./internal/*"]).toBeNull()
        expect(Object.keys(exports ?? {}).filter((key) => /^\.\/internal\/[^*]/.test(key))).toEqual([])
      }
    })

    it("depends on earlier rows only", () => {
      expect(run.filter((other) => isOurs(other) && !(rowOf(other) < rowOf(name)))).toEqual([])
    })

    it("declares what its sources import, and nothing else", () => {
      const used = [...imports].filter((other) => !isNode(other) && other !== name)
      expect([...run, ...peer].sort()).toEqual(used.sort())
    })

    it("declares what its tests import", () => {
      const known = new Set([name, ...run, ...peer, ...dev])
      const missing = [...testImports].filter((other) =>
        !isNode(other) && !known.has(other) && !(!isOurs(other) && rootDev.includes(other))
      )
      expect(missing).toEqual([])
    })

    it("has no development dependency that its tests do not use", () => {
      // a peer is repeated there so that the workspace installs it; typings are named in tsconfig.json
      const used = new Set([...peer, ...testImports, ...(tsconfig.compilerOptions?.types ?? [])])
      expect(dev.filter((other) => !used.has(other))).toEqual([])
    })

    it("references the projects it depends on", () => {
      const referenced = (tsconfig.references ?? []).map((reference) =>
        readJson<Manifest>(path.join(folder, reference.path, "package.json")).name
      )
      expect(referenced.sort()).toEqual(run.filter(isOurs).sort())
    })

    // one package is there to know Node, so that the others need not
    if (!folder.startsWith("packages/") || name === "@tg/node") return
    it("runs where there is no Node, without the modules that are named for it", () => {
      expect([...portable].filter(isNode)).toEqual([])
      for (const file of sources(`${folder}/src`).filter((file) => !isForNode(file))) {
        expect(fs.readFileSync(path.join(root, file), "utf8"), file).not.toMatch(/from "\.\/(?:.*\/)?Node[A-Z][^"]*"/)
      }
    })
  }
)

describe("the workspace", () => {
  it("has no dependency cycle, development dependencies included", () => {
    const next = new Map(packages.map(({ name, run, dev }) => [name, [...run, ...dev].filter(isOurs)]))
    const state = new Map<string, "open" | "done">()
    const visit = (name: string, way: ReadonlyArray<string>): ReadonlyArray<string> | undefined => {
      if (state.get(name) === "open") return [...way.slice(way.indexOf(name)), name]
      if (state.get(name) === "done") return undefined
      state.set(name, "open")
      for (const other of next.get(name) ?? []) {
        const cycle = visit(other, [...way, name])
        if (cycle !== undefined) return cycle
      }
      state.set(name, "done")
      return undefined
    }
    for (const { name } of packages) expect(visit(name, [])).toBeUndefined()
  })

  it("is compiled and type-checked as a whole", () => {
    for (const file of ["tsconfig.json", "tsconfig.tests.json"]) {
      expect((readJson<TsConfig>(file).references ?? []).map((reference) => reference.path).sort(), file).toEqual(
        folders.toSorted()
      )
    }
  })
})
