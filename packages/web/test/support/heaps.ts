/** The JavaScript heaps of a page and its workers, by the protocol of the browser's tools: what wasm's memory takes is not in them. */
import * as fs from "node:fs"
import * as path from "node:path"

interface Message {
  readonly id?: number
  readonly method?: string
  readonly params?: { readonly sessionId?: string }
  readonly result?: { readonly usedSize?: number }
}

/** What heaps took. */
export interface Heaps {
  /** Bytes, of all together. */
  readonly most: () => number
  readonly samples: () => number
  readonly end: () => void
}

/** Watches the heaps of the page at an address, in a browser whose profile lies in a folder. */
export const watch = async (profile: string, address: string): Promise<Heaps> => {
  const [port] = fs.readFileSync(path.join(profile, "DevToolsActivePort"), "utf8").split("\n")
  const pages = await (await fetch(`http://127.0.0.1:${port}/json/list`)).json() as ReadonlyArray<
    { readonly url: string; readonly webSocketDebuggerUrl: string }
  >
  const socket = new WebSocket(pages.find(({ url }) => url.startsWith(address))!.webSocketDebuggerUrl)
  await new Promise((resolve) => socket.addEventListener("open", resolve, { once: true }))
  /** The page itself is the session without a name. */
  const used = new Map<string | undefined, number>([[undefined, 0]])
  const asked = new Map<number, string | undefined>()
  let last = 0
  let most = 0
  let samples = 0
  const send = (method: string, params: object, sessionId?: string): number => {
    socket.send(JSON.stringify({ id: ++last, method, params, sessionId }))
    return last
  }
  socket.addEventListener("message", ({ data }) => {
    const { id, method, params, result } = JSON.parse(String(data)) as Message
    if (method === "Target.attachedToTarget") used.set(params!.sessionId, 0)
    if (method === "Target.detachedFromTarget") used.delete(params!.sessionId)
    if (id === undefined || result?.usedSize === undefined || !asked.has(id)) return
    if (!used.has(asked.get(id))) return
    used.set(asked.get(id), result.usedSize)
    samples++
    most = Math.max(most, [...used.values()].reduce((a, b) => a + b, 0))
  })
  send("Target.setAutoAttach", { autoAttach: true, waitForDebuggerOnStart: false, flatten: true })
  const timer = setInterval(() => {
    for (const session of used.keys()) asked.set(send("Runtime.getHeapUsage", {}, session), session)
  }, 50)
  return {
    most: () => most,
    samples: () => samples,
    end: () => {
      clearInterval(timer)
      socket.close()
    }
  }
}
