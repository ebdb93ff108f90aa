/** `tg inspect`: what a model file says, and whether it can be loaded. */
import { ModelFile } from "@tg/engine"
import type { Gguf } from "@tg/gguf/Gguf"
import type { MetadataValue } from "@tg/gguf/Metadata"
import { known } from "@tg/models/Models"
import { Effect, Option, Result } from "effect"
import { Command } from "effect/cli"
import * as Escape from "../Escape.ts"
import * as Flags from "../Flags.ts"
import * as Models from "../Models.ts"
import * as Output from "../Output.ts"
import * as Words from "../Words.ts"

/** Shows metadata and tensors, then fails with the loader's error if the file cannot be loaded. */
export const command = Command.make(
  "inspect",
  { model: Flags.model, json: Flags.json },
  Effect.fn("cli.inspect")(function*({ json, model }) {
    const gguf = yield* Models.header(model)
    const checked = yield* Effect.result(ModelFile.ofGguf(gguf, known))
    const refusal = Option.getOrUndefined(Result.getFailure(checked))
    // a model without a chat template continues texts
    const rawOnly = Result.isSuccess(checked) ? ModelFile.chatRefusal(checked.success) : undefined
    if (json) {
      const loadable = refusal === undefined
      yield* Output.printJson({ ...asJson(gguf), loadable, error: errorOf(refusal), chatError: errorOf(rawOnly) })
    } else yield* Output.print(asText(gguf) + (rawOnly === undefined ? "" : `\n${Escape.line(rawOnly.message)}\n`))
    if (refusal !== undefined) return yield* refusal
  }, Effect.scoped)
).pipe(Command.withDescription("Show the metadata and tensors of a model file, and whether it can be loaded"))

const errorOf = (refusal: { readonly _tag: string; readonly message: string } | undefined) =>
  refusal === undefined ? undefined : { tag: refusal._tag, message: refusal.message }

const asJson = (gguf: Gguf) => ({
  file: gguf.name,
  size: gguf.size,
  version: gguf.version,
  alignment: gguf.alignment,
  metadata: Object.fromEntries([...gguf.metadata].map(([key, value]) => [key, jsonOf(value)])),
  tensors: gguf.tensors.map(({ bytes, dims, name, offset, type }) => ({ name, type, dims, offset, bytes }))
})

// Numbers that JSON has no word for become text.
const plain = (value: unknown): unknown =>
  typeof value === "bigint" || (typeof value === "number" && !Number.isFinite(value)) ? String(value) : value

const jsonOf = (value: MetadataValue): unknown =>
  value.type === "array" ? Array.from(value.value as ArrayLike<unknown>, plain) : plain(value.value)

/** Metadata and tensors, for people. */
export const asText = (gguf: Gguf): string => {
  const types = [...Map.groupBy(gguf.tensors, (t) => t.type)]
    .sort((a, b) => b[1].length - a[1].length)
    .map(([type, tensors]) => `${tensors.length} ${type}`)
  const width = gguf.tensors.reduce((most, { name }) => Math.max(most, nameOf(name).length), 0)
  return [
    `${nameOf(gguf.name)}: GGUF version ${gguf.version}, ${gguf.size} bytes, aligned to ${gguf.alignment}`,
    "",
    Words.count(gguf.metadata.size, "metadata key"),
    ...[...gguf.metadata].map(([key, value]) => `  ${nameOf(key)} = ${shown(value)}`),
    "",
    `${Words.count(gguf.tensors.length, "tensor")}${types.length > 0 ? `: ${types.join(", ")}` : ""}`,
    ...gguf.tensors.map((t) => `  ${nameOf(t.name).padEnd(width)}  ${t.type.padEnd(5)} [${t.dims.join(", ")}]`),
    ""
  ].join("\n")
}

const shown = (value: MetadataValue): string => {
  if (value.type !== "array") return `${json(value.value)} (${value.type})`
  const first = Array.from({ length: Math.min(4, value.value.length) }, (_, i) => json(value.value[i]))
  return `[${first.join(", ")}${value.value.length > 4 ? ", .." : ""}] (${value.value.length} x ${value.element})`
}

// What a file says about itself is not for the terminal to obey, nor to fill it.

/** A value as JSON, cut short before it is made. */
const json = (value: unknown): string =>
  Escape.line(cut(JSON.stringify(plain(typeof value === "string" ? value.slice(0, 100) : value)), 80))

/** A name, on one line. */
const nameOf = (name: string): string => Escape.line(cut(name, 200))

const cut = (text: string, length: number): string => text.length > length ? `${text.slice(0, length - 3)}...` : text
