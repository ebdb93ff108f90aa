/** Files, disks and inputs that are not what they should be: each is refused with a reason, and nothing is lost. */
import { execFileSync, spawnSync } from "node:child_process"
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Gguf } from "@tg/gguf"
import * as GgufWriter from "@tg/gguf/GgufWriter"
import * as Metadata from "@tg/gguf/Metadata"
import { Effect, Result } from "effect"
import { type Outcome, tg } from "./support/run.ts"

const folder = mkdtempSync(join(tmpdir(), "tg-hostile-"))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
const at = (name: string): string => join(folder, name)
const tiny = fileURLToPath(new URL("../models/tg-tiny-Q4_0.gguf", import.meta.url))
const bin = fileURLToPath(new URL("../src/bin.ts", import.meta.url))
const wasm = ["--device", "wasm"]
const synth = ["synth", "--shape", "tiny-glm:q4_0", "--layers", "1", "--out"]

/** Nothing on stdout, and one line on stderr. */
const assertRefused = ({ code, stderr, stdout }: Outcome, ...words: ReadonlyArray<string>): void => {
  assertEquals([code, stdout], [1, ""])
  for (const word of words) assert.include(stderr, word)
  assert.strictEqual(stderr.trim().split("\n").length, 1, stderr)
}

/** Through a shell, which can close stdin and limit files. */
const shell = (script: string, ...args: ReadonlyArray<string>): Outcome => {
  const { status, stderr, stdout } = spawnSync("sh", ["-c", script, "sh", process.execPath, bin, ...args], {
    cwd: folder,
    encoding: "utf8",
    timeout: 300_000
  })
  return { code: status ?? -1, stdout, stderr }
}

describe("a model that is no file", () => {
  const fifo = at("fifo")
  execFileSync("mkfifo", [fifo])
  symlinkSync(fifo, at("link"))
  for (
    const [path, words] of [
      [fifo, "is a named pipe"],
      [at("link"), "is a named pipe"],
      ["/dev/zero", "is a device"],
      [folder, "is a folder"],
      ["s3://bucket/model.gguf", "is an address"],
      [at("nothing"), "there is no such file"]
    ] as const
  ) {
    it.live(`${path === folder ? "a folder" : path.split("/").at(-1)} is refused by all commands`, () =>
      Effect.gen(function*() {
        for (
          const args of [["inspect"], ["generate", ...wasm, "hi"], ["plan"], [
            "logits",
            "--tokens",
            "1",
            "--out",
            at("x")
          ]]
        ) {
          assertRefused(yield* tg([...args, "--model", path]), path, words)
        }
      }))
  }

  it.live("a part of a split model that is a pipe is refused, not waited for", () =>
    Effect.gen(function*() {
      yield* tg([...synth, at("parts.gguf"), "--split", "2"])
      const second = at("parts-00002-of-00002.gguf")
      rmSync(second)
      execFileSync("mkfifo", [second])
      assertRefused(yield* tg(["inspect", "--model", at("parts-00001-of-00002.gguf")]), second, "is a named pipe")
    }))
})

describe("what is asked", () => {
  it("nothing on stdin is no prompt: closed, a folder, or empty", () => {
    for (const redirection of ["<&-", "< /tmp", "< /dev/null"]) {
      assertRefused(shell(`"$@" ${redirection}`, "generate", ...wasm, "-"), "nothing came")
    }
  })

  it("bytes that are no text are refused, with their place", () => {
    assertRefused(shell("printf 'ab\\377c' | \"$@\"", "generate", ...wasm, "-"), "stdin is not text in UTF-8 (byte 2")
    // the last character is cut
    assertRefused(shell("printf 'ab\\342\\202' | \"$@\"", "generate", ...wasm, "-"), "stdin is not text in UTF-8")
    writeFileSync(at("bytes.json"), Buffer.from("[{\"role\": \"user\", \"content\": \"\xe4\"}]", "latin1"))
    assertRefused(
      shell("\"$@\"", "generate", ...wasm, "--messages", at("bytes.json")),
      "bytes.json is not text in UTF-8"
    )
  })

  it.live("messages of a role that the template drops are refused, before the model is loaded", () =>
    Effect.gen(function*() {
      const messages = [{ role: "user", content: "hi" }, { role: "narrator", content: "What is 17 + 25?" }]
      writeFileSync(at("roles.json"), JSON.stringify(messages))
      const outcome = yield* tg(["generate", ...wasm, "--messages", at("roles.json")])
      assertRefused(outcome, "message 2 has the role \"narrator\"", "system, user, assistant")
    }))

  for (const flag of ["--top-k=4", "--top-p=0.5", "--min-p=0.1", "--seed=1"]) {
    it.live(`${flag} alone is refused: it would decide nothing`, () =>
      Effect.gen(function*() {
        assertRefused(yield* tg(["generate", ...wasm, flag, "hi"]), flag.split("=")[0]!, "give --temperature 1")
      }))
  }

  it.live("a full context ends a text as JSON too", () =>
    Effect.gen(function*() {
      const { code, stderr, stdout } = yield* tg(
        ["generate", ...wasm, "--json", "--context", "24", "--raw", "Once upon a time"]
      )
      const { stop, text, tokens } = JSON.parse(stdout)
      assertEquals([code, stop, tokens.length], [1, "context", 21])
      assert.match(text, /^ there was /)
      assert.include(stderr, "the context holds 24 tokens")
    }))

  it.live("what is wrong is told before weights are read", () =>
    Effect.gen(function*() {
      for (
        const [args, word] of [
          [["generate", "--context", "8", "a b c d e f g h i j k l m n"], "the context holds 8 tokens"],
          [["logits", "--tokens", "1,1280", "--out", at("x")], "0 to 1279"],
          [["logits", "--tokens", "1,2,3", "--context", "2", "--out", at("x")], "the context holds 2 tokens"],
          [["logits", "--tokens", "1", "--out", at("no/such/folder/x")], "cannot be written: there is no such"]
        ] as const
      ) {
        // one line: nothing was loading yet
        assertRefused(yield* tg([...args, ...wasm]), word)
      }
      assert.isFalse(existsSync(at("x")))
    }))
})

