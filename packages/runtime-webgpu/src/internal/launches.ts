/** Launches: what is prepared of each dispatch, and how they are put into one command buffer. */
import { evaluateIndex } from "@tg/core-uop/Program"
import { DeviceError, type Dispatch, type Vars } from "@tg/runtime/Device"
import type { Bound } from "./bindings.ts"
import * as Groups from "./groups.ts"
import type { Loaded } from "./programs.ts"
import { error, usage } from "./queue.ts"
import type { Uniforms } from "./uniforms.ts"

/** Workgroup counts. */
export type Grid = readonly [x: number, y: number, z: number]

/** One launch with everything the device needs prepared. */
export interface Launch {
  readonly loaded: Loaded
  readonly group: GPUBindGroup
  /** The workgroup counts, where no variable takes part in them. */
  readonly fixed: Grid | undefined
}

/** Launches, and buffers that only fill numbers of groups that no launch uses. */
export interface Launches {
  readonly launches: ReadonlyArray<Launch>
  readonly spares: ReadonlyArray<GPUBuffer>
}

const spareBytes = 16

/** Makes the bind groups: one for equal resources of equal layouts. `buffer` holds the uniforms. */
export const prepare = (
  device: GPUDevice,
  dispatches: ReadonlyArray<Dispatch>,
  { bound, buffer, uniforms }: {
    /** What each dispatch binds. */
    readonly bound: ReadonlyArray<ReadonlyArray<Bound>>
    readonly uniforms: Uniforms
    readonly buffer: GPUBuffer | undefined
  }
): Launches => {
  const groups = new Map<string, GPUBindGroup>()
  const numbers = new Map<GPUBindGroupLayout, number>()
  const layoutNumber = (layout: GPUBindGroupLayout): number => {
    const number = numbers.get(layout) ?? numbers.size
    numbers.set(layout, number)
    return number
  }
  const held = Groups.of(dispatches, bound)
  const spares: Array<GPUBuffer> = []
  const spare = (at: number): GPUBuffer =>
    spares[at] ??= device.createBuffer({ label: "spare", size: spareBytes, usage: usage.storage })
  const launches = dispatches.map(({ executable }, i): Launch => {
    const loaded = executable as Loaded
    const { grid, name, vars } = loaded.program
    const resources = held[i]!
    const place = uniforms.placeOf(vars)
    const key = `${layoutNumber(loaded.layout)};${resources.map((b) => b?.key).join()};${place?.offset ?? ""}`
    let group = groups.get(key)
    if (group === undefined) {
      const entries: Array<GPUBindGroupEntry> = resources.map((own, binding) => ({
        binding,
        resource: own?.resource ?? { buffer: spare(binding) }
      }))
      if (place !== undefined) {
        const resource = { buffer: buffer!, offset: place.offset, size: place.size }
        entries.push({ binding: entries.length, resource })
      }
      group = device.createBindGroup({ label: name, layout: loaded.layout, entries })
      groups.set(key, group)
    }
    const isFixed = grid.every((size) => typeof size === "number")
    return { loaded, group, fixed: isFixed ? gridOf(loaded, {}) : undefined }
  })
  return { launches, spares: spares.filter((each) => each !== undefined) }
}

const gridOf = ({ program }: Loaded, vars: Vars): Grid => [
  evaluateIndex(program.grid[0], vars),
  evaluateIndex(program.grid[1], vars),
  evaluateIndex(program.grid[2], vars)
]

/** Why a grid cannot be run, of which an axis has at most `most` workgroups. */
const checkGrid = (name: string, grid: ReadonlyArray<number>, most: number): DeviceError | undefined => {
  const axis = grid.findIndex((size) => !(size >= 0 && size <= most))
  if (axis < 0) return undefined
  return grid[axis]! > most
    ? error(
      "LimitExceeded",
      `${name}: ${grid[axis]} workgroups along ${"xyz"[axis]}, the device runs ${most}; split the axis`
    )
    : error("BadArgument", `${name}: ${grid[axis]} workgroups along ${"xyz"[axis]}`)
}

/** Why a launch whose grid depends on no variable can never run. */
export const refusedOf = (launches: ReadonlyArray<Launch>, most: number): DeviceError | undefined => {
  for (const { fixed, loaded } of launches) {
    const refused = fixed === undefined ? undefined : checkGrid(loaded.program.name, fixed, most)
    if (refused !== undefined) return refused
  }
  return undefined
}

/** The workgroup counts of launches with these values, or why one of them cannot be run. */
export const gridsOf = (
  launches: ReadonlyArray<Launch>,
  vars: Vars,
  most: number
): ReadonlyArray<Grid> | DeviceError => {
  const grids: Array<Grid> = []
  for (const { fixed, loaded } of launches) {
    const grid = fixed ?? gridOf(loaded, vars)
    const refused = fixed === undefined ? checkGrid(loaded.program.name, grid, most) : undefined
    if (refused instanceof DeviceError) return refused
    grids.push(grid)
  }
  return grids
}

/** Which launches of a run: from one, up to but not including another. */
export interface Part {
  readonly from: number
  readonly to: number
}

/** Puts launches into a command buffer, as a pass of their own. */
export const encode = (
  encoder: GPUCommandEncoder,
  launches: ReadonlyArray<Launch>,
  grids: ReadonlyArray<Grid>,
  { from, to }: Part,
  descriptor?: GPUComputePassDescriptor
): void => {
  const pass = encoder.beginComputePass(descriptor)
  let pipeline: GPUComputePipeline | undefined
  let bound: GPUBindGroup | undefined
  for (let i = from; i < to; i++) {
    const { group, loaded } = launches[i]!
    const [x, y, z] = grids[i]!
    if (x === 0 || y === 0 || z === 0) continue
    if (pipeline !== loaded.pipeline) pass.setPipeline(loaded.pipeline)
    pipeline = loaded.pipeline
    // it stays set as long as pipelines have its layout, and others have other groups
    if (bound !== group) pass.setBindGroup(0, group)
    bound = group
    // an argument takes a tenth of a microsecond to pass
    if (y === 1 && z === 1) pass.dispatchWorkgroups(x)
    else pass.dispatchWorkgroups(x, y, z)
  }
  pass.end()
}
