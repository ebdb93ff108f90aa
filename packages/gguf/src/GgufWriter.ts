/** Writes GGUF files of version 3: small models, test data, vocabularies. */
import { Result } from "effect"
import { type GgufError, InvalidMetadata, InvalidTensor, InvalidText } from "./GgufError.ts"
import * as GgufType from "./GgufType.ts"
import { alignmentFrom, alignmentKey, alignUp } from "./internal/parse.ts"
import * as Sink from "./internal/sink.ts"
import { describe, type MetadataValue, type Scalar, scalarBytes, types, uint32 } from "./Metadata.ts"

/** A tensor to write: `data` holds the blocks as they appear in the file. */
export interface TensorData {
  readonly name: string
  readonly type: GgufType.Name
  /** In file order: the first dimension varies fastest. */
  readonly dims: ReadonlyArray<number>
  readonly data: Uint8Array
}

/** What to write. */
export interface GgufContents {
  /** Keys in file order. */
  readonly metadata: Iterable<readonly [string, MetadataValue]>
  readonly tensors: ReadonlyArray<TensorData>
  /** Sets `general.alignment`; without it the key decides, or 32. */
  readonly alignment?: number
  /** The name that errors show; `"new GGUF"`. */
  readonly name?: string
}

/** A tensor of a file whose data is written elsewhere. */
export type TensorEntry = Omit<TensorData, "data">

/** Everything in front of the data, and where the data goes. */
export interface Header {
  /** The header, with the padding behind it. */
  readonly bytes: Uint8Array<ArrayBuffer>
  readonly alignment: number
  /** Where each tensor starts, from the beginning of the file, in the order given. */
  readonly offsets: ReadonlyArray<number>
  /** Bytes of the whole file. */
  readonly size: number
}

/** All bytes of the file. Tensors are consecutive, in the order given, as the usual loaders expect. */
export const write = (contents: GgufContents): Result.Result<Uint8Array<ArrayBuffer>, GgufError> => {
  const { tensors } = contents
  return Result.flatMap(header(contents), ({ bytes: head, offsets, size }) => {
    const wrong = tensors.find(({ data, dims, type }) => GgufType.bytesOf(type, dims) !== data.length)
    if (wrong !== undefined) {
      const { data, dims, name, type } = wrong
      const wanted = String(GgufType.bytesOf(type, dims))
      return Result.fail(
        new InvalidTensor({
          file: contents.name ?? unnamed,
          tensor: name,
          problem: "data-length",
          detail: `${type} of ${dims.join(" x ")} takes ${wanted} bytes, the data has ${data.length}`
        })
      )
    }
    const bytes = new Uint8Array(size)
    bytes.set(head)
    tensors.forEach(({ data }, index) => bytes.set(data, offsets[index]!))
    return Result.succeed(bytes)
  })
}

const unnamed = "new GGUF"

/** The header of a file, for data that does not fit memory: it is written at `offsets`, with zeros between. */
export const header = (
  contents: Omit<GgufContents, "tensors"> & { readonly tensors: ReadonlyArray<TensorEntry> }
): Result.Result<Header, GgufError> => {
  const file = contents.name ?? unnamed
  const pairs = [...contents.metadata].filter(([key]) => contents.alignment === undefined || key !== alignmentKey)
  if (contents.alignment !== undefined) pairs.push([alignmentKey, uint32(contents.alignment)])
  const metadata = new Map(pairs)
  const alignment = alignmentFrom(metadata.get(alignmentKey))
  if (typeof alignment === "string") {
    return Result.fail(
      new InvalidMetadata({ file, key: alignmentKey, problem: "invalid-alignment", detail: alignment })
    )
  }
  const wrongKey = checkKeys(file, pairs)
  if (wrongKey !== undefined) return Result.fail(wrongKey)
  const lengths = checkTensors(file, contents.tensors)
  if ("_tag" in lengths) return Result.fail(lengths)

  const sink = Sink.make()
  const tensors = contents.tensors.map((tensor, i) => ({ ...tensor, bytes: lengths[i]! }))
  const offsets = writeHeader(sink, pairs, tensors, alignment)
  const dataOffset = alignUp(sink.at, alignment)
  const last = tensors.at(-1)
  const size = last === undefined ? sink.at : alignUp(dataOffset + offsets.at(-1)! + last.bytes, alignment)
  const bytes = new Uint8Array(last === undefined ? sink.at : dataOffset)
  bytes.set(sink.bytes.subarray(0, sink.at))
  return Result.succeed({ bytes, alignment, offsets: offsets.map((offset) => dataOffset + offset), size })
}

