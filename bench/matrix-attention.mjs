/**
 * Latent attention of several tokens by matrix units: scores of all rows, their maximum and sum, the mix in chunks of positions, and what puts
 * the chunks together; each launch alone and all four behind one another, with results checked. Rows are heads of tokens: all of them read
 * one cache, whose rows are 576 halves, the first 512 of them the values (GLM-4.7-Flash, DeepSeek-V2-Lite).
 *
 *     node bench/matrix-attention.mjs                     16 tokens of 20 heads behind 16000 positions
 *     ONLY="staged 64x|chunk 256" node bench/matrix-attention.mjs   forms whose names match
 *     UNCLAMPED=1 TOKENS=8 BEHIND=4096 node bench/matrix-attention.mjs
 *     NULL=1 node bench/matrix-attention.mjs              compiles only, without a GPU
 *     EMULATED=1 TOKENS=2 HEADS=2 BEHIND=60 ONLY="direct 64x64|direct 64, 8" node bench/matrix-attention.mjs   each thread computes whole tiles: right and slow, on any device
 *
 * UNCLAMPED=1 asks for a device that does not clamp indices.
 */
import { createRequire } from "node:module"

const { create, globals } = createRequire(new URL("../packages/runtime-webgpu/package.json", import.meta.url))("webgpu")
Object.assign(globalThis, globals)

const isNull = process.env.NULL === "1"
const isEmulated = process.env.EMULATED === "1"
const isUnclamped = process.env.UNCLAMPED === "1"
const tokens = Number(process.env.TOKENS ?? 16)
const heads = Number(process.env.HEADS ?? 20)
const behind = Number(process.env.BEHIND ?? 16000)
const only = process.env.ONLY
const width = 576
const valueWidth = 512
/** Vectors of eight halves. */
const rowVectors = width / 8
const rows = tokens * heads
/** Rows of the largest tile. */
const paddedRows = Math.ceil(rows / 128) * 128
const positions = behind + tokens
const context = Math.ceil(positions / 512) * 512
const scale = 1 / Math.sqrt(256)

const toggles = [
  "allow_unsafe_apis",
  "vulkan_enable_f16_on_nvidia",
  ...isUnclamped ? ["disable_robustness", "vulkan_use_cooperative_matrix_robust_access"] : []
]
const gpu = create([...isNull ? ["backend=null"] : [], `enable-dawn-features=${toggles.join(",")}`])
const adapter = await gpu.requestAdapter()
const wanted = [
  "subgroups",
  ...isEmulated ? [] : ["chromium-experimental-subgroup-matrix", "subgroup-size-control", "shader-f16"]
]
const missing = wanted.filter((feature) => !adapter.features.has(feature))
if (missing.length > 0) {
  console.error(`this device has no ${missing.join(", ")}`)
  process.exit(1)
}
const device = await adapter.requestDevice({
  requiredFeatures: wanted,
  requiredLimits: {
    maxStorageBufferBindingSize: adapter.limits.maxStorageBufferBindingSize,
    maxComputeWorkgroupStorageSize: adapter.limits.maxComputeWorkgroupStorageSize,
    maxComputeInvocationsPerWorkgroup: adapter.limits.maxComputeInvocationsPerWorkgroup,
    maxComputeWorkgroupSizeX: adapter.limits.maxComputeWorkgroupSizeX
  }
})
device.onuncapturederror = (event) => {
  console.error(event.error.message.slice(0, 2000))
  process.exitCode = 1
}

const repeat = (n, line, separator = "\n  ") => Array.from({ length: n }, (_, i) => line(i)).join(separator)

const prelude =
  `enable f16; enable subgroups; enable subgroup_size_control; enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
alias L = subgroup_matrix_left<f16, 16, 16>; alias R = subgroup_matrix_right<f16, 16, 16>; alias C = subgroup_matrix_result<f32, 16, 16>;
`
const signature = (threads, isMatrix = true) =>
  `@compute @workgroup_size(${threads})${
    isMatrix ? " @subgroup_size(32)" : ""
  } fn main(@builtin(workgroup_id) g: vec3<u32>, ` +
  `@builtin(local_invocation_index) t: u32, @builtin(subgroup_id) sg: u32)`

