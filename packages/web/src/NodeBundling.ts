/** How the engine is bundled for browsers by esbuild. */
import { createHash } from "node:crypto"
import { readFile } from "node:fs/promises"

/** As much of esbuild as is used, so that whoever uses the engine need not install it. */
interface Builder {
  onResolve(
    options: { readonly filter: RegExp },
    callback: (request: Request) => Promise<Found | undefined>
  ): void
  onLoad(
    options: { readonly filter: RegExp },
    callback: (
      request: { readonly path: string; readonly suffix: string }
    ) => Promise<{ contents: string; loader: "ts" | "tsx" }>
  ): void
  resolve(path: string, options: Omit<Request, "path" | "kind"> & { readonly kind: never }): Promise<Found>
}
interface Request {
  readonly path: string
  readonly importer: string
  readonly resolveDir: string
  readonly kind: string
  readonly pluginData: unknown
}
interface Found {
  path: string
  errors: Array<{ readonly text: string }>
}
interface OutputFile {
  readonly path: string
  readonly text: string
  readonly contents: Uint8Array
}

/** The hub's library has another build for browsers, which bundlers do not find by themselves behind its `exports`. */
const browserHub = {
  name: "browser-hub",
  setup: ({ onResolve, resolve }: Builder): void => {
    onResolve({ filter: /^@huggingface\/hub$/ }, async ({ importer, kind, path, pluginData, resolveDir }) => {
      if (pluginData === browserHub) return undefined
      const found = await resolve(path, { importer, kind: kind as never, resolveDir, pluginData: browserHub })
      return { path: found.path.replace(/([\\/])dist([\\/])index/, "$1dist$2browser$2index"), errors: found.errors }
    })
  }
}

const barrel = /^import \{([^}]*)\} from "(effect(?:\/rpc)?|@tg\/[a-z0-9-]+)"$/gm

/** `import { Effect, type Scope } from "effect"` as imports of the modules that these names stand for: of Effect, and of ours. */
const byModule = (code: string): string =>
  code.replace(barrel, (whole, names: string, from: string) => {
    const all = names.split(",").map((name) => name.trim()).filter((name) => name !== "" && !name.startsWith("type "))
    return all.every((name) => /^[A-Z]\w*$/.test(name))
      ? all.map((name) => `import * as ${name} from "${from}/${name}"`).join("; ")
      : whole
  })

/** What pages never ask for: the search for the cheapest form of attention (`attend: "cheapest"`). */
const withoutSearch = `
export const attend = () => { throw new Error("a bundle for pages has no equality saturation: attend to latents or to heads") }
export const explain = attend
`

const apart = "?apart"

/** The compiler behind `Jit.layer`, in modules that are fetched when the layer is built: bundlers keep what a class refers to. */
const compilerApart = `
import * as Effect from "effect/Effect"
export const make = Effect.flatMap(Effect.promise(() => import("./capture.ts${apart}")), ({ make }) => make)
`

/** What stands in pages where a module of ours stands elsewhere. */
const inPages = (path: string, suffix: string): string | undefined =>
  suffix !== apart && /jit[\\/]src[\\/]internal[\\/]capture\.ts$/.test(path)
    ? compilerApart
    : /models-deepseek2[\\/]src[\\/]Attend\.ts$/.test(path)
    ? withoutSearch
    : undefined

/**
 * Bundlers keep all of a module that a barrel exports as a namespace: 75 kB gzip of `Schema` where a tenth is used. So modules of ours
 * are given the modules behind the barrels.
 */
const ownModules = {
  name: "own-modules",
  setup: ({ onLoad }: Builder): void => {
    onLoad({ filter: /[\\/](packages|apps)[\\/][^\\/]+[\\/]src[\\/].*\.tsx?$/ }, async ({ path, suffix }) => ({
      contents: inPages(path, suffix) ?? byModule(await readFile(path, "utf8")),
      loader: path.endsWith("x") ? "tsx" : "ts"
    }))
  }
}

/** Stands for the name of the build until what it names is there. */
const unnamed = "tg-build-without-a-name"

const plugins: Array<typeof browserHub | typeof ownModules> = [browserHub, ownModules]

/** What all bundles have in common: small modules, which share what they have in common. Nothing is written. */
export const options = {
  bundle: true,
  splitting: true,
  minify: true,
  format: "esm",
  platform: "browser",
  target: "es2024",
  plugins,
  legalComments: "none",
  define: { TG_BUILD: JSON.stringify(unnamed) },
  write: false,
  metafile: true
} as const

/** The files, each with the name of the build in it, which changes when any of them does (`TG_BUILD`). */
export const named = (
  files: ReadonlyArray<OutputFile>
): { readonly name: string; readonly files: ReadonlyArray<{ readonly path: string; readonly text: string }> } => {
  const hash = createHash("sha256")
  for (const { contents } of files) hash.update(contents)
  const name = hash.digest("hex").slice(0, 16)
  return { name, files: files.map(({ path, text }) => ({ path, text: text.replaceAll(unnamed, name) })) }
}
