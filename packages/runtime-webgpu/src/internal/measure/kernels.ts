/** The kernels that a device is measured with: plain WGSL, each with the numbers that decide how long it runs as variables. */
import { Arena } from "@tg/core-uop/UOp"
import * as Expr from "@tg/core-uop/Expr"
import type { Program } from "@tg/core-uop/Program"

const arena = new Arena()
/** More along one axis no device promises to run. */
export const mostWorkgroups = 65535
const mostSteps = 2 ** 30

/** Variables that kernels have, at most four each. A number of workgroups is the size of the grid. */
const bounds = {
  workgroups: { min: 1, max: mostWorkgroups },
  steps: { min: 1, max: mostSteps },
  lines: { min: 1, max: mostSteps },
  mask: { min: 0, max: mostSteps },
  zero: { min: 0, max: 1 },
  spins: { min: 1, max: mostSteps }
} as const
type Variable = keyof typeof bounds

interface Parts {
  readonly threads: number
  /** Of each buffer, `b0` on. */
  readonly buffers: ReadonlyArray<{ readonly access: "read" | "write"; readonly type: string }>
  readonly vars: ReadonlyArray<Variable>
  /** What stands in front of `main`. */
  readonly declarations?: string
  readonly enable?: string
  readonly body: string
}

const components = ["x", "y", "z", "w"] as const

/** A program of parts. Its body knows `lane` in the workgroup, `group`, `groups`, and the variables by their names. */
const program = (name: string, { body, buffers, declarations = "", enable = "", threads, vars }: Parts): Program => ({
  name: `measure-${name}`,
  target: "wgsl",
  code: `${enable}
${
    buffers.map(({ access, type }, i) =>
      `@group(0) @binding(${i}) var<storage, ${access === "read" ? "read" : "read_write"}> b${i}: array<${type}>;`
    ).join("\n")
  }
@group(0) @binding(${buffers.length}) var<uniform> given: vec4<i32>;
${declarations}
@compute @workgroup_size(${threads})
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) at: vec3<u32>, @builtin(num_workgroups) size: vec3<u32>) {
  let group = at.x; let groups = size.x;
  ${vars.map((v, i) => `let ${v} = u32(given.${components[i]});`).join(" ")}
${body}
}
`,
  workgroup: [threads, 1, 1],
  grid: [vars.includes("workgroups") ? Expr.variable(arena, "workgroups", 1, mostWorkgroups) : 1, 1, 1],
  bindings: buffers.map(({ access }, slot) => ({ slot, access })),
  vars,
  bounds: vars.map((v) => bounds[v])
})

const words = { access: "write", type: "u32" } as const
const atomics = { access: "write", type: "atomic<u32>" } as const
/** No kernel computes this: what is behind it only keeps values alive. */
const never = "0xfffffff1u"

/** Bytes of a line of the ring. */
export const lineBytes = 128
const lineWords = lineBytes / 4

/**
 * A ring over the first `lines` lines (a power of two) of a buffer, in an order that no prefetcher guesses: each line begins with
 * the place of the next. A linear congruence goes through all of them.
 */
export const ring: Program = program("ring", {
  threads: 64,
  buffers: [words],
  vars: ["workgroups", "lines"],
  body: `  for (var line = group * 64u + lane; line < lines; line += groups * 64u) {
    b0[line * ${lineWords}u] = ((line * 1664525u + 1013904223u) & (lines - 1u)) * ${lineWords}u;
  }`
})

/**
 * One thread follows a ring: each load waits for the one before it. It goes on where the last launch ended: what that one read is in a cache, as large
 * as the ring may be.
 */
export const chase: Program = program("chase", {
  threads: 1,
  buffers: [{ access: "read", type: "u32" }, words],
  vars: ["steps"],
  body: `  var i = b1[0];
  for (var s = 0u; s < steps; s++) { i = b0[i]; }
  b1[0] = i;`
})

/** Independent operations of a thread in one step. */
export const spinOperations = 32

/** Arithmetic alone, with enough of it at once in each thread that a processor has no room for more. */
export const spin = (threads: number): Program =>
  program("spin", {
    threads,
    buffers: [words],
    vars: ["workgroups", "steps"],
    body: `  var x = vec4<f32>(vec4<u32>(lane) + vec4<u32>(1u, 2u, 3u, 4u)); let m = f32(steps) * 1e-9;
  for (var s = 0u; s < steps; s++) {
    ${"x = fma(x, vec4<f32>(m), vec4<f32>(1.5)); ".repeat(spinOperations / 4)}
  }
  if (x.x + x.y + x.z + x.w == 12345.0) { b0[0] = 1u; }`
  })