const madd = (rm, rn) =>
  repeat(rm * rn, (i) => `c${i} = subgroupMatrixMultiplyAccumulate(l${Math.floor(i / rn)}, r${i % rn}, c${i});`, " ")

/** Scores `[rows, context]`, both operands loaded by the subgroups where they lie. */
const scoresDirect = ({ bm, bn, sm, sn, unroll = 2 }) => {
  const [rm, rn] = [bm / sm / 16, bn / sn / 16]
  return {
    threads: 32 * sm * sn,
    grid: [Math.ceil(rows / bm), Math.ceil(positions / bn)],
    code: `${prelude}
@group(0) @binding(0) var<storage, read_write> scores: array<f32>;
@group(0) @binding(1) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> cache: array<vec4<u32>>;
${signature(32 * sm * sn)} {
  let row = g.x * ${bm}u + (sg / ${sn}u) * ${bm / sm}u;
  let position = g.y * ${bn}u + (sg % ${sn}u) * ${bn / sn}u;
  ${repeat(rm * rn, (i) => `var c${i} = C();`, " ")}
  for (var k = 0u; k < ${rowVectors}u; k += ${2 * unroll}u) {
  ${
      repeat(unroll, (u) =>
        `{ ${
          repeat(rm, (i) =>
            `let l${i} = subgroupMatrixLoad<L, row_major>(&q, (row + ${16 * i}u) * ${rowVectors}u + k + ${
              2 * u
            }u, ${rowVectors}u);`)
        }
    ${
          repeat(rn, (j) =>
            `let r${j} = subgroupMatrixLoad<R, col_major>(&cache, (position + ${16 * j}u) * ${rowVectors}u + k + ${
              2 * u
            }u, ${rowVectors}u);`)
        }
    ${madd(rm, rn)} }`)
    }
  }
  ${
      repeat(rm * rn, (i) =>
        `subgroupMatrixStore<row_major>(&scores, (row + ${16 * Math.floor(i / rn)}u) * ${context}u + position + ${
          16 * (i % rn)
        }u, c${i}, ${context}u);`)
    }
}`
  }
}

/** Vectors of a tile `[count, depth]` whose rows begin at `first`: to registers, and from there to workgroup memory, whose rows are a vector longer. */
const staging = (name, { count, depth, first, from, stride, threads }) => {
  const across = depth / 8
  const each = count * across / threads
  return {
    declare: `var<workgroup> s_${name}: array<vec4<u32>, ${count * (across + 1)}>;`,
    hold: repeat(each, (i) => `var h_${name}${i}: vec4<u32>;`, " "),
    load: (k) =>
      repeat(
        each,
        (i) =>
          `{ let e = t + ${
            i * threads
          }u; h_${name}${i} = ${from}[(${first} + e / ${across}u) * ${stride}u + ${k} + e % ${across}u]; }`
      ),
    store: repeat(
      each,
      (i) =>
        `{ let e = t + ${i * threads}u; s_${name}[(e / ${across}u) * ${
          across + 1
        }u + e % ${across}u] = h_${name}${i}; }`
    ),
    isWhole: Number.isInteger(each)
  }
}

