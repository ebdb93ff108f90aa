import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import { elementwise } from "@tg/core-uop/Op"
import type { RendererCaps } from "@tg/core-uop/Program"
import * as Spec from "@tg/core-uop/Spec"
import type { UOp } from "@tg/core-uop/UOp"
import type { Opt } from "@tg/postrange/Opt"
import { apply, IllegalOpt } from "@tg/postrange/Postrange"
import { devectorize, DevectorizeError } from "../../src/Devectorize.ts"
import { linearize } from "../../src/Linearize.ts"

/** A GPU without subgroups, and a CPU. */
export const gpu: RendererCaps = {
  target: "wgsl",
  hasGrid: true,
  lanes: [1, 4],
  ops: elementwise,
  subgroupSize: undefined
}
export const cpu: RendererCaps = { ...gpu, target: "wasm", hasGrid: false }

const checked = (stage: Spec.Stage, node: UOp): UOp => {
  const [violation] = Spec.check(stage, node)
  if (violation !== undefined) throw new Error(`spec ${stage}: ${violation.node}: ${violation.reason}`)
  return node
}

/** The kernel with typed axes. */
export const opted = (kernel: UOp, opts: ReadonlyArray<Opt>): UOp => {
  const result = apply("k", kernel, opts, DeviceProfile.webgpuDefault)
  if (result instanceof IllegalOpt) throw result
  return checked("opted", result)
}

export const expanded = (kernel: UOp, opts: ReadonlyArray<Opt>, caps: RendererCaps): UOp => {
  const result = devectorize("k", opted(kernel, opts), caps, DeviceProfile.webgpuDefault)
  if (result instanceof DevectorizeError) throw result
  return checked("expanded", result)
}

export const linear = (kernel: UOp, opts: ReadonlyArray<Opt>, caps: RendererCaps): UOp =>
  checked("linear", linearize(expanded(kernel, opts, caps), caps))
