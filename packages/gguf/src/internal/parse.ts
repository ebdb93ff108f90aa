import type { Gguf, TensorInfo } from "../Gguf.ts"
import { InvalidMetadata, InvalidTensor, NotGguf, UnsupportedVersion } from "../GgufError.ts"
import * as GgufType from "../GgufType.ts"
import { type ArrayValue, describe, type MetadataValue, type NumericArray, scalarBytes, types } from "../Metadata.ts"
import * as Window from "./window.ts"
import type { Pull } from "./window.ts"

// Every key: length of the name, type, one byte of value. Every tensor: length of the name, rank, a dimension, type, offset.
const leastKeyBytes = 8 + 4 + 1
const leastTensorBytes = 8 + 4 + 8 + 4 + 8

// Limits against damaged counts: an entry takes ten times its bytes in memory. Real files have 50 keys, and up to 20 000 tensors.
const mostKeys = 2 ** 16
const mostTensors = 2 ** 18

/** The whole header. The position never moves back, and no byte is asked for twice. */
export function* parse(
  file: string,
  size: number,
  limits: { chunkBytes: number; maxHeaderBytes: number }
): Pull<Gguf> {
  const w = Window.make(file, size, limits)
  const version = yield* preamble(w)
  const tensorCount = yield* Window.count(w, leastTensorBytes, "the number of tensors", mostTensors)
  const keyCount = yield* Window.count(w, leastKeyBytes, "the number of metadata keys", mostKeys)
  const metadata = yield* keys(w, keyCount)
  const alignment = yield* alignmentOf(w, metadata)
  const table = yield* entries(w, tensorCount, alignment)
  const dataOffset = alignUp(Window.position(w), alignment)
  const tensors = yield* place(w, table, dataOffset)
  return {
    name: file,
    size,
    version,
    alignment,
    metadata,
    tensors,
    tensorsByName: new Map(tensors.map((tensor) => [tensor.name, tensor])),
    dataOffset
  }
}

/** The least multiple of `alignment` that is not below `offset`. */
export const alignUp = (offset: number, alignment: number): number => Math.ceil(offset / alignment) * alignment

/** The alignment of a file, or what is wrong with the key that gives it. */
export const alignmentFrom = (value: MetadataValue | undefined): number | string => {
  if (value === undefined) return 32
  const isPower = value.type === "uint32" && value.value > 0 && Number.isInteger(Math.log2(value.value))
  return isPower ? value.value : `must be a uint32 power of two, found ${describe(value)}`
}

export const alignmentKey = "general.alignment"

function* preamble(w: Window.Window): Pull<number> {
  const { file } = w
  const magic = yield* Window.u32(w, "the magic bytes")
  if (magic !== 0x46554747) {
    const bytes = [0, 8, 16, 24].map((shift) => (magic >>> shift & 255).toString(16).padStart(2, "0"))
    return yield* Window.fail(new NotGguf({ file, found: bytes.join("") }))
  }
  const version = yield* Window.u32(w, "the version")
  if (version === 2 || version === 3) return version
  // A small number in the other byte order has its upper byte set only.
  return yield* Window.fail(
    (version & 0xffffff) === 0 && version !== 0
      ? new UnsupportedVersion({ file, version: version >>> 24, byteOrder: "big-endian" })
      : new UnsupportedVersion({ file, version, byteOrder: "little-endian" })
  )
}

function* keys(w: Window.Window, keyCount: number): Pull<ReadonlyMap<string, MetadataValue>> {
  const metadata = new Map<string, MetadataValue>()
  for (let index = 0; index < keyCount; index++) {
    const key = yield* Window.string(w, `metadata key ${index}`)
    if (metadata.has(key)) {
      return yield* Window.fail(invalidKey(w, key, "duplicate-key", "appears twice; convert the file again"))
    }
    metadata.set(key, yield* value(w, key))
  }
  return metadata
}