/** The same from tiles in workgroup memory; the next ones are on their way to registers while these are multiplied. */
const scoresStaged = ({ bm, bn, sm, sn, depth }) => {
  const [rm, rn] = [bm / sm / 16, bn / sn / 16]
  const threads = 32 * sm * sn
  const across = depth / 8
  const a = staging("q", { count: bm, depth, first: `g.x * ${bm}u`, from: "q", stride: rowVectors, threads })
  const b = staging("c", { count: bn, depth, first: `g.y * ${bn}u`, from: "cache", stride: rowVectors, threads })
  if (!a.isWhole || !b.isWhole || width % depth !== 0) throw new Error("threads do not divide the tiles")
  return {
    threads,
    grid: [Math.ceil(rows / bm), Math.ceil(positions / bn)],
    code: `${prelude}
@group(0) @binding(0) var<storage, read_write> scores: array<f32>;
@group(0) @binding(1) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> cache: array<vec4<u32>>;
${a.declare} ${b.declare}
${signature(threads)} {
  let row = (sg / ${sn}u) * ${bm / sm}u;
  let position = (sg % ${sn}u) * ${bn / sn}u;
  ${repeat(rm * rn, (i) => `var c${i} = C();`, " ")}
  ${a.hold} ${b.hold}
  ${a.load("0u")}
  ${b.load("0u")}
  for (var k = 0u; k < ${rowVectors}u; k += ${across}u) {
    ${a.store}
    ${b.store}
    workgroupBarrier();
    if (k + ${across}u < ${rowVectors}u) {
    ${a.load(`k + ${across}u`)}
    ${b.load(`k + ${across}u`)}
    }
    ${
      repeat(depth / 16, (u) =>
        `{ ${
          repeat(rm, (i) =>
            `let l${i} = subgroupMatrixLoad<L, row_major>(&s_q, (row + ${16 * i}u) * ${across + 1}u + ${2 * u}u, ${
              across + 1
            }u);`)
        }
    ${
          repeat(rn, (j) =>
            `let r${j} = subgroupMatrixLoad<R, col_major>(&s_c, (position + ${16 * j}u) * ${across + 1}u + ${2 * u}u, ${
              across + 1
            }u);`)
        }
    ${madd(rm, rn)} }`)
    }
    workgroupBarrier();
  }
  ${
      repeat(rm * rn, (i) =>
        `subgroupMatrixStore<row_major>(&scores, (g.x * ${bm}u + row + ${
          16 * Math.floor(i / rn)
        }u) * ${context}u + g.y * ${bn}u + position + ${16 * (i % rn)}u, c${i}, ${context}u);`)
    }
}`
  }
}

const logScale = scale * Math.LOG2E

/** Maximum and inverse sum of each row of scores. */
const stats = {
  threads: 256,
  grid: [rows, 1],
  code: `enable subgroups;
@group(0) @binding(0) var<storage, read_write> state: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> scores: array<vec4<f32>>;
var<workgroup> part: array<f32, 256>;
fn reduced(t: u32, x: f32, isMax: bool) -> f32 {
  part[t] = x; workgroupBarrier();
  for (var n = 128u; n > 0u; n >>= 1u) {
    if (t < n) { part[t] = select(part[t] + part[t + n], max(part[t], part[t + n]), isMax); }
    workgroupBarrier();
  }
  let result = part[0]; workgroupBarrier(); return result;
}
${signature(256, false)} {
  let count = ${behind}u + g.x / ${heads}u + 1u;
  var m = -3.4e38;
  for (var i = t; i * 4u < count; i += 256u) {
    let s = scores[g.x * ${context / 4}u + i];
    for (var j = 0u; j < 4u; j++) { m = max(m, select(-3.4e38, s[j], i * 4u + j < count)); }
  }
  let most = reduced(t, m, true);
  var l = 0.0;
  for (var i = t; i * 4u < count; i += 256u) {
    let s = exp2((scores[g.x * ${context / 4}u + i] - most) * ${logScale});
    for (var j = 0u; j < 4u; j++) { l += select(0.0, s[j], i * 4u + j < count); }
  }
  let sum = reduced(t, l, false);
  if (t == 0u) { state[g.x] = vec2<f32>(most, 1.0 / sum); }
}`
}

/** Weights of `bm` rows and `step` positions as halves, to one of two tiles in workgroup memory. */
const weights = ({ bm, step, threads }) => {
  const across = step / 8
  const each = Math.ceil(bm * across / threads)
  return {
    declare: `var<workgroup> s_p: array<vec4<u32>, ${2 * bm * (across + 1)}>;
fn weight(s: vec4<f32>, most: f32, position: u32, count: u32) -> vec2<u32> {
  let p = exp2((s - most) * ${logScale});
  let at = vec4<u32>(position, position + 1u, position + 2u, position + 3u);
  let q = select(vec4<f32>(), p, at < vec4<u32>(count));
  return vec2<u32>(pack2x16float(q.xy), pack2x16float(q.zw));
}`,
    fill: (first, half) =>
      repeat(
        each,
        (i) =>
          `${each * threads > bm * across ? `if (t + ${i * threads}u < ${bm * across}u) ` : ""}{ let e = t + ${
            i * threads
          }u; let r = g.x * ${bm}u + e / ${across}u; let p = ${first} + (e % ${across}u) * 8u;
      let n = ${behind}u + r / ${heads}u + 1u; let at = (r * ${context}u + p) / 4u; let m = state[r].x;
      let a = weight(scores[at], m, p, n); let b = weight(scores[at + 1u], m, p + 4u, n);
      s_p[${half} * ${bm * (across + 1)}u + (e / ${across}u) * ${across + 1}u + e % ${across}u] = vec4<u32>(a, b); }`
      )
  }
}

