/**
 * The modules that run a step: the driver goes through its phases, of which threads take parts, and a caller for each number of
 * arguments calls kernels with those that lie in the memory.
 *
 * All that threads share about a step lies in the kernels' memory, in words of 32 bits:
 *
 * - the table: the header, and a gate of 64 bytes for each phase. It belongs to the device as long as there are threads, since one that
 *   is late may look at it long after its step.
 * - the image, behind it: for each phase where its launches are and how they are divided, then the launches with their arguments.
 *
 * A gate has the number of the step and the parts that nobody has taken in one word of 64 bits, so that a late thread never takes a part
 * of another step; then the parts that are not done. Who finds no part left waits until all are done, and goes on to the next phase.
 * So nobody waits for a thread that has taken nothing.
 */

/** Words of a table's header. */
export const Header = { epoch: 0, failed: 1, asleep: 2, phases: 3, image: 4 } as const
/** Bytes of a header, and of a gate. */
export const lineBytes = 64
/** Words of a gate. */
export const Gate = { untaken: 0, epoch: 1, undone: 2 } as const
/** Words of a phase in the image. */
export const Phase = { parts: 0, size: 1, first: 2, end: 3, words: 4 } as const
/** Words of a launch in the image, in front of its arguments. */
export const Launch = { caller: 0, kernel: 1, iterations: 2, bytes: 3, args: 4 } as const
/** The size of parts where a launch is one. */
export const whole = 0x7fffffff

/** What a driver exports. */
export interface Driver {
  /** Runs part `part` of `size` iterations of the launches that lie between two addresses, in order. */
  readonly launches: (first: number, end: number, part: number, size: number) => void
  /**
   * Takes part in a step until all of it is done, it fails or is over: then it gives -1. If others are late with a phase it
   * gives its number, to be called again.
   */
  readonly drive: (table: number, epoch: number, mayWait: number) => number
  /** The address of the launch that began last. */
  readonly at: WebAssembly.Global
}

type Bytes = ReadonlyArray<number>

const unsigned = (value: number): Bytes => value < 128 ? [value] : [value % 128 + 128, ...unsigned(value >>> 7)]
const signed = (value: number): Bytes =>
  value >= -64 && value < 64 ? [value & 127] : [value & 127 | 128, ...signed(value >> 7)]
const counted = (bytes: Bytes): Bytes => [...unsigned(bytes.length), ...bytes]
const vector = (things: ReadonlyArray<Bytes>): Bytes => [...unsigned(things.length), ...things.flat()]
const text = (words: string): Bytes => counted([...words].map((c) => c.charCodeAt(0)))

const i32 = 0x7f
const i64 = 0x7e
const none = 0x40
const end = 0x0b
const get = (local: number): Bytes => [0x20, ...unsigned(local)]
const set = (local: number): Bytes => [0x21, ...unsigned(local)]
const tee = (local: number): Bytes => [0x22, ...unsigned(local)]
const constant = (value: number): Bytes => [0x41, ...signed(value)]
const load = (word: number): Bytes => [0x28, 2, ...unsigned(4 * word)]
const block = (...body: ReadonlyArray<Bytes>): Bytes => [0x02, none, ...body.flat(), end]
const loop = (...body: ReadonlyArray<Bytes>): Bytes => [0x03, none, ...body.flat(), end]
const when = (...body: ReadonlyArray<Bytes>): Bytes => [0x04, none, ...body.flat(), end]
const branch = (depth: number): Bytes => [0x0c, depth]
const branchIf = (depth: number): Bytes => [0x0d, depth]
const leave: Bytes = [0x0f]
const equalsZero: Bytes = [0x45]
const equals: Bytes = [0x46]
const differs: Bytes = [0x47]
const isBelow: Bytes = [0x49]
const isNotBelow: Bytes = [0x4f]
const add: Bytes = [0x6a]
const subtract: Bytes = [0x6b]
const multiply: Bytes = [0x6c]
const shiftLeft: Bytes = [0x74]
const select: Bytes = [0x1b]
const callIndirect = (type: number): Bytes => [0x11, type, 0]
const atomic = (
  instruction: number,
  word: number,
  align = 2
): Bytes => [0xfe, instruction, align, ...unsigned(4 * word)]
const notify = (word: number) => atomic(0x00, word)
const wait = (word: number) => atomic(0x01, word)
const atomicLoad = (word: number) => atomic(0x10, word)
const atomicLoad64 = (word: number) => atomic(0x11, word, 3)
const atomicAdd = (word: number) => atomic(0x1e, word)
const atomicSubtract = (word: number) => atomic(0x25, word)
const exchange64 = (word: number) => atomic(0x49, word, 3)

