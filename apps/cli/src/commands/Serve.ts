/** `tg serve`: OpenAI's API over a model, until it is interrupted. */
import { basename } from "node:path"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Conversations, usualConversations } from "@tg/engine/Conversations"
import * as PrefixFiles from "@tg/engine/PrefixFiles"
import { FairQueue } from "@tg/serve/FairQueue"
import * as Guard from "@tg/serve/Guard"
import * as Limits from "@tg/serve/Limits"
import * as Page from "@tg/serve/Page"
import * as Server from "@tg/serve/Server"
import { Config, Duration, Effect, Layer, Option, Redacted, Schema, type Stdio } from "effect"
import { Command, Flag } from "effect/cli"
import { HttpServer } from "effect/http"
import * as Build from "../Build.ts"
import { Chosen } from "../Devices.ts"
import * as Drafts from "../Drafts.ts"
import * as Files from "../Files.ts"
import * as Flags from "../Flags.ts"
import * as Models from "../Models.ts"
import * as NodeServer from "../NodeServer.ts"
import * as Output from "../Output.ts"
import * as PageFiles from "../PageFiles.ts"
import { UsageError } from "../Report.ts"
import * as Signals from "../Signals.ts"

const count = (name: string, { fallback, maximum, minimum = 1, text }: {
  readonly fallback: number
  readonly minimum?: number
  readonly maximum: number
  readonly text: string
}) =>
  Flag.Int(name).pipe(
    Flag.withMetavar("N"),
    Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum, maximum }))),
    Flag.withDescription(`${text} (default: ${fallback})`),
    Flag.withDefault(fallback)
  )

const upTo256 = (name: string, text: string) =>
  Flag.Int(name).pipe(
    Flag.withMetavar("N"),
    Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 256 }))),
    Flag.withDescription(text),
    Flag.optional
  )

const names = (name: string, metavar: string, text: string) =>
  Flag.String(name).pipe(Flag.withMetavar(metavar), Flag.withDescription(text), Flag.between(0, 64))

const flags = {
  model: Flags.model,
  host: Flag.String("host").pipe(
    Flag.withMetavar("ADDRESS"),
    Flag.withDescription("Where to listen (default: 127.0.0.1, which only this machine reaches)"),
    Flag.withDefault("127.0.0.1")
  ),
  port: count("port", { fallback: 8080, minimum: 0, maximum: 65535, text: "The port; 0 takes a free one" }),
  conversations: upTo256(
    "conversations",
    "Conversations that memory is taken for, each of full length (default: 4, or those of --parallel)"
  ),
  parallel: upTo256(
    "parallel",
    "Requests that are answered in the same steps of the model (default: each has steps of its own, in turns)"
  ),
  queue: count("queue", { fallback: Limits.defaults.queue, minimum: 0, maximum: 1e6, text: "Requests that may wait" }),
  savePrefixes: Flag.String("save-prefixes").pipe(
    Flag.withMetavar("FOLDER"),
    Flag.withDescription("Keep beginnings of conversations in this folder, where they are found after a restart"),
    Flag.optional
  ),
  prefixBytes: count("prefix-mib", {
    fallback: 4096,
    maximum: 2 ** 30,
    text: "MiB that the folder of prefixes may have"
  }),
  alias: names("alias", "NAME", "Another name of the model in requests; any number of times"),
  apiKeyFile: Flag.String("api-key-file").pipe(
    Flag.withMetavar("FILE"),
    Flag.withDescription("A file with the key that clients have to send (without it, TG_API_KEY if it is set)"),
    Flag.optional
  ),
  allowHost: names("allow-host", "NAME", "Another name under which the server is reached; any number of times"),
  allowOrigin: names(
    "allow-origin",
    "ORIGIN",
    "A page that may use the server, as https://example.org; any number of times"
  ),
  maxBody: count("max-body", { fallback: 8, maximum: 1024, text: "MiB of a request's body" }),
  requestSeconds: count("request-seconds", {
    fallback: Limits.defaults.requestSeconds,
    maximum: 86_400,
    text: "Seconds a request may take"
  }),
  drainSeconds: count("drain-seconds", {
    fallback: 20,
    minimum: 0,
    maximum: 3600,
    text: "Seconds that answers have to end when the server is told to"
  }),
  page: Flag.Boolean("page").pipe(
    Flag.withDescription("Serve the chat page at / (default: yes; --no-page leaves it out)"),
    Flag.withDefault(true)
  ),
  pageFolder: Flag.String("page-folder").pipe(
    Flag.withMetavar("FOLDER"),
    Flag.withDescription("Serve the files of this folder at / instead"),
    Flag.optional
  ),
  ...Models.runFlags,
  ...Drafts.flags
} as const

type Given = Command.Command.Config.Infer<typeof flags>

