import type { Program } from "@tg/core-uop/Program"
import type { DeviceError, DeviceShape } from "@tg/runtime/Device"
import { Effect } from "effect"
import type { Probes } from "../WebGpuInfo.ts"

type Runner = Pick<DeviceShape, "allocate" | "write" | "read" | "load" | "plan">

const halves = 2048

/** Floats by their bits, with the nearest halves: ties of normal and of subnormal ones, what just does not tie, the largest, and infinity. */
const rounded: ReadonlyArray<readonly [float: number, half: number]> = [
  [0x3f801000, 0x3c00],
  [0x3f803000, 0x3c02],
  [0x3f801001, 0x3c01],
  [0xbf802fff, 0xbc01],
  [0x33000000, 0x0000],
  [0x33000001, 0x0001],
  [0xb3c00000, 0x8002],
  [0x387fdfff, 0x03ff],
  [0x387ff000, 0x0400],
  [0x477fefff, 0x7bff],
  [0x477ff000, 0x7c00],
  [0xff7fffff, 0xfc00]
]

// words 0 .. 2047: zero and all subnormal halves, both signs; then the smallest normal f32 and 0.5, and floats to round
const numbers: Program = {
  name: "probe-numbers",
  target: "wgsl",
  code: `@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> found: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  found[id.x] = bitcast<u32>(unpack2x16float(words[id.x]).x);
  if (id.x == 0u) { found[${halves}u] = bitcast<u32>(bitcast<f32>(words[${halves}u]) * bitcast<f32>(words[${
    halves + 1
  }u])); }
  if (id.x < ${rounded.length}u) {
    found[${halves + 1}u + id.x] = pack2x16float(vec2<f32>(bitcast<f32>(words[${halves + 2}u + id.x]), 0.0));
  }
}
`,
  workgroup: [64, 1, 1],
  grid: [halves / 64, 1, 1],
  bindings: [{ slot: 0, access: "read" }, { slot: 1, access: "write" }],
  vars: []
}

/** For every thread: its lane, and the thread number of the first lane of its subgroup. */
const lanes = (workgroup: readonly [number, number, number]): Program => ({
  name: "probe-lanes",
  target: "wgsl",
  code: `enable subgroups;
@group(0) @binding(0) var<storage, read_write> found: array<vec2<u32>>;
@compute @workgroup_size(${workgroup.join(", ")})
fn main(@builtin(local_invocation_id) id: vec3<u32>, @builtin(subgroup_invocation_id) lane: u32) {
  let thread = id.x + ${workgroup[0]}u * (id.y + ${workgroup[1]}u * id.z);
  found[thread] = vec2<u32>(lane, subgroupBroadcastFirst(thread));
}
`,
  workgroup,
  grid: [1, 1, 1],
  bindings: [{ slot: 0, access: "write" }],
  vars: []
})

const launch = (runner: Runner, program: Program, input: Uint32Array | undefined, words: number) =>
  Effect.scoped(Effect.gen(function*() {
    const output = yield* runner.allocate(words * 4, `${program.name} output`)
    const buffers = [output]
    if (input !== undefined) {
      const source = yield* runner.allocate(input.byteLength, `${program.name} input`)
      yield* runner.write(source, new Uint8Array(input.buffer))
      buffers.unshift(source)
    }
    const executable = yield* runner.load(program)
    const replay = yield* runner.plan([{ executable, buffers }])
    yield* replay.run({})
    const bytes = yield* runner.read(output)
    return new Uint32Array(bytes.buffer, bytes.byteOffset, words)
  }))

const bitsOf = (value: number): number => new Uint32Array(new Float32Array([value]).buffer)[0]!

const smallestNormal = 0x00800000

const probeNumbers = (runner: Runner): Effect.Effect<Omit<Probes, "linearSubgroups">, DeviceError> =>
  Effect.gen(function*() {
    const words = new Uint32Array(halves + 2 + rounded.length)
    rounded.forEach(([float], i) => words[halves + 2 + i] = float)
    for (let i = 0; i < halves; i++) words[i] = (i & 1023) | (i >= 1024 ? 0x8000 : 0)
    words[halves] = smallestNormal
    words[halves + 1] = bitsOf(0.5)
    const found = yield* launch(runner, numbers, words, halves + 1 + rounded.length)
    const exact = (i: number): number => bitsOf((i >= 1024 ? -1 : 1) * (i & 1023) * 2 ** -24)
    const halfSubnormals = Array.from({ length: halves }, (_, i) => found[i] === exact(i)).every(Boolean)
    const halfRounding = rounded.every(([, half], i) => found[halves + 1 + i] === half)
    return { halfSubnormals, halfRounding, f32Subnormals: found[halves] === smallestNormal / 2 }
  })

const isLinear = (found: Uint32Array, size: number): boolean => {
  for (let thread = 0; thread < found.length / 2; thread++) {
    const lane = thread % size
    if (found[2 * thread] !== lane || found[2 * thread + 1] !== thread - lane) return false
  }
  return true
}

const probeLanes = (runner: Runner, size: number): Effect.Effect<boolean, DeviceError> =>
  Effect.gen(function*() {
    for (const shape of [[128, 1, 1], [16, 4, 2], [4, 32, 1]] as const) {
      if (!isLinear(yield* launch(runner, lanes(shape), undefined, 256), size)) return false
    }
    return true
  })

/** Runs the probe kernels. Subgroups are of use only when all have one size. */
export const probe = (
  runner: Runner,
  subgroupSizes: readonly [number, number] | undefined
): Effect.Effect<Probes, DeviceError> =>
  Effect.gen(function*() {
    const isOneSize = subgroupSizes !== undefined && subgroupSizes[0] === subgroupSizes[1]
    const linearSubgroups = isOneSize ? yield* probeLanes(runner, subgroupSizes[0]) : false
    return { ...(yield* probeNumbers(runner)), linearSubgroups }
  })