/** tg-tiny with something else in its metadata. */
const altered = (name: string, changes: ReadonlyArray<readonly [string, Metadata.MetadataValue | undefined]>) => {
  const bytes = readFileSync(tiny)
  const gguf = Result.getOrThrow(Gguf.fromBytes("tiny", bytes))
  const tensors = gguf.tensors.map((t) => ({ ...t, data: bytes.subarray(t.offset, t.offset + t.bytes) }))
  const changed = new Map([...gguf.metadata, ...changes])
  const metadata = [...changed].flatMap(([key, value]) => value === undefined ? [] : [[key, value] as const])
  writeFileSync(at(name), Result.getOrThrow(GgufWriter.write({ metadata, tensors })))
  return at(name)
}

describe("a chat template", () => {
  const withTemplate = (name: string, template: string | undefined) =>
    altered(name, [["tokenizer.chat_template", template === undefined ? undefined : Metadata.string(template)]])
  const both = (path: string) =>
    Effect.all([tg(["inspect", "--model", path]), tg(["generate", ...wasm, "-n", "1", "--model", path, "hi"])])

  it.live("that drops what the user says is refused by inspect and generate, in the same words", () =>
    Effect.gen(function*() {
      const [inspected, generated] = yield* both(withTemplate("drops.gguf", "{{ messages | length }} messages"))
      assertRefused(generated, "message 1 has the role \"user\", and the model's chat template drops it")
      assertEquals([inspected.code, inspected.stderr], [1, generated.stderr])
    }))

  it.live("that fails as commands render it is refused by both", () =>
    Effect.gen(function*() {
      const source = "{% if enable_thinking is defined %}{{ [] + 1 }}{% endif %}{{ messages[0].content }}"
      const [inspected, generated] = yield* both(withTemplate("fails.gguf", source))
      assertRefused(generated, "chat template, render: ")
      assertEquals([inspected.code, inspected.stderr], [1, generated.stderr])
    }))

  for (
    const [name, template] of [
      ["that is not there", undefined],
      ["that wants more than a user's message", "{{ raise_exception('it needs\\na system text') }}"]
    ] as const
  ) {
    it.live(`${name} is told by inspect: texts can be continued`, () =>
      Effect.gen(function*() {
        const path = withTemplate("raw.gguf", template)
        const [inspected, generated] = yield* both(path)
        assert.strictEqual(generated.code, 1)
        const said = generated.stderr.replace("error: ", "").trim()
        assertEquals([inspected.code, inspected.stderr], [0, ""])
        assert.isTrue(inspected.stdout.endsWith(`\n\n${said.replaceAll("\n", "\\n")}\n`), inspected.stdout.slice(-300))
        const { chatError, loadable } = JSON.parse((yield* tg(["inspect", "--json", "--model", path])).stdout)
        assertEquals([loadable, chatError.message], [true, said])
        assert.strictEqual((yield* tg(["generate", ...wasm, "--raw", "-n", "1", "--model", path, "hi"])).code, 0)
      }))
  }
})

