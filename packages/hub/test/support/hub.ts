/** A hub on this machine: the questions that `@huggingface/hub` asks, and files that lie on another server. */
import type { IncomingMessage, ServerResponse } from "node:http"
import { type Served, sha256, start, type TestServer } from "./server.ts"

/** A hub, and the server that its large files lie on. */
export interface TestHub {
  readonly hub: TestServer
  readonly storage: TestServer
  /** Puts a file into a repository. Small ones are not kept apart, and have no SHA-256. */
  readonly put: (repo: string, path: string, bytes: Uint8Array, options?: { readonly isSmall?: boolean }) => Served
  /** The same as Xet too: cut into chunks that follow one another, none of them compressed. */
  readonly putXet: (repo: string, path: string, bytes: Uint8Array) => Served
  /** Repositories that need a token. */
  readonly closed: Map<string, string>
  readonly close: () => Promise<void>
}

interface Kept {
  readonly served: Served
  readonly oid: string
  readonly isSmall: boolean
}

const xetChunk = 10_000
const xetToken = "of-the-storage"

/** Chunks with their headers: a version, the length in the file, how it is compressed, and the length of what it holds. */
const xorbOf = (bytes: Uint8Array): Uint8Array => {
  const parts: Array<Uint8Array> = []
  for (let at = 0; at < bytes.length; at += xetChunk) {
    const part = bytes.subarray(at, at + xetChunk)
    const length = [part.length & 255, part.length >> 8 & 255, part.length >> 16]
    parts.push(Uint8Array.of(0, ...length, 0, ...length), part)
  }
  return Buffer.concat(parts)
}

const commit = "0123456789abcdef0123456789abcdef01234567"

/** Listens on this machine. */
export const startHub = async (): Promise<TestHub> => {
  const [hub, storage] = [await start(), await start()]
  const repos = new Map<string, Map<string, Kept>>()
  const closed = new Map<string, string>()
  const xets = new Map<string, number>()
  const put: TestHub["put"] = (repo, path, bytes, { isSmall = false } = {}) => {
    const served: Served = { bytes }
    const oid = sha256(bytes)
    storage.files.set(`/${oid}`, served)
    const files = repos.get(repo) ?? new Map<string, Kept>()
    files.set(path, { served, oid, isSmall })
    repos.set(repo, files)
    return served
  }
  const entryOf = (path: string, { isSmall, oid, served }: Kept) => ({
    type: "file",
    path,
    size: served.bytes.length,
    oid: "1".repeat(40),
    ...(isSmall ? {} : { lfs: { oid, size: served.bytes.length, pointerSize: 134 } })
  })
  const json = (response: ServerResponse, value: unknown, headers: Record<string, string> = {}): true => {
    response.writeHead(200, { "content-type": "application/json", ...headers }).end(JSON.stringify(value))
    return true
  }
  hub.handler = (request: IncomingMessage, response: ServerResponse, body: string): boolean => {
    const url = new URL(request.url ?? "/", hub.url)
    const path = decodeURIComponent(url.pathname)
    const repo = /^(?:\/api\/models)?\/([^/]+\/[^/]+)\//.exec(path)?.[1] ?? ""
    if (path === "/api/xet-token") {
      return json(response, { accessToken: xetToken, casUrl: storage.url, exp: Date.now() / 1000 + 3600 })
    }
    const files = repos.get(repo)
    const token = closed.get(repo)
    if (files === undefined || (token !== undefined && request.headers.authorization !== `Bearer ${token}`)) {
      response.writeHead(401, { "content-type": "application/json" }).end("{\"error\":\"Repository not found\"}")
      return true
    }
    if (path.startsWith(`/api/models/${repo}/tree/`)) {
      const all = [...files].map(([path, kept]) => entryOf(path, kept))
      const at = Number(url.searchParams.get("cursor") ?? 0)
      const next = `${hub.url}${url.pathname}?recursive=true&cursor=${at + 2}`
      return json(response, all.slice(at, at + 2), at + 2 < all.length ? { link: `<${next}>; rel="next"` } : {})
    }
    if (path.startsWith(`/api/models/${repo}/paths-info/`)) {
      const { expand, paths } = JSON.parse(body) as { readonly paths: ReadonlyArray<string>; readonly expand: boolean }
      const lastCommit = expand ? { lastCommit: { id: commit, title: "x", date: "2026-01-01T00:00:00.000Z" } } : {}
      return json(
        response,
        paths.flatMap((each) => {
          const kept = files.get(each)
          return kept === undefined ? [] : [{ ...entryOf(each, kept), ...lastCommit }]
        })
      )
    }
    const file = new RegExp(`^/${repo}/resolve/([^/]+)/(.*)$`).exec(path)
    const kept = files.get(file?.[2] ?? "")
    if (kept === undefined) return false
    if (xets.has(kept.oid) && request.headers.accept?.includes("application/vnd.xet-fileinfo+json") === true) {
      const links = `<${hub.url}/api/xet-token>; rel="xet-auth", ` +
        `<${storage.url}/v1/reconstructions/${kept.oid}>; rel="xet-reconstruction-info"`
      return json(response, {}, {
        "content-type": "application/vnd.xet-fileinfo+json",
        "x-linked-size": String(kept.served.bytes.length),
        "x-linked-etag": `"${kept.oid}"`,
        "x-xet-hash": kept.oid,
        link: links
      })
    }
    const to = `${storage.url}/${kept.oid}?signature=secret`
    response.writeHead(302, { location: to, ...(kept.isSmall ? {} : { "x-linked-etag": `"${kept.oid}"` }) }).end()
    return true
  }
  storage.handler = (request, response) => {
    const [, oid = ""] = /^\/v2\/reconstructions\/([0-9a-f]+)$/.exec(request.url ?? "") ?? []
    const size = xets.get(oid)
    if (size === undefined) return false
    if (request.headers.authorization !== `Bearer ${xetToken}`) return response.writeHead(401).end() !== undefined
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? []
    const chunks = { start: Math.floor(Number(first) / xetChunk), end: Math.floor(Number(last) / xetChunk) + 1 }
    const bytes = {
      start: chunks.start * (xetChunk + 8),
      end: Math.min(chunks.end * (xetChunk + 8), size + Math.ceil(size / xetChunk) * 8) - 1
    }
    const unpacked = Math.min(size, chunks.end * xetChunk) - chunks.start * xetChunk
    return json(response, {
      terms: [{ hash: "x", unpacked_length: unpacked, range: chunks }],
      xorbs: { x: [{ url: `${storage.url}/xorb-${oid}?signature=secret`, ranges: [{ chunks, bytes }] }] },
      offset_into_first_range: Number(first) % xetChunk
    })
  }
  return {
    hub,
    storage,
    closed,
    putXet: (repo, path, bytes) => {
      const served = put(repo, path, bytes)
      const oid = sha256(bytes)
      xets.set(oid, bytes.length)
      storage.files.set(`/xorb-${oid}`, { bytes: xorbOf(bytes) })
      return served
    },
    put,
    close: async () => {
      await hub.close()
      await storage.close()
    }
  }
}
