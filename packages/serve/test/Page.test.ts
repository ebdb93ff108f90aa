import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { fake } from "./support/fake.ts"
import { type Running, start } from "./support/server.ts"

let folder: string
let server: Running
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tg-page-"))
  await writeFile(join(folder, "index.html"), "<!doctype html><title>page</title>")
  server = await start({}, fake().layer, folder)
})
afterAll(async () => {
  await server.close()
  await rm(folder, { recursive: true })
})

describe("a page", () => {
  it("is at /, and may run nothing but its own", async () => {
    const response = await fetch(`${server.url}/`)
    assert.strictEqual(response.status, 200)
    assert.include(await response.text(), "<title>page</title>")
    const policy = response.headers.get("content-security-policy") ?? ""
    for (const part of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"]) {
      assert.include(policy, part)
    }
    assert.notMatch(policy, /unsafe|https?:|\*/)
  })

  it("leaves what is not there to the server, in its form", async () => {
    const codes = await Promise.all(
      ["/v1/nothing", "/no.js", "/v1/chat/completions", "/..%2f..%2fetc/passwd"].map(async (path) => {
        const response = await fetch(`${server.url}${path}`)
        const { error } = await response.json() as { readonly error: { readonly code: string } }
        return [response.status, error.code]
      })
    )
    assert.deepEqual(codes, [[404, "unknown_url"], [404, "unknown_url"], [405, "method_not_allowed"], [
      404,
      "unknown_url"
    ]])
    assert.strictEqual((await fetch(`${server.url}/v1/models`)).status, 200)
  })
})