describe("files that are written", () => {
  it.live("a file that is there is left alone without --force, and the model itself in any case", () =>
    Effect.gen(function*() {
      const out = at("kept.gguf")
      yield* tg([...synth, out])
      const before = readFileSync(out)
      assertRefused(yield* tg([...synth, out, "--seed", "2"]), out, "--force")
      assertRefused(yield* tg(["logits", ...wasm, "--tokens", "1", "--out", out]), out, "--force")
      const onto = ["--model", out, "--out", out, "--force"]
      assertRefused(yield* tg(["logits", ...wasm, "--tokens", "1", ...onto]), "the model itself")
      assert.isTrue(readFileSync(out).equals(before))
      assert.strictEqual((yield* tg([...synth, out, "--seed", "2", "--force"])).code, 0)
      assert.isFalse(readFileSync(out).equals(before))
    }))

  it("a disk that is full leaves nothing under the name, nor beside it", () => {
    writeFileSync(at("old.gguf"), "what was there")
    const before = readdirSync(folder)
    // so many blocks a file may have
    const limited = "ulimit -f 64; \"$@\""
    assertRefused(shell(limited, ...synth, at("new.gguf")), "new.gguf cannot be written: it would be larger")
    assertRefused(shell(limited, ...synth, at("old.gguf"), "--force"), "old.gguf cannot be written: it would be larger")
    assertEquals(readdirSync(folder), before)
    assert.strictEqual(readFileSync(at("old.gguf"), "utf8"), "what was there")
  })

  it.live("no space is named as such, and a device is written into", () =>
    Effect.gen(function*() {
      if (!existsSync("/dev/full")) return yield* Effect.logWarning("no /dev/full here: nothing is shown")
      assertRefused(yield* tg([...synth, "/dev/full"]), "/dev/full cannot be written: no space is left on the disk")
      assert.strictEqual((yield* tg([...synth, "/dev/null"])).code, 0)
      assert.isTrue(statSync("/dev/null").isCharacterDevice())
    }))

  it("a folder that cannot be written to is named as such", ({ skip }) => {
    if (!existsSync("/proc/self")) return skip("needs /proc, a folder that not even root writes to")
    // root writes to folders of any mode; nobody makes files here
    assertRefused(
      shell("\"$@\"", ...synth, "/proc/self/new.gguf"),
      "/proc/self/new.gguf cannot be written: there is no such"
    )
    assertRefused(shell("\"$@\"", ...synth, folder), "it is a folder")
  })
})

describe("eval", () => {
  it.live("counts a question that is too long as failed, and goes on", () =>
    Effect.gen(function*() {
      const ask = (id: string, content: string) =>
        JSON.stringify({
          id,
          task: "sum",
          messages: [{ role: "user", content }],
          expected: "17 + 25 = 42",
          check: { kind: "exact" }
        })
      const questions = [ask("long", "word ".repeat(2000)), ask("short", "What is 17 + 25?")]
      writeFileSync(at("questions.jsonl"), questions.join("\n"))
      const { code, stdout } = yield* tg(["eval", at("questions.jsonl"), ...wasm, "--json"])
      const { failures, questions: asked, right } = JSON.parse(stdout)
      assertEquals([code, asked, right, failures.length, failures[0].id], [0, 2, 1, 1, "long"])
      assert.include(failures[0].reason, "the context holds 1024 tokens")
    }))
})

describe("control characters", () => {
  const evil = "\u001b]0;owned\u0007\u001b[2J\u009b31m\u202e"

  it.live("of names, keys and templates do not reach the terminal", () =>
    Effect.gen(function*() {
      const named = altered("named.gguf", [
        ["general.name", Metadata.string(`tiny${evil}`)],
        [`general.${evil}\nx`, Metadata.string(evil)]
      ])
      const other = altered("other.gguf", [["general.architecture", Metadata.string(evil)]])
      const failing = `{{ raise_exception("${evil}") }}`
      const template = altered("template.gguf", [["tokenizer.chat_template", Metadata.string(failing)]])
      const outcomes = [
        yield* tg(["inspect", "--model", named]),
        yield* tg(["inspect", "--json", "--model", named]),
        yield* tg(["generate", ...wasm, "-n", "2", "--model", named, "hi"]),
        yield* tg(["inspect", "--model", other]),
        yield* tg(["generate", ...wasm, "--model", template, "hi"]),
        yield* tg(["generate", "--device", evil, "hi"]),
        yield* tg(["inspect", "--model", `/no/${evil}`])
      ]
      assertEquals(outcomes.map(({ code }) => code), [0, 0, 0, 1, 1, 1, 1])
      for (const { stderr, stdout } of outcomes) {
        // oxlint-disable-next-line no-control-regex -- they are looked for
        assert.notMatch(stderr + stdout, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202e]/)
      }
      assert.include(outcomes[0]!.stdout, "general.\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\u202e\\nx = ")
      assert.include(outcomes[2]!.stderr, "tiny\\x1b]0;owned")
      // in JSON they are the same characters
      assert.strictEqual(JSON.parse(outcomes[1]!.stdout).metadata["general.name"], `tiny${evil}`)
    }))
})
