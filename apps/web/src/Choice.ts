/** Which model, and where it runs: what a person chose, and what of it is remembered. */
import type { DeviceInfo } from "@tg/web/Protocol"

/** A model that can be loaded. */
export type Choice =
  /** The one that comes with the page. */
  | { readonly kind: "own" }
  | { readonly kind: "file"; readonly file: File }
  | { readonly kind: "address"; readonly url: string }
  /** One that the browser keeps, by its name. */
  | { readonly kind: "kept"; readonly name: string }

const key = "tg.model"

/** What people see of a choice before its header was read. */
export const nameOf = (choice: Choice): string => {
  switch (choice.kind) {
    case "own":
      return "tg-tiny"
    case "file":
      return choice.file.name
    case "address":
      return choice.url
    case "kept":
      return choice.name
  }
}

/** Remembers a choice for the next visit. A file cannot be: the browser gives it to the page once. */
export const remember = (choice: Choice): void => {
  if (choice.kind === "own") localStorage.removeItem(key)
  else if (choice.kind !== "file") localStorage.setItem(key, JSON.stringify(choice))
}

/** The choice of the last visit; the model of the page where there is none. */
export const remembered = (): Choice => {
  let stored: unknown
  try {
    stored = JSON.parse(localStorage.getItem(key) ?? "null")
  } catch {
    return { kind: "own" }
  }
  if (typeof stored !== "object" || stored === null) return { kind: "own" }
  const { kind, name, url } = stored as { readonly kind?: unknown; readonly name?: unknown; readonly url?: unknown }
  if (kind === "address" && typeof url === "string") return { kind, url }
  if (kind === "kept" && typeof name === "string") return { kind, name }
  return { kind: "own" }
}

/** Where models may run. */
export type DeviceChoice = "auto" | DeviceInfo["kind"]

const deviceKey = "tg.device"

const isDevice = (text: string | null): text is DeviceChoice => text === "auto" || text === "webgpu" || text === "wasm"

/** Remembers where models run. */
export const rememberDevice = (choice: DeviceChoice): void => localStorage.setItem(deviceKey, choice)

/** Where models ran last; the fastest there is where nobody said. */
export const rememberedDevice = (): DeviceChoice => {
  const stored = localStorage.getItem(deviceKey)
  return isDevice(stored) ? stored : "auto"
}
