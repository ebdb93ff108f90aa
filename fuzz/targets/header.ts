/** Headers of model files with damaged bytes, values and tables. */
import { readFileSync } from "node:fs"
import { Effect } from "effect"
import * as Gguf from "../../packages/gguf/src/Gguf.ts"
import { alignUp } from "../../packages/gguf/src/internal/parse.ts"
import { table } from "../../packages/gguf/src/GgufType.ts"
import { type MetadataValue, types } from "../../packages/gguf/src/Metadata.ts"
import * as ModelFile from "../../packages/engine/src/ModelFile.ts"
import * as Models from "../../packages/models/src/Models.ts"
import * as Inspect from "../../apps/cli/src/commands/Inspect.ts"
import type { Random } from "../Random.ts"
import { accepted, refused, type Target } from "../Target.ts"
import { template } from "./template.ts"

/** A file: the bytes of its header, and how long it is. */
export interface Base {
  readonly name: string
  readonly bytes: Uint8Array
  readonly gguf: Gguf.Gguf
}

const root = new URL("../../", import.meta.url)

/** Reads a model file of this repository. */
export const base = (name: string): Base => {
  const bytes = new Uint8Array(readFileSync(new URL(name, root)))
  const found = Gguf.fromBytes(name, bytes)
  if (found._tag === "Failure") throw found.failure
  return { name, bytes, gguf: found.success }
}

/** The oracle's files and tg-tiny. */
export const names = [
  ...["c01", "c02", "c03", "c04", "c05", "c06"].map((name) => `test/vectors/oracle/${name}.gguf`),
  "apps/cli/models/tg-tiny-Q4_0.gguf"
]

const known = new Map<string, Base>()
const baseOf = (name: string): Base => {
  const found = known.get(name) ?? base(name)
  known.set(name, found)
  return found
}

const integers = [0, 1, 2, 3, 4, 7, 8, 64, 255, 256, 65535, 2 ** 20, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1]
const floats = [NaN, 0, -0, 1e-45, 1e-6, 1, -1, 2, 1e38, Infinity, -Infinity]
const words = ["", "x", "deepseek2", "llama", "gpt2", "glm4", "none", "yarn", "\u001b[31m", "a\nb", "\0", "😀"]

/** Another value of the same type, or of another one. */
const otherValue = (random: Random, value: MetadataValue): MetadataValue => {
  if (random.oneIn(12)) return { type: "string", value: random.pick(words) }
  if (random.oneIn(12)) return { type: "uint32", value: random.pick(integers) }
  switch (value.type) {
    case "float32":
    case "float64":
      return { ...value, value: random.pick(floats) }
    case "string":
      return { type: "string", value: otherText(random, value.value) }
    case "bool":
      return { type: "bool", value: !value.value }
    case "array":
      return otherArray(random, value)
    default:
      return { ...value, value: random.oneIn(2) ? random.pick(integers) : Number(value.value) + random.below(5) - 2 }
  }
}

const otherText = (random: Random, text: string): string => {
  switch (random.below(8)) {
    case 0:
      return random.pick(words)
    case 1:
      return "x".repeat(random.pick([100, 5000, 100_000]))
    case 2:
      return template(random)
    case 3:
      return text.slice(0, random.below(text.length + 1))
    default: {
      const at = random.below(text.length + 1)
      const piece = random.pick([
        "{",
        "}",
        "%",
        "{{",
        "{%",
        " ",
        "'",
        "|",
        "(",
        "range(99999999)",
        "\0",
        "é",
        "messages"
      ])
      return text.slice(0, at) + piece + text.slice(at + random.below(3))
    }
  }
}

type ArrayValue = Extract<MetadataValue, { readonly type: "array" }>
const otherArray = (random: Random, value: ArrayValue): MetadataValue => {
  const length = random.pick([0, 1, value.value.length - 1, value.value.length, random.below(value.value.length + 1)])
  if (value.element === "string") {
    const items = value.value.slice(0, Math.max(0, length))
    if (items.length > 0) items[random.below(items.length)] = otherText(random, random.pick(value.value))
    return { ...value, value: items }
  }
  if (value.element !== "int32") return value
  const items = value.value.slice(0, Math.max(0, length))
  if (items.length > 0) items[random.below(items.length)] = random.pick([-1, 0, 1, 2, 3, 4, 5, 6, 7, 2 ** 31 - 1])
  return { ...value, value: items }
}