/** The mix of a chunk of positions: `[chunks, rows, 512]`, with values loaded where they lie, or through workgroup memory. */
const mix = ({ bm, sm, sn, step, chunk, isStaged }) => {
  const threads = 32 * sm * sn
  const [rm, rn] = [bm / sm / 16, valueWidth / sn / 16]
  const across = step / 8
  const p = weights({ bm, step, threads })
  const dims = valueWidth / 8
  const v = { each: step * dims / threads, stride: dims + 1 }
  const held = isStaged ? repeat(v.each, (i) => `var h${i}: vec4<u32>;`, " ") : ""
  const load = (k) =>
    isStaged
      ? repeat(v.each, (i) =>
        `{ let e = t + ${i * threads}u; h${i} = cache[(${k} + e / ${dims}u) * ${rowVectors}u + e % ${dims}u]; }`)
      : ""
  const store = isStaged
    ? repeat(
      v.each,
      (i) => `{ let e = t + ${i * threads}u; s_v[(e / ${dims}u) * ${v.stride}u + e % ${dims}u] = h${i}; }`
    )
    : ""
  return {
    threads,
    grid: [Math.ceil(rows / bm), Math.ceil(positions / chunk)],
    code: `${prelude}
@group(0) @binding(0) var<storage, read_write> parts: array<f32>;
@group(0) @binding(1) var<storage, read> scores: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> cache: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> state: array<vec2<f32>>;
${p.declare}
${isStaged ? `var<workgroup> s_v: array<vec4<u32>, ${step * v.stride}>;` : ""}
${signature(threads)} {
  let row = (sg / ${sn}u) * ${bm / sm}u;
  let dim = (sg % ${sn}u) * ${dims / sn}u;
  let first = g.y * ${chunk}u;
  ${repeat(rm * rn, (i) => `var c${i} = C();`, " ")}
  ${held}
  ${load("first")}
  for (var k = 0u; k < ${chunk}u; k += ${step}u) {
    let half = (k / ${step}u) % 2u;
    ${store}
    ${p.fill("first + k", "half")}
    workgroupBarrier();
    ${isStaged ? `if (k + ${step}u < ${chunk}u) { ${load(`first + k + ${step}u`)} }` : ""}
    ${
      repeat(step / 16, (u) =>
        `{ ${
          repeat(rm, (i) =>
            `let l${i} = subgroupMatrixLoad<L, row_major>(&s_p, half * ${bm * (across + 1)}u + (row + ${16 * i}u) * ${
              across + 1
            }u + ${2 * u}u, ${across + 1}u);`)
        }
    ${
          repeat(rn, (j) =>
            isStaged
              ? `let r${j} = subgroupMatrixLoad<R, row_major>(&s_v, ${16 * u}u * ${v.stride}u + dim + ${
                2 * j
              }u, ${v.stride}u);`
              : `let r${j} = subgroupMatrixLoad<R, row_major>(&cache, (first + k + ${
                16 * u
              }u) * ${rowVectors}u + dim + ${2 * j}u, ${rowVectors}u);`)
        }
    ${madd(rm, rn)} }`)
    }
    ${isStaged ? "workgroupBarrier();" : ""}
  }
  let at = (g.y * ${paddedRows}u + g.x * ${bm}u + row) * ${valueWidth}u + dim * 8u;
  ${
      repeat(rm * rn, (i) =>
        `subgroupMatrixStore<row_major>(&parts, at + ${
          16 * Math.floor(i / rn) * valueWidth + 16 * (i % rn)
        }u, c${i}, ${valueWidth}u);`)
    }
}`
  }
}

