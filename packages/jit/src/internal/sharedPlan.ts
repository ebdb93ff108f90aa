/** Plans whose launches share bindings. */
import type { Program } from "@tg/core-uop/Program"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { digest, type UOp } from "@tg/core-uop/UOp"
import type { Schedule, Slice, Step } from "@tg/rangeify/Schedule"
import { bufferOf, type DeviceBuffer } from "@tg/runtime/Device"
import { Effect } from "effect"
import type { CompileError } from "../Compiler.ts"
import type { Buffers } from "../Jit.ts"
import type { Pipeline } from "../Pipeline.ts"
import * as Persistent from "../Persistent.ts"
import * as Plan from "../Plan.ts"
import * as Shared from "../Shared.ts"

/** The host's buffers as slices of the device's, by their numbers. */
export type Parts = ReadonlyMap<number, Slice>

/** Where the host's buffers lie, as far as programs depend on it. */
export interface Layout {
  /** All of them, where launches may share bind groups. */
  readonly parts: Parts | undefined
  /** Those that are slices of larger ones, where launches may be persistent. */
  readonly slices: Parts
}

/** The layout of the host's buffers. */
export const layoutOf = (
  { persistent, place }: Pipeline["Service"],
  groups: Shared.BindGroups,
  buffers: Buffers
): Layout => {
  const all = slicesOf(buffers)
  const isPart = ([id, { bytes }]: readonly [number, Slice]): boolean => buffers.get(id)!.bytes < bytes
  return {
    parts: groups !== "block" || place === undefined ? undefined : all,
    slices: new Map(Persistent.idOf(persistent) === "off" ? [] : [...all].filter(isPart))
  }
}

/** Schedules a program for buffers that lie so. */
export const scheduled = ({ schedule }: Pipeline["Service"], sink: UOp, layout?: Layout) =>
  Effect.provideService(schedule(sink), Persistent.Slices, layout?.slices ?? new Map())

const slicesOf = (buffers: Buffers): Parts => {
  const wholes = new Map<DeviceBuffer, number>()
  return new Map([...buffers].map(([id, binding]) => {
    const buffer = bufferOf(binding)
    const whole = wholes.get(buffer) ?? wholes.size
    wholes.set(buffer, whole)
    return [id, { whole, offset: "buffer" in binding ? binding.offset : 0, bytes: buffer.bytes }] as const
  }))
}

/** A text for each form of the launches of a program: they differ by the layout of slices, and once persistent ones are refused. */
export const formOf = ({ persistent: { refused } }: Pipeline["Service"], layout?: Layout): string => {
  const { parts, slices = new Map() } = layout ?? {}
  return parts === undefined && refused === undefined && slices.size === 0
    ? ""
    : digest(JSON.stringify([...parts ?? [], refused, ...slices]))
}

/** The plan with shared bind groups, if they are asked for and there is one. */
export const planShared = Effect.fn("Jit.planShared")(function*(
  schedule: Schedule,
  { layout: { parts } = { parts: undefined }, pipeline: { place }, profile, programOf }: {
    readonly layout: Pick<Layout, "parts"> | undefined
    readonly pipeline: Pipeline["Service"]
    readonly profile: DeviceProfile
    readonly programOf: (step: Step) => Effect.Effect<Program, CompileError>
  }
) {
  // the counters of grid barriers outlive the plan, so they cannot lie in its shared block
  if (parts === undefined || place === undefined || schedule.kept !== undefined) return undefined
  const programs = new Map<string, Program>()
  for (const step of schedule.steps) {
    const key = Plan.keyOf(step)
    if (!programs.has(key)) programs.set(key, yield* programOf(step))
  }
  const plan = Shared.plan(schedule, {
    programOf: (step) => programs.get(Plan.keyOf(step))!,
    parts,
    place,
    maxBindingBytes: profile.maxBindingBytes,
    maxStorageBuffers: profile.maxStorageBuffers
  })
  if (typeof plan !== "string") return plan
  yield* Effect.logWarning(`launches have bindings of their own: ${plan}`)
  return undefined
})