const writeHeader = (
  sink: Sink.Sink,
  metadata: ReadonlyArray<readonly [string, MetadataValue]>,
  tensors: ReadonlyArray<TensorEntry & { readonly bytes: number }>,
  alignment: number
): ReadonlyArray<number> => {
  Sink.u32(sink, 0x46554747) // GGUF
  Sink.u32(sink, 3)
  Sink.u64(sink, tensors.length)
  Sink.u64(sink, metadata.length)
  for (const [key, value] of metadata) {
    Sink.string(sink, key)
    Sink.u32(sink, types.indexOf(value.type))
    writeValue(sink, value)
  }
  let offset = 0
  return tensors.map(({ bytes, dims, name, type }) => {
    Sink.string(sink, name)
    Sink.u32(sink, dims.length)
    for (const dim of dims) Sink.u64(sink, dim)
    Sink.u32(sink, GgufType.table[type].id)
    Sink.u64(sink, offset)
    const start = offset
    offset = alignUp(offset + bytes, alignment)
    return start
  })
}

const writeValue = (sink: Sink.Sink, value: MetadataValue): void => {
  if (value.type !== "array") return writeScalar(sink, value)
  Sink.u32(sink, types.indexOf(value.element))
  Sink.u64(sink, value.value.length)
  switch (value.element) {
    case "string":
      return value.value.forEach((each) => Sink.string(sink, each))
    case "bool":
      return Sink.raw(sink, Uint8Array.from(value.value, Number))
    default: {
      const { buffer, byteLength, byteOffset } = value.value
      return Sink.raw(sink, new Uint8Array(buffer, byteOffset, byteLength))
    }
  }
}

const writeScalar = (sink: Sink.Sink, scalar: Scalar): void => {
  if (scalar.type === "string") return Sink.string(sink, scalar.value)
  const at = Sink.take(sink, scalarBytes[scalar.type])
  const { view } = sink
  switch (scalar.type) {
    case "uint8":
    case "int8":
      return view.setUint8(at, scalar.value)
    case "uint16":
    case "int16":
      return view.setUint16(at, scalar.value, true)
    case "uint32":
    case "int32":
      return view.setUint32(at, scalar.value, true)
    case "uint64":
    case "int64":
      return view.setBigUint64(at, BigInt(scalar.value), true)
    case "float32":
      return view.setFloat32(at, scalar.value, true)
    case "float64":
      return view.setFloat64(at, scalar.value, true)
    case "bool":
      return view.setUint8(at, Number(scalar.value))
    default:
      return scalar satisfies never
  }
}

const checkKeys = (
  file: string,
  pairs: ReadonlyArray<readonly [string, MetadataValue]>
): GgufError | undefined => {
  const seen = new Set<string>()
  for (const [key, value] of pairs) {
    if (seen.has(key)) {
      return new InvalidMetadata({ file, key, problem: "duplicate-key", detail: "appears twice; keep one of them" })
    }
    seen.add(key)
    if (!key.isWellFormed()) return new InvalidText({ file, reading: "a metadata key", offset: 0 })
    const texts = value.type === "string"
      ? [value.value]
      : value.type === "array" && value.element === "string"
      ? value.value
      : []
    if (!texts.every((text) => text.isWellFormed())) {
      return new InvalidText({ file, reading: `the value of ${key}`, offset: 0 })
    }
    if (value.type !== "array" && !isInRange(value)) {
      return new InvalidMetadata({ file, key, problem: "value-range", detail: `cannot hold ${describe(value)}` })
    }
  }
  return undefined
}

const isInRange = ({ type, value }: Scalar): boolean => {
  if (type === "string" || type === "bool" || type === "float32" || type === "float64") return true
  if (typeof value === "number" && !Number.isSafeInteger(value)) return false
  const bits = scalarBytes[type] * 8
  const wrapped = type.startsWith("u") ? BigInt.asUintN(bits, BigInt(value)) : BigInt.asIntN(bits, BigInt(value))
  return wrapped === BigInt(value)
}

/** Bytes of each tensor, or what is wrong with one. */
const checkTensors = (file: string, tensors: ReadonlyArray<TensorEntry>): ReadonlyArray<number> | GgufError => {
  const seen = new Set<string>()
  const lengths: Array<number> = []
  for (const { dims, name, type } of tensors) {
    const invalid = (problem: InvalidTensor["problem"], detail: string) =>
      new InvalidTensor({ file, tensor: name, problem, detail })
    if (seen.has(name)) return invalid("duplicate-name", "appears twice; rename one of them")
    seen.add(name)
    if (!name.isWellFormed()) return new InvalidText({ file, reading: "a tensor name", offset: 0 })
    const bytes = GgufType.bytesOf(type, dims)
    if (typeof bytes !== "number") return invalid(bytes.problem, bytes.detail)
    lengths.push(bytes)
  }
  return lengths
}
