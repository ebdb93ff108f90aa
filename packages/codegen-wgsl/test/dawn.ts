import { create } from "webgpu"

// dawn devices stay usable while their entry is referenced
let entry: GPU | undefined

const open = async (): Promise<GPUDevice | undefined> => {
  entry = create([])
  const adapter = await entry.requestAdapter()
  if (adapter === null) {
    if (process.env["TG_REQUIRE_GPU"] === "1") throw new Error("TG_REQUIRE_GPU=1, but Dawn found no adapter")
    console.warn("SKIPPED: validation of WGSL, because Dawn found no adapter")
    return undefined
  }
  const requiredFeatures: Array<GPUFeatureName> = adapter.features.has("subgroups") ? ["subgroups"] : []
  return adapter.requestDevice({ requiredFeatures })
}

const device = await open()

/** False on machines without an adapter. */
export const isAvailable = device !== undefined

/** What Dawn and the driver say against a program; undefined when they accept it. */
export const complaint = async (code: string): Promise<string | undefined> => {
  device!.pushErrorScope("validation")
  const module = device!.createShaderModule({ code })
  const invalid = await device!.popErrorScope()
  if (invalid !== null) return invalid.message
  try {
    await device!.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint: "main" } })
    return undefined
  } catch (cause) {
    return String(cause)
  }
}

export const close = (): void => {
  device?.destroy()
  entry = undefined
}
