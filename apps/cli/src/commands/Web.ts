/** `tg web`: the page with the engine inside. This machine gives files only; the model runs in the browser. */
import { Effect, Layer, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { HttpRouter, HttpServer, HttpServerResponse, HttpStaticServer } from "effect/http"
import * as NodeServer from "../NodeServer.ts"
import * as Output from "../Output.ts"
import { UsageError } from "../Report.ts"
import * as SiteFiles from "../SiteFiles.ts"

const flags = {
  host: Flag.String("host").pipe(
    Flag.withMetavar("ADDRESS"),
    Flag.withDescription("Where to listen (default: 127.0.0.1, which only this machine reaches)"),
    Flag.withDefault("127.0.0.1")
  ),
  port: Flag.Int("port").pipe(
    Flag.withMetavar("N"),
    Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 65535 }))),
    Flag.withDescription("The port; 0 takes a free one (default: 8080)"),
    Flag.withDefault(8080)
  ),
  folder: Flag.String("folder").pipe(
    Flag.withMetavar("FOLDER"),
    Flag.withDescription("Serve the page of this folder, as pnpm web:build has written it"),
    Flag.optional
  )
} as const

/** With these WebAssembly has threads: nobody else's page shares a process with this one. */
const isolation = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=()"
}

const files = (root: string) =>
  HttpRouter.use(Effect.fnUntraced(function*(router) {
    const found = yield* HttpStaticServer.make({ root, cacheControl: "no-cache" })
    yield* router.add("GET", "/*", Effect.map(found, HttpServerResponse.setHeaders(isolation)))
  }))

/** Serves the page. */
export const command = Command.make(
  "web",
  flags,
  Effect.fn("cli.web")(
    function*({ folder, host, port }) {
      const root = Option.isSome(folder) ? folder.value : yield* SiteFiles.folder
      const serving = HttpRouter.serve(files(root), { disableLogger: true, disableListenLog: true }).pipe(
        Layer.provideMerge(
          NodeServer.layer({
            host,
            port,
            headerSeconds: 10,
            requestSeconds: 30,
            readSeconds: 60,
            connections: 1024
          })
        )
      )
      const context = yield* Layer.build(serving).pipe(
        Effect.catchTag("ServeError", ({ cause }) =>
          Effect.fail(
            new UsageError({
              message: `${host} port ${port} cannot be listened to: ${
                cause instanceof Error ? cause.message : String(cause)
              }; --port takes another one`
            })
          ))
      )
      yield* HttpServer.addressFormattedWith((address) =>
        Output.note(`a chat whose model runs in the browser: ${address.replace("0.0.0.0", "127.0.0.1")}/`)
      ).pipe(Effect.provide(context))
      return yield* Effect.never
    },
    Effect.scoped
  )
).pipe(Command.withDescription("Serve a chat page that runs the model in the browser itself"))
