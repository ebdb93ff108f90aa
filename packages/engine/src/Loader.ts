/**
 * Weights from a file to a device: ranges of blocks through one staging buffer, re-laid into planes by the device itself.
 * Only the range in flight is ever in the JavaScript heap.
 */
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import type { ByteSource, ByteSourceError } from "@tg/gguf/ByteSource"
import type { TensorInfo } from "@tg/gguf/Gguf"
import { type Name, table } from "@tg/gguf/GgufType"
import * as Layout from "@tg/gguf/Layout"
import { Jit, type JitError, type Prepared } from "@tg/jit/Jit"
import { Device, type DeviceBuffer, type DeviceError } from "@tg/runtime/Device"
import { assign, make, type TensorProgram } from "@tg/tensor/Program"
import { buffer, type Tensor, variable } from "@tg/tensor/Tensor"
import { Effect, type Scope } from "effect"

/** A tensor to load: where its bytes are, and how its planes will lie. */
export interface Wanted {
  readonly tensor: TensorInfo
  readonly layout: Layout.Layout
}

/** How far loading has come. */
export interface Progress {
  readonly tensor: string
  readonly loadedBytes: number
  readonly totalBytes: number
}

/** How to load. */
export interface LoadOptions {
  /** Bytes read and re-laid at a time; 1 MiB. */
  readonly chunkBytes?: number | undefined
  readonly onProgress?: ((progress: Progress) => Effect.Effect<void>) | undefined
}

/** Why weights cannot be loaded. */
export type LoadError = ByteSourceError | DeviceError | JitError

// Buffers of a relayout program. A destination is declared as large as any can be; the bound one decides.
const rawId = 0
const planesId = 1
const maxWords = 2 ** 29

/** Re-lays up to `blocks` blocks that lie in the raw buffer. */
export interface Relayout {
  readonly program: TensorProgram
  /** Blocks that the raw buffer holds: a multiple of `unit`. */
  readonly blocks: number
  readonly unit: number
  readonly rawBytes: number
}

/** Tensors with equal keys are re-laid by the same program. */
export const keyOf = (layout: Layout.Layout): string =>
  [layout.type, ...layout.planes.map((p) => `${p.name}:${p.group}:${p.groupWords}`)].join(" ")

// Units larger than this gain nothing more.
const largestUnit = 4096

/**
 * How many blocks are re-laid as one unit: a divisor of every tensor of the kind, so that no unit reaches behind a
 * plane. The more, the longer the part of a kernel's loops whose length is known when it is compiled.
 */
const unitOf = (kind: ReadonlyArray<Layout.Layout>): number => {
  const [first] = kind
  const group = first!.blockGroup
  const groups = kind.map((layout) => Math.ceil(layout.blocks / group)).reduce(gcd)
  for (let n = Math.floor(largestUnit / group); n > 1; n--) if (groups % n === 0) return group * n
  return group
}

const gcd = (a: number, b: number): number => b === 0 ? a : gcd(b, a % b)

/**
 * The program for layouts of one kind: `units` units of blocks from the raw buffer to word `offset_<plane>` of the
 * destination, for each plane.
 */
export const relayout = (kind: ReadonlyArray<Layout.Layout>, chunkBytes: number): Relayout => {
  const layout = kind.reduce((a, b) => b.blocks > a.blocks ? b : a)
  const { blockBytes, blockValues } = table[layout.type]
  const unit = unitOf(kind)
  const most = Math.max(1, Math.min(Math.floor(chunkBytes / (unit * blockBytes)), Math.ceil(layout.blocks / unit)))
  const blocks = unit * most
  const rawBytes = wholeWords(blocks * blockBytes)
  const arena = new Arena()
  const raw = buffer(arena, rawId, { shape: [rawBytes / 4], dtype: DType.u32, label: "raw" })
  const target = buffer(arena, planesId, { shape: [maxWords], dtype: DType.u32, label: "planes" })
  const units = variable(arena, "units", 1, most)
  // the formula depends on the type, and on the length of a row only as far as `keyOf` tells
  const rows = Math.ceil(blocks / layout.blocksPerRow)
  const pattern = Layout.layoutOf(layout.type, [rows, layout.blocksPerRow * blockValues])
  const made = Layout.relayout(pattern, raw, { first: 0, count: blocks })
  const program = make(made.map(({ plane, words }) => {
    const offset = variable(arena, `offset_${plane.name}`, 0, maxWords)
    const wordsOfUnit = unit / plane.group * plane.groupWords
    // two axes, so that only the outer one is symbolic
    const inUnits = (x: Tensor): Tensor => x.reshape([most, wordsOfUnit]).slice(0, 0, units)
    const part = inUnits(target.slice(0, offset, most * wordsOfUnit))
    return assign(part, inUnits(words).label(`relayout_${layout.type}`))
  }))
  return { program, blocks, unit, rawBytes }
}

