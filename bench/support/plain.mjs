/** Plain WGSL on Dawn: what is timed by the device's clock, and barriers across the grid in several forms, each of which is checked. */
import { create, globals } from "webgpu"

Object.assign(globalThis, globals)
export const quick = process.env.QUICK === "1"
/** Held for as long as the module is: devices do not keep it alive. */
export const gpu = create(["disable-dawn-features=timestamp_quantization"])
const adapter = await gpu.requestAdapter()
const { limits } = adapter
const hasClock = adapter.features.has("timestamp-query")
export const device = await adapter.requestDevice({
  requiredFeatures: [...hasClock ? ["timestamp-query"] : [], ...adapter.features.has("subgroups") ? ["subgroups"] : []],
  requiredLimits: Object.fromEntries(
    [
      "maxStorageBufferBindingSize",
      "maxBufferSize",
      "maxComputeInvocationsPerWorkgroup",
      "maxComputeWorkgroupSizeX",
      "maxComputeWorkgroupStorageSize"
    ].map((name) => [name, limits[name]])
  )
})
let errors = 0
device.onuncapturederror = ({ error }) => {
  if (errors++ < 5) console.log("ERROR", error.message.slice(0, 600))
}
console.log(
  `${adapter.info.vendor} ${adapter.info.device} ${adapter.info.description}, ${
    hasClock ? "device clock" : "host clock"
  }`
)

const S = GPUBufferUsage.STORAGE, C = GPUBufferUsage.COPY_DST, R = GPUBufferUsage.COPY_SRC
const buffer = (size, usage = S | C | R) => device.createBuffer({ size, usage })
const stateWords = 16384, gaveUp = 16000, stale = 16001
export const act = buffer(4 * 2 ** 20)
const bar = buffer(4 * stateWords)
export const plain = buffer(4 * 2 ** 20)
const read = buffer(64, GPUBufferUsage.MAP_READ | C)
const weightBytes = quick ? 2 ** 22 : 2e9 - 2e9 % 65536
const weights = buffer(weightBytes)
const layout = device.createBindGroupLayout({
  entries: ["read-only-storage", "storage", "storage", "storage"].map((type, binding) => ({
    binding,
    visibility: 4,
    buffer: { type }
  })).concat([
    { binding: 4, visibility: 4, buffer: { type: "uniform", hasDynamicOffset: true, minBindingSize: 16 } }
  ])
})
export const slots = 1024
const uniforms = buffer(256 * slots, GPUBufferUsage.UNIFORM | C)
const groupOf = (a, b) =>
  device.createBindGroup({
    layout,
    entries: [weights, a, bar, b].map((of, binding) => ({ binding, resource: { buffer: of } })).concat([{
      binding: 4,
      resource: { buffer: uniforms, size: 16 }
    }])
  })
export const group = groupOf(act, plain)
const pipelineLayout = device.createPipelineLayout({ bindGroupLayouts: [layout] })
const pipelines = new Map()
export const pipe = (code) => {
  if (!pipelines.has(code)) {
    pipelines.set(
      code,
      device.createComputePipelineAsync({
        layout: pipelineLayout,
        compute: { module: device.createShaderModule({ code }), entryPoint: "main" }
      }).catch((error) => (console.log("REFUSED", error.message.slice(0, 800)), undefined))
    )
  }
  return pipelines.get(code)
}
const clock = hasClock ? device.createQuerySet({ type: "timestamp", count: 2 }) : undefined
const ticks = buffer(16, GPUBufferUsage.QUERY_RESOLVE | R)

/** One submission: microseconds, stale values, whether a wait ended by its limit. */
export const once = async (body) => {
  const encoder = device.createCommandEncoder()
  encoder.clearBuffer(bar)
  const pass = encoder.beginComputePass(
    hasClock ? { timestampWrites: { querySet: clock, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 } } : {}
  )
  body(pass)
  pass.end()
  if (hasClock) {
    encoder.resolveQuerySet(clock, 0, 2, ticks, 0)
    encoder.copyBufferToBuffer(ticks, 0, read, 0, 16)
  }
  encoder.copyBufferToBuffer(bar, 4 * gaveUp, read, 16, 16)
  const began = performance.now()
  device.queue.submit([encoder.finish()])
  await read.mapAsync(GPUMapMode.READ)
  const host = (performance.now() - began) * 1000
  const all = read.getMappedRange().slice(0)
  read.unmap()
  const [a, b] = new BigUint64Array(all, 0, 2), words = new Uint32Array(all, 16, 2)
  return { micros: hasClock ? Number(b - a) / 1000 : host, gaveUp: words[0], stale: words[1] }
}
export const set = (slot, words) => device.queue.writeBuffer(uniforms, 256 * slot, new Uint32Array(words))
export const dispatch = (p, workgroups, words) => {
  set(0, words)
  return once((pass) => {
    pass.setPipeline(p)
    pass.setBindGroup(0, group, [0])
    pass.dispatchWorkgroups(workgroups)
  })
}
const text = (value, problem) => problem !== "" ? problem : value.toFixed(2)
/** Microseconds of one step, as the difference of few and many, and a checked run. */
export const perStep = async (code, workgroups, { flags = 0, extra = 0, steps = quick ? [4, 8] : [200, 1000] }) => {
  const p = await pipe(code)
  if (p === undefined) return "refused"
  const checked = await dispatch(p, workgroups, [flags | 2, quick ? 8 : 300, extra, 0])
  if (checked.gaveUp > 0) return "gave up"
  if (checked.stale > 0) return `stale ${checked.stale}`
  const least = async (count) =>
    Math.min(
      ...[
        await dispatch(p, workgroups, [flags, count, extra, 0]),
        await dispatch(p, workgroups, [flags, count, extra, 0])
      ].map(({ micros }) => micros)
    )
  return ((await least(steps[1]) - await least(steps[0])) / (steps[1] - steps[0])).toFixed(2)
}