function* value(w: Window.Window, key: string): Pull<MetadataValue> {
  const reading = valueOf(key)
  const type = yield* valueType(w, key)
  if (type === "array") return yield* array(w, key)
  if (type === "string") return { type, value: yield* Window.string(w, reading) }
  if (type === "bool") return { type, value: yield* bool(w, key) }
  yield* Window.fill(w, scalarBytes[type], reading)
  const at = w.at
  w.at += scalarBytes[type]
  switch (type) {
    case "uint8":
      return { type, value: w.view.getUint8(at) }
    case "int8":
      return { type, value: w.view.getInt8(at) }
    case "uint16":
      return { type, value: w.view.getUint16(at, true) }
    case "int16":
      return { type, value: w.view.getInt16(at, true) }
    case "uint32":
      return { type, value: w.view.getUint32(at, true) }
    case "int32":
      return { type, value: w.view.getInt32(at, true) }
    case "float32":
      return { type, value: w.view.getFloat32(at, true) }
    case "float64":
      return { type, value: w.view.getFloat64(at, true) }
    case "uint64":
      return { type, value: narrow(w.view.getBigUint64(at, true)) }
    case "int64":
      return { type, value: narrow(w.view.getBigInt64(at, true)) }
    default:
      return type satisfies never
  }
}

const valueOf = (key: string): string => `the value of ${Window.shown(key)}`

const narrow = (value: bigint): number | bigint => Number.isSafeInteger(Number(value)) ? Number(value) : value

function* valueType(w: Window.Window, key: string): Pull<typeof types[number]> {
  const id = yield* Window.u32(w, `the type of ${Window.shown(key)}`)
  const type = types[id]
  if (type !== undefined) return type
  return yield* Window.fail(
    invalidKey(w, key, "unknown-value-type", `has value type ${id}, 0 to ${types.length - 1} are known`)
  )
}

function* bool(w: Window.Window, key: string): Pull<boolean> {
  const byte = yield* Window.u8(w, valueOf(key))
  if (byte < 2) return byte === 1
  return yield* Window.fail(invalidBool(w, key, byte))
}

function* array(w: Window.Window, key: string): Pull<ArrayValue> {
  const reading = valueOf(key)
  const element = yield* valueType(w, key)
  if (element === "array") {
    return yield* Window.fail(invalidKey(w, key, "nested-array", "arrays of arrays are not part of the format"))
  }
  if (element === "string") return { type: "array", element, value: yield* Window.strings(w, reading) }
  const total = yield* Window.count(w, scalarBytes[element], `the length of ${reading}`)
  yield* Window.reserve(w, total * scalarBytes[element], reading)
  if (element === "bool") {
    // as a list each takes eight bytes
    yield* Window.reserve(w, total * 8, reading)
    const bytes = new Uint8Array(total)
    yield* Window.copy(w, bytes, reading)
    const wrong = bytes.find((byte) => byte > 1)
    if (wrong !== undefined) return yield* Window.fail(invalidBool(w, key, wrong))
    return { type: "array", element, value: Array.from(bytes, (byte) => byte === 1) }
  }
  const numbers = allocate(element, total)
  yield* Window.copy(w, new Uint8Array(numbers.value.buffer), reading)
  return numbers
}

/** Filled bytewise from the file: typed arrays are little-endian wherever WebGPU and WebAssembly run. */
const allocate = (element: NumericArray["element"], length: number): NumericArray => {
  const type = "array"
  switch (element) {
    case "uint8":
      return { type, element, value: new Uint8Array(length) }
    case "int8":
      return { type, element, value: new Int8Array(length) }
    case "uint16":
      return { type, element, value: new Uint16Array(length) }
    case "int16":
      return { type, element, value: new Int16Array(length) }
    case "uint32":
      return { type, element, value: new Uint32Array(length) }
    case "int32":
      return { type, element, value: new Int32Array(length) }
    case "float32":
      return { type, element, value: new Float32Array(length) }
    case "uint64":
      return { type, element, value: new BigUint64Array(length) }
    case "int64":
      return { type, element, value: new BigInt64Array(length) }
    case "float64":
      return { type, element, value: new Float64Array(length) }
    default:
      return element satisfies never
  }
}