const wholeWords = (bytes: number): number => Math.ceil(bytes / 4) * 4

// Their planes are the bytes of the file.
const plain: ReadonlySet<Name> = new Set(["F32"])

/**
 * Reads the tensors into device memory that belongs to the Scope. Buffers come by tensor name, `layout.words` words
 * each.
 */
export const load: (
  source: ByteSource["Service"],
  wanted: ReadonlyArray<Wanted>,
  options?: LoadOptions
) => Effect.Effect<ReadonlyMap<string, DeviceBuffer>, LoadError, Device | Jit | Scope.Scope> = Effect.fn("Loader.load")(
  function*(source, wanted, options = {}) {
    const device = yield* Device
    const chunkBytes = options.chunkBytes ?? 2 ** 20
    const totalBytes = wanted.reduce((sum, { tensor }) => sum + tensor.bytes, 0)
    let loadedBytes = 0
    const loaded = (tensor: string, bytes: number): Effect.Effect<void> =>
      Effect.suspend(() => {
        loadedBytes += bytes
        return options.onProgress?.({ tensor, loadedBytes, totalBytes }) ?? Effect.void
      })

    const buffers = new Map<string, DeviceBuffer>()
    for (const { layout, tensor } of wanted) {
      buffers.set(tensor.name, yield* device.allocate(4 * layout.words, tensor.name))
    }
    for (const { layout, tensor } of wanted.filter((w) => plain.has(w.layout.type))) {
      const target = buffers.get(tensor.name)!
      for (let at = 0; at < tensor.bytes; at += chunkBytes) {
        const length = Math.min(chunkBytes, tensor.bytes - at)
        yield* device.write(target, yield* source.read(tensor.offset + at, length), 4 * layout.planes[0]!.offset + at)
        yield* loaded(tensor.name, length)
      }
    }
    const kinds = Map.groupBy(wanted.filter((w) => !plain.has(w.layout.type)), (w) => keyOf(w.layout))
    for (const kind of kinds.values()) yield* loadKind(source, kind, { buffers, chunkBytes, loaded })
    return buffers
  }
)

interface Loading {
  readonly buffers: ReadonlyMap<string, DeviceBuffer>
  readonly chunkBytes: number
  readonly loaded: (tensor: string, bytes: number) => Effect.Effect<void>
}

/** Loads tensors of one kind. Their staging buffer lives as long as this takes. */
const loadKind = Effect.fnUntraced(function*(
  source: ByteSource["Service"],
  kind: ReadonlyArray<Wanted>,
  { buffers, chunkBytes, loaded }: Loading
) {
  const device = yield* Device
  const jit = yield* Jit
  const { blocks, program, rawBytes, unit } = relayout(kind.map((w) => w.layout), chunkBytes)
  const { blockBytes } = table[kind[0]!.layout.type]
  const raw = yield* device.allocate(rawBytes, "staging")
  for (const { layout, tensor } of kind) {
    const target = buffers.get(tensor.name)!
    const prepared: Prepared = yield* jit.prepare(program.sink, new Map([[rawId, raw], [planesId, target]]))
    for (let first = 0; first < layout.blocks; first += blocks) {
      const count = Math.min(blocks, layout.blocks - first)
      const units = Math.ceil(count / unit)
      const bytes = yield* source.read(tensor.offset + first * blockBytes, count * blockBytes)
      yield* device.write(raw, padded(bytes, wholeWords(units * unit * blockBytes)))
      const vars: Record<string, number> = { units }
      for (const plane of layout.planes) {
        vars[`offset_${plane.name}`] = plane.offset + first / plane.group * plane.groupWords
      }
      yield* prepared.run(vars)
      yield* loaded(tensor.name, bytes.length)
    }
  }
}, Effect.scoped)

const padded = (bytes: Uint8Array, length: number): Uint8Array => {
  if (bytes.length === length) return bytes
  const longer = new Uint8Array(length)
  longer.set(bytes)
  return longer
}