/** How a kernel reads. */
export interface Reading {
  readonly threads: number
  /** Vectors that each thread asks for at once. */
  readonly loads: number
  /** Whether a thread asks for more only when it has these: its next place depends on them. */
  readonly waits: boolean
  /** Whether a workgroup reads places in a row, which a processor with caches of its own likes, or all workgroups together do. */
  readonly alone: boolean
}

/** Workgroups that read in a row are so many times their threads apart at least, so that those of one processor are at different places of a window. */
const apart = 97

/** Reads with vectors of 16 bytes around a window of a buffer. */
export const read = ({ alone, loads, threads, waits }: Reading): Program =>
  program(`read${alone ? "-alone" : ""}${waits ? "-and-wait" : ""}`, {
    threads,
    buffers: [{ access: "read", type: "vec4<u32>" }, words],
    vars: ["workgroups", "steps", "mask", "zero"],
    body: `  let stride = ${alone ? `${threads}u` : `groups * ${threads}u`};
  var i = group * ${
      alone ? `(steps * ${loads}u + ${apart}u) * ${threads}u` : `${threads}u`
    } + lane; var sum = vec4<u32>(0u);
  for (var s = 0u; s < steps; s++) {
    ${Array.from({ length: loads }, (_, j) => `let v${j} = b0[(i + ${j}u * stride) & mask];`).join(" ")}
    sum ^= ${Array.from({ length: loads }, (_, j) => `v${j}`).join(" ^ ")};
    i += ${loads}u * stride${waits ? " + (sum.x & zero)" : ""};
  }
  if (all(sum == vec4<u32>(${never}))) { b1[0] = 1u; }`
  })

/** What workgroups of a residency kernel hold on to. */
export interface Held {
  readonly threads: number
  readonly workgroupBytes?: number
  /** Values of each thread that it needs in the end. */
  readonly values?: number
}

/**
 * Each workgroup follows a ring by atomic loads, which go to the cache that all processors share: it mostly waits, so that one more
 * takes no time as long as it runs beside the others.
 */
export const resident = ({ threads, values = 0, workgroupBytes = 0 }: Held): Program => {
  const each = Array.from({ length: values }, (_, j) => j)
  return program(`resident-${threads}-${workgroupBytes}-${values}`, {
    threads,
    buffers: [atomics, words],
    vars: ["workgroups", "steps", "mask"],
    declarations: workgroupBytes === 0 ? "" : `var<workgroup> tile: array<u32, ${workgroupBytes / 4}>;`,
    body: `  var i = ((group * 97u) & mask) * ${lineWords}u;
  ${workgroupBytes === 0 ? "" : "tile[lane] = i;"}
  ${each.map((j) => `let v${j} = atomicLoad(&b0[((lane + ${j}u) & mask) * ${lineWords}u]);`).join(" ")}
  for (var s = 0u; s < steps; s++) { i = atomicLoad(&b0[i]); }
  if (i == ${never}) {
    var sum = i; ${each.map((j) => `sum = sum * 31u + (v${j} ^ sum);`).join(" ")}
    b1[0] = sum${workgroupBytes === 0 ? "" : ` + tile[(sum + lane) % ${workgroupBytes / 4}u]`};
  }`
  })
}

/** One of two kernels that follow each other: it writes its first buffer, and reads the others, which the other one writes. */
export const link = (name: string, buffers: number): Program =>
  program(`link-${name}`, {
    threads: 32,
    buffers: [words, ...Array.from({ length: buffers - 1 }, () => ({ access: "read", type: "u32" } as const))],
    vars: ["workgroups"],
    body: `  let i = group * 32u + lane;
  b0[i] = 1u + ${Array.from({ length: buffers - 1 }, (_, j) => `b${j + 1}[i]`).join(" + ")};`
  })

/** Sums over the threads of a subgroup, each of what the one before gave. */
export const subgroupSums: Program = program("subgroup-sums", {
  enable: "enable subgroups;",
  threads: 64,
  buffers: [words],
  vars: ["steps"],
  body: `  var x = lane;
  for (var s = 0u; s < steps; s++) { x = subgroupAdd(x) + lane; }
  b0[lane] = x;`
})

/** Barriers of a workgroup, with a value to write in front of each. */
export const barriers = (threads: number): Program =>
  program("barriers", {
    threads,
    buffers: [words],
    vars: ["steps"],
    declarations: `var<workgroup> tile: array<u32, ${threads}>;`,
    body: `  for (var s = 0u; s < steps; s++) { tile[(lane + s) % ${threads}u] = s; workgroupBarrier(); }
  b0[lane] = tile[lane];`
  })

