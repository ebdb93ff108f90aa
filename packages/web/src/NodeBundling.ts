/** How the engine is bundled for browsers by rolldown. */
import { createHash } from "node:crypto"
import { readFile } from "node:fs/promises"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import {
  type InputOptions,
  type LogLevel,
  type LogOrStringHandler,
  type OutputAsset,
  type OutputChunk,
  type Plugin,
  rolldown,
  type RolldownLog
} from "rolldown"
import * as Chunking from "./NodeChunking.ts"
import { withOwnNames } from "./NodeNaming.ts"
import * as StandIns from "./NodeStandIns.ts"

/** The hub's library has another build for browsers, which bundlers do not find by themselves behind its `exports`. */
const browserHub: Plugin = {
  name: "browser-hub",
  async resolveId(source, importer) {
    if (source !== "@huggingface/hub") return null
    const found = await this.resolve(source, importer, { skipSelf: true })
    return found === null ? null : found.id.replace(/([\\/])dist([\\/])index/, "$1dist$2browser$2index")
  }
}

const barrel = /^import \{([^}]*)\} from "(effect|@tg\/[a-z0-9-]+)"$/gm

/** `import { Effect, type Scope } from "effect"` as imports of the modules that these names stand for: of Effect, and of ours. */
const byModule = (code: string): string =>
  code.replace(barrel, (whole, names: string, from: string) => {
    const all = names.split(",").map((name) => name.trim()).filter((name) => name !== "" && !name.startsWith("type "))
    return all.every((name) => /^[A-Z]\w*$/.test(name))
      ? all.map((name) => `import * as ${name} from "${from}/${name}"`).join("; ")
      : whole
  })

/** Equations of rules are for people. What would print them is not in pages (`egraph/src/Explain`). */
const withoutEquations = (code: string): string => code.replace(/^(\s*\{ equation: )"[^"]*"/gm, "$1\"\"")

/** What fields errors have is for the types of a program: `internal/schema.ts` does not ask. */
const withoutFields = (code: string): string =>
  code.replace(/(\bSchema\.TaggedError<\w+>\(\)\("\w+"), \{[^{}]*\}\)/g, "$1)")