interface Parts {
  readonly metadata: Array<readonly [string, MetadataValue]>
  readonly tensors: Array<Gguf.TensorInfo>
}

const alterKeys = (random: Random, { metadata }: Parts): void => {
  const at = random.below(metadata.length)
  const [key, value] = metadata[at]!
  switch (random.below(10)) {
    case 0:
      metadata.splice(at, 1)
      return
    case 1:
      metadata[at] = [otherText(random, key), value]
      return
    case 2:
      metadata.splice(random.below(metadata.length), 0, [random.oneIn(3) ? key : `${key}x`, value])
      return
    case 3: {
      const added = ["deepseek2.nextn_predict_layers", "split.count", "split.no", "general.alignment"]
      metadata.push([random.pick(added), { type: "uint32", value: random.pick(integers) }])
      return
    }
    default:
      metadata[at] = [key, otherValue(random, value)]
  }
}

const alterTensors = (random: Random, { tensors }: Parts): void => {
  const at = random.below(tensors.length)
  const tensor = tensors[at]!
  const dims = [...tensor.dims]
  switch (random.below(7)) {
    case 0:
      tensors.splice(at, 1)
      return
    case 1:
      tensors[at] = { ...tensor, name: otherText(random, tensor.name) }
      return
    case 2:
      dims[random.below(dims.length)] = random.oneIn(2) ? random.pick(integers) : random.pick([32, 64, 256, 2 ** 52])
      tensors[at] = { ...tensor, dims }
      return
    case 3:
      tensors[at] = { ...tensor, dims: random.oneIn(2) ? [...dims, 1] : dims.toReversed() }
      return
    case 4:
      tensors[at] = { ...tensor, type: random.pick(Object.keys(table) as ReadonlyArray<keyof typeof table>) }
      return
    case 5:
      tensors[at] = { ...tensor, offset: random.oneIn(2) ? tensor.offset + 32 : random.pick(integers) * 32 }
      return
    default:
      tensors.splice(random.below(tensors.length), 0, random.oneIn(2) ? tensor : { ...tensor, name: `${tensor.name}x` })
  }
}

/** The bytes of a header, which need not be a right one. */
const serialize = ({ metadata, tensors }: Parts, dataOffset: number, alignment: number): Uint8Array => {
  let out = new Uint8Array(2 ** 16)
  let view = new DataView(out.buffer)
  let at = 0
  const room = (length: number): void => {
    if (at + length <= out.length) return
    const longer = new Uint8Array(2 * (at + length))
    longer.set(out)
    out = longer
    view = new DataView(out.buffer)
  }
  const u32 = (value: number): void => {
    room(4)
    view.setUint32(at, value, true)
    at += 4
  }
  const u64 = (value: number): void => {
    room(8)
    view.setBigUint64(at, BigInt.asUintN(64, BigInt(Math.trunc(value))), true)
    at += 8
  }
  const raw = (bytes: Uint8Array): void => {
    room(bytes.length)
    out.set(bytes, at)
    at += bytes.length
  }
  const string = (text: string): void => {
    const bytes = new TextEncoder().encode(text)
    u64(bytes.length)
    raw(bytes)
  }
  const scalar = ({ type, value }: Exclude<MetadataValue, ArrayValue>): void => {
    room(8)
    const numeric = typeof value === "string" ? 0 : Number(value)
    if (type === "string") string(value)
    else if (type === "float32" || type === "float64") {
      if (type === "float32") view.setFloat32(at, numeric, true)
      else view.setFloat64(at, numeric, true)
      at += type === "float32" ? 4 : 8
    } else {
      const length = type === "bool" || type.endsWith("t8") ? 1 : type.endsWith("16") ? 2 : type.endsWith("32") ? 4 : 8
      view.setBigUint64(at, BigInt.asUintN(64, BigInt(Math.trunc(numeric))), true)
      at += length
    }
  }
  raw(new TextEncoder().encode("GGUF"))
  u32(3)
  u64(tensors.length)
  u64(metadata.length)
  for (const [key, value] of metadata) {
    string(key)
    u32(types.indexOf(value.type))
    if (value.type !== "array") scalar(value)
    else {
      u32(types.indexOf(value.element))
      u64(value.value.length)
      if (value.element === "string") { for (const item of value.value) string(item) }
      else if (ArrayBuffer.isView(value.value)) {
        raw(new Uint8Array(value.value.buffer, value.value.byteOffset, value.value.byteLength))
      }
    }
  }
  for (const { dims, name, offset, type } of tensors) {
    string(name)
    u32(dims.length)
    for (const dim of dims) u64(dim)
    u32(table[type].id)
    u64(Math.max(0, offset - dataOffset))
  }
  return out.slice(0, alignUp(at, alignment))
}

