import { connect } from "node:net"
import { afterAll, afterEach, assert, beforeAll, describe, it } from "vitest"
import { fake } from "./support/fake.ts"
import { type Running, start } from "./support/server.ts"

const model = fake({ millis: 0 })
const limits = { bodyBytes: 2 ** 20, heldBytes: 3 * 2 ** 20, bodySeconds: 0.5, messages: 1000 }
let server: Running
beforeAll(async () => {
  server = await start({ limits }, model.layer)
})
afterAll(() => server.close())

const messages = [{ role: "user", content: "hi" }]
const post = (body: BodyInit, more: RequestInit = {}, { url } = server) =>
  fetch(`${url}/v1/chat/completions`, { method: "POST", body, ...more })
const errorOf = async (response: Response) => ({
  status: response.status,
  ...((await response.json()) as { error: { message: string; param: string | null; code: string } }).error
})

// whatever was sent, the next one is served
afterEach(async () => {
  const response = await post(JSON.stringify({ messages, max_tokens: 3 }))
  assert.strictEqual(response.status, 200)
  assert.strictEqual(model.seen.open, 0)
})

/** Sends bytes as they are, and answers with what comes back until the connection ends. */
const raw = (send: (write: (text: string) => void) => void, { url } = server): Promise<string> =>
  new Promise((resolve) => {
    const { hostname, port } = new URL(url)
    const socket = connect(Number(port), hostname, () => send((text) => void socket.write(text)))
    let answer = ""
    socket.on("data", (data) => answer += String(data))
    socket.on("error", () => {})
    socket.on("close", () => resolve(answer))
  })

const head = (more: string): string =>
  `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n${more}\r\n\r\n`

describe("a body", () => {
  it("of 1 GB that is announced is refused before it comes", async () => {
    const answer = await raw((write) => write(head("Content-Length: 1073741824")))
    assert.match(answer, /^HTTP\/1\.1 413 /)
    assert.include(answer, "body_too_large")
  })
  it("of 1 GB that is not announced is refused on the way", async () => {
    let sent = 0
    const piece = new TextEncoder().encode("[".repeat(64 * 1024))
    const endless = new ReadableStream({
      pull: (controller) => {
        sent += piece.length
        if (sent > 2 ** 30) controller.close()
        else controller.enqueue(piece)
      }
    })
    const outcome = await post(endless, { duplex: "half" } as RequestInit).then(errorOf, () => ({ status: "closed" }))
    assert.include([413, "closed"], outcome.status)
    assert.isBelow(sent, 64 * 2 ** 20)
  })
  it("that stops coming is given up", async () => {
    // the client would wait for ever: it is the server that ends it
    const answer = await raw((write) => write(head("Content-Length: 1000") + "{\"messages\""))
    assert.match(answer, /^HTTP\/1\.1 408 /)
  })
  it("that comes byte by byte is given up", async () => {
    let timer: ReturnType<typeof setInterval> | undefined
    const answer = await raw((write) => {
      write(head("Content-Length: 1000"))
      timer = setInterval(() => write(" "), 20)
    })
    clearInterval(timer)
    assert.match(answer, /^HTTP\/1\.1 408 /)
  })
  it("is refused where all bodies together are too much, and room is found again", async () => {
    // bodies that a busy machine has time to bring together
    const patient = await start({ limits: { ...limits, bodySeconds: 4 } }, model.layer)
    const half = head(`Content-Length: ${2 ** 20}`) + " ".repeat(2 ** 20 - 100)
    const waiting = [1, 2, 3].map(() => raw((write) => write(half), patient))
    let areGone = false
    const answers = Promise.all(waiting).finally(() => areGone = true)
    const seen = new Set<number>()
    const blanks = " ".repeat(2 ** 19)
    // 400 until all three have come, and when they are gone: blanks are no JSON. Whoever comes last is refused, which may be one of the three
    while (!areGone && !seen.has(503)) seen.add((await errorOf(await post(blanks, {}, patient))).status)
    for (const answer of await answers) {
      const [, status] = /^HTTP\/1\.1 (408|503) /.exec(answer) ?? []
      seen.add(Number(status))
    }
    assert.sameMembers([...seen].filter((status) => status !== 400), [408, 503])
    assert.strictEqual((await errorOf(await post(blanks, {}, patient))).status, 400)
    await patient.close()
  })
  it.each<readonly [string, string, string]>([
    ["no JSON", "{\"messages\": [}", "invalid_json"],
    ["nothing", "", "invalid_json"],
    ["a list", "[]", "invalid_body"],
    ["a number", "1", "invalid_body"],
    ["deep arrays", "[".repeat(100_000), "too_deep"],
    ["deep objects", "{\"a\":".repeat(100_000) + "1" + "}".repeat(100_000), "too_deep"],
    [
      "a deep schema",
      JSON.stringify({ messages, tools: [{ x: null }] }).replace("null", "[".repeat(99) + "]".repeat(99)),
      "too_deep"
    ]
  ])("of %s is refused", async (_, body, code) => {
    const error = await errorOf(await post(body))
    assert.deepEqual([error.status, error.code], [400, code])
  })
  it("with brackets in a text is not deep", async () => {
    const content = "[{\"".repeat(50)
    assert.strictEqual(
      (await post(JSON.stringify({ messages: [{ role: "user", content }], max_tokens: 1 }))).status,
      200
    )
  })
  it("that is compressed, or no UTF-8, is refused", async () => {
    const zipped = await errorOf(await post("x", { headers: { "content-encoding": "gzip" } }))
    assert.strictEqual(zipped.code, "unsupported_encoding")
    assert.strictEqual((await errorOf(await post(Uint8Array.of(0x22, 0xff, 0x22)))).code, "invalid_body")
  })
})