function* alignmentOf(w: Window.Window, metadata: ReadonlyMap<string, MetadataValue>): Pull<number> {
  const alignment = alignmentFrom(metadata.get(alignmentKey))
  if (typeof alignment === "number") return alignment
  return yield* Window.fail(invalidKey(w, alignmentKey, "invalid-alignment", alignment))
}

/** The tensor table; `offset` still counts from the start of the data section. */
function* entries(w: Window.Window, tensorCount: number, alignment: number): Pull<ReadonlyArray<TensorInfo>> {
  const found: Array<TensorInfo> = []
  const names = new Set<string>()
  for (let index = 0; index < tensorCount; index++) {
    const name = yield* Window.string(w, `the name of tensor ${index}`)
    if (names.has(name)) {
      return yield* Window.fail(invalidTensor(w, name, "duplicate-name", "appears twice; convert the file again"))
    }
    names.add(name)
    found.push(yield* entry(w, name, alignment))
  }
  return found
}

function* entry(w: Window.Window, name: string, alignment: number): Pull<TensorInfo> {
  const shown = Window.shown(name)
  const rank = yield* Window.u32(w, `the number of dimensions of ${shown}`)
  if (rank < 1 || rank > 4) {
    return yield* Window.fail(invalidTensor(w, name, "rank", `has ${rank} dimensions, 1 to 4 are possible`))
  }
  const dims: Array<number> = []
  while (dims.length < rank) dims.push(yield* Window.safeU64(w, `dimension ${dims.length} of ${shown}`))
  const id = yield* Window.u32(w, `the type of ${shown}`)
  const type = GgufType.fromId(id)
  if (type === undefined) {
    return yield* Window.fail(
      invalidTensor(w, name, "unknown-type", `has tensor type ${id}, which is not known; use another quantization`)
    )
  }
  const offset = yield* Window.safeU64(w, `the offset of ${shown}`)
  if (offset % alignment !== 0) {
    return yield* Window.fail(
      invalidTensor(w, name, "misaligned", `starts at ${offset}, which is not a multiple of ${alignment}`)
    )
  }
  const bytes = GgufType.bytesOf(type, dims)
  if (typeof bytes !== "number") return yield* Window.fail(invalidTensor(w, name, bytes.problem, bytes.detail))
  return { name, type, dims, offset, bytes }
}

/** Makes the offsets absolute; afterwards every tensor lies inside the file and no two share a byte. */
function* place(
  w: Window.Window,
  table: ReadonlyArray<TensorInfo>,
  dataOffset: number
): Pull<ReadonlyArray<TensorInfo>> {
  for (const { bytes, name, offset } of table) {
    if (bytes > w.size || offset > w.size - bytes || dataOffset > w.size - bytes - offset) {
      const detail = `${bytes} bytes at ${offset} of the data section, which starts at ${dataOffset}, exceed the ` +
        `${w.size} bytes of the file; it may be cut short`
      return yield* Window.fail(invalidTensor(w, name, "outside-file", detail))
    }
  }
  const sorted = table.toSorted((a, b) => a.offset - b.offset)
  for (let index = 1; index < sorted.length; index++) {
    const before = sorted[index - 1]!
    const { name, offset } = sorted[index]!
    if (before.offset + before.bytes > offset) {
      const detail = `starts at ${offset} of the data section, inside ${
        Window.shown(before.name)
      }; convert the file again`
      return yield* Window.fail(invalidTensor(w, name, "overlap", detail))
    }
  }
  return table.map((tensor) => ({ ...tensor, offset: dataOffset + tensor.offset }))
}

const invalidKey = (
  w: Window.Window,
  key: string,
  problem: InvalidMetadata["problem"],
  detail: string
): InvalidMetadata => new InvalidMetadata({ file: w.file, key: Window.shown(key), problem, detail })

const invalidBool = (w: Window.Window, key: string, byte: number): InvalidMetadata =>
  invalidKey(w, key, "invalid-bool", `a bool is a byte 0 or 1, found ${byte}`)

const invalidTensor = (
  w: Window.Window,
  tensor: string,
  problem: InvalidTensor["problem"],
  detail: string
): InvalidTensor => new InvalidTensor({ file: w.file, tensor: Window.shown(tensor), problem, detail })