/** Values that a thread reads one after the other in a stage: what a sum over partial results takes. */
const stageReads = 16

/** Stages: each thread writes a value, waits for all others, reads some one after the other, and waits until all have read. */
export const stages = (threads: number): Program =>
  program("stages", {
    threads,
    buffers: [words],
    vars: ["steps"],
    declarations: `var<workgroup> tile: array<u32, ${threads}>;`,
    body: `  var x = lane;
  for (var s = 0u; s < steps; s++) {
    tile[lane] = x; workgroupBarrier();
    for (var j = 0u; j < ${stageReads}u; j++) { x = tile[x % ${threads}u] + j + lane; }
    workgroupBarrier();
  }
  b0[lane] = x;`
  })

/** Values of other workgroups that each thread reads behind a barrier across the grid. */
export const litmusReads = 4
/** Words of the second buffer of `litmus`: workgroups that arrived, values that were stale, whether a wait was given up. */
export const litmusWords = { arrived: 0, stale: 1, gaveUp: 2, count: 4 } as const

/** Stores the step's number as kernels store what crosses a barrier: nobody arrives before it is in memory (`@tg/codegen-wgsl`). */
const stored = (word: string): string =>
  `if (atomicExchange(&${word}, s) == ${2 ** 32 - 1}u) { atomicMax(&b1[${litmusWords.gaveUp}], 0u); }`

/**
 * The litmus program of a barrier across the grid. In each step every thread stores the step's number, all workgroups arrive and
 * wait for each other, and every thread reads what threads of other workgroups stored: another number is stale. Who waits `spins` times in
 * vain gives up, and with it all others.
 */
export const litmus = (threads: number): Program =>
  program("litmus", {
    threads,
    buffers: [atomics, atomics],
    vars: ["workgroups", "steps", "spins"],
    declarations: "var<workgroup> stop: u32;",
    body: `  let all = groups * ${threads}u; var stale = 0u;
  for (var s = 1u; s <= steps; s++) {
    let half = (s & 1u) * all;
    ${stored(`b0[half + group * ${threads}u + lane]`)}
    storageBarrier(); workgroupBarrier();
    if (lane == 0u) {
      atomicAdd(&b1[${litmusWords.arrived}], 1u);
      var waited = 0u;
      while (atomicLoad(&b1[${litmusWords.arrived}]) < s * groups) {
        if ((waited & 63u) == 0u && atomicLoad(&b1[${litmusWords.gaveUp}]) != 0u) { break; }
        waited++;
        if (waited > spins) { atomicStore(&b1[${litmusWords.gaveUp}], 1u); break; }
      }
      stop = atomicLoad(&b1[${litmusWords.gaveUp}]);
    }
    storageBarrier();
    if (workgroupUniformLoad(&stop) != 0u) { break; }
    for (var j = 0u; j < ${litmusReads}u; j++) {
      let other = ((group + 1u + j * 37u) % groups) * ${threads}u + ((lane + j) % ${threads}u);
      stale += u32(atomicLoad(&b0[half + other]) != s);
    }
  }
  if (stale > 0u) { atomicAdd(&b1[${litmusWords.stale}], stale); }`
  })

/**
 * Barriers across the grid alone, as kernels have them (`@tg/codegen-wgsl`), each behind a store of every thread: who has waited `spins` times
 * in vain sets the highest bit of the counter, and nobody waits any more.
 */
export const meetings = (threads: number): Program =>
  program("meetings", {
    threads,
    buffers: [atomics, atomics],
    vars: ["workgroups", "steps", "spins"],
    body: `  let all = groups * ${threads}u;
  for (var s = 1u; s <= steps; s++) {
    ${stored(`b0[(s & 1u) * all + group * ${threads}u + lane]`)}
    storageBarrier(); workgroupBarrier();
    if (lane == 0u) {
      var come = atomicAdd(&b1[${litmusWords.arrived}], 1u) + 1u;
      var looks = 0u;
      while (come < s * groups) {
        come = atomicLoad(&b1[${litmusWords.arrived}]);
        looks++;
        if (looks > spins) {
          atomicStore(&b1[${litmusWords.gaveUp}], 1u);
          come = atomicOr(&b1[${litmusWords.arrived}], 0x80000000u) | 0x80000000u;
        }
      }
    }
    storageBarrier();
  }`
  })
