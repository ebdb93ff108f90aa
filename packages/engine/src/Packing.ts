/**
 * Which tensors lie in one buffer: those of a block of the model, so that the launches of a block bind one buffer of weights, each its own windows of it or, with bind groups of blocks, all
 * of it.
 *
 * Then kernels have the offsets of tensors in their code, so equal tensors of different blocks lie at equal offsets as far as
 * possible: first those that have one size in all blocks that have them, then the others, each kind in the order of the first
 * block that has it.
 */
import { bindingAlignment } from "@tg/core-uop/DeviceLimits"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"

/** A tensor as far as its memory goes. */
export interface Sized {
  readonly name: string
  readonly bytes: number
}

/** A buffer, and the tensors in it. */
export interface Packed {
  readonly label: string
  readonly bytes: number
  readonly parts: ReadonlyArray<Sized & { readonly offset: number }>
}

const roundUp = (bytes: number): number => Math.ceil(bytes / bindingAlignment) * bindingAlignment

/** Each tensor in a buffer of its own. */
export const alone = (tensors: ReadonlyArray<Sized>): ReadonlyArray<Packed> =>
  tensors.map(({ bytes, name }) => ({ label: name, bytes, parts: [{ name, bytes, offset: 0 }] }))

const blockName = /^(blk\.\d+)\.(.+)$/

interface InBlock extends Sized {
  readonly block: string
  readonly kind: string
}

/** Kinds in the order in which they lie: those of one size and in most blocks first. */
const ordered = (tensors: ReadonlyArray<InBlock>): ReadonlyMap<string, number> => {
  const kinds = Map.groupBy(tensors, ({ kind }) => kind)
  const rank = ([, own]: readonly [string, ReadonlyArray<InBlock>]): readonly [number, number] => [
    new Set(own.map(({ bytes }) => bytes)).size > 1 ? 1 : 0,
    -own.length
  ]
  const sorted = [...kinds].toSorted((a, b) => rank(a)[0] - rank(b)[0] || rank(a)[1] - rank(b)[1])
  return new Map(sorted.map(([kind], i) => [kind, i]))
}

/** One block's tensors, in as many buffers of at most `most` bytes as it takes. */
const packBlock = (label: string, tensors: ReadonlyArray<Sized>, most: number): ReadonlyArray<Packed> => {
  const packed: Array<{ label: string; bytes: number; parts: Array<Packed["parts"][number]> }> = []
  for (const { bytes, name } of tensors) {
    const last = packed.at(-1)
    const offset = roundUp(last?.bytes ?? 0)
    if (last === undefined || offset + bytes > most) packed.push({ label, bytes, parts: [{ name, bytes, offset: 0 }] })
    else {
      last.parts.push({ name, bytes, offset })
      last.bytes = offset + bytes
    }
  }
  return packed
}

/** The tensors of each block together, as far as `most` bytes of a buffer allow it, and all others alone. */
export const pack = (tensors: ReadonlyArray<Sized>, most: number): ReadonlyArray<Packed> => {
  const inBlocks = tensors.flatMap((tensor): ReadonlyArray<InBlock> => {
    const [, block, kind] = blockName.exec(tensor.name) ?? []
    return block === undefined || tensor.bytes > most ? [] : [{ ...tensor, block, kind: kind! }]
  })
  const order = ordered(inBlocks)
  const names = new Set(inBlocks.map(({ name }) => name))
  const blocks = [...Map.groupBy(inBlocks, ({ block }) => block)]
  return [
    ...alone(tensors.filter(({ name }) => !names.has(name))),
    ...blocks.flatMap(([block, own]) =>
      packBlock(block, own.toSorted((a, b) => order.get(a.kind)! - order.get(b.kind)!), most)
    )
  ]
}

/** The buffers of tensors on a device: on a GPU those of a block lie together. */
export const on = (
  { kind, maxBindingBytes, maxBufferBytes }: Pick<DeviceProfile, "kind" | "maxBindingBytes" | "maxBufferBytes">,
  tensors: ReadonlyArray<Sized>
): ReadonlyArray<Packed> => kind === "gpu" ? pack(tensors, Math.min(maxBindingBytes, maxBufferBytes)) : alone(tensors)
