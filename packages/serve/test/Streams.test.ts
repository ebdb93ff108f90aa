import { connect } from "node:net"
import { Effect } from "effect"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { FairQueue } from "../src/FairQueue.ts"
import { fake } from "./support/fake.ts"
import { type Running, start } from "./support/server.ts"

const messages = [{ role: "user", content: "hi" }]
const sleep = (millis: number) => new Promise((resolve) => setTimeout(resolve, millis))
const until = async (isTrue: () => boolean | Promise<boolean>) => {
  for (let i = 0; i < 6000 && !(await isTrue()); i++) await sleep(10)
  assert.isTrue(await isTrue())
}
const counts = (server: Running) => server.runtime.runPromise(Effect.flatMap(FairQueue, (queue) => queue.counts))
const ask = (server: Running, more: object, init: RequestInit = {}) =>
  fetch(`${server.url}/v1/chat/completions`, { method: "POST", body: JSON.stringify({ messages, ...more }), ...init })

describe("a client that goes away", () => {
  const model = fake({ millis: 5 })
  let server: Running
  beforeAll(async () => {
    server = await start({ limits: { parallel: 1, queue: 4 } }, model.layer)
  })
  afterAll(() => server.close())

  it.each([true, false])("ends its generation within a token (stream: %s)", async (stream) => {
    const leave = new AbortController()
    const asked = ask(server, { stream }, { signal: leave.signal }).then((response) => response.text()).catch(() =>
      "gone"
    )
    await until(() => model.seen.open === 1)
    await sleep(100)
    leave.abort()
    assert.strictEqual(await asked, "gone")
    await until(() => model.seen.open === 0)
    const { tokens } = model.seen
    await sleep(100)
    assert.strictEqual(model.seen.tokens, tokens)
    assert.deepEqual(await counts(server), { running: 0, waiting: 0 })
  })

  it("while it waits loses its place, and nobody else's", async () => {
    const first = new AbortController()
    const second = new AbortController()
    const one = ask(server, { stream: true }, { signal: first.signal })
    await until(() => model.seen.open === 1)
    const two = ask(server, { stream: true }, { signal: second.signal }).catch(() => "gone")
    await until(async () => (await counts(server)).waiting === 1)
    const three = ask(server, { max_tokens: 2 })
    await until(async () => (await counts(server)).waiting === 2)
    second.abort()
    assert.strictEqual(await two, "gone")
    await until(async () => (await counts(server)).waiting === 1)
    first.abort()
    await one.then((response) => response.text()).catch(() => "gone")
    assert.strictEqual((await three).status, 200)
  })

  it("asks for too much with the others: 429 and Retry-After", async () => {
    const leave = new AbortController()
    const waiting = Array.from(
      { length: 5 },
      () => ask(server, { stream: true }, { signal: leave.signal }).catch(() => "gone")
    )
    await until(async () => (await counts(server)).waiting === 4)
    const refused = await ask(server, {})
    assert.strictEqual(refused.status, 429)
    assert.isAtLeast(Number(refused.headers.get("retry-after")), 1)
    const { error } = await refused.json() as { error: { type: string; code: string } }
    assert.deepEqual([error.type, error.code], ["rate_limit_error", "queue_full"])
    leave.abort()
    await Promise.all(waiting)
    await until(async () => (await counts(server)).running === 0)
  })
})

describe("a client that reads slowly", () => {
  it("does not keep others waiting", async () => {
    const model = fake({ millis: 0, text: "many letters in a token " })
    const server = await start({ limits: { parallel: 1 } }, model.layer)
    const { hostname, port } = new URL(server.url)
    const body = JSON.stringify({ messages, stream: true, n: 16 })
    const socket = connect(Number(port), hostname)
    socket.pause()
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`
    )
    await until(() => model.seen.requests.length > 0)
    const other = await ask(server, { max_tokens: 2 })
    assert.strictEqual(other.status, 200)
    socket.destroy()
    await until(async () => (await counts(server)).running === 0)
    await server.close()
  })
})

describe("a request that takes too long", () => {
  it("is ended, with an error in its stream", async () => {
    const model = fake({ millis: 20 })
    const server = await start({ limits: { requestSeconds: 0.3 } }, model.layer)
    const text = await (await ask(server, { stream: true })).text()
    assert.match(text, /data: \{"error":\{.*"code":"timeout"/)
    assert.notInclude(text, "[DONE]")
    assert.strictEqual((await ask(server, {})).status, 503)
    assert.strictEqual(model.seen.open, 0)
    await server.close()
  })
})

describe("ending", () => {
  it("lets streams end, refuses who waits and who comes", async () => {
    const model = fake({ millis: 5 })
    const server = await start({ limits: { parallel: 1 } }, model.layer)
    const streaming = ask(server, { stream: true, max_tokens: 60 }).then((response) => response.text())
    await until(() => model.seen.open === 1)
    const waiting = ask(server, {})
    await until(async () => (await counts(server)).waiting === 1)
    const drained = server.runtime.runPromise(Effect.flatMap(FairQueue, (queue) => queue.drain))
    assert.strictEqual((await waiting).status, 503)
    assert.strictEqual((await ask(server, {})).status, 503)
    assert.match(await streaming, /data: \[DONE\]/)
    await drained
    await server.close()
  })
})