/** Polls before a thread sleeps: some ten microseconds, which is more than most parts take. */
const patience = 10_000
/** Nanoseconds that it sleeps before it says that others are late. */
const sleepNanos = 10_000_000

/** Parameters are the first four locals. */
const launches: Bytes = (() => {
  const [first, last, part, size, from, to, iterations] = [0, 1, 2, 3, 4, 5, 6] as const
  return [
    ...[...get(part), ...get(size), ...multiply, ...tee(from), ...get(size), ...add, ...set(to)],
    ...loop(
      [...get(first), 0x24, 0],
      [...get(first), ...load(Launch.kernel), ...get(from)],
      // the smaller of both
      [...get(to), ...get(first), ...load(Launch.iterations), ...tee(iterations)],
      [...get(to), ...get(iterations), ...isBelow, ...select],
      [...get(first), ...constant(4 * Launch.args), ...add],
      [...get(first), ...load(Launch.caller), ...callIndirect(0)],
      [...get(first), ...get(first), ...load(Launch.bytes), ...add, ...tee(first)],
      [...get(last), ...isBelow, ...branchIf(0)]
    )
  ]
})()

const drive: Bytes = (() => {
  const [table, epoch, mayWait, p, gate, phase, untaken, polls, undone, word] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] as const
  const isOver = [...get(table), ...atomicLoad(Header.epoch), ...get(epoch), ...differs]
  const hasFailed = [...get(table), ...atomicLoad(Header.failed), ...get(epoch), ...equals]
  /** Takes parts until there are none; block 1 around it ends the phase's taking, block 3 ends all. */
  const takeParts = loop(
    [...get(gate), ...atomicLoad64(Gate.untaken), ...tee(word), 0x42, 32, 0x88, 0xa7, ...get(epoch), ...differs],
    branchIf(3),
    [...get(word), 0xa7, ...tee(untaken), ...equalsZero, ...branchIf(1)],
    [...hasFailed, ...branchIf(3)],
    // by one less, unless somebody else took one
    [...get(gate), ...get(word), ...get(word), 0x42, 1, 0x7d, ...exchange64(Gate.untaken)],
    [...get(word), 0x52, ...branchIf(0)],
    [...get(table), ...load(Header.image), ...get(p), ...constant(4), ...shiftLeft, ...add, ...tee(phase)],
    [...load(Phase.first), ...get(phase), ...load(Phase.end)],
    [...get(phase), ...load(Phase.parts), ...get(untaken), ...subtract, ...get(phase), ...load(Phase.size)],
    [0x10, 0],
    [...get(gate), ...constant(1), ...atomicSubtract(Gate.undone), ...constant(1), ...equals],
    when(
      [...get(table), ...atomicLoad(Header.asleep)],
      when([...get(gate), ...constant(-1), ...notify(Gate.undone), 0x1a])
    ),
    branch(0)
  )
  const sleep = [
    ...[...get(table), ...constant(1), ...atomicAdd(Header.asleep), 0x1a],
    ...[...get(gate), ...get(undone), 0x42, ...signed(sleepNanos), ...wait(Gate.undone), ...set(polls)],
    ...[...get(table), ...constant(1), ...atomicSubtract(Header.asleep), 0x1a]
  ]
  /** Waits until all parts are done; block 1 around it ends the waiting, block 3 ends all. */
  const waitForParts = loop(
    [...get(gate), ...atomicLoad(Gate.undone), ...tee(undone), ...equalsZero, ...branchIf(1)],
    [...isOver, ...branchIf(3)],
    [...hasFailed, ...branchIf(3)],
    [...get(polls), ...constant(1), ...add, ...tee(polls), ...constant(patience), ...isBelow, ...branchIf(0)],
    [...get(mayWait)],
    // 2: nobody woke it in time
    when(sleep, [...get(polls), ...constant(2), ...differs], when([...constant(0), ...set(polls), ...branch(2)])),
    [...get(p), ...leave]
  )
  return [
    ...block(loop(
      [...get(p), ...get(table), ...load(Header.phases), ...isNotBelow, ...branchIf(1)],
      [...get(table), ...get(p), ...constant(1), ...add, ...constant(6), ...shiftLeft, ...add, ...set(gate)],
      block(takeParts),
      [...constant(0), ...set(polls)],
      block(waitForParts),
      [...get(p), ...constant(1), ...add, ...set(p), ...branch(0)]
    )),
    ...constant(-1)
  ]
})()

