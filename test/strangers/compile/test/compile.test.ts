import { describe, expect, it } from "@effect/vitest"
import * as Wasm from "@tg/codegen-wasm/Wasm"
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import { type DeviceProfile, Profile, wasm, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import type { Renderer } from "@tg/core-uop/Program"
import { Heuristics } from "@tg/heuristics/Heuristics"
import * as Opt from "@tg/postrange/Opt"
import { Effect, Layer } from "effect"
import { compile, compilerLayer } from "../src/compile.ts"
import * as MyHeuristics from "../src/heuristics.ts"
import { mlp } from "../src/mlp.ts"

const target = (
  profile: DeviceProfile,
  renderer: Layer.Layer<Renderer>,
  heuristics: Layer.Layer<Heuristics, never, Profile>
) => compilerLayer.pipe(Layer.provide([heuristics, renderer]), Layer.provideMerge(Profile.layer(profile)))

describe("a compiler with its own heuristics", () => {
  it.effect("compiles a program to WGSL with the threads it chose", () =>
    Effect.gen(function*() {
      const programs = yield* compile(mlp())
      expect(programs.length).toBeGreaterThan(0)
      // 4 x 96 outputs: the last loop is 96, 4 or a product of them, and all of those have divisors below 257
      expect(programs.some((program) => program.workgroup[0] > 1)).toBe(true)
      for (const { code, target } of programs) {
        expect(target).toBe("wgsl")
        expect(code).toContain("@compute")
        expect(code).toContain("@workgroup_size")
      }
    }).pipe(Effect.provide(target(webgpuDefault, WgslRenderer.layer(), MyHeuristics.layer))))

  it.effect("compiles it to WebAssembly that an engine accepts", () =>
    Effect.gen(function*() {
      for (const { code, target } of yield* compile(mlp())) {
        expect(target).toBe("wasm")
        expect(code instanceof Uint8Array && WebAssembly.validate(code.slice())).toBe(true)
      }
    }).pipe(Effect.provide(target(wasm, Wasm.layer, MyHeuristics.layer))))

  it.effect("is told, by type, which kernel and opt were wrong", () => {
    const seven = Layer.succeed(Heuristics, { choose: () => Effect.succeed([Opt.local(0, 7)]) })
    return Effect.gen(function*() {
      const error = yield* Effect.flip(compile(mlp()))
      expect(error).toMatchObject({ _tag: "CompileError", reason: { _tag: "IllegalOpt", opt: "LOCAL(r0, 7)" } })
    }).pipe(Effect.provide(target(webgpuDefault, WgslRenderer.layer(), seven)))
  })
})
