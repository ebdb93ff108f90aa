import { spawn } from "node:child_process"
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { Effect, Layer, ManagedRuntime, Stream } from "effect"
import { HttpServer, HttpServerResponse } from "effect/http"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import * as NodeServer from "../src/NodeServer.ts"
import { child } from "./support/run.ts"

const bin = fileURLToPath(new URL("../src/bin.ts", import.meta.url))
const sleep = (millis: number) => new Promise((resolve) => setTimeout(resolve, millis))

/** A server as users start it. */
const start = async (args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) => {
  const process_ = spawn(process.execPath, [bin, "serve", "--device", "wasm", "--port", "0", ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...env }
  })
  let stderr = ""
  const url = await new Promise<string>((resolve, reject) => {
    process_.stderr.on("data", (data) => {
      stderr += String(data)
      const [, found] = /(http:\/\/\S+)\/v1/.exec(stderr) ?? []
      if (found !== undefined) resolve(found)
    })
    process_.on("close", () => reject(new Error(stderr)))
  })
  const ended = new Promise<number>((resolve) => process_.on("close", (code) => resolve(code ?? -1)))
  return { url, ended, stderr: () => stderr, kill: (signal: NodeJS.Signals) => process_.kill(signal) }
}

const ask = (url: string, more: object, headers: Readonly<Record<string, string>> = {}) =>
  fetch(`${url}/v1/chat/completions`, { method: "POST", body: JSON.stringify({ temperature: 0, ...more }), headers })

/** What comes back for a request that `fetch` would not send. */
const raw = (url: string, head: string): Promise<string> =>
  new Promise((resolve) => {
    const { hostname, port } = new URL(url)
    const socket = connect(Number(port), hostname, () => socket.write(`${head}Connection: close\r\n\r\n`))
    let all = ""
    socket.on("data", (data) => {
      all += String(data)
    })
    socket.on("close", () => resolve(all))
  })

const messages = [{ role: "user", content: "What is 17 + 25?" }]
interface Answer {
  readonly choices: ReadonlyArray<{ readonly message: { readonly content: string } }>
  readonly usage: { readonly prompt_tokens_details: { readonly cached_tokens: number } }
}

