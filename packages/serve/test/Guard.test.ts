import { request as rawRequest } from "node:http"
import { Redacted } from "effect"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import * as Guard from "../src/Guard.ts"
import { fake } from "./support/fake.ts"
import { type Running, start } from "./support/server.ts"

const key = "a-key-of-a-test"
let server: Running
let locked: Running
beforeAll(async () => {
  const access = { hosts: [...Guard.loopback, "tg.example"], origins: ["https://page.example"] }
  server = await start({ access }, fake().layer)
  locked = await start({ access: { ...access, key: Redacted.make(key) } }, fake().layer)
})
afterAll(() => Promise.all([server.close(), locked.close()]))

/** A request with any headers, which `fetch` would not send. */
const ask = (
  to: Running,
  { headers = {}, method = "GET", path = "/v1/models" }: {
    readonly headers?: Readonly<Record<string, string>>
    readonly method?: string
    readonly path?: string
  }
): Promise<{ readonly status: number; readonly headers: NodeJS.Dict<string | Array<string>>; readonly body: string }> =>
  new Promise((resolve, reject) => {
    const sent = rawRequest(`${to.url}${path}`, { method, headers }, (response) => {
      let body = ""
      response.on("data", (data) => body += String(data))
      response.on("end", () => resolve({ status: response.statusCode ?? 0, headers: response.headers, body }))
    })
    sent.on("error", reject)
    sent.end()
  })

const own = () => server.url.replace("http://", "")

describe("Host", () => {
  it.each(["localhost", "LOCALHOST:1234", "127.0.0.1:80", "[::1]:9", "tg.example", "tg.example.:8080"])(
    "%s is a name of the server",
    async (host) => assert.strictEqual((await ask(server, { headers: { host } })).status, 200)
  )
  it.each([
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "10.0.0.1",
    "localhost@evil.example",
    "-"
  ])(
    "%s is refused",
    async (host) => {
      const { body, status } = await ask(server, { headers: { host } })
      assert.strictEqual(status, 403)
      assert.strictEqual(JSON.parse(body).error.code, "host_not_allowed")
    }
  )
  it("may be any address where the server listens on all, but no other name", () => {
    const access: Guard.Access = { hosts: ["0.0.0.0"], anyAddress: true, origins: [] }
    const refusal = (host: string) => Guard.refusal({ host } as never, access)
    assert.isUndefined(refusal("10.0.0.1:8080"))
    assert.isUndefined(refusal("[fe80::1]:8080"))
    assert.strictEqual(refusal("evil.example")?.status, 403)
  })
})

describe("Origin", () => {
  it("of the server itself is allowed", async () =>
    assert.strictEqual((await ask(server, { headers: { origin: `http://${own()}` } })).status, 200))
  it("of an allowed page is allowed, and may be read there, errors too", async () => {
    const headers = { origin: "https://page.example" }
    const answer = await ask(server, { headers })
    assert.strictEqual(answer.status, 200)
    assert.strictEqual(answer.headers["access-control-allow-origin"], "https://page.example")
    const missing = await ask(server, { headers, path: "/nowhere" })
    assert.strictEqual(missing.status, 404)
    assert.strictEqual(missing.headers["access-control-allow-origin"], "https://page.example")
  })
  it.each([
    "https://evil.example",
    "null",
    "http://localhost",
    "http://page.example",
    "https://page.example.evil.example"
  ])(
    "%s is refused, and told nothing",
    async (origin) => {
      const { headers, status } = await ask(server, { headers: { origin } })
      assert.strictEqual(status, 403)
      assert.isUndefined(headers["access-control-allow-origin"])
    }
  )
  it("is missing in a page's request for an image: refused", async () => {
    const headers = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" }
    assert.strictEqual((await ask(server, { headers })).status, 403)
  })
  it("that is allowed may ask first what it may send", async () => {
    const asked = { "access-control-request-method": "POST", "access-control-request-headers": "authorization, x-any" }
    const allowed = await ask(locked, { method: "OPTIONS", headers: { ...asked, origin: "https://page.example" } })
    assert.strictEqual(allowed.status, 204)
    assert.strictEqual(allowed.headers["access-control-allow-headers"], "authorization, x-any")
    const refused = await ask(locked, { method: "OPTIONS", headers: { ...asked, origin: "https://evil.example" } })
    assert.strictEqual(refused.status, 403)
  })
})

describe("a key", () => {
  const withKey = (authorization: string, path = "/v1/models") => ask(locked, { headers: { authorization }, path })
  it("is asked for", async () => {
    const { body, headers, status } = await ask(locked, {})
    assert.strictEqual(status, 401)
    assert.strictEqual(headers["www-authenticate"], "Bearer")
    assert.strictEqual(JSON.parse(body).error.code, "invalid_api_key")
    assert.notInclude(body, key)
  })
  it("that is right opens", async () => {
    assert.strictEqual((await withKey(`Bearer ${key}`)).status, 200)
    assert.strictEqual((await withKey(`bearer ${key}`, "/metrics")).status, 200)
  })
  it.each(["Bearer ", `Bearer ${key}x`, `Bearer ${key.slice(1)}`, "Bearer " + "x".repeat(4000), key, "Basic YTpi"])(
    "%s does not",
    async (given) => assert.strictEqual((await withKey(given)).status, 401)
  )
  it("is asked for on every path of the API, also those that do not exist", async () => {
    for (const path of ["/v1/models/x", "/v1/anything", "/v1/embeddings", "/metrics"]) {
      assert.strictEqual((await ask(locked, { path })).status, 401, path)
    }
  })
  it("is not needed to see that the server lives", async () =>
    assert.strictEqual((await ask(locked, { path: "/health" })).status, 200))
})

describe("all answers", () => {
  it("are not sniffed", async () => {
    for (const path of ["/v1/models", "/nowhere", "/health"]) {
      assert.strictEqual((await ask(server, { path })).headers["x-content-type-options"], "nosniff")
    }
  })
})
