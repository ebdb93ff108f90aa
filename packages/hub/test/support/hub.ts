/** A hub on this machine: the questions that `@huggingface/hub` asks, and files that lie on another server. */
import type { IncomingMessage, ServerResponse } from "node:http"
import { type Served, sha256, start, type TestServer } from "./server.ts"

/** A hub, and the server that its large files lie on. */
export interface TestHub {
  readonly hub: TestServer
  readonly storage: TestServer
  /** Puts a file into a repository. Small ones are not kept apart, and have no SHA-256. */
  readonly put: (repo: string, path: string, bytes: Uint8Array, options?: { readonly isSmall?: boolean }) => Served
  /** Repositories that need a token. */
  readonly closed: Map<string, string>
  readonly close: () => Promise<void>
}

interface Kept {
  readonly served: Served
  readonly oid: string
  readonly isSmall: boolean
}

const commit = "0123456789abcdef0123456789abcdef01234567"

/** Listens on this machine. */
export const startHub = async (): Promise<TestHub> => {
  const [hub, storage] = [await start(), await start()]
  const repos = new Map<string, Map<string, Kept>>()
  const closed = new Map<string, string>()
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
    const to = `${storage.url}/${kept.oid}?signature=secret`
    response.writeHead(302, { location: to, ...(kept.isSmall ? {} : { "x-linked-etag": `"${kept.oid}"` }) }).end()
    return true
  }
  return {
    hub,
    storage,
    closed,
    put: (repo, path, bytes, { isSmall = false } = {}) => {
      const served: Served = { bytes }
      const oid = sha256(bytes)
      storage.files.set(`/${oid}`, served)
      const files = repos.get(repo) ?? new Map<string, Kept>()
      files.set(path, { served, oid, isSmall })
      repos.set(repo, files)
      return served
    },
    close: async () => {
      await hub.close()
      await storage.close()
    }
  }
}
