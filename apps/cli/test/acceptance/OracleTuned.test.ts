import { assert, describe, it } from "@effect/vitest"
import { NodeServices } from "@effect/platform-node"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import { defaultChunk } from "@tg/engine/Prompts"
import { Device } from "@tg/runtime/Device"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import * as Moves from "@tg/tuner/Moves"
import * as Store from "@tg/tuner/Store"
import * as Tuned from "@tg/tuner/Tuned"
import { Effect, Option } from "effect"
import * as Kernel from "../../src/commands/Kernel.ts"
import * as Devices from "../../src/Devices.ts"
import * as KernelNames from "@tg/jit/KernelNames"
import { isFull } from "./support/full.ts"
import * as Int8 from "./support/int8.ts"
import * as Oracle from "./support/oracle.ts"

/** Entries that remember which of them were asked for. */
class Seen extends Map<string, Store.Entry> {
  readonly found = new Set<string>()
  override get(key: string): Store.Entry | undefined {
    const entry = super.get(key)
    if (entry !== undefined) this.found.add(key)
    return entry
  }
}

/** Which of the neighbours a kernel gets: another one for each. */
const step = 7

/** Opts that `tune` could find for a kernel: a neighbour of the heuristics' choice, if it has one. */
const otherOpts = (kernel: UOp, profile: DeviceProfile, number: number): Moves.Candidate | undefined => {
  const { opts } = Tuned.choose(kernel, profile, Store.empty)
  const usual = { opts, template: undefined }
  const space = Moves.space(kernel, opts, profile)
  const others = space.neighbours(usual).map(({ candidate }) => candidate)
    .filter((candidate) => space.keyOf(candidate) !== space.keyOf(usual))
  return others.map((_, i) => others[(number * step + i) % others.length]!).find(space.accepts)
}

/** Such opts for every kernel of a step. */
const otherEntries = Effect.fnUntraced(function*(
  name: Oracle.Name,
  asked: Pick<Parameters<typeof Kernel.kernelsOf>[0], "activations" | "kv" | "step">
) {
  const { profile } = yield* Device
  const model = Oracle.pathOf(name)
  const kernels = yield* Kernel.kernelsOf({
    ...asked,
    model: Option.some(model),
    shape: Option.none(),
    context: Option.none()
  })
  const members = [...kernels].flatMap(([name, { ast }]) => KernelNames.membersOf(name, ast))
  const different = new Map(members.map((member) => [Store.keyOf(member.ast), member]))
  const made = [...different].flatMap(([key, { ast, name }], i) => {
    const found = otherOpts(ast, profile, i)
    return found === undefined
      ? []
      : [[key, { name, opts: found.opts, micros: 1, usualMicros: 1 }] as const]
  })
  assert.isAtLeast(made.length, kernels.size / 2)
  return { adapter: profile.adapter!, entries: new Seen(made) }
})

const agrees = (name: Oracle.Name, device: Devices.Choice) =>
  Effect.gen(function*() {
    const asked = { activations: "float", kv: "f32", step: "logits" } as const
    const { adapter, entries } = yield* otherEntries(name, asked).pipe(Effect.provide(Devices.layer(device)))
    yield* Oracle.agrees(name, { cache: "f32", device, store: new Map([[adapter, entries]]) })
    assert.strictEqual(entries.found.size, entries.size)
  }).pipe(Effect.provide(NodeServices.layer))

/** The same of bytes, token by token. A GPU decodes: what chooses the next token is none of what gives all logits. */
const bytesAreNear = (name: Oracle.Name, device: Devices.Choice) =>
  Effect.gen(function*() {
    const { chunk, step } = device === "wasm"
      ? { chunk: defaultChunk, step: "logits" } as const
      : { chunk: 1, step: "decode" } as const
    const asked = { activations: "int8", kv: "f16", step } as const
    const { adapter, entries } = yield* otherEntries(name, asked).pipe(Effect.provide(Devices.layer(device)))
    yield* Int8.isNear(name, { device, chunk, store: new Map([[adapter, entries]]) })
    assert.isAtLeast(entries.found.size, entries.size / 2)
  }).pipe(Effect.provide(NodeServices.layer))

describe("the oracle's logits with tuned opts, whatever they are", () => {
  for (const name of isFull ? Oracle.names : ["c01", "c04", "c06"] as const) {
    it.live(`${name} on wasm`, () => agrees(name, "wasm"))
    it.live(`${name} on wasm, of bytes`, () => bytesAreNear(name, "wasm"))
  }
})

describe.skipIf((await availableAdapter()) === undefined)("and on WebGPU, software or not", () => {
  if (isFull) it.live("c06", () => agrees("c06", "webgpu"))
  it.live("c06, of bytes", () => bytesAreNear("c06", "webgpu"))
})
