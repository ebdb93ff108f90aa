/** A server of static files on this machine, as a page meets it: with or without isolation, with or without ranges. */
import * as fs from "node:fs"
import * as http from "node:http"
import type { AddressInfo } from "node:net"
import * as path from "node:path"
import { Readable } from "node:stream"

const types: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".webmanifest": "application/manifest+json",
  ".gguf": "application/octet-stream"
}

const isolation = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp"
}

/** A server, and what was asked of it. */
export interface Site {
  readonly url: string
  /** Bytes of model files that were sent. */
  readonly sent: () => number
  /** Names of scripts that were sent, each once. */
  readonly scripts: () => ReadonlySet<string>
  readonly close: () => Promise<void>
}

/** The same bytes, a piece every few milliseconds. */
async function* slowly(stream: fs.ReadStream): AsyncGenerator<Buffer> {
  for await (const bytes of stream) {
    await new Promise((resolve) => setTimeout(resolve, 40))
    yield bytes
  }
}

const send = (
  file: string,
  { isSlow, range }: { readonly range: string | undefined; readonly isSlow: boolean },
  response: http.ServerResponse
): number => {
  const { size } = fs.statSync(file)
  const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(range ?? "") ?? []
  const start = Number(from ?? 0)
  const end = Math.min(size, Number(to ?? size - 1) + 1)
  response.setHeader("content-type", types[path.extname(file)] ?? "text/plain")
  response.setHeader("content-length", end - start)
  if (from !== undefined) response.setHeader("content-range", `bytes ${start}-${end - 1}/${size}`)
  response.writeHead(from === undefined ? 200 : 206)
  if (end === start) response.end()
  else {
    const stream = fs.createReadStream(file, { start, end: end - 1 })
    ;(isSlow ? Readable.from(slowly(stream)) : stream).pipe(response)
  }
  return end - start
}

/**
 * Serves files and folders, each behind the beginning of a path; the first one that fits. Behind `/isolated/` every answer has the headers of isolation, behind `/plain/` none
 * has; `?whole` is answered without ranges, `?slow` takes its time.
 */
export const serve = async (folders: Readonly<Record<string, string>>): Promise<Site> => {
  let sent = 0
  const scripts = new Set<string>()
  const server = http.createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url!, "http://localhost")
    const [, mode, place] = /^\/(isolated|plain)\/(.*)$/.exec(pathname) ?? []
    const start = Object.keys(folders).find((each) => place?.startsWith(each) === true)
    const named = start === undefined ? undefined : path.join(folders[start]!, place!.slice(start.length))
    const file = named?.endsWith("/") === true ? `${named}index.html` : named
    if (mode === "isolated") { for (const [name, value] of Object.entries(isolation)) response.setHeader(name, value) }
    if (file === undefined || !fs.existsSync(file)) return void response.writeHead(404).end()
    response.setHeader("etag", `"${fs.statSync(file).mtimeMs}"`)
    const range = searchParams.has("whole") ? undefined : request.headers.range
    const bytes = send(file, { range, isSlow: searchParams.has("slow") }, response)
    if (file.endsWith(".gguf")) sent += bytes
    if (file.endsWith(".js")) scripts.add(path.basename(file))
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    sent: () => sent,
    scripts: () => scripts,
    close: () => {
      server.closeAllConnections()
      return new Promise((resolve) => server.close(() => resolve()))
    }
  }
}
