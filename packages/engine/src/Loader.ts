/**
 * Weights from a file to a device: ranges of the file through a staging buffer, re-laid into planes by the device itself.
 * Only the few ranges on their way are ever in JavaScript's memory.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import type { ByteSource, ByteSourceError } from "@tg/gguf/ByteSource"
import type { TensorInfo } from "@tg/gguf/Gguf"
import { type Name, table } from "@tg/gguf/GgufType"
import * as Layout from "@tg/gguf/Layout"
import type { Estimate } from "@tg/jit/Estimate"
import { Jit, type JitError } from "@tg/jit/Jit"
import type { RangeifyError } from "@tg/rangeify/Rangeify"
import { type Binding, bufferOf, Device, type DeviceBuffer, type DeviceError } from "@tg/runtime/Device"
import { assign, make, type TensorProgram } from "@tg/tensor/Program"
import { buffer, variable } from "@tg/tensor/Tensor"
import { Effect, type Scope, Stream } from "effect"
import * as Packing from "./Packing.ts"

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
  /** Bytes read and re-laid at a time; 4 MiB. */
  readonly chunkBytes?: number | undefined
  readonly onProgress?: ((progress: Progress) => Effect.Effect<void>) | undefined
}

/** Ranges of the file that are read before the device has taken the one in front of them. */
const chunksAhead = 4

/** Why weights cannot be loaded. */
export type LoadError = ByteSourceError | DeviceError | JitError

// Buffers of a relayout program: what came from the file, then a piece of each plane.
const rawId = 0
const firstPlaneId = 1

/** A piece of a plane, as many words as its blocks take. */
export interface PlanePiece {
  readonly id: number
  readonly name: string
  readonly wordsPerUnit: number
  /** Size of its buffer. */
  readonly bytes: number
}

