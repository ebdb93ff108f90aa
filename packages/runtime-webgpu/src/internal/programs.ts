import type { Binding, Program } from "@tg/core-uop/Program"
import type { DeviceError, Executable } from "@tg/runtime/Device"
import { Effect } from "effect"
import { error, type Gpu, scoped, wait } from "./queue.ts"

/** A program with its pipeline. */
export class Loaded implements Executable {
  readonly program: Program
  readonly pipeline: GPUComputePipeline
  readonly layout: GPUBindGroupLayout
  /** The device that made it. */
  readonly gpu: Gpu
  constructor(program: Program, pipeline: GPUComputePipeline, layout: GPUBindGroupLayout, gpu: Gpu) {
    this.program = program
    this.pipeline = pipeline
    this.layout = layout
    this.gpu = gpu
  }
}

/** The layout of a bind group, and that of pipelines which have no other: a bind group stays set from one of them to the next. */
interface Layout {
  readonly group: GPUBindGroupLayout
  readonly pipeline: GPUPipelineLayout
}

/** What happens to each storage buffer of a program's bind group. */
export const accessesOf = ({ bindings, group }: Program): ReadonlyArray<Binding["access"]> =>
  group ?? bindings.map(({ access }) => access)

/** GPUShaderStage.COMPUTE. */
const computeStage = 0x4
const scalarBytes = 4
const workgroupVariable = /var<workgroup>\s*\w+\s*:\s*(?:array<\s*)?(?:vec([234])<)?\s*\w+\s*>?\s*(?:,\s*(\d+)u?\s*>)?/g

/** Bytes of workgroup memory that a WGSL text declares, for scalars, vectors and arrays of them. */
export const workgroupBytes = (code: string): number => {
  let total = 0
  for (const [, lanes, length] of code.matchAll(workgroupVariable)) {
    const slots = lanes === undefined ? 1 : lanes === "3" ? 4 : Number(lanes)
    total += scalarBytes * slots * (length === undefined ? 1 : Number(length))
  }
  return total
}

/** The limit that a program exceeds, if any. */
export const checkLimits = (program: Program, limits: GPUSupportedLimits): DeviceError | undefined => {
  const refuse = (what: string, found: number, limit: number, advice: string): DeviceError =>
    error("LimitExceeded", `${program.name}: needs ${found} ${what}, the device has ${limit}; ${advice}`)
  const buffers = (program.group ?? program.bindings).length
  if (buffers > limits.maxStorageBuffersPerShaderStage) {
    return refuse("storage buffers", buffers, limits.maxStorageBuffersPerShaderStage, "split the kernel")
  }
  const threads = program.workgroup.reduce((a, b) => a * b, 1)
  if (threads > limits.maxComputeInvocationsPerWorkgroup) {
    return refuse(
      "threads in a workgroup",
      threads,
      limits.maxComputeInvocationsPerWorkgroup,
      "lower its LOCAL and GROUP"
    )
  }
  const most = [limits.maxComputeWorkgroupSizeX, limits.maxComputeWorkgroupSizeY, limits.maxComputeWorkgroupSizeZ]
  const axis = program.workgroup.findIndex((size, i) => size > most[i]!)
  if (axis >= 0) {
    return refuse(`threads along ${"xyz"[axis]}`, program.workgroup[axis]!, most[axis]!, "use another axis")
  }
  const shared = workgroupBytes(program.code as string)
  return shared > limits.maxComputeWorkgroupStorageSize
    ? refuse("bytes of workgroup memory", shared, limits.maxComputeWorkgroupStorageSize, "lower its GROUP")
    : undefined
}

/** The compiler's messages, each with the line it is about. */
const explain = (code: string, messages: ReadonlyArray<GPUCompilationMessage>): string => {
  const lines = code.split("\n")
  return messages
    .filter((m) => m.type === "error")
    .map((m) => `\n  line ${m.lineNum}: ${m.message}\n    ${(lines[m.lineNum - 1] ?? "").trim()}`)
    .join("")
}

/** Accepts programs of one device. Code that it has seen is not compiled again. */
export const make = (gpu: Gpu): (program: Program) => Effect.Effect<Loaded, DeviceError> => {
  const { device } = gpu
  const layouts = new Map<string, Layout>()
  const pipelines = new Map<string, GPUComputePipeline>()

  const layoutOf = (program: Program, key: string): Layout => {
    const found = layouts.get(key)
    if (found !== undefined) return found
    const entries: Array<GPUBindGroupLayoutEntry> = accessesOf(program).map((access, binding) => ({
      binding,
      visibility: computeStage,
      buffer: { type: access === "read" ? "read-only-storage" : "storage" }
    }))
    if (program.vars.length > 0) {
      entries.push({ binding: entries.length, visibility: computeStage, buffer: { type: "uniform" } })
    }
    const group = device.createBindGroupLayout({ entries })
    const layout = { group, pipeline: device.createPipelineLayout({ bindGroupLayouts: [group] }) }
    layouts.set(key, layout)
    return layout
  }

  const compile = (
    program: Program,
    code: string,
    layout: GPUPipelineLayout
  ): Effect.Effect<GPUComputePipeline, DeviceError> =>
    Effect.gen(function*() {
      const reject = (message: string) =>
        error("ProgramRejected", `the kernel ${program.name} was rejected: ${message}`)
      const { validation, value: module } = yield* scoped(
        gpu,
        () => device.createShaderModule({ label: program.name, code })
      )
      if (validation !== undefined) {
        const info = yield* wait(gpu, () => module.getCompilationInfo(), reject)
        const explained = explain(code, info.messages)
        return yield* reject(explained === "" ? validation : explained)
      }
      const label = program.name
      return yield* wait(
        gpu,
        () => device.createComputePipelineAsync({ label, layout, compute: { module, entryPoint: "main" } }),
        reject
      )
    })

  return Effect.fn("WebGpu.load")(function*(program) {
    const trouble = gpu.trouble()
    if (trouble !== undefined) return yield* trouble
    const { code, name, target } = program
    if (target !== "wgsl" || typeof code !== "string") {
      return yield* error("BadArgument", `the kernel ${name} is for ${target}; this device takes WGSL`)
    }
    const refused = checkLimits(program, device.limits)
    if (refused !== undefined) return yield* refused
    const layoutKey = `${accessesOf(program).join()};${program.vars.length > 0}`
    const layout = layoutOf(program, layoutKey)
    const key = `${layoutKey};${code}`
    const pipeline = pipelines.get(key) ?? (yield* compile(program, code, layout.pipeline))
    pipelines.set(key, pipeline)
    return new Loaded(program, pipeline, layout.group, gpu)
  })
}
