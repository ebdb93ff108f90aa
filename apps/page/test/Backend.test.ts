import * as http from "node:http"
import type { AddressInfo } from "node:net"
import { afterEach, describe, expect, it } from "vitest"
import { BackendError, openAi, type Piece } from "../src/Backend.ts"
import { usual } from "../src/Settings.ts"

const servers: Array<http.Server> = []
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    server.close()
  }
})

/** A server whose answers are what the handler writes. */
const serve = async (handler: http.RequestListener): Promise<string> => {
  const server = http.createServer(handler)
  servers.push(server)
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const event = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`
const delta = (delta: object, finish: string | null = null) => event({ choices: [{ delta, finish_reason: finish }] })

const answer = async (base: string, signal = new AbortController().signal): Promise<ReadonlyArray<Piece>> =>
  Array.fromAsync(openAi(base).answer([{ role: "user", content: "hi" }], { ...usual, model: "m" }, signal))

describe("openAi", () => {
  it("gives thoughts, text and counts, wherever the network cuts the stream", async () => {
    const whole = Buffer.from(
      delta({ role: "assistant" }) + delta({ reasoning_content: "hm" }) + delta({ content: "grün " }) +
        delta({ content: "🙂" }) + delta({}, "stop") +
        event({
          choices: [],
          usage: { prompt_tokens: 5, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 2 } }
        }) + "data: [DONE]\n\n"
    )
    const base = await serve(async (_, response) => {
      response.setHeader("content-type", "text/event-stream")
      for (let at = 0; at < whole.length; at += 7) {
        response.write(whole.subarray(at, at + 7))
        await new Promise((done) => setImmediate(done))
      }
      response.end()
    })
    expect(await answer(base)).toEqual([
      { type: "reasoning", text: "hm" },
      { type: "text", text: "grün " },
      { type: "text", text: "🙂" },
      { type: "done", ending: "end", promptTokens: 5, cachedTokens: 2, answerTokens: 3 }
    ])
  })

  it("says that an answer was cut off", async () => {
    const base = await serve((_, response) => response.end(delta({ content: "a" })))
    await expect(answer(base)).rejects.toThrow("The connection broke in the middle of the answer.")
  })

  it("passes on what the server says is wrong", async () => {
    const base = await serve((_, response) => {
      response.statusCode = 429
      response.end(JSON.stringify({ error: { message: "too many requests wait" } }))
    })
    await expect(answer(base)).rejects.toEqual(new BackendError("too many requests wait", 429))
  })

  it("passes on an error in the middle of a stream", async () => {
    const base = await serve((_, response) =>
      response.end(delta({ content: "a" }) + event({ error: { message: "the device was lost" } }))
    )
    await expect(answer(base)).rejects.toThrow("the device was lost")
  })

  it("asks for a key where one is needed, and sends it", async () => {
    const base = await serve((request, response) => {
      const isKnown = request.headers.authorization === "Bearer sesame"
      response.statusCode = isKnown ? 200 : 401
      response.end(JSON.stringify(isKnown ? { data: [{ id: "tg-tiny" }] } : { error: { message: "no" } }))
    })
    await expect(openAi(base).models(usual)).rejects.toThrow("Enter it in the settings")
    expect(await openAi(base).models({ ...usual, apiKey: "sesame" })).toEqual(["tg-tiny"])
  })

  it("ends at once when it is stopped, and the server hears of it", async () => {
    const controller = new AbortController()
    const isGone = Promise.withResolvers<void>()
    const base = await serve((_, response) => {
      response.on("close", () => isGone.resolve())
      response.write(delta({ content: "a" }))
      controller.abort()
    })
    await expect(answer(base, controller.signal)).rejects.toMatchObject({ name: "AbortError" })
    await isGone.promise
  })
})