/** Serves a model. */
export const command = Command.make(
  "serve",
  flags,
  Effect.fn("cli.serve")(function*(given) {
    const key = yield* keyOf(given)
    const parallel = Option.getOrUndefined(given.parallel)
    if (parallel !== undefined && Option.isSome(given.savePrefixes)) {
      return yield* new UsageError({
        message: "--save-prefixes keeps the caches of conversations with steps of their own; leave it or --parallel out"
      })
    }
    const conversations = Option.getOrElse(given.conversations, () => parallel ?? usualConversations)
    const options: Server.Options = {
      names: { id: idOf(given.model), aliases: given.alias },
      access: accessOf(given, key),
      limits: {
        ...Limits.defaults,
        bodyBytes: given.maxBody * 2 ** 20,
        heldBytes: Math.max(Limits.defaults.heldBytes, given.maxBody * 2 ** 21),
        parallel: parallel ?? conversations,
        queue: given.queue,
        requestSeconds: given.requestSeconds
      }
    }
    if (!isLoopback(given.host) && key === undefined) {
      yield* Output.note(
        `warning: ${given.host} can be reached from other machines, and no key is asked for (--api-key-file)`
      )
    }
    return yield* Effect.scoped(run(given, options)).pipe(
      Effect.provide(
        Server.services(options).pipe(
          Layer.provideMerge(
            Models.layerConversations({ ...given, json: false }, Models.forText(), { conversations, parallel }).pipe(
              Layer.provide(prefixesOf(given))
            )
          )
        )
      )
    )
  })
).pipe(
  Command.withDescription("Serve OpenAI's API over a model on this machine"),
  Command.withExamples([
    { command: "tg serve" },
    { command: "tg serve --model F.gguf --port 8080 --allow-origin https://example.org" }
  ])
)

/** Where beginnings of conversations are kept, if anywhere. */
const prefixesOf = ({ prefixBytes, savePrefixes }: Given) =>
  Option.isNone(savePrefixes) ? Layer.empty : Layer.unwrap(Effect.gen(function*() {
    const stdio = yield* Effect.context<Stdio.Stdio>()
    return PrefixFiles.layer({
      directory: savePrefixes.value,
      version: Build.identity(),
      maxBytes: prefixBytes * 2 ** 20,
      onProblem: ({ message }) => Effect.provide(Output.note(`warning: ${message}`), stdio)
    })
  }))

const run = Effect.fnUntraced(function*(given: Given, options: Server.Options) {
  const queue = yield* FairQueue
  const chosen = yield* Chosen
  const { most } = yield* Effect.flatMap(Conversations, ({ status }) => status)
  const { parallel } = options.limits
  if (most < parallel) {
    yield* Output.note(
      `${chosen.name} has room for ${most} of ${parallel} conversations; a smaller --context makes room for more`
    )
  }
  const serving = Server.layer(options, pageOf(given)).pipe(
    Layer.provideMerge(NodeServer.layer({
      host: given.host,
      port: given.port,
      headerSeconds: 10,
      requestSeconds: Limits.defaults.bodySeconds + 10,
      readSeconds: 30,
      connections: 1024
    })),
    Layer.provide(Layer.succeed(Server.ClientOf, connectionOf))
  )
  const context = yield* Layer.build(serving).pipe(
    Effect.catchTag("ServeError", ({ cause }) =>
      Effect.fail(
        new UsageError({
          message: `${given.host} port ${given.port} cannot be listened to: ${
            cause instanceof Error ? cause.message : String(cause)
          }; --port takes another one`
        })
      ))
  )
  yield* HttpServer.addressFormattedWith((address) =>
    Output.note(
      `${options.names.id} on ${chosen.name}: ${address.replace("0.0.0.0", "127.0.0.1")}/v1` +
        (given.page ? "; a page to chat is at /" : "")
    )
  ).pipe(Effect.provide(context))
  // who is being answered has some time; who waits or comes is refused
  const drain = queue.drain.pipe(
    Effect.timeoutOption(Duration.seconds(given.drainSeconds)),
    Effect.andThen(Effect.void)
  )
  yield* Signals.grace(1000 * given.drainSeconds + 1000)
  return yield* Effect.never.pipe(Effect.onInterrupt(() => Output.note("ending").pipe(Effect.andThen(drain))))
})

/** A connection: its address, and its port where it comes from this machine. */
const connectionOf: (typeof Server.ClientOf)["Service"] = (request) => {
  const { socket } = NodeHttpServerRequest.toIncomingMessage(request)
  return socket?.remoteAddress ?? ""
}

const idOf = (model: string): string => basename(model).replace(/(-00001-of-\d{5})?\.gguf$/i, "")

const isLoopback = (host: string): boolean => host === "localhost" || host === "::1" || host.startsWith("127.")

const accessOf = ({ allowHost, allowOrigin, host }: Given, key: Redacted.Redacted | undefined): Guard.Access => ({
  hosts: [...Guard.loopback, host.includes(":") ? `[${host}]` : host, ...allowHost],
  anyAddress: host === "0.0.0.0" || host === "::",
  origins: allowOrigin,
  key
})

const keyOf = Effect.fnUntraced(function*({ apiKeyFile }: Given) {
  const text = Option.isSome(apiKeyFile)
    ? Option.some(yield* Files.readText(apiKeyFile.value))
    : yield* Config.option(Config.String("TG_API_KEY"))
  if (Option.isNone(text)) return undefined
  const key = text.value.trim()
  if (!/^[\x21-\x7e]{8,}$/.test(key)) {
    return yield* new UsageError({
      message: `${
        Option.getOrElse(apiKeyFile, () => "TG_API_KEY")
      } is no key: one has 8 or more visible ASCII characters`
    })
  }
  return Redacted.make(key)
})

const pageOf = ({ page, pageFolder }: Given) =>
  page
    ? Layer.unwrap(
      Effect.map(Option.isSome(pageFolder) ? Effect.succeed(pageFolder.value) : PageFiles.folder, Page.layer)
    )
    : Layer.empty