export const limit = quick ? 2000000 : 100000
export const head = (T, declarations = "") => `
@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> act: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> bar: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> plain: array<u32>;
@group(0) @binding(4) var<uniform> u: vec4<u32>;
var<private> dead: u32; var<private> junk: u32;
var<workgroup> have: u32;
${declarations}
@compute @workgroup_size(${T}) fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let g = group.x; let G = groups.x; var old = 0u; junk = lid + 1u;`
export const tail = `  if (old > 0u) { atomicAdd(&bar[${stale}], old); } if (junk == 0u) { atomicAdd(&bar[${
  stale + 1
}], 1u); } }`
export const lose = `{ atomicStore(&bar[${gaveUp}], 1u); dead = 1u; break; }`
const poll = (at, want, between = "") =>
  `if (dead == 0u) { var n = 0u; while (atomicLoad(&bar[${at}]) < ${want}) { n++; if (n > ${limit}u) ${lose} ${between} } }`
const nap = (turns) => `for (var k = 0u; k < ${turns}u; k++) { junk ^= junk << 13u; junk = junk * 1664525u + 1u; }`
export const both = "storageBarrier(); workgroupBarrier();"
export const plainBarrier = "workgroupBarrier();"
/** Arrive and wait at step `s` (1, 2, ...). */
const one = (arrive = both, between = "") => ({
  arrive: `${arrive} if (lid == 0u) { atomicAdd(&bar[0], 1u); }`,
  wait: () => `if (lid == 0u) { ${poll(0, "s * G", between)} } ${plainBarrier}`
})
/** The wait of a counter that is first polled when the addition to it has come back. */
const fromCount =
  `var n = 0u; while (come < s * G) { come = atomicLoad(&bar[0]); n++; if (n > ${limit}u) { atomicStore(&bar[${gaveUp}], 1u); come = 0x80000000u; } }`
const added = `${both} var come = 0u; if (lid == 0u) { come = atomicAdd(&bar[0], 1u) + 1u; }`
export const compiled = "as compiled: one counter, polled behind its addition"
export const told = "the same, and all threads are told whether it held"
export const leaves = "16 leaves, polled by 16 lanes"
export const forms = {
  "none (a control: must be stale)": { arrive: plainBarrier, wait: () => plainBarrier },
  [compiled]: { arrive: added, wait: () => `if (lid == 0u) { ${fromCount} } storageBarrier();` },
  [told]: {
    arrive: added,
    wait: () =>
      `if (lid == 0u) { ${fromCount} have = come; } storageBarrier(); if (workgroupUniformLoad(&have) >= 0x80000000u) { return; }`
  },
  "one counter": one(),
  "one counter, no storageBarrier": one(plainBarrier),
  "one counter, every thread polls": { arrive: one().arrive, wait: () => poll(0, "s * G") },
  "one counter, naps between polls": one(both, nap(8)),
  "released by the last": {
    arrive: `${both} if (lid == 0u && atomicAdd(&bar[0], 1u) + 1u == s * G) { atomicStore(&bar[32], s); }`,
    wait: () => `if (lid == 0u) { ${poll(32, "s")} } ${plainBarrier}`
  },
  [leaves]: {
    arrive: `${both} if (lid == 0u) { atomicAdd(&bar[2048u + 32u * (g & 15u)], 1u); }`,
    wait: () => `if (lid < 16u) { ${poll("2048u + 32u * lid", "s * ((G - lid + 15u) >> 4u)")} } ${plainBarrier}`
  },
  "a word each, all poll all": {
    arrive: `${both} if (lid == 0u) { atomicStore(&bar[4096u + g], s); }`,
    wait: (T) => `for (var i = lid; i < G; i += ${T}u) { ${poll("4096u + i", "s")} } ${plainBarrier}`
  }
}

export const processors = quick ? 2 : 132
export const grids = quick ? [2] : [66, 132, 264, 528]
export const sizes = quick ? [64] : [128, 256, 512, 1024]
export const fits = (G, T) => quick || G * T <= processors * 2048
export const row = (name, cells, width = 58) =>
  console.log(`${name.padEnd(width)} ${cells.map((cell) => String(cell).padStart(9)).join(" ")}`)
const began = performance.now()
export const since = () => console.log(`(${((performance.now() - began) / 1000).toFixed(1)} s)`)

// warm up: the clocks of an idle device are low
{
  const p = await pipe(`${head(256)} for (var s = 0u; s < u.y; s++) { ${nap(64)} } ${tail}`)
  const until = performance.now() + (quick ? 10 : 1000)
  while (performance.now() < until) await dispatch(p, quick ? 2 : 1056, [0, quick ? 1 : 2000, 0, 0])
}

/** Microseconds of one of so many launches that wait for each other. */
export const chain = async (code, G, count) => {
  const p = await pipe(code)
  if (p === undefined) return "refused"
  const run = (n) =>
    once((pass) => {
      pass.setPipeline(p)
      for (let i = 0; i < n; i++) {
        pass.setBindGroup(0, group, [256 * (i % slots)])
        pass.dispatchWorkgroups(G)
      }
    })
  const least = async (n) => Math.min((await run(n)).micros, (await run(n)).micros, (await run(n)).micros)
  return ((await least(count) - await least(count / 4)) / (count * 3 / 4)).toFixed(2)
}

/** Ends the process: Dawn keeps it alive. */
export const end = () => {
  if (errors > 0) console.log(`${errors} errors`)
  process.exit(errors > 0 ? 1 : 0)
}
