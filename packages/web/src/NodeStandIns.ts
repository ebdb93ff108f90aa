/**
 * What stands in pages where a module of ours stands elsewhere: modules that are fetched when they are needed, because bundlers keep what
 * a class or a table refers to, and those that no page asks for, because `@tg/web` offers nothing that does.
 */

/** Behind a path: the module itself, though something stands in for it. */
export const apart = "?apart"

/** What stands in for a module. */
interface StandIn {
  readonly code: string
  /** What pages have not got: all that the module exports and `code` does not. Who calls it after all is told. */
  readonly absent?: string
}

const exported = /^export (?:const|class|function) (\w+)/gm

const namesIn = (code: string): ReadonlyArray<string> => [...code.matchAll(exported)].map(([, name]) => name!)

const books = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]

/** What is fetched with the compiler for a GPU, and for buffers that no device binds as a whole. */
export const gpuParts: ReadonlyArray<string> = [
  "egraph/src/Operands",
  "egraph/src/Split",
  "rangeify/src/Fusion",
  "rangeify/src/Search",
  "rangeify/src/Horizontal",
  "rangeify/src/FitWindows",
  "rangeify/src/Peel",
  "heuristics/src/Gpu",
  "postrange/src/Workgroups",
  "devectorize/src/IdleLanes",
  "devectorize/src/Threads",
  "devectorize/src/internal/acrossThreads",
  "devectorize/src/internal/early",
  "devectorize/src/Concatenate",
  "engine/src/Packing"
]

const nameOf = (module: string): string => module.slice(module.lastIndexOf("/") + 1)
const fetchOf = (module: string): string => `fetch_${nameOf(module)}`

/** A module whose functions are called where it has been fetched, and nowhere else, and with it what is said of it without it. */
const forwarded = (
  module: string,
  functions: ReadonlyArray<string>,
  code = "",
  absent?: string
): Readonly<Record<string, StandIn>> => ({
  [module]: {
    code: `
let there
${functions.map((name) => `export const ${name} = (...given) => there.${name}(...given)`).join("\n")}
${code}
export const ${fetchOf(module)} = () =>
  import("./${nameOf(module)}.ts${apart}").then((all) => { there = all })
`,
    ...(absent === undefined ? {} : { absent })
  }
})

