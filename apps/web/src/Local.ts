/** The model of the page: looked at, loaded, in use, and what went wrong. */
import { signal } from "@preact/signals"
import type { Facts } from "@tg/web/Protocol"
import * as Model from "@tg/web/Model"
import { type Choice, type DeviceChoice, nameOf, remember, rememberDevice, rememberedDevice } from "./Choice.ts"
import * as OwnModel from "./OwnModel.ts"
import { startWorker } from "./Worker.ts"

/** How far the page is with its model. */
export type Phase =
  | { readonly at: "none" }
  /** Bytes of `totalBytes` are here (`fetching`), or on the device (`loading`); without a total nobody knows. */
  | {
    readonly at: "fetching" | "reading" | "loading"
    readonly name: string
    readonly doneBytes: number
    readonly totalBytes: number | undefined
  }
  | { readonly at: "ready"; readonly choice: Choice; readonly facts: Facts; readonly context: number }
  | { readonly at: "failed"; readonly choice: Choice; readonly message: string }

/** A model whose header was read, and that waits for a decision. */
export interface Candidate {
  readonly choice: Choice
  readonly facts: Facts
}

/** What people see of where models may run. */
export const devices = {
  auto: "The fastest there is",
  webgpu: "WebGPU",
  wasm: "WebAssembly"
} as const

/** How far the page is with the model that answers. */
export const phase = signal<Phase>({ at: "none" })
/** What was looked at last. */
export const candidate = signal<Candidate | undefined>(undefined)
/** Where a header is being read. */
export const looking = signal<string | undefined>(undefined)
/** Why the last look failed. */
export const refusal = signal<string | undefined>(undefined)

/** Where models run that are loaded from now on. */
export const device = signal<DeviceChoice>(rememberedDevice())

/** Chooses where models run; the one in use moves. */
export const changeDevice = (choice: DeviceChoice): void => {
  rememberDevice(choice)
  device.value = choice
  const { value } = phase
  if (value.at === "ready" || value.at === "failed") void use(value.choice)
}

const told = (error: unknown): string => error instanceof Error ? error.message : String(error)

const sourceOf = async (
  choice: Choice,
  onBytes: (done: number, total: number | undefined) => void,
  signal: AbortSignal | undefined
): Promise<Model.Source> => {
  switch (choice.kind) {
    case "own":
      return { given: await OwnModel.fetched(onBytes, signal), name: nameOf(choice) }
    case "file":
      return choice.file
    case "address":
      return choice.url
    case "kept":
      return { kept: choice.name }
  }
}

/** The model in use, or on its way. It changes when another one is taken. */
let current: { readonly opened: Promise<Model.Opened>; readonly controller: AbortController } | undefined
/** The worker that has read the candidate's header. */
let seen: { readonly seen: Model.Seen; readonly choice: Choice } | undefined

const look = async (choice: Choice, options: Model.LookOptions & Model.Abortable): Promise<Model.Seen> => {
  const source = await sourceOf(choice, (doneBytes, totalBytes) => {
    if (phase.value.at === "fetching") phase.value = { ...phase.value, doneBytes, totalBytes }
  }, options.signal)
  return Model.look(source, { ...options, worker: startWorker, device: device.value })
}

/** Reads a header, so that a person can decide. Nothing else changes. */
export const consider = async (choice: Choice): Promise<void> => {
  await dismiss()
  looking.value = nameOf(choice)
  try {
    const found = await look(choice, { onProgress })
    seen = { seen: found, choice }
    candidate.value = { choice, facts: found.facts }
  } catch (error) {
    refusal.value = told(error)
  }
  looking.value = undefined
}

/** Forgets what was looked at. */
export const dismiss = async (): Promise<void> => {
  const last = seen
  seen = undefined
  candidate.value = undefined
  refusal.value = undefined
  await last?.seen.close()
}

const onProgress = ({ loadedBytes, totalBytes }: { readonly loadedBytes: number; readonly totalBytes: number }) => {
  if (phase.value.at === "loading") phase.value = { ...phase.value, doneBytes: loadedBytes, totalBytes }
}

/** Loads what was looked at, in place of the model in use. */
export const take = async (): Promise<void> => {
  if (seen === undefined) return
  const { choice, seen: found } = seen
  seen = undefined
  candidate.value = undefined
  await replace(choice, () => Promise.resolve(found))
}

/** Loads a model without a question, in place of the model in use. */
export const use = (choice: Choice): Promise<void> =>
  replace(choice, (signal) => look(choice, { memory: false, onProgress, signal }))

/** Ends loading. */
export const cancel = (): void => current?.controller.abort(new Error("It was stopped."))

const replace = async (choice: Choice, find: (signal: AbortSignal) => Promise<Model.Seen>): Promise<void> => {
  const last = current
  const controller = new AbortController()
  const name = nameOf(choice)
  const at = choice.kind === "own" ? "fetching" : "reading"
  phase.value = { at, name, doneBytes: 0, totalBytes: undefined }
  const opened = (async () => {
    last?.controller.abort(new Error("Another model was chosen."))
    await last?.opened.then((model) => model.close(), () => {})
    const found = await find(controller.signal)
    phase.value = { at: "loading", name: found.facts.name, doneBytes: 0, totalBytes: undefined }
    try {
      const model = await found.load({ signal: controller.signal })
      phase.value = { at: "ready", choice, facts: found.facts, context: model.context }
      remember(choice)
      return model
    } catch (error) {
      await found.close()
      throw error
    }
  })()
  current = { opened, controller }
  await opened.catch((error: unknown) => {
    // whoever came after has a phase of its own
    if (current?.opened === opened) phase.value = { at: "failed", choice, message: told(error) }
  })
}

/** The model when it is ready. After a failure it is tried once more. */
export const model = async (): Promise<Model.Opened> => {
  if (phase.value.at === "failed") await use(phase.value.choice)
  if (current === undefined) throw new Error("There is no model. Choose one.")
  return current.opened
}

/** Notes that the worker is gone, as after it ran out of memory. */
export const lost = (message: string): void => {
  if (phase.value.at === "ready") phase.value = { at: "failed", choice: phase.value.choice, message }
}
