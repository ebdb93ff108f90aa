/**
 * The page's service worker. It makes the page cross-origin isolated on hosts that cannot send the headers, so that WebAssembly has
 * threads there, and keeps the page for when there is no network.
 */

declare const TG_BUILD: string
/** All files of the page, relative to it. */
declare const TG_FILES: ReadonlyArray<string>

/** As much of a service worker's world as is used: the library of a page does not know it. */
interface World {
  readonly registration: { readonly scope: string }
  readonly clients: { readonly claim: () => Promise<void> }
  readonly skipWaiting: () => Promise<void>
  readonly addEventListener: <T extends keyof Events>(type: T, listener: (event: Events[T]) => void) => void
}
interface Lasting {
  readonly waitUntil: (until: Promise<unknown>) => void
}
interface Route {
  readonly condition: { readonly urlPattern: string }
  readonly source: { readonly cacheName: string }
}
interface Installing extends Lasting {
  /** Has the browser answer from a cache without asking here. Few browsers have it. */
  readonly addRoutes?: (routes: ReadonlyArray<Route>) => Promise<void>
}
interface Events {
  readonly install: Installing
  readonly activate: Lasting
  readonly message: Lasting & {
    readonly data: unknown
    readonly source: { readonly postMessage: (data: unknown) => void } | null
  }
  readonly fetch: { readonly request: Request; readonly respondWith: (response: Promise<Response>) => void }
}
const world = globalThis as unknown as World

const prefix = "tg-page-"
const cacheName = `${prefix}${TG_BUILD}`

const isolation = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
  "cross-origin-resource-policy": "same-origin"
}

const withIsolation = (response: Response): Response => {
  if (response.status === 0) return response
  const headers = new Headers(response.headers)
  for (const [name, value] of Object.entries(isolation)) headers.set(name, value)
  const { status, statusText } = response
  return new Response(status === 204 || status === 304 ? null : response.body, { status, statusText, headers })
}

/** The part of a whole answer that was asked for. */
const part = async (whole: Response, range: string): Promise<Response> => {
  const blob = await whole.blob()
  const [, from = "", to = ""] = /^bytes=(\d+)-(\d*)$/.exec(range) ?? []
  const start = Number(from)
  const end = Math.min(blob.size, to === "" ? blob.size : Number(to) + 1)
  const headers = new Headers(whole.headers)
  if (from === "" || start >= end) {
    headers.set("content-range", `bytes */${blob.size}`)
    return new Response(null, { status: 416, headers })
  }
  headers.set("content-range", `bytes ${start}-${end - 1}/${blob.size}`)
  headers.set("content-length", String(end - start))
  return new Response(blob.slice(start, end), { status: 206, headers })
}

let opened: Promise<Cache> | undefined
const open = (): Promise<Cache> => opened ??= caches.open(cacheName)

const kept = async (request: Request): Promise<Response | undefined> => {
  const cache = await open()
  const own = await cache.match(request.url, { ignoreSearch: true })
  const found = own ?? (request.mode === "navigate" ? await cache.match(world.registration.scope) : undefined)
  const range = request.headers.get("range")
  return found === undefined || range === null ? found : part(found, range)
}

/** A page is asked for first, so that a new one is seen; what it is made of has names of its own. */
const answer = async (request: Request): Promise<Response> => {
  const found = request.mode === "navigate" ? undefined : await kept(request)
  if (found !== undefined) return withIsolation(found)
  try {
    return withIsolation(await fetch(request))
  } catch (error) {
    const last = await kept(request)
    if (last === undefined) throw error
    return withIsolation(last)
  }
}

/** Keeps all files, and forgets those of other builds. */
const keepAll = async (): Promise<void> => {
  const cache = await open()
  const missing: Array<string> = []
  for (const file of TG_FILES) {
    const url = new URL(file, world.registration.scope).href
    if ((await cache.match(url)) === undefined) missing.push(url)
  }
  await cache.addAll(missing)
  const old = (await caches.keys()).filter((name) => name.startsWith(prefix) && name !== cacheName)
  await Promise.all(old.map((name) => caches.delete(name)))
}

/**
 * What the browser may take from the cache by itself, some ten milliseconds sooner: files that need no headers of isolation, which
 * scripts of workers do.
 */
const routes: ReadonlyArray<Route> = TG_FILES.filter((file) =>
  /\.(css|js|gguf|json)$/.test(file) && !file.endsWith("worker.js")
)
  .map((file) => ({
    condition: { urlPattern: new URL(file, world.registration.scope).href },
    source: { cacheName }
  }))

world.addEventListener("install", (event) => {
  // without it all requests come here
  event.waitUntil(event.addRoutes?.(routes).catch(() => {}) ?? Promise.resolve())
  event.waitUntil(world.skipWaiting())
})
world.addEventListener("activate", (event) => event.waitUntil(world.clients.claim()))
world.addEventListener("message", (event) => {
  if (event.data !== "keep") return
  event.waitUntil(
    keepAll().then(
      () => event.source?.postMessage({ type: "kept" }),
      (error: unknown) => event.source?.postMessage({ type: "not-kept", detail: String(error) })
    )
  )
})
world.addEventListener("fetch", (event) => {
  const { request } = event
  if (request.method === "GET" && request.url.startsWith(world.registration.scope)) {
    event.respondWith(answer(request))
  }
})