/** A header with one to three things altered, and the data that belongs to it. */
const structured = (random: Random, { bytes, gguf }: Base): Damaged => {
  const parts: Parts = { metadata: [...gguf.metadata], tensors: [...gguf.tensors] }
  const times = random.pick([1, 1, 1, 2, 3])
  for (let i = 0; i < times; i++) {
    if (parts.metadata.length > 0 && (random.below(3) > 0 || parts.tensors.length === 0)) alterKeys(random, parts)
    else if (parts.tensors.length > 0) alterTensors(random, parts)
  }
  const header = serialize(parts, gguf.dataOffset, gguf.alignment)
  return { header, size: header.length + bytes.length - gguf.dataOffset }
}

const flipped = (random: Random, { bytes, gguf }: Base): Damaged => {
  const out = bytes.slice(0, gguf.dataOffset)
  const end = out.length
  const times = 1 + random.below(4)
  for (let i = 0; i < times; i++) {
    // the numbers of the model are in front of its vocabulary
    const at = random.below(random.oneIn(2) ? Math.min(end, 2200) : end)
    out[at] = random.oneIn(2)
      ? out[at]! ^ 1 << random.below(8)
      : random.pick([0, 1, 0x7f, 0x80, 0xff, random.below(256)])
  }
  const header = random.oneIn(20) ? out.slice(0, random.below(out.length)) : out
  return { header, size: header.length + (random.oneIn(20) ? 0 : bytes.length - end) }
}

/** A file by its header, and its size with the data behind it. */
interface Damaged {
  readonly header: Uint8Array
  readonly size: number
}

const either = (random: Random, from: Base): Damaged =>
  random.oneIn(2) ? flipped(random, from) : structured(random, from)

/** The size, as eight bytes, and the header. */
const packed = ({ header, size }: Damaged): Uint8Array => {
  const out = new Uint8Array(8 + header.length)
  new DataView(out.buffer).setFloat64(0, size)
  out.set(header, 8)
  return out
}

/** The file of a packed header, with the data of the file that it was made from. */
export const unpacked = (input: Uint8Array, from: Base): Uint8Array => {
  const size = sizeOf(input)
  const header = input.subarray(8)
  const out = new Uint8Array(size)
  out.set(header)
  out.set(from.bytes.subarray(from.bytes.length - (size - header.length)), header.length)
  return out
}

const sizeOf = (input: Uint8Array): number => new DataView(input.buffer, input.byteOffset).getFloat64(0)

/** A damaged header of one file, packed. */
export const damaged = (random: Random, from: Base): Uint8Array => packed(either(random, from))

/** What `inspect` does with a file. Its data is not looked at. */
export const inspect = (input: Uint8Array) => {
  const size = sizeOf(input)
  const read = (offset: number, length: number) =>
    Effect.sync(() => {
      const out = new Uint8Array(length)
      out.set(input.subarray(8 + offset, 8 + offset + length))
      return out
    })
  const found = Effect.runSync(Effect.result(Gguf.read({ name: "fuzz.gguf", size, read }, { chunkBytes: 65536 })))
  if (found._tag === "Failure") return refused(found.failure)
  const shown = Inspect.asText(found.success)
  const checked = ModelFile.fromGguf(found.success, Models.known)
  const outcome = checked._tag === "Success" ? accepted : refused(checked.failure)
  // eslint-disable-next-line no-control-regex -- that is what must not be there
  return /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/.test(shown)
    ? { ...outcome, finding: "inspect prints a control character" }
    : outcome
}

/** Headers, through exactly what `inspect` does. */
export const header: Target = {
  name: "header",
  make: (random) => damaged(random, baseOf(random.pick(names))),
  run: inspect
}
