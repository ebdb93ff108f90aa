import type { DType } from "./DType.ts"
import { allocate, type Data } from "./EvaluateOps.ts"
import * as Print from "./Print.ts"
import { argOf, slotOf, type UOp } from "./UOp.ts"

/**
 * Buffers by PARAM slot. Any 4-byte array will do: it is seen through the PARAM's own dtype. A Float64Array is taken as
 * it is, for `f32` in float64 mode.
 */
export type Arguments = ReadonlyMap<number, Data> | ReadonlyArray<Data>

/** The argument of a slot. */
export const argumentOf = (args: Arguments, slot: number): Data | undefined =>
  args instanceof Map ? args.get(slot) as Data | undefined : (args as ReadonlyArray<Data>)[slot]

const view = (data: Data, dtype: DType, slot: number): Data => {
  if (data instanceof Float64Array) {
    if (dtype.scalar === "f32") return data
    throw new Error(`slot ${slot}: a Float64Array for ${dtype.scalar}`)
  }
  if (data.byteLength % 4 !== 0 || data.byteOffset % 4 !== 0) {
    throw new Error(`slot ${slot}: not a whole number of words`)
  }
  const length = data.byteLength / 4
  switch (dtype.scalar) {
    case "f32":
      return data instanceof Float32Array ? data : new Float32Array(data.buffer, data.byteOffset, length)
    case "i32":
      return data instanceof Int32Array ? data : new Int32Array(data.buffer, data.byteOffset, length)
    default:
      return data instanceof Uint32Array ? data : new Uint32Array(data.buffer, data.byteOffset, length)
  }
}

/** `slot 3` or `local 0`, for messages. */
export const nameOf = (buffer: UOp): string =>
  buffer.op === "LOCAL"
    ? `local ${argOf(buffer, "LOCAL").id}`
    : `slot ${slotOf(buffer)}`

/** The buffers of a running kernel (arguments, and zero-filled workgroup memory), with every access checked. */
export class Memory {
  private readonly views = new Map<UOp, Data>()
  private readonly written = new Map<string, Uint8Array>()
  private readonly owners = new Map<string, Int32Array>()
  private readonly checkWrites: boolean

  constructor(
    nodes: ReadonlyArray<UOp>,
    args: Arguments,
    options: {
      readonly checkWrites?: boolean
      /** How many workgroups have memory of their own, for each LOCAL; 1 where not given. */
      readonly instances?: (local: UOp) => number
    }
  ) {
    this.checkWrites = options.checkWrites === true
    for (const node of nodes) {
      if (node.op === "LOCAL") {
        const { length } = argOf(node, "LOCAL")
        this.views.set(node, allocate(node.dtype, length * (options.instances?.(node) ?? 1)))
      }
      if (node.op !== "PARAM") continue
      const slot = slotOf(node)
      const data = argumentOf(args, slot)
      if (data === undefined) throw new Error(`${Print.line(node)}: no argument for slot ${slot}`)
      this.views.set(node, view(data, node.dtype, slot))
    }
  }

  /** The buffer of an INDEX node. */
  bufferOf(element: UOp): Data {
    return this.views.get(element.src[0]!)!
  }

  /** The elements of a PARAM or LOCAL node. */
  buffer(node: UOp): Data {
    return this.views.get(node)!
  }

  /** Fails if an index whose gate is not false is outside the buffer or not aligned. */
  check(element: UOp, index: Data, gate: Data | undefined, lanes: number): void {
    const { length } = this.bufferOf(element)
    for (let i = 0; i < index.length; i++) {
      if (gate !== undefined && gate[i] === 0) continue
      const at = index[i]!
      if (!(at >= 0 && at + lanes <= length && at % lanes === 0)) this.report(element, index, gate, lanes)
    }
  }

