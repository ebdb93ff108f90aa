import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Expr from "@tg/core-uop/Expr"
import { Arena } from "@tg/core-uop/UOp"
import { Effect, Path } from "effect"
import { choose } from "../src/commands/Kernel.ts"
import { nameApart } from "@tg/jit/KernelNames"
import { UsageError } from "../src/Report.ts"
import * as Targets from "../src/Targets.ts"
import { tg } from "./support/run.ts"

describe("kernel", () => {
  it("takes a name, or the only one that begins so", () => {
    const names = ["query_4", "query_4.2", "cache_144"]
    assertEquals(choose("query_4", names), "query_4")
    assertEquals(choose("ca", names), "cache_144")
    const many = choose("query", names)
    assert.isTrue(many instanceof UsageError)
    assert.include(String(many), "2 kernels begin with query")
    assert.include(String(choose("x", names)), "no kernel is called x; there are\n  query_4\n")
  })

  it("gives different kernels of one name a number", () => {
    const arena = new Arena()
    const [a, b] = [Expr.int(arena, 1), Expr.int(arena, 2)]
    const steps = [{ name: "x", ast: a }, { name: "x", ast: b }, { name: "x", ast: a }]
    assertEquals([...nameApart(steps)].map(([name, { calls }]) => [name, calls]), [["x", 2], ["x.2", 1]])
  })

  const codes = [["webgpu-default", /@compute/], ["h200", /@compute/], ["wasm", /^\(module/]] as const
  for (const [profile, code] of codes) {
    it.live(`shows every stage for ${profile}`, () =>
      Effect.gen(function*() {
        const listed = JSON.parse((yield* tg(["kernel", "--profile", profile, "--json"])).stdout).kernels
        const { calls, name } = listed.find((k: { name: string }) => k.name.startsWith("attn_mix"))
        // of six blocks; the first is of another kind, where its kernel may be another one
        assert.include([5, 6], calls)
        const shown = JSON.parse((yield* tg(["kernel", name, "--profile", profile, "--json"])).stdout)
        assertEquals([shown.name, shown.calls], [name, calls])
        assert.match(shown.code, code)
        assert.isNotEmpty(shown.opts)
        for (const stage of ["kernel", "opted", "expanded"]) assert.match(shown[stage], /SINK/)
        assert.match(shown.linear, /^ +%0 /)
      }))
  }

  it.live("lists the passes that changed a kernel, and the rules that fired", () =>
    Effect.gen(function*() {
      const listed = JSON.parse((yield* tg(["kernel", "--profile", "wasm", "--json"])).stdout).kernels
      const { name } = listed.find((k: { name: string }) => k.name.startsWith("ffn_inp"))
      const args = ["kernel", name, "--profile", "wasm", "--passes"]
      const { passes } = JSON.parse((yield* tg([...args, "--json"])).stdout)
      const stages: ReadonlyArray<string> = passes.map(({ stage }: { stage: string }) => stage)
      assertEquals([...new Set(stages)], ["rangeify", "postrange", "devectorize", "linearize"])
      // the body that it is part of comes first, and where its values live
      const [store] = passes
      assert.strictEqual(store.pass, "store")
      assert.isAbove(store.homes.global, 0)
      const homes = Object.entries(store.homes).map(([home, count]) => `${count} ${home}`).join(", ")
      for (const { after, nodes } of passes) assert.isTrue(/SINK|%0/.test(after) && nodes.every((n: number) => n > 0))
      const simplified = passes.find(({ pass }: { pass: string }) => pass === "simplify")
      const [rule] = Object.keys(simplified.rules)
      const { stdout } = yield* tg(args)
      assert.match(stdout, new RegExp(`^rangeify +${store.of} +store .* homes: ${homes}$`, "m"))
      assert.match(stdout, /^postrange +\S+ +[A-Z]+\(r\d+, \d+\) +\d+ to \d+/m)
      assert.include(stdout, rule!)
    }))

  it.live("shows the members of a joined kernel", () =>
    Effect.gen(function*() {
      const listed = JSON.parse((yield* tg(["kernel", "--profile", "h200", "--json"])).stdout).kernels
      const { name } = listed.find((k: { name: string }) => k.name.split("+").length === 2)
      const shown = JSON.parse((yield* tg(["kernel", name, "--profile", "h200", "--json"])).stdout)
      assert.strictEqual(shown.name, name)
      assertEquals(new Set(shown.opts.map((opt: string) => opt.slice(0, 3))), new Set(["1: ", "2: "]))
      assert.match(shown.code, /if \(v\d+\) \{/)
      const { passes } = JSON.parse((yield* tg(["kernel", name, "--profile", "h200", "--passes", "--json"])).stdout)
      const joining = passes.filter(({ of }: { of: string }) => of === name).map(({ pass }: { pass: string }) => pass)
      assertEquals([joining[0], joining.at(-1)], ["join", "concatenate"])
      const homes = passes.find(({ pass }: { pass: string }) => pass === "choose homes")
      assert.isAbove(homes.homes.inline, 0)
    }))

  it.live("a target that the profile does not run is refused", () =>
    Effect.gen(function*() {
      const { code, stderr } = yield* tg(["kernel", "--target", "wasm", "--profile", "h200"])
      assert.strictEqual(code, 1)
      assert.include(stderr, "for --target wasm give --profile wasm")
    }))

  it.live("compiles for a renderer that a module exports", () =>
    Effect.gen(function*() {
      const javascript = fileURLToPath(new URL("../../../examples/renderer-js/src/JavaScript.ts", import.meta.url))
      const listed = JSON.parse((yield* tg(["kernel", "--target", javascript, "--json"])).stdout).kernels
      const { name } = listed.find((k: { name: string }) => k.name.startsWith("ffn_inp"))
      const shown = JSON.parse((yield* tg(["kernel", name, "--target", javascript, "--json"])).stdout)
      assertEquals([shown.target, shown.profile], [javascript, "javascript"])
      assert.match(shown.code, /new Float32Array/)
    }))

  it.live("refuses a target that is not there, and a module without a renderer", () =>
    Effect.gen(function*() {
      const unknown = yield* Effect.flip(Targets.find("metal"))
      assert.instanceOf(unknown, UsageError)
      assert.include(unknown.message, "there is no target metal; use wgsl, wasm, or the path of a module")
      const missing = yield* Effect.flip(Targets.find("./nothing.ts"))
      assert.include(missing.message, "--target ./nothing.ts: the module cannot be loaded")
      const other = yield* Effect.flip(Targets.find(fileURLToPath(new URL("../src/Words.ts", import.meta.url))))
      assert.include(other.message, "exports cause, count; export `renderer`")
    }).pipe(Effect.provide(Path.layer)))
})