/** Spans are for tracers, of which a worker has none. */
const untraced = (code: string): string =>
  code.replace(/\bEffect\.fn\(\s*"[^"]*"\s*\)(?=\(\s*function\*)/g, "Effect.fnUntraced")
    .replace(/,? *Effect\.withSpan\("[\w. ]+"\)/g, "")

/**
 * Bundlers keep all of a module that a barrel exports as a namespace: 75 kB gzip of `Schema` where a tenth is used. So modules of ours
 * are given the modules behind the barrels.
 */
const ownModules = (isWhole: boolean): Plugin => ({
  name: "own-modules",
  async load(id) {
    if (!ofOurs.test(id)) return null
    const code = await readFile(id.replace(StandIns.apart, ""), "utf8")
    const named = withoutEquations(byModule(code))
    return {
      code: StandIns.of(id, code) ?? (isWhole ? named : withoutFields(untraced(named))),
      moduleType: id.endsWith("x") ? "tsx" : "ts"
    }
  }
})

const ofOurs = /[\\/](packages|apps)[\\/][^\\/]+[\\/]src[\\/].*\.tsx?(\?apart)?$/

/** What modules of ours use of Schema, without the rest of it. Code of Effect has all of it. */
const thinSchema: Plugin = {
  name: "thin-schema",
  resolveId: (source, importer) =>
    source === "effect/Schema" && importer !== undefined && ofOurs.test(importer)
      ? fileURLToPath(new URL("./internal/schema.ts", import.meta.url))
      : null
}

const effects = /[\\/]effect[\\/]dist[\\/]internal[\\/]effect\.js$/

/** Durations that our modules ask for and that Effect's fibers and clocks take. Others of Effect's modules have them whole. */
const thinDuration: Plugin = {
  name: "thin-duration",
  resolveId: (source, importer = "") =>
    source === "effect/Duration" && ofOurs.test(importer) || source === "../Duration.js" && effects.test(importer)
      ? fileURLToPath(new URL("./internal/duration.ts", import.meta.url))
      : null
}

/** Stands for the name of the build until what it names is there. */
const unnamed = "tg-build-without-a-name"

/** A module of a bundle. */
export interface Module {
  /** Its file, relative to the others. */
  readonly file: string
  readonly text: string
  /** The files of what it imports at once. */
  readonly imports: ReadonlyArray<string>
  /** The sources that it was made of. */
  readonly sources: ReadonlyArray<string>
  /** Where in them each piece of the text was, as a source map, if it was asked for. */
  readonly map: string | undefined
}

/** How modules are made for a page. */
export interface Options {
  /** What names stand for, as text of the program. */
  readonly define?: Readonly<Record<string, string>>
  /** The package that JSX is for. */
  readonly jsx?: string
  /** One module for each script, with nothing apart. */
  readonly isWhole?: boolean
  /** Whether to tell where pieces come from. */
  readonly isMapped?: boolean
}

/** What is imported when it is needed, but always together. */
const always = [["Compiling", "capture", "Equality"], [
  "WgslRenderer",
  ...StandIns.gpuParts.map((part) => path.basename(part))
]]

/** What each of a list fetches, where one of them always is, and whose module it lies in: that of an entry that is there by then. */
const each = [{ of: ["models-deepseek2-Family", "models-llama-Family"], into: "web-worker" }]

/** What has no effect where its result is not used: an `Effect` is run by `Effect.run..` alone. */
const pure = ["Context", "Data", "Layer", "Option", "Result", "Schema", "Stream"].concat(
  ["all", "cached", "flatMap", "fn", "fnUntraced", "gen", "map", "promise", "succeed", "suspend", "sync"].map((name) =>
    `Effect.${name}`
  ),
  // a rule of the e-graph, which no search of a page may ask for
  "rule"
)

const common = {
  platform: "browser",
  treeshake: { manualPureFunctions: pure, propertyReadSideEffects: false, unknownGlobalSideEffects: false },
  tsconfig: false,
  onLog: (level: LogLevel, log: RolldownLog, handle: LogOrStringHandler) => {
    // what stands in for a module has to have all that is asked of it
    if (log.code === "IMPORT_IS_UNDEFINED") throw new Error(log.message)
    handle(level, log)
  },
  preserveEntrySignatures: "allow-extension"
} as const

const transforms = (define: Options["define"], jsx: Options["jsx"]) => ({
  target: "es2024",
  define: { TG_BUILD: JSON.stringify(unnamed), ...define },
  ...(jsx === undefined ? {} : { jsx: { runtime: "automatic", importSource: jsx } as const })
})

const isChunk = (output: OutputChunk | OutputAsset): output is OutputChunk => output.type === "chunk"

const toModule = ({ code, fileName, imports, map, moduleIds }: OutputChunk): Module => ({
  file: fileName,
  text: code,
  imports,
  sources: moduleIds,
  map: map?.toString()
})

const settings = {
  format: "esm",
  comments: false,
  entryFileNames: "[name].js",
  chunkFileNames: "[name]-[hash].js"
} as const

/** The sources that lie together, by what is left of them where nothing but what is asked for decides. */
const together = async (input: InputOptions): Promise<ReadonlyMap<string, string>> => {
  // what is imported when it is needed is no part of what imports it at once
  const build = await rolldown({ ...input, experimental: { chunkOptimization: false } })
  const { output } = await build.generate({ ...settings, minify: false })
  await build.close()
  return Chunking.groups(output.filter(isChunk), { always, each })
}

/**
 * Scripts as modules that share what they have in common. Each may know a name of the build (`TG_BUILD`), which changes when
 * any of them does.
 */
export const modules = async (
  scripts: Readonly<Record<string, string>>,
  { define, isMapped = false, isWhole = false, jsx }: Options = {}
): Promise<{ readonly name: string; readonly modules: ReadonlyArray<Module> }> => {
  const input: InputOptions = {
    ...common,
    plugins: [browserHub, ...(isWhole ? [] : [thinSchema, thinDuration]), ownModules(isWhole)],
    input: { ...scripts },
    transform: transforms(define, jsx)
  }
  const groups = isWhole ? undefined : await together(input)
  const build = await rolldown(input)
  const { output } = await build.generate({
    ...settings,
    minify: true,
    sourcemap: isMapped ? "hidden" : false,
    codeSplitting: groups !== undefined && {
      includeDependenciesRecursively: false,
      groups: [{ debugName: "together", name: (id) => groups.get(id) ?? null }]
    }
  })
  await build.close()
  const chunks = output.filter(isChunk).map(toModule)
  // a map knows the places of the names that rolldown has given
  const made = isMapped ? chunks : withOwnNames(chunks)
  const hash = createHash("sha256")
  for (const { text } of made) hash.update(text)
  const name = hash.digest("hex").slice(0, 16)
  return { name, modules: made.map((module) => ({ ...module, text: module.text.replaceAll(unnamed, name) })) }
}

/** The files that are fetched for one: it and all that it imports at once. */
export const closure = (modules: ReadonlyArray<Module>, file: string, found = new Set<string>()): Set<string> => {
  if (found.has(file)) return found
  found.add(file)
  for (const next of modules.find((module) => module.file === file)!.imports) closure(modules, next, found)
  return found
}
