/** A piece of the memory: bytes `offset` to `offset + size - 1`. */
interface Block {
  readonly offset: number
  readonly size: number
}

/** Alignment of every allocation: one SIMD vector, so that vector access is aligned and may read past an odd end. */
export const alignment = 16

export const roundUp = (bytes: number): number => Math.ceil(bytes / alignment) * alignment

/**
 * Who owns which bytes of a growing memory. Free blocks are kept sorted by offset and never touch each other: freeing
 * merges neighbours, and a free block at the end lowers the end.
 */
export class Heap {
  private free: Array<Block> = []
  private endBytes = 0

  /** Bytes in use or between blocks in use: what the memory must hold. */
  get end(): number {
    return this.endBytes
  }

  /** The largest piece available without growing. */
  get largestFree(): number {
    return this.free.reduce((n, b) => Math.max(n, b.size), 0)
  }

  /** Takes the smallest free block that fits, else bytes at the end, if the end stays within `limit`. */
  allocate(bytes: number, limit: number): number | undefined {
    const size = Math.max(alignment, roundUp(bytes))
    let best = -1
    for (const [i, block] of this.free.entries()) {
      if (block.size >= size && (best < 0 || block.size < this.free[best]!.size)) best = i
    }
    if (best >= 0) {
      const { offset, size: available } = this.free[best]!
      this.free.splice(best, 1, ...available > size ? [{ offset: offset + size, size: available - size }] : [])
      return offset
    }
    if (this.endBytes + size > limit) return undefined
    const offset = this.endBytes
    this.endBytes += size
    return offset
  }

  /** Returns what `allocate` gave for the same number of bytes. */
  release(offset: number, bytes: number): void {
    let block: Block = { offset, size: Math.max(alignment, roundUp(bytes)) }
    let at = this.free.findIndex((b) => b.offset > offset)
    if (at < 0) at = this.free.length
    const next = this.free[at]
    if (next !== undefined && block.offset + block.size === next.offset) {
      block = { offset, size: block.size + next.size }
      this.free.splice(at, 1)
    }
    const previous = this.free[at - 1]
    if (previous !== undefined && previous.offset + previous.size === block.offset) {
      block = { offset: previous.offset, size: previous.size + block.size }
      at--
      this.free.splice(at, 1)
    }
    if (block.offset + block.size === this.endBytes) this.endBytes = block.offset
    else this.free.splice(at, 0, block)
  }
}
