/**
 * What a driver makes of WGSL texts: registers, bytes of machine code, memory that registers are spilled to.
 *
 *     gcc -shared -fPIC -o liblayer.so layer.c
 *     MACHINE_CODE=$(mktemp -d) VK_LAYER_PATH=. VK_INSTANCE_LAYERS=VK_LAYER_tg_machine_code node sizes.mjs TEXT.wgsl...
 *
 * NVIDIA's pipeline caches hold the code, which is written beside: `nvdisasm -b SM90 N.code` lists its instructions. The driver's own cache of shaders has to be off (`__GL_SHADER_DISK_CACHE=0`).
 */
import fs from "node:fs"
import path from "node:path"
import { zstdDecompressSync } from "node:zlib"
import { create, globals } from "webgpu"

Object.assign(globalThis, globals)
const folder = process.env.MACHINE_CODE
if (folder === undefined || process.argv.length < 3) {
  console.error("asked for sizes; found no folder in MACHINE_CODE, or no WGSL file; see the beginning of this file")
  process.exit(1)
}
// as the runtime asks for it in Node
const gpu = create(["enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia,disable_robustness"])
const adapter = await gpu.requestAdapter()
const device = await adapter.requestDevice({
  requiredFeatures: ["subgroups", "shader-f16"].filter((name) => adapter.features.has(name)),
  requiredLimits: Object.fromEntries(
    [
      "maxStorageBuffersPerShaderStage",
      "maxComputeInvocationsPerWorkgroup",
      "maxComputeWorkgroupSizeX",
      "maxComputeWorkgroupStorageSize",
      "maxStorageBufferBindingSize",
      "maxBufferSize"
    ].map((name) => [name, adapter.limits[name]])
  )
})

/** The machine code in a pipeline cache of NVIDIA's: compressed, behind a table whose first entry says how long it is and where. */
const codeOf = (cache) => {
  const at = cache.indexOf(Buffer.from("28b52ffd", "hex"))
  if (at < 0) return undefined
  const data = zstdDecompressSync(cache.subarray(at))
  const table = data.indexOf("NVuc")
  if (table < 0) return undefined
  const begin = table + data.readUInt32LE(table + 72)
  return data.subarray(begin, begin + data.readUInt32LE(table + 68))
}

const rows = []
for (const [number, file] of process.argv.slice(2).entries()) {
  const code = fs.readFileSync(file, "utf8")
  device.pushErrorScope("validation")
  device.createComputePipeline({
    layout: "auto",
    compute: { module: device.createShaderModule({ code }), entryPoint: "main" }
  })
  const error = await device.popErrorScope()
  if (error !== null) {
    console.error(`${file}: ${error.message.slice(0, 500)}`)
    process.exit(1)
  }
  const of = (ending) => path.join(folder, `${number}.${ending}`)
  const told = fs.existsSync(of("txt")) ? fs.readFileSync(of("txt"), "utf8").trim().split("\n") : []
  const machine = fs.existsSync(of("cache")) ? codeOf(fs.readFileSync(of("cache"))) : undefined
  if (machine !== undefined) fs.writeFileSync(of("code"), machine)
  rows.push({
    file: path.basename(file),
    ...Object.fromEntries(told.filter((line) => line !== "").map((line) => line.split("=")))
  })
}
console.table(rows)
process.exit(0)
