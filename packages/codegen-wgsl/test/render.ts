import { assert } from "@effect/vitest"
import { Spec } from "@tg/core-uop"
import { RenderError } from "@tg/core-uop/Program"
import * as Wgsl from "../src/Wgsl.ts"
import * as Dawn from "./dawn.ts"
import type { Kernel } from "./kernels.ts"

/** What kernels are rendered for, unless a test says otherwise. */
export const caps = Wgsl.caps({ subgroupSize: 8, halfSubnormals: true, packedDot: true })

/** The WGSL of a kernel that keeps the linear contract; checked by Dawn where there is one. */
export const render = async (kernel: Kernel, options: Wgsl.Caps = caps): Promise<string> => {
  const linear = kernel.linear()
  assert.deepStrictEqual(Spec.check("linear", linear), [])
  const program = Wgsl.render("kernel", linear, options)
  if (program instanceof RenderError) throw program
  const code = program.code as string
  if (Dawn.isAvailable) assert.strictEqual(await Dawn.complaint(code), undefined, code)
  return code
}