/** By the end of the path. */
const standIns: Readonly<Record<string, StandIn>> = {
  // the compiler behind `Jit.layer`, fetched when the layer is built
  "jit/src/internal/capture": {
    code: `
import * as Effect from "effect/Effect"
export const make = Effect.flatMap(Effect.promise(() => import("./capture.ts${apart}")), ({ make }) => make)
`
  },
  // code books, fetched for a model that has such a type
  "gguf/src/LayoutGrids": {
    code: `
let there
const of = (type) => {
  if (there === undefined) throw new Error("the code books were not fetched")
  return there[type]
}
export const gridCodecs = { ${books.map((type) => `get ${type}() { return of("${type}") }`).join(", ")} }
export const fetchBooks = () => import("./LayoutGrids.ts${apart}").then(({ gridCodecs }) => { there = gridCodecs })
`
  },
  "web/src/CodeBooks": {
    code: `
import * as Effect from "effect/Effect"
import { fetchBooks } from "@tg/gguf/LayoutGrids"
export { isCoded } from "./CodeBooks.ts${apart}"
export const fetched = Effect.promise(fetchBooks)
`
  },
  // the search for equal programs, fetched when a program is compiled
  "egraph/src/Equality": {
    code: `
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
const searched = (sink, options) => Effect.flatMap(
  Effect.promise(() => import("./Equality.ts${apart}")),
  ({ Equality }) => Effect.provide(Effect.flatMap(Equality, ({ optimise }) => optimise(sink, options)), Equality.layer)
)
export class Equality extends Context.Service()("@tg/egraph/Equality") {
  static layer = Layer.succeed(Equality, {
    id: "@tg/egraph",
    optimise: searched
  })
  static layerNone = Layer.succeed(Equality, { id: "none", optimise: (sink) => Effect.succeed({ sink, bodies: [] }) })
}
`
  },
  // what chooses how products read their operands, makes pieces of reductions, chooses what is kept and staged by cost, joins kernels, cuts them into windows, and maps loops to threads
  ...forwarded(
    "egraph/src/Operands",
    [],
    `
export const ofBody = (body, profile) =>
  profile.kind === "cpu" ? { body, reports: [] } : there.ofBody(body, profile)
`
  ),
  ...forwarded(
    "egraph/src/Split",
    [],
    `
export const ofProgram = (sink, profile, choose) =>
  profile.kind === "cpu" ? { sink, reports: [] } : there.ofProgram(sink, profile, choose)
`
  ),
  ...forwarded(
    "rangeify/src/Fusion",
    ["launchOf", "addedMicros", "launchMicros", "wavesOf"],
    `
import * as Context from "effect/Context"
export { traffic, usualSize } from "./Traffic.ts"
export const grain = 1e-6
export const margin = 0.02
export const ofProfile = (profile) => profile.kind === "cpu" ? undefined : there.ofProfile(profile)
export const FusionCosts = Context.Reference("@tg/rangeify/FusionCosts", { defaultValue: () => ofProfile })
`
  ),
  ...forwarded("rangeify/src/Search", ["search"]),
  ...forwarded(
    "rangeify/src/Horizontal",
    ["joinIndependent"],
    `
export { canonical, members } from "./Members.ts"
const join = (...given) => there.passes.passes[0].run(...given)
export const passes = { stage: "rangeify", passes: [{ name: "join", from: "kernel", to: "kernel", run: join }] }
`
  ),
  ...forwarded("rangeify/src/FitWindows", ["cutToFit"]),
  ...forwarded(
    "rangeify/src/Peel",
    [],
    `
import { loopsBetween } from "@tg/core-uop/Workgroup"
export const peel = (kernel) => loopsBetween(kernel).size === 0 ? kernel : there.peel(kernel)
`
  ),
  ...forwarded("heuristics/src/Gpu", ["chooseGpu"]),
  ...forwarded("postrange/src/Workgroups", ["whyIllegal"]),
  ...forwarded("devectorize/src/IdleLanes", ["withoutIdleLanes"]),
  ...forwarded(
    "devectorize/src/Threads",
    ["addThreads"],
    `
export { GridProblem } from "./GridProblem.ts"
`
  ),
  ...forwarded("devectorize/src/internal/acrossThreads", ["acrossThreads"]),
  ...forwarded(
    "devectorize/src/internal/early",
    [],
    `
export const earlyLoads = (...given) => there?.earlyLoads(...given) ?? []
`
  ),
  ...forwarded(
    "devectorize/src/Concatenate",
    [],
    `
export const passes = { stage: "launch", passes: [{
  name: "concatenate",
  from: "linear",
  to: "linear",
  run: (_, { parts, ...target }) => parts.length === 1 ? parts[0].linear : there.concatenate(parts, target)
}] }
`,
    "persistent launches"
  ),
  // each tensor in a buffer of its own, where no compiler for a GPU is
  ...forwarded(
    "engine/src/Packing",
    [],
    `
export const on = (profile, tensors) => there?.on(profile, tensors) ??
  tensors.map(({ bytes, name }) => ({ bytes, label: name, parts: [{ bytes, name, offset: 0 }] }))
`
  ),
  // indented, so that nobody takes its text for imports of this module
  "web/src/GpuParts": {
    code: `
import * as Effect from "effect/Effect"
${gpuParts.map((part) => `  import { ${fetchOf(part)} } from "../../${part}.ts"`).join("\n")}
export const fetched = Effect.promise(() => Promise.all([${gpuParts.map((part) => `${fetchOf(part)}()`).join(", ")}]))
`
  },
  "web/src/LargeTensors": {
    code: `
import * as Effect from "effect/Effect"
  import { fetch_FitWindows } from "../../rangeify/src/FitWindows.ts"
export { isLarge } from "./LargeTensors.ts${apart}"
export const fetched = Effect.promise(fetch_FitWindows)
`
  },
  // checks of programs between stages, which the command line does where it is asked for
  "core-uop/src/Spec": {
    code: `
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
export const Checked = Context.Reference("@tg/core-uop/Checked", { defaultValue: () => false })
export const firstViolation = () => Effect.undefined
`,
    absent: "checks of programs"
  },
  // why forms are equal, for those who plan
  "egraph/src/Explain": {
    code: `
export const explain = () => undefined
export const printSteps = () => []
`
  },
  // products on matrix units, which no page asks its browser for
  "rangeify/src/MatrixTiles": {
    code:
      `export { tiledTokens as tiledLoops } from "./Tiles.ts"\nexport const tiledProduct = () => undefined\nexport const productsIn = () => new Map()`
  },
  "egraph/src/MatrixSplit": { code: `export { ofProgram } from "./Split.ts"` },
  // calls of tools: replies of pages are read without
  "dialogue/src/internal/calls": { code: "", absent: "calls of tools" },
  // shapes of models without their files
  "models-deepseek2/src/Shapes": { code: "export const architectures = new Map()", absent: "shapes of models" },
  "models-llama/src/Shapes": { code: "export const models = new Map()", absent: "shapes of models" },
  // sums of rows that an index names, which training has
  "rangeify/src/Additions": { code: "", absent: "sums of rows" },
  "heuristics/src/Additions": { code: "export const addsRows = () => false", absent: "sums of rows" },
  "devectorize/src/internal/additions": { code: "", absent: "sums of rows" },
  "codegen-wasm/src/internal/additions": { code: "", absent: "sums of rows" },
  "codegen-wgsl/src/internal/additions": { code: "", absent: "sums of rows" },
  // matrix units, which browsers have not got
  "postrange/src/Matrix": {
    code: `export const passes = []\nexport const whyNoPart = () => "none"`,
    absent: "matrix units"
  },
  "heuristics/src/Matrix": {
    code: `export const chooseMatrix = () => false\nexport const choosePieces = () => undefined`,
    absent: "matrix units"
  },
  "devectorize/src/internal/matrix": { code: "export const inProducts = () => () => false", absent: "matrix units" },
  // browsers clamp indices
  "codegen-wgsl/src/internal/clamps": { code: "export const within = (_, __, { index }) => index" },
  "codegen-wgsl/src/internal/fragments": { code: "export const enables = []", absent: "matrix units" },
  "runtime/src/internal/conformance/additions": { code: "export const additions = {}" },
  "model-parts/src/Predict": { code: "", absent: "drafts" },
  // steps of several conversations
  "model-parts/src/Places": {
    code: `
  import { assign } from "@tg/tensor/Program"
export const write = (cache, rows, { first }) => assign(cache.slice(0, first, rows.dim(0)), rows)
`,
    absent: "steps of several conversations"
  },
  // what launches cost, for those who plan
  "jit/src/Launches": { code: "", absent: "estimates of launches" },
  // kernels that programs write by hand
  "core-uop/src/Custom": { code: "", absent: "kernels written by hand" },
  // ranges of positions with programs of their own: contexts of pages are short
  "engine/src/Spans": {
    code: `
export const at = (_, { context }) => ({ from: 0, to: context })
export const all = (within) => [at(0, within)]
`
  },
  // drafts
  "engine/src/Speculation": { code: "", absent: "drafts" },
  "engine/src/Verifying": { code: "", absent: "drafts" },
  "engine/src/Predicting": { code: "", absent: "drafts" },
  "engine/src/PredictionPrograms": { code: "", absent: "drafts" },
  "engine/src/PredictionProgram": { code: "export const draftRoom = 0", absent: "drafts" },
  "engine/src/Rounds": { code: "", absent: "drafts" },
  "engine/src/RoundPrograms": { code: "", absent: "drafts" },
  "engine/src/RoundProgram": { code: "", absent: "drafts" },
  "engine/src/DrawRows": { code: "", absent: "drafts" },
  // launches of several kernels, and bindings that launches share
  "devectorize/src/Phases": { code: "", absent: "persistent launches" },
  // no kernel of a page reads what it has written outside of its workgroup
  "codegen-wgsl/src/internal/barriers": { code: "export const behindStores = () => new Set()" },
  "codegen-wgsl/src/internal/awaiting": {
    code: "export const rows = () => new Map()",
    absent: "persistent launches"
  },
  "codegen-wgsl/src/internal/meeting": {
    code: `
const none = () => []
export const enter = none
export const functions = none
export const leave = none
export const arrivals = () => new Map()
export const inFlight = arrivals
export const awaits = () => false
`,
    absent: "persistent launches"
  },
  "core-uop/src/Phases": {
    code: `
export const isPersistent = () => false
export const phasesOf = () => []
export const runningIn = phasesOf
`,
    absent: "persistent launches"
  },
  "core-uop/src/PhasesSignature": { code: "", absent: "persistent launches" },
  "jit/src/internal/sharedPlan": {
    code: `
import * as Effect from "effect/Effect"
export const layoutOf = () => undefined
export const formOf = () => ""
export const scheduled = ({ schedule }, sink) => schedule(sink)
export const planShared = () => Effect.undefined
`
  },
  "jit/src/internal/words": { code: "export const untilCleared = (_, count) => count" },
  "jit/src/Meeting": {
    code: `
import * as Effect from "effect/Effect"
export const make = () => Effect.succeed({})
`
  },
  "jit/src/internal/trials": {
    code: `
import * as Effect from "effect/Effect"
export const bound = (_, compile, bind) => Effect.flatMap(compile, bind)
`,
    absent: "persistent launches"
  },
  "jit/src/internal/phased": {
    code: "export const ofVariant = (_, program) => program",
    absent: "persistent launches"
  },
  "engine/src/Meanwhile": {
    code: `
import * as Effect from "effect/Effect"
export const whileFilling = (...both) => Effect.map(Effect.all(both.map(Effect.timed), { concurrency: 2 }), ([[a], [b]]) => [a, b])
`
  },
  "jit/src/Persistent": {
    code: `
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
export const off = { mode: "off", refused: undefined, onRefused: () => Effect.void }
export const Persistent = Context.Reference("@tg/jit/Persistent", { defaultValue: () => off })
export const idOf = () => "off"
export const persist = (_, schedule) => Effect.succeed(schedule)
`,
    absent: "persistent launches"
  },
  "jit/src/Shared": {
    code: `
export { BindGroups } from "./Shared.ts${apart}"
export const plan = () => "pages have no shared bindings"
`
  }
}

/** The modules that something stands in for, by the ends of their paths. */
export const modules: ReadonlyArray<string> = Object.keys(standIns)

/** What stands in for a module of this path and code, if anything does. */
export const of = (path: string, code: string): string | undefined => {
  const found = Object.entries(standIns).find(([end]) => path.replaceAll("\\", "/").endsWith(`${end}.ts`))?.[1]
  if (found?.absent === undefined) return found?.code
  const own = new Set(namesIn(found.code))
  const others = namesIn(code).filter((name) => !own.has(name)).map((name) =>
    `export const ${name} = () => { throw new Error("pages have no ${found.absent}") }`
  )
  return [found.code, ...others].join("\n")
}