/** The sum over the chunks. */
const combine = ({ chunk }) => ({
  threads: 128,
  grid: [rows, 1],
  code: `@group(0) @binding(0) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> state: array<vec2<f32>>;
@compute @workgroup_size(128) fn main(@builtin(workgroup_id) g: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  var sum = vec4<f32>();
  for (var i = 0u; i < ${Math.ceil(positions / chunk)}u; i++) { sum += parts[(i * ${paddedRows}u + g.x) * 128u + t]; }
  out[g.x * 128u + t] = sum * state[g.x].y;
}`
})

const smallestChunk = 256
const buffer = (bytes) => device.createBuffer({ size: bytes, usage: 0x80 | 0x8 | 0x4 })
const q = buffer(paddedRows * width * 2)
const cache = buffer(context * width * 2)
const scores = buffer(paddedRows * context * 4)
const state = buffer(paddedRows * 8)
const parts = buffer(Math.ceil(positions / smallestChunk) * paddedRows * valueWidth * 4)
const out = buffer(rows * valueWidth * 4)

let seed = 12345
const random = () => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
  return seed / 2 ** 32 - 0.5
}
const halves = (n, size) => Float16Array.from({ length: n }, () => size * random())
const hostQ = halves(paddedRows * width, 4)
const hostCache = halves(context * width, 2)
if (!isNull) {
  device.queue.writeBuffer(q, 0, hostQ.buffer)
  device.queue.writeBuffer(cache, 0, hostCache.buffer)
}

/** The true result of a row, in double precision. */
const expected = (row) => {
  const count = behind + Math.floor(row / heads) + 1
  const s = Float64Array.from({ length: count }, (_, p) => {
    let sum = 0
    for (let i = 0; i < width; i++) sum += hostQ[row * width + i] * hostCache[p * width + i]
    return sum * scale
  })
  const most = s.reduce((a, b) => Math.max(a, b))
  const e = s.map((x) => Math.exp(x - most))
  const sum = e.reduce((a, b) => a + b)
  return Float64Array.from(
    { length: valueWidth },
    (_, d) => e.reduce((n, w, p) => n + w * hostCache[p * width + d], 0) / sum
  )
}
const checked = isNull
  ? []
  : [0, Math.min(rows - 1, heads * Math.floor(tokens / 2) + 3), rows - 1].map((row) => ({ row, values: expected(row) }))

/** The program without matrix units: a tile is an array that each thread of a subgroup has, and its first thread stores. */
const emulated = (code) => {
  const loads = new Map()
  const text = code.split("\n").filter((line) => !/^(enable f16|diagnostic|alias L)/.test(line)).join("\n")
    .replaceAll(" @subgroup_size(32)", "").replaceAll(
      "@builtin(subgroup_id) sg: u32",
      "@builtin(num_workgroups) size: vec3<u32>"
    )
    .replaceAll(/subgroupMatrixLoad<([LR]), (row|col)_major>\(&(\w+), /g, (_, kind, order, array) => {
      const name = `load_${order}_${array}`
      const [major, minor] = order === "row" ? ["i / 16u", "i % 16u"] : ["i % 16u", "i / 16u"]
      loads.set(
        name,
        `fn ${name}(at: u32, stride: u32) -> array<f32, 256> { var m: array<f32, 256>;
  for (var i = 0u; i < 256u; i++) { let a = ${major}; let b = ${minor};
    m[i] = unpack2x16float(${array}[at + a * stride + b / 8u][(b % 8u) / 2u])[b % 2u]; } return m; }`
      )
      return `${name}(`
    })
    .replaceAll(
      /subgroupMatrixStore<row_major>\(&(\w+), (.*), (c\d+), (\d+)u\);/g,
      (_, array, at, tile, stride) =>
        `if (t % 32u == 0u) { let at = ${at}; for (var i = 0u; i < 256u; i++) { ${array}[at + (i / 16u) * ${stride}u + i % 16u] = ${tile}[i]; } }`
    )
    .replaceAll(/var (c\d+) = C\(\);/g, "var $1: array<f32, 256>;")
    .replaceAll(/subgroupMatrixMultiplyAccumulate\(/g, "multiplied(")
  return `${text.replace("size: vec3<u32>) {", "size: vec3<u32>) {\n  let sg = t / 32u;")}
fn multiplied(l: array<f32, 256>, r: array<f32, 256>, c: array<f32, 256>) -> array<f32, 256> { var m = c; var a = l; var b = r;
  for (var i = 0u; i < 16u; i++) { for (var k = 0u; k < 16u; k++) { let x = a[i * 16u + k]; for (var j = 0u; j < 16u; j++) { m[i * 16u + j] += x * b[k * 16u + j]; } } }
  return m; }
${[...loads.values()].join("\n")}`
}

/** A launch; nothing where the device has less workgroup memory than it takes. */
const pipelineOf = async (name, { code: written, grid }, bound) => {
  const code = isEmulated ? emulated(written) : written
  const module = device.createShaderModule({ code })
  const { messages } = await module.getCompilationInfo()
  const errors = messages.filter(({ type }) => type === "error")
  if (errors.length > 0) throw new Error(`${name}: ${errors[0].message} at line ${errors[0].lineNum}\n${code}`)
  // the null device has the least limits
  if (isNull) return undefined
  const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint: "main" } })
    .catch((error) => {
      if (!error.message.includes("workgroup storage")) throw error
      console.log(`${name}: ${error.message.split("\n")[0]}`)
    })
  if (pipeline === undefined) return undefined
  const group = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: bound.map((buffer, binding) => ({ binding, resource: { buffer } }))
  })
  return { name, pipeline, group, grid }
}

