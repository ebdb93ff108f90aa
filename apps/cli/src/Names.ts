/** From what `--model` says to a file: the path of one, or the name of a model that was pulled. */
import * as Http from "@tg/hub/Http"
import { type InvalidName, isName, type ModelName, parse, print } from "@tg/hub/ModelName"
import * as NodeMachine from "@tg/hub/NodeMachine"
import { Store } from "@tg/hub/Store"
import { Config, Effect, FileSystem, Layer, Option, Path, Redacted } from "effect"
import * as UserDirectories from "effect/persistence/UserDirectories"
import * as Flags from "./Flags.ts"
import * as PullProgress from "./PullProgress.ts"
import { UsageError } from "./Report.ts"

/** What the environment says; empty is nothing. */
const settings = Effect.all({
  endpoint: Config.withDefault(Config.String("HF_ENDPOINT"), ""),
  token: Config.withDefault(Config.Redacted("HF_TOKEN"), Redacted.make("")),
  folder: Config.withDefault(Config.String("TG_MODELS"), "")
}).pipe(
  Effect.mapError((error) => new UsageError({ message: `the environment: ${error.message}` })),
  Effect.flatMap(({ endpoint, folder, token }) =>
    endpoint === "" || /^https?:$/.test(URL.parse(endpoint)?.protocol ?? "")
      ? Effect.succeed({ endpoint: endpoint || undefined, folder: folder || undefined, token })
      : new UsageError({ message: `HF_ENDPOINT is "${endpoint}", which is no address; give one like https://host` })
  )
)

/** Where models are kept: in the folder of `TG_MODELS`, or among the user's caches. */
export const folder = Effect.gen(function*() {
  const path = yield* Path.Path
  const { folder } = yield* settings
  return folder !== undefined
    ? path.resolve(folder)
    : path.join(yield* UserDirectories.make().cache("tg"), "models")
})

/**
 * `fetch` over connections of their own: with HTTP/2, which Node takes where it can, all of them would be one connection
 * with a small window. Proxies are those of the environment.
 */
const connected = Effect.gen(function*() {
  const { EnvHttpProxyAgent, fetch } = yield* Effect.promise(() => import("@effect/platform-node/Undici"))
  const dispatcher = yield* Effect.acquireRelease(
    Effect.sync(() => new EnvHttpProxyAgent({ allowH2: false })),
    (agent) => Effect.promise(() => agent.destroy())
  )
  const own: Http.Fetch = async (url, init) => {
    const { body, headers, status } = await fetch(url, { ...init, dispatcher })
    // one class of streams that has two typings
    return new Response(body as ReadableStream | null, { status, headers: [...headers] })
  }
  return own
})

/** Requests to the hub of `HF_ENDPOINT`, with the token of `HF_TOKEN` to it alone. */
export const http = Layer.unwrap(
  Effect.map(
    Effect.all([settings, connected]),
    ([{ endpoint, token }, fetch]) =>
      Http.Http.layer({ fetch, endpoint, token: Redacted.value(token).trim() === "" ? undefined : token })
  )
)

/** The models of this machine. */
export const store = (options: { readonly connections?: number; readonly xet?: boolean } = {}) =>
  Layer.unwrap(Effect.map(folder, (root) => Store.layer({ root, ...options }))).pipe(
    Layer.provideMerge(Layer.merge(http, NodeMachine.layer))
  )

/** The name in a text that is no path of a file: what is there as a file is one, whatever it is called. */
export const nameIn = Effect.fnUntraced(function*(model: string) {
  const files = yield* FileSystem.FileSystem
  if (!isName(model) || (yield* files.exists(model).pipe(Effect.orElseSucceed(() => false)))) return undefined
  return yield* Effect.fromResult(parse(model))
})

/** The file of a model that is to run. What is not here is fetched only where `--pull` asks for it. */
export const resolve = Effect.fn("cli.resolve")(function*(model: string) {
  const name = yield* nameIn(model)
  if (name === undefined) return model
  return yield* local(model, name).pipe(Effect.provide(store()))
})

const local = Effect.fnUntraced(function*(model: string, name: ModelName) {
  const { find, pull } = yield* Store
  const found = yield* find(name)
  if (found?.isComplete === true) return found.path
  const isAsked = Option.getOrElse(yield* Effect.serviceOption(Flags.Pull), () => false)
  if (isAsked) return (yield* PullProgress.tell(print(name), (listener) => pull(name, listener))).path
  const done = found === undefined || found.doneBytes === 0
    ? "is not on this machine"
    : `is here only in part (${Math.floor(found.doneBytes / Math.max(1, found.totalBytes) * 100)}%)`
  return yield* new UsageError({ message: `${model} ${done}; fetch it: tg pull ${model} (or add --pull)` })
})

export type { InvalidName }
