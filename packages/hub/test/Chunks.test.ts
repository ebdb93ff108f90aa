import { assert, describe, it } from "@effect/vitest"
import * as Chunks from "../src/Chunks.ts"
import * as Ranges from "../src/Ranges.ts"

const header: Chunks.Header = { version: 1, url: "https://h/x", size: 1000, chunkBytes: 300 }
const [a, b] = ["a".repeat(64), "b".repeat(64)]

describe("a table of chunks", () => {
  it("comes back as it was", () => {
    const table = { header, hashes: new Map([[0, a], [3, b]]) }
    assert.deepStrictEqual(Chunks.parse(Chunks.print(table)), table)
    assert.strictEqual(Chunks.bytesDone(table), 400)
  })

  it("is valid wherever its writer died", () => {
    const text = Chunks.print({ header, hashes: new Map([[0, a], [1, b]]) })
    for (let end = 0; end <= text.length; end++) {
      const table = Chunks.parse(text.slice(0, end))
      if (end <= text.indexOf("\n")) assert.isUndefined(table)
      else for (const [index, hash] of table!.hashes) assert.strictEqual(hash, index === 0 ? a : b)
    }
  })

  it("the later line of a chunk counts, and a chunk can be taken back", () => {
    const text = Chunks.printHeader(header) + Chunks.printChunk(1, a) + Chunks.printChunk(2, a) +
      Chunks.printChunk(1, b) + Chunks.printChunk(2, undefined)
    assert.deepStrictEqual(Chunks.parse(text)!.hashes, new Map([[1, b]]))
  })

  it("what is no chunk of the file counts for nothing", () => {
    const text = `${Chunks.printHeader(header)}4 ${a}\n-1 ${a}\n1 ${a} \n1 xyz\n\n99999999999 ${a}\n2 ${a}\n`
    assert.deepStrictEqual(Chunks.parse(text)!.hashes, new Map([[2, a]]))
    for (
      const bad of [
        "{}\n",
        "x\n",
        JSON.stringify({ ...header, size: -1 }) + "\n",
        JSON.stringify({ ...header, chunkBytes: 0 }) + "\n"
      ]
    ) {
      assert.isUndefined(Chunks.parse(bad))
    }
  })

  it("chunks are 1 to 16 MiB", () => {
    const MiB = 2 ** 20
    assert.deepStrictEqual([0, 1, 64 * MiB, 65 * MiB, 17e9, 2 ** 45].map(Chunks.chunkBytesFor), [
      MiB,
      MiB,
      MiB,
      2 * MiB,
      16 * MiB,
      16 * MiB
    ])
  })

  it("runs are what follows one another", () => {
    assert.isUndefined(Chunks.firstRun(new Set(), 8))
    assert.deepStrictEqual(Chunks.firstRun(new Set([5, 3, 4, 9]), 8), { from: 3, to: 6 })
    assert.deepStrictEqual(Chunks.firstRun(new Set([5, 3, 4, 9]), 2), { from: 3, to: 5 })
  })
})

describe("headers", () => {
  it.each([
    ["bytes 0-0/1", { start: 0, end: 1, size: 1 }],
    ["Bytes 5-9/100", { start: 5, end: 10, size: 100 }],
    ["bytes 5-9/*", undefined],
    ["bytes 9-5/100", undefined],
    ["bytes 5-100/100", undefined],
    ["bytes */100", undefined],
    ["bytes 0-1/99999999999999999999", undefined],
    [null, undefined]
  ])("Content-Range: %s", (text, range) => assert.deepStrictEqual(Ranges.parseContentRange(text), range))

  it("a validator is a strong tag or a date", () => {
    const of = (headers: Record<string, string>) => Ranges.validatorOf(new Headers(headers))
    assert.strictEqual(of({ etag: "\"x\"", "last-modified": "d" }), "\"x\"")
    assert.isUndefined(of({ etag: "W/\"x\"", "last-modified": "d" }))
    assert.strictEqual(of({ "last-modified": "d" }), "d")
    assert.isUndefined(of({}))
  })

  it("Retry-After is seconds or a date", () => {
    assert.strictEqual(Ranges.retryAfterMillis("3", 0), 3000)
    assert.strictEqual(Ranges.retryAfterMillis("Thu, 01 Jan 1970 00:00:05 GMT", 2000), 3000)
    assert.strictEqual(Ranges.retryAfterMillis("Thu, 01 Jan 1970 00:00:05 GMT", 9000), 0)
    assert.isUndefined(Ranges.retryAfterMillis("soon", 0))
    assert.isUndefined(Ranges.retryAfterMillis(null, 0))
  })
})