const encode = (launches, times) => {
  const encoder = device.createCommandEncoder()
  const pass = encoder.beginComputePass()
  for (let i = 0; i < times; i++) {
    for (const { grid, group, pipeline } of launches) {
      pass.setPipeline(pipeline)
      pass.setBindGroup(0, group)
      pass.dispatchWorkgroups(...grid)
    }
  }
  pass.end()
  device.queue.submit([encoder.finish()])
}

/** Microseconds of the launches, the least of several turns; the device is kept busy before. */
const timed = async (launches) => {
  if (isEmulated) {
    encode(launches, 1)
    await device.queue.onSubmittedWorkDone()
    return Infinity
  }
  for (let i = 0; i < 4; i++) encode(launches, 20)
  await device.queue.onSubmittedWorkDone()
  let least = Infinity
  for (let i = 0; i < 5; i++) {
    encode(launches, 4)
    const before = performance.now()
    encode(launches, 60)
    await device.queue.onSubmittedWorkDone()
    least = Math.min(least, (performance.now() - before) * 1000 / 64)
  }
  return least
}

/** The largest error of the rows that are checked, relative to the largest value. */
const errorOf = async () => {
  const staging = device.createBuffer({ size: out.size, usage: 0x1 | 0x8 })
  const encoder = device.createCommandEncoder()
  encoder.copyBufferToBuffer(out, 0, staging, 0, out.size)
  device.queue.submit([encoder.finish()])
  await staging.mapAsync(1)
  const found = new Float32Array(staging.getMappedRange().slice(0))
  staging.destroy()
  let worst = 0
  for (const { row, values } of checked) {
    const largest = values.reduce((a, b) => Math.max(a, Math.abs(b)), 0)
    values.forEach((value, d) => {
      const error = Math.abs(found[row * valueWidth + d] - value) / largest
      worst = Number.isNaN(error) ? Infinity : Math.max(worst, error)
    })
  }
  return worst
}

