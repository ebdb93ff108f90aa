import * as fs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as Http from "../src/Http.ts"
import * as Hub from "../src/Hub.ts"
import { startHub } from "./support/hub.ts"
import { noise, sha256 } from "./support/server.ts"
import { folder, layer, nameOf, pull, quick } from "./support/store.ts"

const hub = Effect.acquireRelease(Effect.promise(startHub), (made) => Effect.promise(made.close))

const repo = "some-one/A.Model-GGUF"
const bytes = noise(200_000, 3)

const scene = Effect.gen(function*() {
  const made = yield* hub
  made.put(repo, "README.md", noise(10), { isSmall: true })
  made.put(repo, "A.Model-Q4_K_M.gguf", bytes)
  made.put(repo, "A.Model-Q8_0.gguf", noise(1000, 5))
  made.put(repo, "mmproj-F16.gguf", noise(1000, 6))
  for (const i of [1, 2, 3]) made.put(repo, `BF16/A.Model-BF16-0000${i}-of-00003.gguf`, noise(20_000 + i, i))
  return made
})

const lookup = (endpoint: string, name: string, options: Http.Options = {}) =>
  Hub.lookup(nameOf(name)).pipe(Effect.provide(Http.Http.layer({ ...quick, endpoint, ...options })))

describe("names of a hub", () => {
  it.live("a file, with what is known of it", () =>
    Effect.gen(function*() {
      const { hub } = yield* scene
      const [file] = yield* lookup(hub.url, `hf:${repo}/A.Model-Q4_K_M.gguf`)
      assert.deepStrictEqual(file, {
        file: "A.Model-Q4_K_M.gguf",
        url: `${hub.url}/${repo}/resolve/0123456789abcdef0123456789abcdef01234567/A.Model-Q4_K_M.gguf`,
        size: bytes.length,
        sha256: sha256(bytes)
      })
    }))

  it.live("a quantisation, whatever the case, over several pages", () =>
    Effect.gen(function*() {
      const { hub } = yield* scene
      assert.strictEqual((yield* lookup(hub.url, `hf:${repo}:q4_k_m`))[0]!.sha256, sha256(bytes))
    }))

  it.live("any part of a split model, and its quantisation, are all of it", () =>
    Effect.gen(function*() {
      const { hub } = yield* scene
      const parts = [1, 2, 3].map((i) => `A.Model-BF16-0000${i}-of-00003.gguf`)
      for (const name of [`hf:${repo}:BF16`, `hf:${repo}/BF16/${parts[1]}`]) {
        assert.deepStrictEqual((yield* lookup(hub.url, name)).map(({ file }) => file), parts)
      }
    }))

  it.live("what is not there is told, with what is", () =>
    Effect.gen(function*() {
      const { hub, put } = yield* scene
      put("some-one/none", "README.md", noise(3), { isSmall: true })
      for (
        const [name, hint] of [
          [`hf:${repo}:Q5_K_M`, "there is no Q5_K_M; there are Q4_K_M, Q8_0, BF16"],
          [`hf:${repo}`, "say which: :Q4_K_M, :Q8_0, :BF16"],
          [`hf:${repo}/b.gguf`, "there is no b.gguf; there are A.Model-Q4_K_M.gguf"],
          [`hf:${repo}/x-00001-of-00002.gguf`, "there is no x-00001-of-00002.gguf"],
          ["hf:some-one/none:Q4_0", "no model in a .gguf file"],
          ["hf:some-one/other:Q4_0", "put a token into HF_TOKEN"]
        ] as const
      ) {
        const error = yield* Effect.flip(lookup(hub.url, name))
        assert.include(error.message, hint)
      }
      put(repo, "A.Model-BF16-00001-of-00002.gguf", noise(3))
      put(repo, "b/A.Model-Q8_0.gguf", noise(3))
      assert.include((yield* Effect.flip(lookup(hub.url, `hf:${repo}:Q8_0`))).message, "name one of the files")
    }))

  it.live("an answer of another form is an error", () =>
    Effect.gen(function*() {
      const { hub } = yield* scene
      for (const text of ["not json", "{}", "[{\"path\":1}]", "[{\"type\":\"file\",\"path\":\"a\",\"size\":-1}]"]) {
        hub.handler = (_, response) => response.writeHead(200).end(text) !== undefined
        const error = yield* Effect.flip(lookup(hub.url, `hf:${repo}:Q4_K_M`))
        assert.strictEqual(error._tag === "HttpError" ? error.problem : error, "answer")
      }
    }))
})

