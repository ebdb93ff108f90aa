import { assert, describe, it } from "vitest"
import { child } from "./support/run.ts"

describe("the program", () => {
  it("answers on stdout and talks on stderr", async () => {
    const { code, stderr, stdout } = await child(["generate", "--device", "wasm", "What is 17 + 25?"])
    assert.strictEqual(code, 0)
    assert.strictEqual(stdout, "17 + 25 = 42\n")
    assert.include(stderr, "tg-tiny")
  })

  it("exits with 1 and a line of explanation", async () => {
    const { code, stderr, stdout } = await child(["generate", "--model", "/no/such/file.gguf", "hi"])
    assert.strictEqual(code, 1)
    assert.strictEqual(stdout, "")
    assert.match(stderr, /^error: \/no\/such\/file\.gguf cannot be opened.*\n$/)
  })

  it("ends cleanly when it is interrupted", async () => {
    const { code, stderr, stdout } = await child(
      ["generate", "--device", "wasm", "--raw", "-n", "900", "--temperature", "1", "--seed", "3", "Once upon a time"],
      {
        onStdout: (text, process) => {
          if (text.length > 20) process.kill("SIGINT")
        }
      }
    )
    assert.strictEqual(code, 130)
    assert.isAbove(stdout.length, 20)
    assert.notMatch(stderr, /error|^\s+at /m)
  })

  it("ends quietly when its reader goes away", async () => {
    const { code, stderr } = await child(["generate", "--device", "wasm", "--raw", "-n", "60", "Once upon a time"], {
      onStdout: (_, process) => process.stdout?.destroy()
    })
    assert.strictEqual(code, 0)
    assert.notMatch(stderr, /error|^\s+at /m)
  })
})
