/** Plans bound to the memory of a device: what a program asks of the host, checked, and its launches over that. */
import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import { argOf, toposort, type UOp, type VarArg, varArg } from "@tg/core-uop/UOp"
import {
  type Binding,
  bufferOf,
  type DeviceBuffer,
  DeviceError,
  type DeviceShape,
  type Dispatch,
  type Executable,
  type Replay,
  type Vars
} from "@tg/runtime/Device"
import { Effect, type Scope } from "effect"
import type { Buffers, Prepared } from "./Jit.ts"
import type * as Plan from "./Plan.ts"

const bad = (message: string): DeviceError => new DeviceError({ reason: "BadArgument", message })

/** A program's interface to the host: sizes of its buffers by id, and bounds of its variables. */
export interface Asked {
  readonly buffers: ReadonlyMap<number, { readonly label: string; readonly bytes: number }>
  readonly vars: ReadonlyMap<string, VarArg>
}

/** Fails if one id has two shapes or types. */
export const askedBy = (sink: UOp): Asked | DeviceError => {
  const buffers = new Map<number, { readonly node: UOp; readonly label: string; readonly bytes: number }>()
  const vars = new Map<string, VarArg>()
  for (const node of toposort(sink)) {
    if (node.op === "VAR") vars.set(varArg(node).name, varArg(node))
    if (node.op !== "BUFFER") continue
    const { id } = argOf(node, "BUFFER")
    const shape = Shape.of(node)
    const known = buffers.get(id)
    if (known !== undefined && (known.node.dtype !== node.dtype || !Shape.equal(Shape.of(known.node), shape))) {
      return bad(
        `buffer ${id} is ${known.node.dtype.scalar} ${Shape.print(Shape.of(known.node))} in one place and ` +
          `${node.dtype.scalar} ${Shape.print(shape)} in another; give each buffer an id of its own, or reshape it`
      )
    }
    const label = node.arena.labelOf(node) ?? `buffer ${id}`
    buffers.set(id, { node, label, bytes: DType.bytes(node.dtype) * Shape.maxElements(shape) })
  }
  return { buffers, vars }
}

/** The first of the host's buffers that is too small. A missing one is reported by the launch that binds it. */
const checkBuffers = (asked: Asked, given: Buffers): DeviceError | undefined => {
  for (const [id, { bytes, label }] of asked.buffers) {
    const own = given.get(id)
    if (own !== undefined && own.bytes < bytes) {
      return bad(`${label} (id ${id}) has ${bytes} bytes in the program, and ${bufferOf(own).label} has ${own.bytes}`)
    }
  }
  return undefined
}

/** The first missing, unknown or out-of-range variable of a run. */
const checkVars = ({ vars }: Asked, given: Readonly<Record<string, number>>): DeviceError | undefined => {
  for (const [name, { max, min }] of vars) {
    const value = given[name]
    if (value === undefined) return bad(`the program needs a value for the variable ${name}`)
    if (!Number.isInteger(value) || value < min || value > max) {
      return bad(`${name} = ${value} is not an integer from ${min} to ${max}`)
    }
  }
  for (const name in given) {
    if (!vars.has(name)) {
      return bad(`the program has no variable ${name}; it has ${[...vars.keys()].join(", ") || "none"}`)
    }
  }
  return undefined
}

/** A replay that checks its variables before it runs. */
const checked = (asked: Asked, { run, stage, timed }: Replay): Replay => {
  const before = <A>(next: (vars: Vars) => Effect.Effect<A, DeviceError>) => (vars: Vars) =>
    Effect.suspend(() => {
      const problem = checkVars(asked, vars)
      return problem === undefined ? next(vars) : Effect.fail(problem)
    })
  return {
    run: before(run),
    ...(timed === undefined ? {} : { timed: before(timed) }),
    ...(stage === undefined ? {} : { stage: (vars: Vars) => checkVars(asked, vars) ?? stage(vars) })
  }
}

/** The binding of a slot: of the host's buffers or of the plan's blocks. */
const boundOf = (
  { name }: Plan.Launch,
  slot: Plan.Slot,
  memory: { readonly buffers: Buffers; readonly blocks: ReadonlyArray<DeviceBuffer> }
): Binding | DeviceError => {
  const { window } = slot
  const binding = slot.kind === "block" ? memory.blocks[slot.block] : memory.buffers.get(slot.id)
  if (binding === undefined) {
    const which = slot.kind === "buffer" ? slot.id : ""
    return bad(`${name} uses buffer ${which}, which the host did not bind`)
  }
  if (slot.kind === "buffer" && slot.whole === true) return bufferOf(binding)
  if (window === undefined) return binding
  const offset = "buffer" in binding ? binding.offset : 0
  return { buffer: bufferOf(binding), offset: offset + window.offset, bytes: window.bytes }
}

/** The launches of a plan, bound to memory. */
const dispatchesOf = (
  { launches }: Plan.ExecutionPlan,
  executables: ReadonlyArray<Executable>,
  memory: Parameters<typeof boundOf>[2]
): ReadonlyArray<Dispatch> | DeviceError => {
  const dispatches: Array<Dispatch> = []
  for (const launch of launches) {
    const buffers: Array<Binding> = []
    for (const slot of launch.slots) {
      const bound = boundOf(launch, slot, memory)
      if (bound instanceof DeviceError) return bound
      buffers.push(bound)
    }
    dispatches.push({ executable: executables[launch.program]!, buffers })
  }
  return dispatches
}

/** A program that was compiled, not bound to memory. */
export interface Compiled {
  readonly asked: Asked
  readonly schedule: Prepared["schedule"]
  readonly plan: Plan.ExecutionPlan
  readonly executables: ReadonlyArray<Executable>
}

/** Allocates the temporary memory of a plan in the Scope, and binds its launches to that and to the host's buffers. */
export const bind: (
  device: DeviceShape,
  compiled: Compiled,
  memory: {
    readonly buffers: Buffers
    /** The block through which workgroups meet, which outlives the plan, if it has one. */
    readonly meeting?: Effect.Effect<DeviceBuffer, DeviceError> | undefined
  }
) => Effect.Effect<Prepared, DeviceError, Scope.Scope> = Effect.fnUntraced(
  function*(device, { asked, executables, plan, schedule }, { buffers, meeting }) {
    const problem = checkBuffers(asked, buffers)
    if (problem !== undefined) return yield* problem
    const blocks = yield* Effect.forEach(
      plan.blocks,
      (bytes, i) => i === plan.meeting && meeting !== undefined ? meeting : device.allocate(bytes, `block ${i}`)
    )
    const dispatches = dispatchesOf(plan, executables, { buffers, blocks })
    if (dispatches instanceof DeviceError) return yield* dispatches
    const replay = yield* device.plan(dispatches)
    return { ...checked(asked, replay), vars: [...asked.vars.keys()], plan, schedule, dispatches, device }
  }
)
