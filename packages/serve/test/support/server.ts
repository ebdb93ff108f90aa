import { createServer } from "node:http"
import { fileURLToPath } from "node:url"
import { readFileSync } from "node:fs"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as Conversations from "@tg/engine/Conversations"
import { ByteSource, fromBytes } from "@tg/gguf/ByteSource"
import { Effect, Layer, ManagedRuntime } from "effect"
import { HttpServer } from "effect/http"
import { wasm } from "../../../engine/test/support/devices.ts"
import * as Guard from "../../src/Guard.ts"
import * as Limits from "../../src/Limits.ts"
import * as Page from "../../src/Page.ts"
import * as Server from "../../src/Server.ts"

const model = fileURLToPath(new URL("../../../../apps/cli/models/tg-tiny-Q4_0.gguf", import.meta.url))

/** tg-tiny on wasm, with some conversations. */
export const conversations = (count: number) =>
  Conversations.Conversations.layer({ conversations: count }).pipe(
    Layer.provide([Layer.sync(ByteSource, () => fromBytes("tg-tiny", new Uint8Array(readFileSync(model)))), wasm])
  )

/** How the server of a test differs from others. */
export interface Changes {
  readonly limits?: Partial<Limits.Limits>
  readonly access?: Partial<Guard.Access>
}

/** Options of a server. */
export const optionsOf = ({ access, limits }: Changes = {}): Server.Options => ({
  names: { id: "tg-tiny", aliases: ["gpt-test"] },
  access: { hosts: Guard.loopback, origins: [], ...access },
  limits: { ...Limits.defaults, parallel: 4, queue: 512, ...limits }
})

/** A server that listens on a free port of this machine, with other conversations if given. */
export const start = async (
  changes: Changes = {},
  model: Layer.Layer<Conversations.Conversations, unknown> = conversations(4),
  page?: string
) => {
  const options = optionsOf(changes)
  const listening = NodeHttpServer.layer(() => createServer(), { port: 0, host: "127.0.0.1" })
  const runtime = ManagedRuntime.make(
    Server.layer(options, page === undefined ? Layer.empty : Page.layer(page)).pipe(
      Layer.provideMerge(listening),
      Layer.provideMerge(Server.services(options)),
      Layer.provideMerge(model)
    )
  )
  const url = await runtime.runPromise(HttpServer.addressFormattedWith((address) => Effect.succeed(address)))
  return { url, runtime, close: () => runtime.dispose() }
}

/** A server under test. */
export type Running = Awaited<ReturnType<typeof start>>