describe("a conversation", () => {
  const asked = async (body: unknown) => errorOf(await post(JSON.stringify(body)))
  it("of too many messages is refused without looking at them", async () => {
    const error = await asked({ messages: Array.from({ length: 30_000 }, () => ({ role: "user", content: "" })) })
    assert.deepEqual([error.status, error.param, error.code], [400, "messages", "too_many_items"])
  })
  it("of 10^6 messages is refused", async () => {
    const body = JSON.stringify({
      messages: Array.from({ length: 1_000_000 }, () => ({ role: "user", content: "hi" }))
    })
    // the server closes behind its answer: a client that is still sending may see that first
    const outcome = await post(body).then(errorOf, () => ({ status: "closed" }))
    assert.include([413, "closed"], outcome.status)
  })
  it("that does not fit the context is refused", async () => {
    const long = await asked({ messages: [{ role: "user", content: "a b c ".repeat(1000) }] })
    assert.deepEqual([long.status, long.param, long.code], [400, "messages", "context_length_exceeded"])
    const started = process.cpuUsage()
    const longer = await asked({ messages: [{ role: "user", content: "abcdefgh".repeat(100_000) }] })
    assert.strictEqual(longer.code, "context_length_exceeded")
    // of the processor's time: nothing looks at all pairs of its letters
    assert.isBelow(process.cpuUsage(started).user, 30e6)
  })
})

describe("a field", () => {
  const cases: ReadonlyArray<readonly [Record<string, unknown>, string, string]> = [
    [{ colour: "red" }, "colour", "unknown_parameter"],
    [{ messages: [{ role: "user", content: "hi", mood: 1 }] }, "messages[0].mood", "unknown_parameter"],
    [{ messages: [{ role: "user" }] }, "messages[0].content", "missing_required_parameter"],
    [{ messages: [{ role: "wizard", content: "hi" }] }, "messages[0]", "invalid_value"],
    [
      { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "x" } }] }] },
      "messages[0].content[0].image_url",
      "unsupported_parameter"
    ],
    [{ messages: [] }, "messages[0]", "missing_required_parameter"],
    [{ temperature: "hot" }, "temperature", "invalid_value"],
    [{ temperature: 2.5 }, "temperature", "invalid_value"],
    [{ top_p: -1 }, "top_p", "invalid_value"],
    [{ n: 0 }, "n", "invalid_value"],
    [{ n: 1000 }, "n", "invalid_value"],
    [{ max_tokens: 0 }, "max_tokens", "invalid_value"],
    [{ stop: "" }, "stop", "invalid_value"],
    [{ logit_bias: { x: 1 } }, "logit_bias", "invalid_value"],
    [{ logit_bias: { 1: 1000 } }, "logit_bias.1", "invalid_value"],
    [{ functions: [] }, "functions", "unsupported_parameter"],
    [{ tool_choice: "required" }, "tool_choice", "invalid_value"],
    [{ response_format: { type: "xml" } }, "response_format", "invalid_value"],
    [
      { response_format: { type: "json_schema", json_schema: { name: "a", schema: { not: {} } } } },
      "response_format.json_schema.schema",
      "unsupported_schema"
    ],
    [{ top_logprobs: 3 }, "top_logprobs", "invalid_value"],
    [{ stream: "yes" }, "stream", "invalid_value"]
  ]
  it.each(cases)("%j is refused by its name", async (change, param, code) => {
    const error = await errorOf(await post(JSON.stringify({ messages, ...change })))
    assert.deepEqual([error.status, error.param, error.code], [400, param, code])
  })
  it.each([
    { user: "me" },
    { metadata: { a: "b" }, store: false, service_tier: "auto", parallel_tool_calls: true },
    { temperature: null, stop: null, seed: null, tools: null, response_format: null },
    { response_format: { type: "text" }, logprobs: false, stream_options: { include_obfuscation: false } }
  ])("%j is taken", async (change) => {
    const response = await post(JSON.stringify({ messages, max_tokens: 1, ...change }))
    assert.strictEqual(response.status, 200)
  })
})

describe("what is not there", () => {
  const codeOf = async (path: string, method = "GET") => {
    const { code, status } = await errorOf(await fetch(`${server.url}${path}`, { method }))
    return [status, code]
  }
  it("is said in the same form", async () => {
    assert.deepEqual(await codeOf("/v1/nothing"), [404, "unknown_url"])
    assert.deepEqual(await codeOf("/v1/models/other"), [404, "model_not_found"])
    assert.deepEqual(await codeOf("/v1/models", "DELETE"), [405, "method_not_allowed"])
    assert.deepEqual(await codeOf("/v1/chat/completions"), [405, "method_not_allowed"])
    assert.deepEqual(await codeOf("/v1/embeddings", "POST"), [501, "unsupported_endpoint"])
  })
})
