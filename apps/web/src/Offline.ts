/** The page without a network, and isolated where its host does not send the headers: both are the service worker's. */
import { signal } from "@preact/signals"
import * as Trusted from "./Trusted.ts"

/** Whether the page works without a network. */
export const isKept = signal(false)

const triedKey = "tg.isolating"

const timeout = (millis: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, millis))

const controlled = (container: ServiceWorkerContainer): Promise<void> =>
  new Promise((resolve) => {
    if (container.controller !== null) resolve()
    container.addEventListener("controllerchange", () => resolve(), { once: true })
  })

/** The service workers of this browser; none in a page that is not secure, or in a window that keeps nothing. */
const container = (): ServiceWorkerContainer | undefined =>
  (navigator as { readonly serviceWorker?: ServiceWorkerContainer }).serviceWorker

/**
 * Starts the service worker. Where only it can isolate the page, the page is loaded once more, and the promise stays open. Without a
 * service worker all goes on as it is.
 */
export const start = async (): Promise<void> => {
  const workers = container()
  if (workers === undefined) return
  const registered = workers.register(Trusted.script("service-worker.js")).then(() => controlled(workers))
  if (globalThis.crossOriginIsolated || sessionStorage.getItem(triedKey) !== null) {
    void registered.catch(() => {})
    return
  }
  const isThere = await Promise.race([registered.then(() => true, () => false), timeout(3000).then(() => false)])
  if (!isThere) return
  sessionStorage.setItem(triedKey, "yes")
  location.reload()
  await new Promise(() => {})
}

/** Has the page kept for when there is no network. */
export const keep = async (): Promise<void> => {
  const workers = container()
  if (workers === undefined) return
  workers.addEventListener("message", ({ data }: MessageEvent<unknown>) => {
    if (typeof data === "object" && data !== null && "type" in data && data.type === "kept") isKept.value = true
  })
  workers.startMessages()
  const { active } = await workers.ready
  active?.postMessage("keep", [])
}
