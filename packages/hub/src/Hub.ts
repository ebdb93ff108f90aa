/** What a name stands for: files, where they are, and what is known of them. */
import * as Split from "@tg/gguf/Split"
import { Effect, Schema } from "effect"
import * as Http from "./Http.ts"
import { HttpError } from "./HubError.ts"
import {
  type Address,
  type HubFile,
  type HubModel,
  isPath,
  type ModelName,
  print,
  type Repository
} from "./ModelName.ts"
import * as Selection from "./Selection.ts"
import * as Transfer from "./Transfer.ts"

// it takes a tenth of a second to load, which a program that asks no hub should not wait
const library = () => import("@huggingface/hub")

/** A file of a model. */
export interface ModelFile {
  /** What it is called, without folders. */
  readonly file: string
  readonly url: string
  readonly size?: number
  readonly sha256?: string
}

/** Why a name could not be looked up. */
export type LookupError = HttpError | Selection.NoSuchModel

/** The files of a model, in the order of their parts. */
export const lookup: (name: ModelName) => Effect.Effect<ReadonlyArray<ModelFile>, LookupError, Http.Http> = Effect.fn(
  "hub.lookup"
)(function*(name) {
  return name.type === "address" ? ofAddress(name) : yield* ofHub(name)
})

/** An address of one part stands for all of them. */
const ofAddress = ({ url }: Address): ReadonlyArray<ModelFile> => {
  const { pathname } = new URL(url)
  const part = Split.parseFileName(pathname)
  const paths = part === undefined
    ? [pathname]
    : Array.from({ length: part.count }, (_, i) => Split.fileName(part.stem, { number: i + 1, count: part.count }))
  return paths.map((path) => {
    const each = new URL(url)
    each.pathname = path
    return { file: fileNameOf(path), url: each.href }
  })
}

/** The last part of a path, as a file can be called everywhere. */
export const fileNameOf = (path: string): string => {
  const last = path.split("/").at(-1) ?? ""
  const text = URL.canParse(`http://x/${last}`) ? decoded(last) : last
  // eslint-disable-next-line no-control-regex
  const plain = text.replace(/[\\/:*?"<>|\u0000-\u001f]/g, "_").replace(/^\.+/, "_")
  return plain === "" ? "model.gguf" : plain.slice(-200)
}

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** What the hub says of a file, as far as it is used. */
const Entry = Schema.Struct({
  type: Schema.String,
  path: Schema.String,
  size: Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)),
  lfs: Schema.optional(Schema.Struct({
    oid: Schema.String.check(Schema.isPattern(/^[0-9a-f]{64}$/)),
    size: Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
  })),
  lastCommit: Schema.optional(Schema.Struct({ id: Schema.String.check(Schema.isPattern(/^[0-9a-f]{40,64}$/)) }))
})
const decodeEntries = Schema.decodeUnknownEffect(Schema.Array(Entry))

const ofHub = Effect.fnUntraced(function*(name: HubFile | HubModel) {
  const http = yield* Http.Http
  const told = print(name)
  if (name.type === "file") {
    const found = yield* infos(http, name, partsOf(name.file))
    if (found.length === partsOf(name.file).length) return found.map((entry) => modelFile(http, name, entry))
  }
  const listed = yield* asked(http, name, async (options) => {
    const { listFiles } = await library()
    const all: Array<unknown> = []
    for await (const entry of listFiles({ ...options, recursive: true })) all.push(entry)
    return all
  })
  const files = listed.filter(({ path, type }) => type === "file" && isPath(path))
  const chosen = yield* Effect.fromResult(
    name.type === "file" ? Selection.byFile(told, files, name.file) : Selection.byQuant(told, files, name.quant)
  )
  const found = yield* infos(http, name, chosen.map(({ path }) => path))
  const byPath = new Map(found.map((entry) => [entry.path, entry]))
  return chosen.map((entry) => modelFile(http, name, byPath.get(entry.path) ?? entry))
})

