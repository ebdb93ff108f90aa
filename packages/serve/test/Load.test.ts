import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type Running, start } from "./support/server.ts"

let server: Running
beforeAll(async () => {
  server = await start({ limits: { parallel: 4 } })
})
afterAll(() => server.close())

interface Answer {
  readonly choices: ReadonlyArray<{ readonly message: { readonly content: string } }>
}

/** Asks a sum, as a stream or not, and reads the whole answer. */
const ask = async (a: number, b: number): Promise<string> => {
  const isStream = (a + b) % 2 === 0
  const messages = [{ role: "user", content: `What is ${a} + ${b}?` }]
  const response = await fetch(`${server.url}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify({ messages, temperature: 0, stream: isStream, user: `client ${a}` })
  })
  assert.strictEqual(response.status, 200)
  if (!isStream) return ((await response.json()) as Answer).choices[0]!.message.content
  const lines = (await response.text()).split("\n").filter((line) => line.startsWith("data: {"))
  return lines.map((line) => {
    const chunk = JSON.parse(line.slice(6)) as { choices: ReadonlyArray<{ delta: { content?: string } }> }
    return chunk.choices[0]?.delta.content ?? ""
  }).join("")
}

setFlagsFromString("--expose-gc")
const collect = runInNewContext("gc") as () => void

/** Bytes that are still in use after the garbage was collected. */
const heap = async (): Promise<number> => {
  // what waits for the event loop, such as closed connections, is let go first
  await new Promise((resolve) => setTimeout(resolve, 200))
  collect()
  return process.memoryUsage().heapUsed
}

describe("200 requests from 32 clients at once", () => {
  it("are all answered, each with its own sum, and leave nothing behind", async () => {
    const requests = Array.from({ length: 200 }, (_, i) => [10 + (i * 7) % 89, 11 + (i * 13) % 83] as const)
    const round = async (all: typeof requests): Promise<void> => {
      const left = [...all]
      const client = async () => {
        for (let next = left.pop(); next !== undefined; next = left.pop()) {
          const [a, b] = next
          assert.strictEqual(await ask(a, b), `${a} + ${b} = ${a + b}`)
        }
      }
      await Promise.all(Array.from({ length: 32 }, client))
    }
    await round(requests.slice(0, 40))
    const before = await heap()
    await round(requests)
    // a request that stayed would keep its body, its tokens and its text: 200 of them some megabytes
    assert.isBelow(await heap() - before, 4 * 2 ** 20)
  })
})