describe("pull from a hub", () => {
  it.live("a split model has one name, and one file for each part", () =>
    Effect.gen(function*() {
      const { hub } = yield* scene
      const root = yield* folder
      const model = yield* pull(`hf:${repo}:BF16`).pipe(Effect.provide(layer({ root }, { endpoint: hub.url })))
      assert.strictEqual(model.totalBytes, 60_006)
      for (const i of [1, 2, 3]) {
        const part = model.path.replace("00001-of", `0000${i}-of`)
        assert.strictEqual(sha256(fs.readFileSync(part)), sha256(noise(20_000 + i, i)))
      }
    }))

  it.live("other bytes than those of the hash get no name", () =>
    Effect.gen(function*() {
      const { hub, storage } = yield* scene
      const root = yield* folder
      storage.fault = ({ range }) => range?.startsWith("bytes=0-") === true ? undefined : { type: "shifted", by: 1 }
      const error = yield* Effect.flip(pull(`hf:${repo}:Q4_K_M`)).pipe(
        Effect.provide(layer({ root }, { endpoint: hub.url }))
      )
      assert.strictEqual(error._tag === "WrongHash" ? error.expected : error, sha256(bytes))
      assert.deepStrictEqual(fs.readdirSync(`${root}/blobs`), [])
    }))

  it.live("an address of the hub is held to the hash that is told on the way", () =>
    Effect.gen(function*() {
      const { hub, storage } = yield* scene
      const root = yield* folder
      const name = `${hub.url}/${repo}/resolve/main/A.Model-Q4_K_M.gguf`
      const here = layer({ root }, { endpoint: hub.url })
      storage.fault = ({ range }) => range?.startsWith("bytes=0-") === true ? undefined : { type: "shifted", by: 1 }
      assert.strictEqual((yield* Effect.flip(pull(name)).pipe(Effect.provide(here)))._tag, "WrongHash")
      storage.fault = () => undefined
      const model = yield* pull(name).pipe(Effect.provide(here))
      assert.strictEqual(model.files[0]!.key, sha256(bytes))
    }))

  it.live("machines behind one address may give different validators to one file", () =>
    Effect.gen(function*() {
      const { hub, storage } = yield* scene
      const root = yield* folder
      const served = storage.files.get(`/${sha256(bytes)}`)!
      storage.fault = (_, index) => {
        served.etag = `"machine ${index % 5 === 4 ? 2 : 1}"`
        return undefined
      }
      const model = yield* pull(`hf:${repo}:Q4_K_M`).pipe(Effect.provide(layer({ root }, { endpoint: hub.url })))
      assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(bytes))
    }))
})

describe("pull as Xet", () => {
  const name = `hf:${repo}:Q6_K`
  const large = noise(700_001, 11)

  it.live("the file is put together from its chunks", () =>
    Effect.gen(function*() {
      const { hub, putXet, storage } = yield* scene
      putXet(repo, "A.Model-Q6_K.gguf", large)
      const root = yield* folder
      const model = yield* pull(name).pipe(Effect.provide(layer({ root, xet: true }, { endpoint: hub.url })))
      assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(large))
      assert.isFalse(
        storage.asked.some(({ path, range }) => path === `/${sha256(large)}` && range !== "bytes=0-0"),
        "nothing but the question for its size went another way"
      )
    }))

  it.live("connections that break are resumed, and what stays broken comes as it is", () =>
    Effect.gen(function*() {
      const { hub, putXet, storage } = yield* scene
      putXet(repo, "A.Model-Q6_K.gguf", large)
      for (const isBroken of [(index: number) => index % 3 === 0, () => true]) {
        const root = yield* folder
        let index = 0
        storage.fault = ({ path }) =>
          path.startsWith("/xorb") && isBroken(index++) ? { type: "break", after: 5000 } : undefined
        const events: Array<string> = []
        const onEvent = ({ type }: { readonly type: string }) => Effect.sync(() => void events.push(type))
        const model = yield* pull(name, { onEvent }).pipe(
          Effect.provide(layer({ root, xet: true }, { endpoint: hub.url }))
        )
        assert.strictEqual(events.includes("plain"), isBroken(1))
        assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(large))
      }
    }))

  it.live("what is not kept as Xet comes as it is", () =>
    Effect.gen(function*() {
      const { hub } = yield* scene
      const root = yield* folder
      const model = yield* pull(`hf:${repo}:Q4_K_M`).pipe(
        Effect.provide(layer({ root, xet: true }, { endpoint: hub.url }))
      )
      assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(bytes))
    }))
})

