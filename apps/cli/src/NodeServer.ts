/** An HTTP server of Node that is not held up by clients who send or read slowly. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"

/** Where to listen, and how long to wait for clients. */
export interface Options {
  readonly host: string
  readonly port: number
  /** How long the headers of a request may take, in seconds. */
  readonly headerSeconds: number
  /** How long a request may take to arrive, in seconds. */
  readonly requestSeconds: number
  /** How long a client may read nothing of what waits for it, in seconds. */
  readonly readSeconds: number
  /** Connections at the same time. */
  readonly connections: number
}

const make = (options: Options) => (): Server => {
  const server = createServer({
    headersTimeout: options.headerSeconds * 1000,
    requestTimeout: options.requestSeconds * 1000,
    connectionsCheckingInterval: 1000,
    keepAliveTimeout: 15_000,
    maxHeaderSize: 16 * 1024,
    requireHostHeader: true
  })
  server.maxConnections = options.connections
  server.on("request", (_: IncomingMessage, response: ServerResponse) => watch(response, options.readSeconds * 1000))
  return server
}

/** Drops a connection whose client does not read: `drain` did not come for so long. */
const watch = (response: ServerResponse, millis: number): void => {
  let written = -1
  let since = performance.now()
  const timer = setInterval(() => {
    const { socket } = response
    if (socket === null) return
    const taken = socket.bytesWritten - socket.writableLength
    const now = performance.now()
    if (socket.writableLength === 0 || taken !== written) {
      written = taken
      since = now
    } else if (now - since >= millis) socket.destroy()
  }, Math.min(1000, millis))
  timer.unref()
  response.once("close", () => clearInterval(timer))
}

/** Listens there. */
export const layer = (options: Options) =>
  NodeHttpServer.layer(make(options), {
    host: options.host,
    port: options.port,
    // what runs has been waited for, or given up
    gracefulShutdownTimeout: "1 second"
  })
