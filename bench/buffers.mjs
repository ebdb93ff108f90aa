/**
 * What a dispatch costs the host by the buffers of its bind group: kernels that do nothing, as many as a token of GLM-4.7-Flash has, in plain WebGPU.
 *
 *     node bench/buffers.mjs
 *
 * Wall time of a step (`ROUNDS`, 60 by default, in turns) until its commands are submitted, in microseconds: the calls, `submit`, and of their sum the least and the middle, each also as a part of the first row's.
 */
import { create, globals } from "webgpu"

Object.assign(globalThis, globals)

const layers = 47
const launchesOfLayer = 9
const programs = 18
const rounds = Number(process.env.ROUNDS ?? 60)
/** Rounds in which code is compiled. */
const first = 5
const computeStage = 4
const usage = { mapRead: 1, copySrc: 4, copyDst: 8, uniform: 64, storage: 128 }

/** Held for as long as the program runs: devices do not keep it alive. */
const gpu = create(["enable-dawn-features=allow_unsafe_apis,disable_robustness"])
const adapter = await gpu.requestAdapter()
if (adapter === null) throw new Error("asked for a GPU; found none")
const device = await adapter.requestDevice()

const bufferOf = (own = usage.storage | usage.copySrc) => device.createBuffer({ size: 256, usage: own })
const variables = bufferOf(usage.uniform | usage.copyDst)
const token = bufferOf()

/**
 * A step. Buffers are the launch's own (`l`) or its layer's (`w`), which are read, or written ones of the layer (`c`) or of all launches (`s`), or read by all (`r`). A bind group is one for each launch or each
 * layer.
 */
const stepOf = ({ buffers, hasUniform = true, of }) => {
  const kinds = [...buffers]
  const isRead = (kind) => "lwr".includes(kind)
  const storage = kinds.map((kind, binding) => ({
    binding,
    visibility: computeStage,
    buffer: { type: isRead(kind) ? "read-only-storage" : "storage" }
  }))
  const uniform = hasUniform ? [{ binding: kinds.length, visibility: computeStage, buffer: { type: "uniform" } }] : []
  const layout = device.createBindGroupLayout({ entries: [...storage, ...uniform] })
  const pipelineLayout = device.createPipelineLayout({ bindGroupLayouts: [layout] })
  const written = kinds.findIndex((kind) => !isRead(kind))
  const pipelines = Array.from({ length: programs }, (_, i) => {
    const declared = kinds.map((kind, at) =>
      `@group(0) @binding(${at}) var<storage, ${isRead(kind) ? "read" : "read_write"}> b${at}: array<u32>;`
    )
    const told = hasUniform ? `@group(0) @binding(${kinds.length}) var<uniform> told: vec4<u32>;` : ""
    const used = kinds.map((kind, at) => isRead(kind) ? `sum += b${at}[0];` : `b${at}[0] = sum;`)
    const code = `${declared.join("\n")}
${told}
@compute @workgroup_size(32) fn main() {
  if (${hasUniform ? "told.x" : `b${written}[1]`} == ${i + 1}u) { var sum = 0u; ${used.join(" ")} }
}`
    return device.createComputePipeline({
      layout: pipelineLayout,
      compute: { module: device.createShaderModule({ code }), entryPoint: "main" }
    })
  })
  const common = kinds.map(() => bufferOf())
  const launches = Array.from({ length: layers }, (_, layer) => {
    const own = kinds.map(() => bufferOf())
    const groupOf = () => {
      const bound = kinds.map((kind, at) => kind === "l" ? bufferOf() : "wc".includes(kind) ? own[at] : common[at])
      const entries = [...bound, ...(hasUniform ? [variables] : [])]
        .map((buffer, binding) => ({ binding, resource: { buffer } }))
      return device.createBindGroup({ layout, entries })
    }
    const shared = groupOf()
    return Array.from({ length: launchesOfLayer }, (_, i) => ({
      group: of === "layer" ? shared : groupOf(),
      pipeline: pipelines[(layer % 2) * launchesOfLayer + i]
    }))
  }).flat()
  const read = device.createBuffer({ size: 16, usage: usage.mapRead | usage.copyDst })
  return async () => {
    const begun = performance.now()
    device.queue.writeBuffer(variables, 0, new Uint32Array(4))
    const encoder = device.createCommandEncoder()
    const pass = encoder.beginComputePass()
    let bound
    for (const { group, pipeline } of launches) {
      pass.setPipeline(pipeline)
      if (bound !== group) pass.setBindGroup(0, group)
      bound = group
      pass.dispatchWorkgroups(40)
    }
    pass.end()
    encoder.copyBufferToBuffer(token, 0, read, 0, 4)
    const commands = encoder.finish()
    const encoded = performance.now()
    device.queue.submit([commands])
    const submitted = performance.now()
    await read.mapAsync(usage.mapRead)
    read.unmap()
    return { calls: 1000 * (encoded - begun), submit: 1000 * (submitted - encoded) }
  }
}

const forms = {
  "6 buffers, two of the launch alone": { of: "launch", buffers: "llrcss" },
  "6 buffers, two of the layer": { of: "launch", buffers: "wwrcss" },
  "a group for a layer, 4 buffers": { of: "layer", buffers: "wrcs" },
  "3 buffers": { of: "layer", buffers: "wcs" },
  "2 buffers": { of: "layer", buffers: "ws" },
  "2 buffers, no uniform": { of: "layer", buffers: "ws", hasUniform: false },
  "1 buffer, no uniform": { of: "layer", buffers: "s", hasUniform: false }
}
const steps = Object.entries(forms).map(([name, form]) => ({ name, run: stepOf(form), took: [] }))
for (let round = 0; round < rounds; round++) {
  for (const { run, took } of steps) {
    const one = await run()
    if (round >= first) took.push(one)
  }
}

const at = (times, part) => times.toSorted((a, b) => a - b)[Math.floor(part * times.length)]
const before = {}
for (const { name, took } of steps) {
  const sums = took.map(({ calls, submit }) => calls + submit)
  const [least, middle] = [at(sums, 0), at(sums, 0.5)]
  before.least ??= least
  before.middle ??= middle
  const calls = at(took.map((one) => one.calls), 0.5).toFixed(0)
  const submit = at(took.map((one) => one.submit), 0.5).toFixed(0)
  console.log(
    `${name.padEnd(36)} calls ${calls.padStart(5)}, submit ${submit.padStart(5)}; least ${
      least.toFixed(0).padStart(5)
    } (${(least / before.least).toFixed(2)}), middle ${middle.toFixed(0).padStart(5)} (${
      (middle / before.middle).toFixed(2)
    })`
  )
}
process.exit(0)