/** Re-lays up to `blocks` blocks that lie in the raw buffer. */
export interface Relayout {
  readonly program: TensorProgram
  /** Blocks that the raw buffer holds: a multiple of `unit`. */
  readonly blocks: number
  readonly unit: number
  readonly rawBytes: number
  readonly planes: ReadonlyArray<PlanePiece>
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

/** The program for layouts of one kind: `units` units of blocks from the raw buffer to a piece of each plane. */
export const relayout = (kind: ReadonlyArray<Layout.Layout>, chunkBytes: number): Relayout => {
  const layout = kind.reduce((a, b) => b.blocks > a.blocks ? b : a)
  const { blockBytes, blockValues } = table[layout.type]
  const unit = unitOf(kind)
  const most = Math.max(1, Math.min(Math.floor(chunkBytes / (unit * blockBytes)), Math.ceil(layout.blocks / unit)))
  const blocks = unit * most
  const rawBytes = wholeWords(blocks * blockBytes)
  const arena = new Arena()
  const raw = buffer(arena, rawId, { shape: [rawBytes / 4], dtype: DType.u32, label: "raw" })
  const units = variable(arena, "units", 1, most)
  // the formula depends on the type, and on the length of a row only as far as `keyOf` tells
  const rows = Math.ceil(blocks / layout.blocksPerRow)
  const pattern = Layout.layoutOf(layout.type, [rows, layout.blocksPerRow * blockValues])
  const made = Layout.relayout(pattern, raw, { first: 0, count: blocks })
  const planes = made.map(({ plane: { group, groupWords, name } }, i): PlanePiece => {
    const wordsPerUnit = unit / group * groupWords
    return { id: firstPlaneId + i, name, wordsPerUnit, bytes: 4 * most * wordsPerUnit }
  })
  const program = make(made.map(({ words }, i) => {
    const { id, name, wordsPerUnit } = planes[i]!
    // two axes, so that only the outer one is symbolic
    const target = buffer(arena, id, { shape: [most, wordsPerUnit], dtype: DType.u32, label: name })
    const inUnits = words.reshape([most, wordsPerUnit]).slice(0, 0, units).label(`relayout_${layout.type}`)
    return assign(target.slice(0, 0, units), inUnits)
  }))
  return { program, blocks, unit, rawBytes, planes }
}

const wholeWords = (bytes: number): number => Math.ceil(bytes / 4) * 4

// Their planes are the bytes of the file.
const plain: ReadonlySet<Name> = new Set(["F32"])

/** Bytes read and re-laid at a time, unless told otherwise: no more than a binding holds. */
const chunkOf = (asked: number | undefined, { maxBindingBytes }: DeviceProfile): number =>
  Math.min(asked ?? 4 * 2 ** 20, maxBindingBytes)

/** Says what a program will take: `Jit.estimate`, or that of a pipeline. */
export type Estimating = (program: UOp) => Effect.Effect<Estimate, RangeifyError>

/** Bytes that loading takes beside the tensors themselves. */
export const stagingBytes = (
  layouts: ReadonlyArray<Layout.Layout>,
  profile: DeviceProfile,
  estimate: Estimating
): Effect.Effect<number, RangeifyError> =>
  Effect.gen(function*() {
    let bytes = 0
    for (const kind of Map.groupBy(layouts.filter(({ type }) => !plain.has(type)), keyOf).values()) {
      const { planes, program, rawBytes } = relayout(kind, chunkOf(undefined, profile))
      const { blocks } = yield* estimate(program.sink)
      bytes += [rawBytes, ...planes.map((p) => p.bytes), ...blocks].reduce((a, b) => a + b, 0)
    }
    return bytes
  })

/** Tensors by their names: each in a buffer of its own, or in a part of one. */
export type Tensors = ReadonlyMap<string, Binding>

/**
 * Memory for the planes of each tensor, by its name. It belongs to the Scope. On a GPU the tensors of a block lie in few buffers (`Packing`): a submission takes the host a fraction of a
 * microsecond for each buffer that it binds, and hardly any for another window of one.
 */
export const allocate = (
  wanted: ReadonlyArray<Wanted>
): Effect.Effect<Tensors, DeviceError, Device | Scope.Scope> =>
  Effect.gen(function*() {
    const device = yield* Device
    const sizes = wanted.map(({ layout, tensor }) => ({ name: tensor.name, bytes: 4 * layout.words }))
    const buffers = yield* Effect.forEach(
      Packing.on(device.profile, sizes),
      ({ bytes, label, parts }) =>
        Effect.map(device.allocate(bytes, label), (buffer) =>
          parts.map(({ bytes: own, name, offset }): readonly [string, Binding] => [
            name,
            own === bytes ? buffer : { buffer, offset, bytes: own }
          ])),
      { concurrency: 16 }
    )
    return new Map(buffers.flat())
  })

/** Where a tensor's bytes begin. */
export const offsetOf = (binding: Binding): number => "buffer" in binding ? binding.offset : 0

/** A part of a tensor on its way: `blocks` blocks from `first` on. */
interface Chunk {
  readonly wanted: Wanted
  readonly first: number
  readonly blocks: number
}

/** What takes a chunk's bytes to where they belong. */
type Put = (chunk: Chunk, bytes: Uint8Array) => Effect.Effect<void, DeviceError>

/**
 * Fills the buffers of the tensors. The next ranges of the file are read while the device takes the ones before: at most
 * `chunksAhead` of them are in memory, whatever the size of the file. Tensors are read in the order of the file.
 */
export const fill: (
  source: ByteSource["Service"],
  wanted: ReadonlyArray<Wanted>,
  buffers: Tensors,
  options?: LoadOptions
) => Effect.Effect<void, LoadError, Device | Jit> = Effect.fn("Loader.fill")(
  function*(source, wanted, buffers, options = {}) {
    const { profile } = yield* Device
    const chunkBytes = chunkOf(options.chunkBytes, profile)
    const totalBytes = wanted.reduce((sum, { tensor }) => sum + tensor.bytes, 0)
    let loadedBytes = 0
    const kinds = yield* Effect.forEach(
      Map.groupBy(wanted, ({ layout }) => keyOf(layout)),
      ([key, kind]) => Effect.map(kindOf(kind, chunkBytes), (made) => [key, made] as const),
      { concurrency: "unbounded" }
    )
    const byKey = new Map(kinds)
    const puts = new Map<Wanted, Put>()
    const read = Effect.fnUntraced(function*(chunk: Chunk) {
      const { layout, tensor } = chunk.wanted
      const { blockBytes } = table[layout.type]
      const bytes = source.read(tensor.offset + chunk.first * blockBytes, chunk.blocks * blockBytes)
      if (chunk.first > 0) return { chunk, bytes: yield* bytes }
      const bound = byKey.get(keyOf(layout))!.bind(buffers.get(tensor.name)!)
      const [put, first] = yield* Effect.all([bound, bytes, putBook(layout, buffers.get(tensor.name)!)], {
        concurrency: 2
      })
      puts.set(chunk.wanted, put)
      return { chunk, bytes: first }
    })
    const inFile = wanted.toSorted((a, b) => a.tensor.offset - b.tensor.offset)
    yield* Stream.fromIterable(chunksOf(inFile, (w) => byKey.get(keyOf(w.layout))!.blocks)).pipe(
      Stream.mapEffect(read, { concurrency: chunksAhead }),
      Stream.runForEach(Effect.fnUntraced(function*({ bytes, chunk }) {
        yield* puts.get(chunk.wanted)!(chunk, bytes)
        loadedBytes += bytes.length
        yield* options.onProgress?.({ tensor: chunk.wanted.tensor.name, loadedBytes, totalBytes }) ?? Effect.void
      }))
    )
  },
  Effect.scoped
)

/** The code book of a tensor's type, which is not in the file. */
const putBook = Effect.fnUntraced(function*(layout: Layout.Layout, target: Binding) {
  const book = Layout.bookOf(layout)
  if (book === undefined) return
  const device = yield* Device
  yield* device.write(bufferOf(target), new Uint8Array(book.buffer), offsetOf(target) + 4 * layout.bookOffset!)
})

function* chunksOf(wanted: ReadonlyArray<Wanted>, blocksOf: (w: Wanted) => number): Generator<Chunk> {
  for (const each of wanted) {
    const most = blocksOf(each)
    for (let first = 0; first < each.layout.blocks; first += most) {
      yield { wanted: each, first, blocks: Math.min(most, each.layout.blocks - first) }
    }
  }
}

/** How tensors of one kind are loaded: so many blocks at a time, into a buffer. */
interface Kind {
  readonly blocks: number
  readonly bind: (target: Binding) => Effect.Effect<Put, LoadError, Scope.Scope>
}

const kindOf = (
  kind: ReadonlyArray<Wanted>,
  chunkBytes: number
): Effect.Effect<Kind, LoadError, Device | Jit | Scope.Scope> =>
  plain.has(kind[0]!.layout.type)
    ? plainKind(kind[0]!.layout.type, chunkBytes)
    : relaidKind(kind.map((w) => w.layout), chunkBytes)

/** Words that are their own plane. */
const plainKind = (type: Name, chunkBytes: number): Effect.Effect<Kind, never, Device> =>
  Effect.map(Device, (device) => {
    const { blockBytes } = table[type]
    return {
      blocks: Math.max(1, Math.floor(chunkBytes / blockBytes)),
      bind: (target) =>
        Effect.succeed(({ first, wanted: { layout } }, bytes) =>
          device.write(bufferOf(target), bytes, offsetOf(target) + 4 * layout.planes[0]!.offset + first * blockBytes)
        )
    }
  })

/** Blocks that go through a staging buffer, which the queue keeps in order. */
const relaidKind = Effect.fnUntraced(function*(kind: ReadonlyArray<Layout.Layout>, chunkBytes: number) {
  const device = yield* Device
  const jit = yield* Jit
  const { blocks, planes, program, rawBytes, unit } = relayout(kind, chunkBytes)
  const { blockBytes } = table[kind[0]!.type]
  const raw = yield* device.allocate(rawBytes, "staging")
  const pieces = yield* Effect.forEach(planes, ({ bytes, name }) => device.allocate(bytes, `staging ${name}`))
  const prepared = yield* jit.prepare(
    program.sink,
    new Map([[rawId, raw], ...planes.map(({ id }, i) => [id, pieces[i]!] as const)])
  )
  const put = (target: Binding): Put =>
    Effect.fnUntraced(function*({ blocks: count, first, wanted: { layout } }, bytes) {
      const units = Math.ceil(count / unit)
      yield* device.write(raw, padded(bytes, wholeWords(units * unit * blockBytes)))
      yield* prepared.run({ units })
      yield* device.copy(layout.planes.map((plane, i) => ({
        from: pieces[i]!,
        fromOffset: 0,
        to: bufferOf(target),
        toOffset: offsetOf(target) + 4 * (plane.offset + first / plane.group * plane.groupWords),
        bytes: 4 * units * planes[i]!.wordsPerUnit
      })))
    })
  return { blocks, bind: (target) => Effect.succeed(put(target)) } satisfies Kind
})

const padded = (bytes: Uint8Array, length: number): Uint8Array => {
  if (bytes.length === length) return bytes
  const longer = new Uint8Array(length)
  longer.set(bytes)
  return longer
}

/** Loads tensors into buffers of their own, which belong to the Scope. */
export const load = (
  source: ByteSource["Service"],
  wanted: ReadonlyArray<Wanted>,
  options?: LoadOptions
): Effect.Effect<ReadonlyMap<string, DeviceBuffer>, LoadError, Device | Jit | Scope.Scope> =>
  Effect.gen(function*() {
    const device = yield* Device
    const buffers = yield* Effect.forEach(
      wanted,
      ({ layout, tensor }) =>
        Effect.map(device.allocate(4 * layout.words, tensor.name), (own) => [tensor.name, own] as const),
      { concurrency: 16 }
    )
    const tensors = new Map(buffers)
    yield* fill(source, wanted, tensors, options)
    return tensors
  })
