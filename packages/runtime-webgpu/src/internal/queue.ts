import { DeviceError } from "@tg/runtime/Device"
import { Effect } from "effect"

/** GPUBufferUsage and GPUMapMode by number: Node has no such globals. */
export const usage = { mapRead: 0x1, copySrc: 0x4, copyDst: 0x8, uniform: 0x40, storage: 0x80 } as const
export const mapRead = 0x1

/** A failure of the device, ready for the error channel. */
export const error = (reason: DeviceError["reason"], message: string): DeviceError =>
  new DeviceError({ reason, message })

/** What a cause says. */
export const words = (cause: unknown): string => cause instanceof Error ? cause.message : String(cause)

/** Submissions of runs, in number: what the device was given, and what is known to be done, because something behind it was read. */
export interface Progress {
  submitted: number
  done: number
}

/** One GPUDevice, and what has gone wrong on it outside of any call. */
export interface Gpu {
  readonly device: GPUDevice
  readonly progress: Progress
  /** The device is gone, or an earlier submission was refused: the error is reported once, by the next call. */
  readonly trouble: () => DeviceError | undefined
}

/** Watches a device. Errors that no scope catches come from submissions, which answer nobody. */
export const watch = (device: GPUDevice): Gpu => {
  let lost: DeviceError | undefined
  let uncaptured: DeviceError | undefined
  void device.lost.then((info) => {
    lost = error("DeviceLost", `the GPU device was lost (${info.reason ?? "unknown"}): ${info.message}; make a new one`)
  })
  device.onuncapturederror = (event) => {
    const kind = event.error.constructor.name
    const reason = kind === "GPUOutOfMemoryError"
      ? "OutOfMemory"
      : kind === "GPUValidationError"
      ? "BadArgument"
      : "DeviceLost"
    uncaptured ??= error(reason, `the GPU refused a submission: ${event.error.message}`)
    event.preventDefault?.()
  }
  return {
    device,
    progress: { submitted: 0, done: 0 },
    trouble: () => {
      if (lost !== undefined) return lost
      const found = uncaptured
      uncaptured = undefined
      return found
    }
  }
}

/** Waits for a promise of the device. If it fails because the device went away, the error says so. */
export const wait = <A>(
  gpu: Gpu,
  evaluate: () => Promise<A>,
  failure: (message: string) => DeviceError
): Effect.Effect<A, DeviceError> =>
  Effect.tryPromise({ try: evaluate, catch: (cause) => gpu.trouble() ?? failure(words(cause)) })

/** What the error scopes around `create` caught. */
interface Caught<A> {
  readonly value: A
  readonly memory: string | undefined
  readonly validation: string | undefined
}

/** Runs a synchronous call of the device and waits for its verdict. */
export const scoped = <A>(gpu: Gpu, create: () => A): Effect.Effect<Caught<A>, DeviceError> =>
  wait(
    gpu,
    async () => {
      const { device } = gpu
      // scopes are a stack of the device: both are pushed and popped before anyone else can run
      device.pushErrorScope("out-of-memory")
      device.pushErrorScope("validation")
      let created: { readonly value: A } | { readonly thrown: string }
      try {
        created = { value: create() }
      } catch (cause) {
        created = { thrown: words(cause) }
      }
      const verdicts = [device.popErrorScope(), device.popErrorScope()] as const
      const [validation, memory] = await Promise.all(verdicts)
      if ("thrown" in created) throw new Error(created.thrown)
      return { value: created.value, memory: memory?.message, validation: validation?.message }
    },
    (message) => error("BadArgument", message)
  )