  /** Reads `lanes` elements at every index whose gate is not false. */
  load(element: UOp, out: Data, index: Data, gate: Data | undefined, lanes: number): void {
    const buffer = this.bufferOf(element)
    if (gate === undefined && lanes === 1) {
      if (!loadAll(out, buffer, index)) this.report(element, index, undefined, 1)
      return
    }
    for (let i = 0; i < index.length; i++) {
      const at = index[i]!
      if (gate !== undefined && gate[i] === 0) {
        for (let lane = 0; lane < lanes; lane++) out[i * lanes + lane] = 0
      } else if (at >= 0 && at + lanes <= buffer.length && at % lanes === 0) {
        for (let lane = 0; lane < lanes; lane++) out[i * lanes + lane] = buffer[at + lane]!
      } else this.report(element, index, gate, lanes)
    }
  }

  /** Writes `lanes` elements at every index whose gate is not false. */
  store(element: UOp, value: Data, index: Data, gate: Data | undefined, lanes: number): void {
    const buffer = this.bufferOf(element)
    const name = nameOf(element.src[0]!)
    let written = this.written.get(name)
    if (this.checkWrites && written === undefined) this.written.set(name, written = new Uint8Array(buffer.length))
    for (let i = 0; i < index.length; i++) {
      if (gate !== undefined && gate[i] === 0) continue
      const at = index[i]!
      if (!(at >= 0 && at + lanes <= buffer.length && at % lanes === 0)) this.report(element, index, gate, lanes)
      for (let lane = 0; lane < lanes; lane++) {
        const old = buffer[at + lane]!
        buffer[at + lane] = value[i * lanes + lane]!
        if (written === undefined) continue
        if (written[at + lane] === 1 && !Object.is(old, buffer[at + lane])) {
          throw new Error(`${name}: element ${at + lane} is written twice, ${old} and then ${buffer[at + lane]}`)
        }
        written[at + lane] = 1
      }
    }
  }

  /**
   * Adds `lanes` elements at every index whose gate is not false, in order. With the threads of the additions, which are then not
   * atomic, all additions to an element are of one thread.
   */
  accumulate(element: UOp, { gate, index, lanes, threads, value }: {
    readonly value: Data
    readonly index: Data
    readonly gate: Data | undefined
    readonly lanes: number
    readonly threads: Int32Array | undefined
  }): void {
    this.check(element, index, gate, lanes)
    const buffer = this.bufferOf(element)
    const name = nameOf(element.src[0]!)
    const owners = this.owners.get(name) ?? new Int32Array(buffer.length).fill(-1)
    this.owners.set(name, owners)
    for (let i = 0; i < index.length; i++) {
      if (gate !== undefined && gate[i] === 0) continue
      for (let lane = 0; lane < lanes; lane++) {
        const at = index[i]! + lane
        buffer[at]! += value[i * lanes + lane]!
        const thread = threads?.[i]
        if (thread === undefined) continue
        if (owners[at] !== -1 && owners[at] !== thread) {
          throw new Error(`${name}: threads ${owners[at]} and ${thread} add to element ${at}, and not atomically`)
        }
        owners[at] = thread
      }
    }
  }

  private report(element: UOp, index: Data, gate: Data | undefined, lanes: number): never {
    const buffer = this.bufferOf(element)
    const name = nameOf(element.src[0]!)
    for (let i = 0; i < index.length; i++) {
      if (gate !== undefined && gate[i] === 0) continue
      const at = index[i]!
      if (!(at >= 0 && at + lanes <= buffer.length)) {
        throw new Error(
          `${name}: element ${at}${
            lanes === 1 ? "" : `..${at + lanes - 1}`
          } is outside the ${buffer.length} elements, ` +
            `at ${Print.expression(element)}`
        )
      }
      if (at % lanes !== 0) {
        throw new Error(`${name}: ${lanes} lanes at element ${at}, which is not a multiple of ${lanes}`)
      }
    }
    throw new Error(`${name}: an access that is in order was reported`)
  }
}

/** Reads every index; false if one is out of bounds. */
const loadAll = (out: Data, buffer: Data, index: Data): boolean => {
  const length = buffer.length
  for (let i = 0; i < index.length; i++) {
    const at = index[i]!
    if (!(at >= 0 && at < length)) return false
    out[i] = buffer[at]!
  }
  return true
}
