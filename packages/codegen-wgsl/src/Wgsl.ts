import * as DType from "@tg/core-uop/DType"
import { elementwise } from "@tg/core-uop/Op"
import { type Program, type RendererCaps, RenderError, signature } from "@tg/core-uop/Program"
import { argOf, isCoherent, slotOf, toposort, type UOp } from "@tg/core-uop/UOp"
import { type Body, body } from "./internal/body.ts"
import * as Fragments from "./internal/fragments.ts"
import { functions, prelude } from "./internal/helpers.ts"
import * as Meeting from "./internal/meeting.ts"
import { Refusal, typeName } from "./internal/text.ts"

/** Features of the device that kernels may use. */
export interface Options {
  /** Lanes of a subgroup, if the device has subgroups of one size whose lanes follow the thread number. */
  readonly subgroupSize?: number | undefined
  /** True when the device's unpack2x16float keeps subnormal halves; otherwise integer arithmetic does it (default). */
  readonly halfSubnormals?: boolean | undefined
  /**
   * True when the device's pack2x16float rounds to nearest even, overflow to infinity: operands of matrix units are then rounded so. Integer
   * arithmetic does it otherwise (default), and in all other kernels.
   */
  readonly halfRounding?: boolean | undefined
  /** True where WGSL has the language feature packed_4x8_integer_dot_product; otherwise shifts and products do it. */
  readonly packedDot?: boolean | undefined
  /**
   * True where subgroups multiply matrices of halves (`chromium-experimental-subgroup-matrix`); kernels by matrix units are refused without
   * it. `emulated`: their threads compute the same, on any device.
   */
  readonly matrixUnits?: boolean | "emulated" | undefined
  /**
   * True where the device reads and writes wherever an index points (Dawn's `disable_robustness`): indices that are not known to lie in their buffers are
   * then clamped by the code. Otherwise the device clamps all of them (default).
   */
  readonly unclamped?: boolean | undefined
}

/** The capabilities of the renderer, and how it converts halves. */
export interface Caps extends RendererCaps {
  readonly halfSubnormals: boolean
  readonly halfRounding: boolean
  readonly matrixUnits?: Fragments.Units | undefined
  readonly unclamped: boolean
}

/** MULACC is left out: drivers contract a product and a sum where they gain from it. */
const ops = new Set([...elementwise].filter((op) => op !== "MULACC"))
const opsWithoutDot = new Set([...ops].filter((op) => op !== "DOT4I8"))

/** The renderer's capabilities on such a device. */
export const caps = (options: Options = {}): Caps => ({
  target: "wgsl",
  hasGrid: true,
  lanes: [1, 2, 4],
  ops: options.packedDot === true ? ops : opsWithoutDot,
  subgroupSize: options.subgroupSize,
  halfSubnormals: options.halfSubnormals ?? false,
  halfRounding: options.halfRounding ?? false,
  matrixUnits: options.matrixUnits === true ? "native" : options.matrixUnits || undefined,
  unclamped: options.unclamped ?? false
})

/** WebGPU's default `maxComputeWorkgroupsPerDimension`, which no implementation exceeds in practice. */
export const maxGrid = 65535

const parameters: Readonly<Record<string, string>> = {
  workgroup_id: "@builtin(workgroup_id) workgroup_id: vec3<u32>",
  local_invocation_id: "@builtin(local_invocation_id) local_invocation_id: vec3<u32>",
  subgroup_invocation_id: "@builtin(subgroup_invocation_id) subgroup_invocation_id: u32"
}