type MemoryKind = "shared" | "own"

const imports = (memory: MemoryKind): ReadonlyArray<Bytes> => [
  [...text("env"), ...text("memory"), 2, ...(memory === "shared" ? [3, 1, ...unsigned(65536)] : [0, 1])],
  [...text("env"), ...text("kernels"), 1, 0x70, 0, 0]
]

const functionType = (params: ReadonlyArray<number>, results: ReadonlyArray<number> = []): Bytes => [
  0x60,
  ...counted(params),
  ...counted(results)
]

/** A function's locals, so many of each type, and its code. */
const body = (locals: ReadonlyArray<readonly [count: number, type: number]>, code: Bytes): Bytes =>
  counted([...vector(locals.map(([count, type]) => [...unsigned(count), type])), ...code, end])

const moduleOf = (
  sections: ReadonlyArray<readonly [id: number, parts: ReadonlyArray<Bytes>]>
): WebAssembly.Module =>
  new WebAssembly.Module(Uint8Array.from([
    ...[0, 97, 115, 109, 1, 0, 0, 0],
    ...sections.flatMap(([id, parts]) => [id, ...counted(vector(parts))])
  ]))

const callerType = functionType([i32, i32, i32, i32])

/** A memory that nobody shares has one thread, and needs no `drive`. */
export const driverModule = (memory: MemoryKind): WebAssembly.Module => {
  const isShared = memory === "shared"
  return moduleOf([
    [1, [callerType, functionType([i32, i32, i32], [i32])]],
    [2, imports(memory)],
    [3, isShared ? [[0], [1]] : [[0]]],
    [6, [[i32, 1, ...constant(0), end]]],
    [7, [
      [...text("launches"), 0, 0],
      [...text("at"), 3, 0],
      ...(isShared ? [[...text("drive"), 0, 1]] : [])
    ]],
    [10, [body([[3, i32]], launches), ...(isShared ? [body([[6, i32], [1, i64]], drive)] : [])]]
  ])
}

/** Calls kernel `k` for iterations `from` to `to`, with so many arguments that lie at an address: `run(k, from, to, address)`. */
export const callerModule = (args: number, memory: MemoryKind): WebAssembly.Module => {
  const loads = Array.from({ length: args }, (_, i) => [...get(3), ...load(i)]).flat()
  return moduleOf([
    [1, [callerType, functionType(Array<number>(2 + args).fill(i32))]],
    [2, imports(memory)],
    [3, [[0]]],
    [7, [[...text("run"), 0, 0]]],
    [10, [body([], [...get(1), ...get(2), ...loads, ...get(0), ...callIndirect(1)])]]
  ])
}
