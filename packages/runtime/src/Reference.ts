import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import { elementwise } from "@tg/core-uop/Op"
import { type Program, Renderer, type RendererCaps, RenderError, signature } from "@tg/core-uop/Program"
import * as Spec from "@tg/core-uop/Spec"
import { UOp } from "@tg/core-uop/UOp"
import { Effect, Layer } from "effect"
import { Device, DeviceError, type DeviceShape } from "./Device.ts"
import { bad, type Run } from "./HostDevice.ts"
import * as HostDevice from "./HostDevice.ts"

/** What the reference device may be asked to watch. */
export interface Options {
  /** Bytes that all buffers together may take; more is `OutOfMemory`. */
  readonly limitBytes?: number
  /** Fail when two iterations of a kernel write different values to one element. */
  readonly checkWrites?: boolean
  /** Float arithmetic between load and store is not rounded to 32 bits. */
  readonly float64?: boolean
}

/** No limits of its own, and no speed worth tuning for. */
export const profile: DeviceProfile = {
  name: "reference",
  kind: "cpu",
  maxWorkgroupThreads: 1024,
  maxWorkgroupBytes: 2 ** 20,
  maxGrid: 2 ** 31 - 1,
  maxStorageBuffers: 1024,
  maxBindingBytes: 2 ** 32,
  maxBufferBytes: 2 ** 32,
  subgroupSize: undefined,
  packedDot: false,
  saturatingThreads: 1,
  dispatchMicros: 10,
  bytesPerMicro: 100
}

/** Every operation, every lane count, a grid. */
export const caps: RendererCaps = {
  target: "reference",
  hasGrid: true,
  lanes: [1, 2, 4],
  ops: elementwise,
  subgroupSize: undefined
}

/** A program of the reference device: the kernel itself, as a SINK (stages kernel to expanded) or a LINEAR. */
export const program = (name: string, kernel: UOp): Program => ({
  name,
  target: "reference",
  code: kernel,
  ...signature(kernel)
})

/** "Renders" a linear kernel for the reference device, with these capabilities: how a compiler is tested end to end. */
export const renderer = (withCaps: Partial<RendererCaps> = {}): Layer.Layer<Renderer> =>
  Layer.succeed(Renderer, {
    id: "@tg/runtime",
    caps: { ...caps, ...withCaps, target: "reference" },
    render: (name, linear) => {
      const [problem] = Spec.check("linear", linear)
      return problem === undefined
        ? Effect.succeed(program(name, linear))
        : Effect.fail(new RenderError({ kernel: name, message: `${problem.node}: ${problem.reason}` }))
    }
  })

const accept = ({ bindings, code, name, target }: Program, options: Options): Run | DeviceError => {
  if (target !== "reference") return bad(`${name} is a program for ${target}; this is the reference device`)
  if (typeof code === "function") return code
  if (!(code instanceof UOp)) {
    return new DeviceError({ reason: "ProgramRejected", message: `${name}: the code is not a kernel` })
  }
  const stages: ReadonlyArray<Spec.Stage> = code.op === "LINEAR" ? ["linear"] : ["opted", "expanded"]
  const [first] = stages.map((stage) => Spec.check(stage, code)).toSorted((a, b) => a.length - b.length)
  if (first !== undefined && first.length > 0) {
    const { node, reason } = first[0]!
    return new DeviceError({ reason: "ProgramRejected", message: `${name}: ${node}: ${reason}` })
  }
  return (words, vars) => {
    const args = new Map(bindings.map(({ slot }, i) => [slot, words[i]!]))
    if (code.op === "LINEAR") evaluateLinear(code, args, vars, options)
    else evaluateKernel(code, args, vars, options)
  }
}

/** A device that evaluates kernels directly. A compiler's mistake (an access outside a buffer) is a defect of `run`. */
export const make = (options: Options = {}): DeviceShape =>
  HostDevice.make({
    profile,
    limitBytes: options.limitBytes,
    load: (program) => accept(program, options)
  })

/** The reference device. */
export const layer: Layer.Layer<Device> = Layer.sync(Device, () => make())

/** The reference device with options. Bind the layer to a constant before using it twice. */
export const layerWith = (options: Options): Layer.Layer<Device> => Layer.sync(Device, () => make(options))
