/** A server that gives files as a hub and its storage do, and breaks every promise that it is told to break. */
import { createHash } from "node:crypto"
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"

/** A file that is served. */
export interface Served {
  bytes: Uint8Array
  /** Null: none is sent. */
  etag?: string | null
  lastModified?: string
}

/** What goes wrong with one answer. */
export type Fault =
  /** The connection breaks after so many bytes. */
  | { readonly type: "break"; readonly after: number }
  /** Nothing more comes after so many bytes. */
  | { readonly type: "stall"; readonly after: number }
  | { readonly type: "status"; readonly status: number; readonly headers?: Record<string, string> }
  | { readonly type: "redirect"; readonly to: string }
  /** All of the file, with status 200. */
  | { readonly type: "whole" }
  /** What is sent is what was asked for, and `Content-Range` says something else. */
  | { readonly type: "content-range"; readonly value: string }
  /** What is said is what was asked for, and other bytes come, from so many further on. */
  | { readonly type: "shifted"; readonly by: number }
  /** More bytes than were announced. */
  | { readonly type: "too-much"; readonly extra: number }
  /** Fewer bytes than were announced, and then an ordinary end. */
  | { readonly type: "too-little"; readonly missing: number }

/** A request that came. */
export interface Asked {
  readonly method: string
  readonly path: string
  readonly range: string | undefined
  readonly ifRange: string | undefined
  readonly authorization: string | undefined
}

/** The server and how to treat it. */
export interface TestServer {
  readonly url: string
  readonly asked: Array<Asked>
  /** By path. */
  readonly files: Map<string, Served>
  /** Called for each request before it is answered. */
  fault: (asked: Asked, index: number) => Fault | undefined
  /** Bytes per millisecond, if it is to be slow. */
  speed: number | undefined
  /** Bytes that it still sends: then it waits until there are more. */
  left: number
  /** Answers before files are looked for; true if it has. */
  handler: (request: IncomingMessage, response: ServerResponse, body: string) => boolean
  readonly close: () => Promise<void>
}

const digests = new WeakMap<Uint8Array, string>()

/** Of bytes that do not change. */
const digestOf = (bytes: Uint8Array): string => {
  const digest = digests.get(bytes) ?? sha256(bytes)
  digests.set(bytes, digest)
  return digest
}

export const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex")

/** Bytes that do not repeat. */
export const noise = (length: number, seed = 1): Uint8Array => {
  const bytes = new Uint8Array(length)
  let state = seed >>> 0 || 1
  for (let i = 0; i < length; i++) {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    bytes[i] = state
  }
  return bytes
}

const wait = (millis: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, millis))

const drained = (response: ServerResponse): Promise<void> =>
  new Promise((resolve) => {
    const done = (): void => {
      response.off("drain", done).off("close", done)
      resolve()
    }
    response.on("drain", done).on("close", done)
  })

const piece = 64 * 1024

type Pace = Pick<TestServer, "left" | "speed">

const write = async (response: ServerResponse, bytes: Uint8Array, pace: Pace): Promise<void> => {
  const { speed } = pace
  for (let at = 0; at < bytes.length && !response.destroyed; at += piece) {
    const part = bytes.subarray(at, at + piece)
    while (pace.left < part.length && !response.destroyed) await wait(5)
    pace.left -= part.length
    if (!response.write(part)) await drained(response)
    if (speed !== undefined) await wait(part.length / speed)
  }
}

/** Listens on this machine. */
export const start = async (): Promise<TestServer> => {
  const asked: Array<Asked> = []
  const files = new Map<string, Served>()
  const server: Server = createServer((request, response) => {
    const parts: Array<Buffer> = []
    request.on("data", (part: Buffer) => parts.push(part))
    request.on(
      "end",
      () => void answer(request, response, Buffer.concat(parts).toString()).catch(() => response.destroy())
    )
  })
  const answer = async (request: IncomingMessage, response: ServerResponse, body: string): Promise<void> => {
    const { pathname } = new URL(request.url ?? "/", "http://x")
    const { authorization, range } = request.headers
    const ifRange = request.headers["if-range"]
    const one: Asked = {
      method: request.method ?? "",
      path: pathname,
      range,
      ifRange: Array.isArray(ifRange) ? ifRange[0] : ifRange,
      authorization
    }
    const fault = it.fault(one, asked.push(one) - 1)
    if (fault?.type === "status") return void response.writeHead(fault.status, fault.headers).end("no")
    if (fault?.type === "redirect") return void response.writeHead(302, { location: fault.to }).end()
    if (it.handler(request, response, body)) return
    const file = files.get(pathname)
    if (file === undefined) return void response.writeHead(404).end("not here")
    await send(response, one, { file, fault, pace: it })
  }
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  const { port } = server.address() as AddressInfo
  const it: TestServer = {
    url: `http://127.0.0.1:${port}`,
    asked,
    files,
    fault: () => undefined,
    speed: undefined,
    left: Infinity,
    handler: () => false,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      })
  }
  return it
}

const send = async (
  response: ServerResponse,
  { ifRange, range }: Asked,
  { fault, file, pace }: {
    readonly file: Served
    readonly fault: Fault | undefined
    readonly pace: Pace
  }
): Promise<void> => {
  const { bytes, lastModified } = file
  const etag = file.etag === undefined ? `"${digestOf(bytes).slice(0, 16)}"` : file.etag
  const headers: Record<string, string> = {
    ...(etag === null ? {} : { etag }),
    ...(lastModified === undefined ? {} : { "last-modified": lastModified })
  }
  const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(range ?? "") ?? []
  const isSame = ifRange === undefined || ifRange === etag || ifRange === lastModified
  if (first === undefined || !isSame || fault?.type === "whole") {
    response.writeHead(200, { ...headers, "content-length": String(bytes.length) })
    const cut = fault?.type === "break" || fault?.type === "stall" ? bytes.subarray(0, fault.after) : bytes
    await write(response, cut, pace)
    if (fault?.type === "break") return void response.destroy()
    if (fault?.type === "stall") return
    return void response.end()
  }
  const [start, end] = [Number(first), Math.min(bytes.length, Number(last) + 1)]
  if (start >= bytes.length) return void response.writeHead(416, { "content-range": `bytes */${bytes.length}` }).end()
  const said = fault?.type === "content-range" ? fault.value : `bytes ${start}-${end - 1}/${bytes.length}`
  const isUnannounced = fault?.type === "too-much" || fault?.type === "too-little"
  response.writeHead(206, {
    ...headers,
    "content-range": said,
    ...(isUnannounced ? {} : { "content-length": String(end - start) })
  })
  const by = fault?.type === "shifted" ? fault.by : 0
  let sent: Uint8Array = bytes.slice(start + by, end + by)
  if (sent.length < end - start && by > 0) sent = Buffer.concat([sent, bytes.subarray(0, end - start - sent.length)])
  if (fault?.type === "too-much") sent = Buffer.concat([sent, noise(fault.extra)])
  if (fault?.type === "too-little") sent = sent.subarray(0, Math.max(0, sent.length - fault.missing))
  if (fault?.type === "break" || fault?.type === "stall") sent = sent.subarray(0, fault.after)
  await write(response, sent, pace)
  if (fault?.type === "break") return void response.destroy()
  if (fault?.type !== "stall") response.end()
}
