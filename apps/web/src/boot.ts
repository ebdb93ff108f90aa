/** The first script of the page: begins what takes longest while the modules of the page are on their way. */
import { remembered, rememberedDevice } from "./Choice.ts"
import type { Early } from "./Early.ts"
import * as OwnModel from "./OwnModel.ts"
import * as Trusted from "./Trusted.ts"

// where only the service worker can isolate the page, it may be loaded once more
if (globalThis.crossOriginIsolated) {
  const { src } = document.currentScript as HTMLScriptElement
  const script = Trusted.script(new URL("./worker.js", src).href)
  // its name has it start that device at once
  const worker = new Worker(script, { type: "module", name: `tg ${rememberedDevice()}` })
  const early: Early = { worker }
  // nobody hears of it: who asks then gets another one, and its error
  worker.addEventListener("error", () => early.worker = undefined, { once: true })
  if (remembered().kind === "own") early.model = OwnModel.ask()
  globalThis.tgEarly = early
}