describe("the token", () => {
  const secret = "hf_verySecretToken"

  it.live("goes to the hub and to nobody else, and stays out of files and errors", () =>
    Effect.gen(function*() {
      const { closed, hub, put, storage } = yield* scene
      const root = yield* folder
      put("some-one/closed", "m-Q4_0.gguf", bytes)
      closed.set("some-one/closed", secret)
      const name = "hf:some-one/closed:Q4_0"
      const without = yield* Effect.flip(pull(name)).pipe(Effect.provide(layer({ root }, { endpoint: hub.url })))
      assert.include(without.message, "HF_TOKEN")
      const wrong = yield* Effect.flip(pull(name)).pipe(
        Effect.provide(layer({ root }, { endpoint: hub.url, token: Redacted.make("hf_other") }))
      )
      assert.include(wrong.message, "is not accepted")
      assert.notInclude(JSON.stringify(wrong), "hf_other")
      hub.asked.length = 0
      yield* pull(name).pipe(Effect.provide(layer({ root }, { endpoint: hub.url, token: Redacted.make(secret) })))
      assert.isTrue(
        hub.asked.length > 2 && hub.asked.every(({ authorization }) => authorization === `Bearer ${secret}`)
      )
      assert.isTrue(storage.asked.length > 2 && storage.asked.every(({ authorization }) => authorization === undefined))
      for (const file of fs.readdirSync(root, { recursive: true, encoding: "utf8" })) {
        const at = `${root}/${file}`
        if (fs.statSync(at).isFile()) assert.isFalse(fs.readFileSync(at).includes(secret), file)
      }
    }))

  it.live("does not travel in the clear, nor to an address that is not the hub's", () =>
    Effect.gen(function*() {
      const sent: Array<readonly [string, string | null]> = []
      const fetch: typeof globalThis.fetch = (input, init) => {
        sent.push([String(input), new Headers(init?.headers).get("authorization")])
        return Promise.resolve(new Response("", { status: 404 }))
      }
      const ask = (endpoint: string, url: string) =>
        Effect.gen(function*() {
          const http = yield* Http.Http
          return yield* Effect.flip(http.request({ url }))
        }).pipe(Effect.scoped, Effect.provide(Http.Http.layer({ endpoint, token: Redacted.make(secret), fetch })))
      yield* ask("https://hub.example", "https://hub.example/a")
      yield* ask("https://hub.example", "https://hub.example.org/a")
      yield* ask("https://hub.example", "https://hub.example:8443/a")
      yield* ask("http://hub.example", "http://hub.example/a")
      assert.deepStrictEqual(sent.map(([, authorization]) => authorization), [`Bearer ${secret}`, null, null, null])
    }))

  it.live("a token that cannot be sent is not shown in the error about it", () =>
    Effect.gen(function*() {
      const { hub } = yield* scene
      for (const bad of ["hf_sec ret", "hf_sec\nret", "hf_secr\u00e9t"]) {
        const error = yield* Effect.flip(lookup(hub.url, `hf:${repo}:Q4_K_M`, { token: Redacted.make(bad) }))
        assert.include(error.message, "characters that no token has")
        assert.notInclude(error.message, "sec")
      }
      hub.asked.length = 0
      yield* lookup(hub.url, `hf:${repo}:Q4_K_M`, { token: Redacted.make(` ${secret}\n`) })
      assert.isTrue(hub.asked.every(({ authorization }) => authorization === `Bearer ${secret}`))
    }))

  it.live("credentials for one host do not follow redirections to another", () =>
    Effect.gen(function*() {
      const { hub, storage } = yield* scene
      hub.fault = () => ({ type: "redirect", to: `${storage.url}/${sha256(bytes)}` })
      yield* Effect.gen(function*() {
        const http = yield* Http.Http
        yield* http.request({ url: `${hub.url}/x`, headers: { Authorization: "Bearer of-another" } })
      }).pipe(Effect.scoped, Effect.provide(Http.Http.layer(quick)))
      assert.strictEqual(hub.asked.at(-1)!.authorization, "Bearer of-another")
      assert.isUndefined(storage.asked.at(-1)!.authorization)
    }))

  it.live("what follows a question mark is shown nowhere", () =>
    Effect.gen(function*() {
      const { hub, storage } = yield* scene
      const root = yield* folder
      storage.fault = () => ({ type: "status", status: 403 })
      const error = yield* Effect.flip(pull(`hf:${repo}:Q4_K_M`)).pipe(
        Effect.provide(layer({ root }, { endpoint: hub.url }))
      )
      assert.include(error.message, storage.url)
      assert.notInclude(error.message, "signature")
    }))
})
