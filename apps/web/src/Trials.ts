/** What the page about this device shows: its self-test, and how fast it is. */
import { signal } from "@preact/signals"
import * as Model from "@tg/web/Model"
import type { Gauged } from "@tg/web/Protocol"
import * as Trial from "@tg/web/Trial"
import { Effect } from "effect"
import * as Local from "./Local.ts"
import * as OwnModel from "./OwnModel.ts"
import { startWorker } from "./Worker.ts"

/** What is going on. */
export const busy = signal<"testing" | "measuring" | undefined>(undefined)
/** How far the self-test is. */
export const testing = signal<Trial.Testing | undefined>(undefined)
/** What the last self-test of the device has found. */
export const verdict = signal<Trial.Verdict | undefined>(undefined)
/** How fast the device is. */
export const gauged = signal<Gauged | undefined>(undefined)
/** Why what was asked last failed. */
export const trouble = signal<string | undefined>(undefined)

const options = () => ({ worker: startWorker, device: Local.device.value })

const noted = async (what: "testing" | "measuring", work: () => Promise<void>): Promise<void> => {
  busy.value = what
  trouble.value = undefined
  try {
    await work()
  } catch (error) {
    trouble.value = error instanceof Error ? error.message : String(error)
  }
  busy.value = undefined
}

/** Finds what was found before. That there is nothing to be found is no trouble. */
export const recall = async (): Promise<void> => {
  verdict.value = await Effect.runPromise(Effect.orElseSucceed(Trial.last(options()), () => undefined))
}

/** Tests the device. */
export const test = (): Promise<void> =>
  noted("testing", async () => {
    const onProgress = (now: Trial.Testing) => testing.value = now
    verdict.value = await Effect.runPromise(Trial.run("self-test/", { ...options(), onProgress }))
    testing.value = undefined
  })

/** Measures the model that comes with the page. */
export const measure = (): Promise<void> =>
  noted("measuring", async () => {
    await using model = await Model.open(OwnModel.address, options())
    gauged.value = await model.gauge()
  })
