/** What kernels are compiled to, to be read: the targets that are built in, and modules that export a renderer. */
import { pathToFileURL } from "node:url"
import * as Wasm from "@tg/codegen-wasm/Wasm"
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import { type DeviceProfile, h200, wasm, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import * as ProfileFile from "@tg/core-uop/ProfileFile"
import { Renderer, RenderError } from "@tg/core-uop/Program"
import { Effect, Layer, Path, Schema } from "effect"
import { UsageError } from "./Report.ts"

/** A language of kernels. */
export interface Target {
  readonly name: string
  /** What its code is called where it is shown. */
  readonly title: string
  /** The kind of device that runs it; any if it is not said. */
  readonly kind: DeviceProfile["kind"] | undefined
  /** What is compiled for where no profile is given. */
  readonly profile: DeviceProfile
  readonly rendererOf: (profile: DeviceProfile) => Layer.Layer<Renderer>
}

/** WebAssembly as text: to read, not to run. */
const wasmText: Layer.Layer<Renderer> = Layer.succeed(Renderer, {
  id: "WebAssembly text",
  caps: Wasm.caps,
  render: (name, linear) => {
    let code = ""
    const program = Wasm.render(name, linear, {
      assemble: (_, text) => {
        code = text
        return new Uint8Array()
      }
    })
    return program instanceof RenderError ? Effect.fail(program) : Effect.succeed({ ...program, code })
  }
})

const wgslTarget: Target = {
  name: "wgsl",
  title: "WGSL",
  kind: "gpu",
  profile: h200,
  rendererOf: ({ matrixUnits, packedDot, subgroupSize }) => WgslRenderer.layer({ matrixUnits, packedDot, subgroupSize })
}

const wasmTarget: Target = {
  name: "wasm",
  title: "WebAssembly text",
  kind: "cpu",
  profile: wasm,
  rendererOf: () => wasmText
}

/** The targets that have names. */
export const builtIn: ReadonlyMap<string, Target> = new Map(
  [wgslTarget, wasmTarget].map((target) => [target.name, target])
)

/** What a device of this profile runs. */
export const usual = ({ kind }: DeviceProfile): Target => kind === "cpu" ? wasmTarget : wgslTarget

const choices =
  `${[...builtIn.keys()].join(", ")}, or the path of a module (./renderer.ts) that exports \`renderer\`, ` +
  "a Layer of Renderer, and `profile`, a DeviceProfile"

/** What `--target` takes. */
export const description = `What to compile to: ${choices} (default: what the profile's kind of device runs)`

const isPath = (text: string): boolean => /[\\/]|\.[cm]?[jt]s$/.test(text)

/** The target of this name, or of the module at this path. */
export const find = (asked: string): Effect.Effect<Target, UsageError, Path.Path> => {
  const known = builtIn.get(asked)
  if (known !== undefined) return Effect.succeed(known)
  return isPath(asked)
    ? fromModule(asked)
    : Effect.fail(new UsageError({ message: `there is no target ${asked}; use ${choices}` }))
}

const isRendererLayer = (value: unknown): value is Layer.Layer<Renderer> => Layer.isLayer(value)

const fromModule = Effect.fnUntraced(function*(asked: string) {
  const path = yield* Path.Path
  const wrong = (found: string) => new UsageError({ message: `--target ${asked}: ${found}` })
  const loaded: { readonly renderer?: unknown; readonly profile?: unknown } = yield* Effect.tryPromise({
    try: () => import(pathToFileURL(path.resolve(asked)).href),
    catch: (error) => wrong(`the module cannot be loaded: ${error instanceof Error ? error.message : String(error)}`)
  })
  const { profile, renderer } = loaded
  if (!isRendererLayer(renderer)) {
    const exported = Object.keys(loaded).sort().join(", ")
    return yield* wrong(
      `the module exports ${exported === "" ? "nothing" : exported}; export \`renderer\`, a Layer of Renderer ` +
        "(docs/how-to/add-a-renderer.md)"
    )
  }
  const read = profile === undefined
    ? undefined
    : yield* Effect.mapError(
      Schema.decodeUnknownEffect(ProfileFile.ProfileFile)(definedOf(profile)),
      ({ message }) => wrong(`its \`profile\` is no DeviceProfile: ${message}`)
    )
  const target: Target = {
    name: asked,
    title: asked,
    kind: undefined,
    profile: read === undefined ? webgpuDefault : ProfileFile.profileOf(read),
    rendererOf: () => renderer
  }
  return target
})

/** A value without the fields that are `undefined`: in a file they would not be there. */
const definedOf = (value: unknown): unknown =>
  typeof value === "object" && value !== null
    ? Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined))
    : value