const partsOf = (file: string): ReadonlyArray<string> => {
  const part = Split.parseFileName(file)
  return part === undefined
    ? [file]
    : Array.from({ length: part.count }, (_, i) => Split.fileName(part.stem, { number: i + 1, count: part.count }))
}

/** What the hub knows of these files, in their order, with the commit that they are of. Files that are not there are left out. */
const infos = Effect.fnUntraced(
  function*(http: Http.Http["Service"], where: Repository, paths: ReadonlyArray<string>) {
    const found = yield* asked(http, where, async (options) => {
      const { pathsInfo } = await library()
      return pathsInfo({ ...options, paths: [...paths], expand: true })
    })
    return paths.flatMap((path) => found.find((entry) => entry.path === path && entry.type === "file") ?? [])
  }
)

const modelFile = (
  { endpoint }: Http.Http["Service"],
  { owner, repo, revision }: Repository,
  { lastCommit, lfs, path, size }: typeof Entry.Type
): ModelFile => {
  // a commit stays what it is; a branch may move between two requests
  const at = encodeURIComponent(lastCommit?.id ?? revision ?? "main")
  return {
    file: fileNameOf(path.split("/").at(-1)!.replaceAll("%", "%25")),
    url: `${endpoint}/${owner}/${repo}/resolve/${at}/${path.split("/").map(encodeURIComponent).join("/")}`,
    size: lfs?.size ?? size,
    ...(lfs === undefined ? {} : { sha256: lfs.oid })
  }
}

interface Options {
  readonly repo: { readonly type: "model"; readonly name: string }
  readonly hubUrl: string
  readonly fetch: typeof fetch
  readonly revision?: string
}

/** Asks the hub through its library, which asks through `http`: for its token, its patience and its errors. */
const asked = Effect.fnUntraced(function*(
  http: Http.Http["Service"],
  { owner, repo, revision }: Repository,
  ask: (options: Options) => Promise<ReadonlyArray<unknown>>
) {
  const url = `${http.endpoint}/${owner}/${repo}`
  const answer = yield* Effect.tryPromise({
    try: (signal) =>
      ask({
        repo: { type: "model", name: `${owner}/${repo}` },
        hubUrl: http.endpoint,
        fetch: fetchOf(http, signal),
        ...(revision === undefined ? {} : { revision })
      }),
    catch: (cause) =>
      cause instanceof HttpError
        ? cause
        : new HttpError({ url, problem: "answer", detail: `the hub's answer is not understood: ${cause}` })
  })
  return yield* decodeEntries(answer).pipe(
    Effect.mapError((error) =>
      new HttpError({
        url,
        problem: "answer",
        detail: `the hub's answer has another form than expected: ${error.message.replace(/\s+/g, " ")}`
      })
    )
  )
})

const mostAnswerBytes = 64 * 2 ** 20

/** `fetch` as the hub's library wants it. */
const fetchOf = (http: Http.Http["Service"], signal: AbortSignal): typeof fetch => (input, init) => {
  const url = typeof input === "string" ? input : input instanceof URL ? input.href : input.url
  const attempt = Effect.gen(function*() {
    const { response } = yield* http.request({
      url,
      method: init?.method,
      headers: Object.fromEntries(new Headers(init?.headers)),
      body: typeof init?.body === "string" ? init.body : undefined
    })
    const parts: Array<Uint8Array<ArrayBuffer>> = []
    let length = 0
    yield* Http.drain({ response, url, stallMillis: http.stallMillis }, (bytes) => {
      length += bytes.length
      if (length > mostAnswerBytes) {
        return Effect.fail(new HttpError({ url: Http.shown(url), problem: "answer", detail: "the answer has no end" }))
      }
      parts.push(new Uint8Array(bytes))
      return Effect.succeed(true)
    })
    return new Response(new Blob(parts), { status: response.status, headers: response.headers })
  })
  return Effect.runPromise(Transfer.repeating(http, Effect.scoped(attempt)), { signal })
}