const scoreForms = {
  "direct 64x64, 4": scoresDirect({ bm: 64, bn: 64, sm: 2, sn: 2 }),
  "direct 64x128, 4": scoresDirect({ bm: 64, bn: 128, sm: 1, sn: 4 }),
  "direct 64x128, 8": scoresDirect({ bm: 64, bn: 128, sm: 2, sn: 4 }),
  "direct 64x128, 8, unrolled": scoresDirect({ bm: 64, bn: 128, sm: 2, sn: 4, unroll: 4 }),
  "staged 64x64 by 64, 4": scoresStaged({ bm: 64, bn: 64, sm: 2, sn: 2, depth: 64 }),
  "staged 64x128 by 64, 4": scoresStaged({ bm: 64, bn: 128, sm: 1, sn: 4, depth: 64 }),
  "staged 64x128 by 64, 8": scoresStaged({ bm: 64, bn: 128, sm: 2, sn: 4, depth: 64 }),
  "staged 64x256 by 64, 8": scoresStaged({ bm: 64, bn: 256, sm: 1, sn: 8, depth: 64 }),
  "staged 128x128 by 32, 4": scoresStaged({ bm: 128, bn: 128, sm: 2, sn: 2, depth: 32 }),
  "staged 128x128 by 64, 8": scoresStaged({ bm: 128, bn: 128, sm: 2, sn: 4, depth: 64 })
}
const mixForms = {
  "direct 64, 8, chunk 512": mix({ bm: 64, sm: 1, sn: 8, step: 64, chunk: 512, isStaged: false }),
  "direct 64, 16, chunk 512": mix({ bm: 64, sm: 1, sn: 16, step: 64, chunk: 512, isStaged: false }),
  "staged 64, 8, chunk 512": mix({ bm: 64, sm: 1, sn: 8, step: 32, chunk: 512, isStaged: true }),
  "staged 64, 16, chunk 512": mix({ bm: 64, sm: 1, sn: 16, step: 32, chunk: 512, isStaged: true }),
  "staged 64, 2x8, chunk 512": mix({ bm: 64, sm: 2, sn: 8, step: 32, chunk: 512, isStaged: true }),
  "staged 64, 8, chunk 256": mix({ bm: 64, sm: 1, sn: 8, step: 32, chunk: 256, isStaged: true }),
  "staged 32, 8, chunk 512": mix({ bm: 32, sm: 1, sn: 8, step: 32, chunk: 512, isStaged: true }),
  "staged 128, 2x8, chunk 512": mix({ bm: 128, sm: 2, sn: 8, step: 32, chunk: 512, isStaged: true })
}
const isWanted = (name) => only === undefined || new RegExp(only).test(name)
const chunkOf = (name) => Number(name.split("chunk ")[1])

console.log(
  `${tokens} tokens of ${heads} heads behind ${behind} positions${isUnclamped ? ", indices not clamped" : ""}`
)
const statLaunch = await pipelineOf("stats", stats, [state, scores])
const combines = new Map()
for (const chunk of new Set(Object.keys(mixForms).map(chunkOf))) {
  combines.set(chunk, await pipelineOf(`combine ${chunk}`, combine({ chunk }), [out, parts, state]))
}
const scoreFlops = 2 * rows * positions * width
const mixFlops = 2 * rows * positions * valueWidth
const rate = (flops, micros) => `${(flops / micros / 1e6).toFixed(0)} TFLOP/s`
let best
for (const [name, form] of Object.entries(scoreForms)) {
  if (!isWanted(name)) continue
  const launch = await pipelineOf(name, form, [scores, q, cache])
  if (launch === undefined) continue
  const micros = await timed([launch])
  console.log(`scores, ${name}: ${micros.toFixed(1)} us, ${rate(scoreFlops, micros)}`)
  if (best === undefined || micros <= best.micros) best = { micros, launch }
}
if (!isNull) {
  console.log(`maximum and sum: ${(await timed([statLaunch])).toFixed(1)} us`)
  for (const [chunk, launch] of combines) {
    console.log(`combination of chunks of ${chunk}: ${(await timed([launch])).toFixed(1)} us`)
  }
}
for (const [name, form] of Object.entries(mixForms)) {
  if (!isWanted(name)) continue
  const launch = await pipelineOf(name, form, [parts, scores, cache, state])
  if (launch === undefined || best === undefined) continue
  const all = [best.launch, statLaunch, launch, combines.get(chunkOf(name))]
  const micros = await timed([launch])
  const whole = await timed(all)
  const error = await errorOf()
  console.log(
    `mix, ${name}: ${micros.toFixed(1)} us, ${rate(mixFlops, micros)}; all four ${whole.toFixed(1)} us, error ${
      error.toExponential(1)
    }${error < 2e-3 ? "" : " WRONG"}`
  )
}
if (isNull) console.log("all programs compile")
process.exit()
