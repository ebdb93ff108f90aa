/** Whole persistent launches of a model, as a GPU with barriers across the grid has them: the evaluator runs them, and what they leave is what their kernels leave one by one. */
import { fileURLToPath } from "node:url"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import { type DeviceProfile, h200, Profile } from "@tg/core-uop/DeviceProfile"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import * as Phases from "@tg/core-uop/Phases"
import { signature } from "@tg/core-uop/Program"
import * as Spec from "@tg/core-uop/Spec"
import { argOf, toposort, type UOp, varArg } from "@tg/core-uop/UOp"
import * as ModelFile from "@tg/engine/ModelFile"
import * as StepProgram from "@tg/engine/StepProgram"
import * as GgufFile from "@tg/gguf/GgufFile"
import * as Persistent from "@tg/jit/Persistent"
import { Pipeline } from "@tg/jit/Pipeline"
import * as Stages from "@tg/jit/Stages"
import * as Trial from "@tg/jit/Trial"
import { known } from "@tg/models/Models"
import { Effect, Layer } from "effect"

const path = fileURLToPath(new URL("../../../test/vectors/oracle/c06.gguf", import.meta.url))

/** A GPU of few processors, so that the evaluator has few workgroups to run. */
const profile: DeviceProfile = {
  ...h200,
  processors: 16,
  gridBarrierHolds: true,
  gridBarrierWorkgroups: 64,
  gridBarrierMicros: 0.9,
  encodeMicros: 7
}

const pipeline = Pipeline.pipe(
  Effect.provide(Pipeline.layer.pipe(Layer.provide([
    WgslRenderer.layer({ packedDot: profile.packedDot, subgroupSize: profile.subgroupSize }),
    Profile.layer(profile),
    Layer.succeed(Persistent.Persistent, { ...Persistent.off, mode: "auto" })
  ])))
)

/** Memory of a launch: words that are finite as what they may be, none where words are awaited and counted, and the first place. */
const memoryOf = (launch: UOp): Map<number, Uint32Array> => {
  const phases = Phases.phasesOf(launch)
  const arg = argOf(launch, "PERSISTENT")
  const places = phases.flatMap(({ kernel, slots }) => Trial.placing(kernel).map((own) => slots[own]!))
  const empty = new Set([...places, ...arg.awaited?.slice(0, 2) ?? [], Phases.meetingSlot(phases, arg)])
  return new Map(
    signature(launch).bindings.map(({ bytes = 0, slot }) => [
      slot,
      empty.has(slot) ? new Uint32Array(bytes / 4) : Trial.wordsOf(bytes / 4, slot + 1)
    ])
  )
}

/** The values that the phases write, as kernels one by one and as one launch leave them; what is forwarded is in its slot. */
const valuesOf = (launch: UOp, linear: UOp, vars: Readonly<Record<string, number>>) => {
  const [want, found] = [memoryOf(launch), memoryOf(launch)]
  evaluateKernel(launch, want, vars)
  evaluateLinear(linear, found, vars, { seed: 7 })
  const { awaited } = argOf(launch, "PERSISTENT")
  return Phases.phasesOf(launch).flatMap(({ kernel, offsets, slots }) =>
    [...Phases.touched(kernel)].flatMap(([own, access]) => {
      if (access === "read") return []
      const [slot, offset] = [slots[own]!, offsets[own]!]
      const count = Phases.sizes(kernel).get(own)! / 4
      const words = (args: ReadonlyMap<number, Uint32Array>): Uint32Array =>
        args.get(slot)!.slice(offset, offset + count)
      const unveiled = words(found).map((word) => slot === awaited?.[0] ? word ^ Phases.veil : word)
      return [{ want: words(want), found: unveiled }]
    })
  )
}

describe("persistent launches of a model", () => {
  it.effect(
    "leave what their kernels leave one by one, the cache's row that attention is forwarded among it",
    () =>
      Effect.gen(function*() {
        const { gguf } = yield* GgufFile.open(path)
        const model = yield* ModelFile.ofGguf(gguf, known)
        const stages = yield* pipeline
        const size = { activations: "int8", cache: "f16", context: 512, profile } as const
        const { steps } = yield* stages.schedule(StepProgram.decodeProgram(model, size).sink)
        const launches = steps.flatMap((step) => step.kind === "kernel" && Phases.isPersistent(step.ast) ? [step] : [])
        const forwards = launches.flatMap(({ ast }) => Phases.phasesOf(ast).flatMap(Phases.forwardsOf))
        assert.isNotEmpty(forwards)
        for (const { ast, name } of launches) {
          const { linear } = yield* Stages.ofKernel(stages, name, ast)
          assert.deepStrictEqual(Spec.check("linear", linear), [], name)
          yield* stages.render(name, linear)
          const vars = Object.fromEntries(
            toposort(ast).filter(({ op }) => op === "VAR").map((
              node
            ) => [varArg(node).name, Math.floor(varArg(node).max / 2)])
          )
          for (const { found, want } of valuesOf(ast, linear, vars)) {
            // a sum in another order may round a packed value otherwise
            assert.isAtMost(Trial.differing(want, found).length, Math.ceil(want.length / 500), name)
          }
        }
      }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)),
    120_000
  )
})
