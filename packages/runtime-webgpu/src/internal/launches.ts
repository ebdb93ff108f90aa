/** Launches: what is prepared of each dispatch, and how they are put into one command buffer. */
import { evaluateIndex } from "@tg/core-uop/Program"
import type { DeviceError, Dispatch, Vars } from "@tg/runtime/Device"
import type { Bound } from "./bindings.ts"
import * as Groups from "./groups.ts"
import type { Loaded } from "./programs.ts"
import { error, usage } from "./queue.ts"
import type { Uniforms } from "./uniforms.ts"

/** The workgroup counts of a program's launches. */
export interface Grid {
  readonly loaded: Loaded
  /** Whether no variable takes part in them. */
  readonly isFixed: boolean
  x: number
  y: number
  z: number
}

/** One launch with everything the device needs prepared. */
export interface Launch {
  readonly pipeline: GPUComputePipeline
  readonly group: GPUBindGroup
  /** That of all launches of the program. */
  readonly grid: Grid
}

/** Launches, and buffers that only fill numbers of groups that no launch uses. */
export interface Launches {
  readonly launches: ReadonlyArray<Launch>
  /** Those of the launches, each once. */
  readonly grids: ReadonlyArray<Grid>
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
  const grids = new Map<Loaded, Grid>()
  const held = Groups.of(dispatches, bound)
  const spares: Array<GPUBuffer> = []
  const spare = (at: number): GPUBuffer =>
    spares[at] ??= device.createBuffer({ label: "spare", size: spareBytes, usage: usage.storage })
  const launches = dispatches.map(({ executable }, i): Launch => {
    const loaded = executable as Loaded
    const { name } = loaded.program
    const resources = held[i]!
    const place = uniforms.placeOf(loaded.program)
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
    const grid = grids.get(loaded) ?? gridOf(loaded)
    grids.set(loaded, grid)
    return { pipeline: loaded.pipeline, group, grid }
  })
  return { launches, grids: [...grids.values()], spares: spares.filter((each) => each !== undefined) }
}

const gridOf = (loaded: Loaded): Grid => {
  const grid: Grid = {
    loaded,
    isFixed: loaded.program.grid.every((size) => typeof size === "number"),
    x: 0,
    y: 0,
    z: 0
  }
  if (grid.isFixed) set(grid, {})
  return grid
}

const set = (grid: Grid, vars: Vars): void => {
  const [x, y, z] = grid.loaded.program.grid
  grid.x = evaluateIndex(x, vars)
  grid.y = evaluateIndex(y, vars)
  grid.z = evaluateIndex(z, vars)
}

/** Why a grid cannot be run, of which an axis has at most `most` workgroups. */
const checkGrid = ({ loaded: { program: { name } }, x, y, z }: Grid, most: number): DeviceError | undefined => {
  const grid = [x, y, z]
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
export const refusedOf = (grids: ReadonlyArray<Grid>, most: number): DeviceError | undefined => {
  for (const grid of grids) {
    const refused = grid.isFixed ? checkGrid(grid, most) : undefined
    if (refused !== undefined) return refused
  }
  return undefined
}

/** Sets the workgroup counts for these values, or says why one of the launches cannot be run. */
export const setGrids = (grids: ReadonlyArray<Grid>, vars: Vars, most: number): DeviceError | undefined => {
  for (const grid of grids) {
    if (grid.isFixed) continue
    set(grid, vars)
    const refused = checkGrid(grid, most)
    if (refused !== undefined) return refused
  }
  return undefined
}

/** Which launches of a run: from one, up to but not including another. */
export interface Part {
  readonly from: number
  readonly to: number
}

/** Puts launches into a command buffer, as a pass of their own, with the workgroup counts that are set. */
export const encode = (
  encoder: GPUCommandEncoder,
  launches: ReadonlyArray<Launch>,
  { from, to }: Part,
  descriptor?: GPUComputePassDescriptor
): void => {
  const pass = encoder.beginComputePass(descriptor)
  let set: GPUComputePipeline | undefined
  let bound: GPUBindGroup | undefined
  for (let i = from; i < to; i++) {
    const { grid: { x, y, z }, group, pipeline } = launches[i]!
    if (x === 0 || y === 0 || z === 0) continue
    if (set !== pipeline) pass.setPipeline(pipeline)
    set = pipeline
    // it stays set as long as pipelines have its layout, and others have other groups
    if (bound !== group) pass.setBindGroup(0, group)
    bound = group
    // an argument takes a tenth of a microsecond to pass
    if (y === 1 && z === 1) pass.dispatchWorkgroups(x)
    else pass.dispatchWorkgroups(x, y, z)
  }
  pass.end()
}