describe("serve", () => {
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "tg-serve-"))
  })
  afterAll(() => rm(folder, { recursive: true }))

  it("says how many conversations there is room for", async () => {
    const server = await start(["--limit", "memory=30000000", "--conversations", "8"])
    server.kill("SIGINT")
    await server.ended
    assert.match(server.stderr(), /wasm has room for [1-7] of 8 conversations; a smaller --context makes room/)
  })

  it("answers several in the same steps, each its own", async () => {
    const server = await start(["--parallel", "3", "--context", "192"])
    const texts = await Promise.all(
      ["What is 17 + 25?", "What is the capital of Peru?", "What is 17 + 25?", "What is 17 + 25?"].map(
        async (content) => {
          const answer = await (await ask(server.url, { messages: [{ role: "user", content }] })).json() as Answer
          return answer.choices[0]?.message.content
        }
      )
    )
    server.kill("SIGINT")
    await server.ended
    assert.deepEqual(texts, ["17 + 25 = 42", "Lima", "17 + 25 = 42", "17 + 25 = 42"])
    const refused = await start(["--parallel", "3", "--save-prefixes", folder]).catch(String)
    assert.include(refused, "--save-prefixes keeps the caches of conversations with steps of their own")
  })

  it("answers whom it may, keeps its port and its key, and lets streams end when it is told to end", async () => {
    const key = "a-key-of-a-test"
    const file = join(folder, "key")
    await writeFile(file, `${key}\n`)
    const server = await start(["--api-key-file", file, "--alias", "any"], { TG_API_KEY: "another-key" })
    const authorization = `Bearer ${key}`
    const answer = await (await ask(server.url, { messages, model: "any" }, { authorization })).json() as Answer
    assert.strictEqual(answer.choices[0]?.message.content, "17 + 25 = 42")

    const status = (headers: Readonly<Record<string, string>>) =>
      ask(server.url, { messages }, headers).then((response) => response.status)
    assert.strictEqual(await status({}), 401)
    assert.strictEqual(await status({ authorization: "Bearer another-key" }), 401)
    assert.strictEqual(await status({ authorization, origin: "https://evil.example" }), 403)
    assert.match(await raw(server.url, "GET /health HTTP/1.1\r\nHost: evil.example\r\n"), /^HTTP\/1\.1 403 /)

    const taken = await child(["serve", "--device", "wasm", "--port", new URL(server.url).port])
    assert.strictEqual(taken.code, 1)
    assert.match(taken.stderr, /--port takes another/)

    const story = { messages: [{ role: "user", content: "Tell me a story." }], stream: true, max_tokens: 60 }
    const stream = await ask(server.url, story, { authorization })
    server.kill("SIGTERM")
    assert.match(await stream.text(), /data: \[DONE\]/)
    await server.ended
    assert.notMatch(server.stderr(), /error|^\s+at /m)
    assert.notInclude(server.stderr(), key)
  })

  it("finds prefixes again after it was killed in the middle of a stream", async () => {
    const prefixes = join(folder, "prefixes")
    const content = "I have 14 marbles and get 65 more. How many marbles do I have? ".repeat(4) + "What is 17 + 25?"
    const asked = { messages: [{ role: "user", content }] }
    const names = () => readdir(prefixes).catch(() => [])
    const first = await start(["--save-prefixes", prefixes])
    const before = await (await ask(first.url, { ...asked, max_tokens: 8 })).json() as Answer
    for (let i = 0; i < 1200 && !(await names()).some((name) => name.endsWith(".tgprefix")); i++) await sleep(50)
    const reader = (await ask(first.url, { ...asked, stream: true })).body!.getReader()
    await reader.read()
    first.kill("SIGKILL")
    await first.ended
    await reader.read().catch(() => undefined)
    const second = await start(["--save-prefixes", prefixes])
    const after = await (await ask(second.url, { ...asked, max_tokens: 8 })).json() as Answer
    assert.strictEqual(after.choices[0]?.message.content, before.choices[0]?.message.content)
    assert.isAbove(after.usage.prompt_tokens_details.cached_tokens, 64)
    second.kill("SIGTERM")
    await second.ended
    assert.notMatch(second.stderr(), /warning/)
  })

  it("says what is wrong with its flags before it loads anything", async () => {
    const key = join(folder, "short")
    await writeFile(key, "abc")
    const short = await child(["serve", "--api-key-file", key])
    assert.strictEqual(short.code, 1)
    assert.match(short.stderr, /is no key/)
    assert.notInclude(short.stderr, "loading")
  })
})

describe("slow clients", () => {
  const endless = Stream.forever(Stream.make(new Uint8Array(64 * 1024)))
  const app = HttpServer.serve(Effect.succeed(HttpServerResponse.stream(endless)))
  const options = { host: "127.0.0.1", port: 0, headerSeconds: 1, requestSeconds: 1, readSeconds: 1, connections: 4 }
  const runtime = ManagedRuntime.make(Layer.provideMerge(app, NodeServer.layer(options)))
  let port: number
  beforeAll(async () => {
    const url = await runtime.runPromise(HttpServer.addressFormattedWith((address) => Effect.succeed(address)))
    port = Number(new URL(url).port)
  })
  afterAll(() => runtime.dispose())

  /** How a connection ended that the client would keep for ever. */
  const ending = (use: (socket: ReturnType<typeof connect>) => void): Promise<string> =>
    new Promise((resolve) => {
      let how = "by this side"
      const socket = connect(port, "127.0.0.1", () => use(socket))
      socket.on("end", () => how = "end")
      socket.on("error", ({ message }) => how = message)
      socket.on("close", () => resolve(how))
    })

  it("that do not read are dropped", async () => {
    const how = await ending((socket) => {
      socket.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
      socket.pause()
      // a paused socket does not see that it was closed: look for it
      setTimeout(() => socket.resume(), 3500)
    })
    assert.match(how, /^end$|ECONNRESET|EPIPE/)
  })

  it("that send headers slowly are dropped", async () => {
    const how = await ending((socket) => {
      socket.write("GET / HTTP/1.1\r\nHost: localhost\r\n")
      const timer = setInterval(() => socket.write("X-More: 1\r\n"), 100)
      socket.on("close", () => clearInterval(timer))
      socket.resume()
    })
    assert.match(how, /^end$|ECONNRESET|EPIPE/)
  })
})