const assemble = (
  name: string,
  linear: UOp,
  program: ReturnType<typeof signature>,
  main: Body,
  { matrixUnits }: Caps
): string => {
  const fragment = linear.src.find(({ op }) => op === "FRAGMENT")
  const isNative = fragment !== undefined && matrixUnits === "native"
  const params = new Map(
    toposort(linear).filter((n) => n.op === "PARAM").map((n) => [slotOf(n), n])
  )
  const bindings = program.bindings.map(({ access, slot }, i) => {
    const node = params.get(slot)!
    const element = isCoherent(node)
      ? "atomic<u32>"
      : typeName(DType.withLanes(node.dtype, main.widths.get(node) ?? 1))
    const mode = access === "write" ? "read_write" : "read"
    return `@group(0) @binding(${i}) var<storage, ${mode}> data${slot}: array<${element}>;`
  })
  const n = program.vars.length
  const uniforms = n === 0
    ? []
    : [
      `// ${program.vars.join(", ")}`,
      `@group(0) @binding(${bindings.length}) var<uniform> vars: array<vec4<i32>, ${Math.ceil(n / 4)}>;`
    ]
  const usesSubgroups = main.helpers.has("subgroups")
  const helpers = functions.filter(([helper]) => main.helpers.has(helper)).map(([, code]) => code)
  const inputs = Object.keys(parameters).filter((b) => main.builtins.has(b)).map((b) => parameters[b])
  return [
    `// ${name.replace(/[^\w.+\-/ ]/g, "_")}`,
    // subgroup operations are in uniform control flow by the contract of spec `linear`; WGSL's uniformity analysis cannot always
    // prove it (a loop bound that was loaded from memory, for one)
    ...(isNative ? Fragments.enables : []),
    ...(usesSubgroups ? ["enable subgroups;", "diagnostic(off, subgroup_uniformity);"] : []),
    ...bindings,
    ...uniforms,
    ...main.locals.map(([local, type]) => `var<workgroup> ${local}: ${type};`),
    ...Meeting.functions(linear),
    ...helpers,
    ...matrixUnits === "emulated" ? Fragments.emulation(linear) : [],
    `@compute @workgroup_size(${program.workgroup.join(", ")})${
      isNative ? ` @subgroup_size(${argOf(fragment, "FRAGMENT").threads})` : ""
    }`,
    `fn main(${inputs.join(", ")}) {`,
    ...prelude.filter(([helper]) => main.helpers.has(helper)).flatMap(([, lines]) => lines.map((l) => `  ${l}`)),
    ...main.lines,
    "}",
    ""
  ].join("\n")
}

const checkLaunch = ({ grid, workgroup }: Pick<Program, "grid" | "workgroup">): string | undefined => {
  const axis = grid.findIndex((size) => typeof size === "number" && size > maxGrid)
  if (axis >= 0) {
    return `needs ${String(grid[axis])} workgroups along ${
      "xyz"[axis]
    }, WebGPU allows ${maxGrid}; split the axis over two dimensions`
  }
  return workgroup.every((size) => Number.isInteger(size) && size > 0)
    ? undefined
    : `the workgroup is ${workgroup.join(" x ")}; its sizes must be positive constants`
}

const checkUnits = (linear: UOp, { matrixUnits }: Caps): string | undefined =>
  matrixUnits === undefined && linear.src.some(({ op }) => op === "FRAGMENT")
    ? "multiplies by matrix units, which this device has not; compile it for a profile without them"
    : undefined

/** The WGSL program of a linear kernel, or why WGSL cannot express it. */
export const render = (name: string, linear: UOp, caps: Caps): Program | RenderError => {
  if (linear.op !== "LINEAR") return new RenderError({ kernel: name, message: `the root is ${linear.op}, not LINEAR` })
  const program = signature(linear)
  const refused = checkLaunch(program) ?? checkUnits(linear, caps)
  if (refused !== undefined) return new RenderError({ kernel: name, message: `${name}: ${refused}` })
  try {
    // Mesa takes unpack2x16float(pack2x16float(x)) for x; operands of matrix units go through memory
    const halfRounding = caps.halfRounding && linear.src.some(({ op }) => op === "FRAGMENT")
    const main = body(linear, { ...caps, halfRounding, vars: program.vars })
    return { name, target: "wgsl", code: assemble(name, linear, program, main, caps), ...program }
  } catch (cause) {
    if (cause instanceof Refusal) return new RenderError({ kernel: name, message: `${name}: ${cause.message}` })
    throw cause
  }
}

/** Checks the text of a hand-written kernel: it has an entry point `main`, and its workgroup size is the declared one. */
export const checkWritten = ({ code, grid, name, workgroup }: Program): RenderError | undefined => {
  const refuse = (message: string) => new RenderError({ kernel: name, message: `${name}: ${message}` })
  const refused = checkLaunch({ grid, workgroup })
  if (refused !== undefined) return refuse(refused)
  const text = String(code).replace(/\/\/.*$/gm, "")
  const [, sizes] = /@workgroup_size\s*\(([^)]*)\)/.exec(text) ?? []
  if (sizes === undefined || !/\bfn\s+main\s*\(/.test(text)) {
    return refuse("its WGSL has no entry point; write @compute @workgroup_size(...) fn main(...)")
  }
  const written = sizes.split(",").map((size) => size.trim()).filter((size) => size !== "").map(Number)
  const [x = 1, y = 1, z = 1] = written
  return [x, y, z].every((size, axis) => size === workgroup[axis])
    ? undefined
    : refuse(
      `its WGSL says @workgroup_size(${sizes.trim()}), and it is declared for a workgroup of ${
        workgroup.join(" x ")
      }; ` +
        `write the same numbers in both`
    )
}
