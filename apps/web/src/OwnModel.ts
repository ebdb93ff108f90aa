/** The model that comes with the page, on its way from the page's host. */
import * as Early from "./Early.ts"

/** Its address. */
export const address = "models/tg-tiny-Q4_0.gguf"

/** Asks for it. */
export const ask = (): Early.Request => {
  const controller = new AbortController()
  const response = fetch(address, { signal: controller.signal })
  // whoever waits for it hears of it
  response.catch(() => {})
  return { response, controller }
}

// people see no more
const toldMillis = 50

/** All of it; says how far it is. */
export const fetched = async (
  onBytes: (done: number, total: number | undefined) => void,
  signal: AbortSignal | undefined
): Promise<ArrayBuffer> => {
  const { controller, response: coming } = Early.take("model") ?? ask()
  if (signal?.aborted === true) controller.abort(signal.reason)
  signal?.addEventListener("abort", () => controller.abort(signal.reason), { once: true })
  const response = await coming.catch((error: unknown) => {
    if (signal?.aborted === true) throw error
    throw new Error("The model that comes with this page cannot be fetched. Is there a network?")
  })
  if (!response.ok || response.body === null) throw new Error(`The page's host answers with status ${response.status}.`)
  const length = Number(response.headers.get("content-length"))
  const total = length > 0 ? length : undefined
  const parts: Array<Uint8Array> = []
  let done = 0
  let told = -Infinity
  for await (const part of chunksOf(response.body)) {
    parts.push(part)
    done += part.length
    if (performance.now() - told < toldMillis) continue
    told = performance.now()
    onBytes(done, total)
  }
  return joined(parts, done)
}

async function* chunksOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = body.getReader()
  for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value
}

const joined = (parts: ReadonlyArray<Uint8Array>, length: number): ArrayBuffer => {
  const whole = new Uint8Array(length)
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole.buffer
}
