/** What each instruction of a linear kernel does, for all threads of a workgroup in lock step. */
import { dense, zip } from "./EvaluateArray.ts"
import * as Fragments from "./EvaluateFragments.ts"
import type { Memory } from "./EvaluateMemory.ts"
import { type Data, monoid } from "./EvaluateOps.ts"
import { atomics, type OwnWrites, type Races } from "./EvaluateRaces.ts"
import { elementwise, type Op } from "./Op.ts"
import * as Print from "./Print.ts"
import { argOf, groupArg, isAccumulating, isCoherent, type UOp } from "./UOp.ts"
import { accessOf, storeOf } from "./View.ts"

/** One instruction with the arrays it works on: a value for every thread of the workgroup, lanes innermost. */
export interface Instruction {
  readonly node: UOp
  readonly out: Data | undefined
  readonly src: ReadonlyArray<Data | undefined>
  /** Of the address of a LOAD or STORE. */
  readonly index: Data | undefined
  readonly gate: Data | undefined
  /** Where a loop or branch that does not run continues; where END jumps back to. */
  target: number
}

/** A workgroup that runs. */
export interface Machine {
  readonly threads: number
  readonly program: ReadonlyArray<Instruction>
  readonly memory: Memory
  readonly races: ReadonlyMap<UOp, Races>
  readonly locals: ReadonlyArray<UOp>
  /** Its own writes to plain arguments that it reads, by their trackers. */
  readonly ownWrites: ReadonlyMap<Races, OwnWrites>
  /** Execution masks, one for each enclosing IF; without one all threads run. */
  readonly masks: Array<Uint8Array>
  readonly iteration: Map<UOp, number>
  /** The number of the next instruction. */
  next: number
  /** The number of the workgroup's first thread in the whole launch. */
  first: number
  /** Loads whose order AWAITs decide, not barriers. */
  readonly awaited: ReadonlySet<UOp>
  /** Where it has stopped: at a GRID_BARRIER, or an AWAIT whose words are not all there. */
  stopped: "barrier" | "word" | undefined
}

/** Ends the evaluation of a kernel that breaks the contract. */
export const fail = (node: UOp, problem: string): never => {
  throw new Error(`${Print.line(node)}: ${problem}`)
}

/** The gate of an access under the execution mask. */
const maskedGate = ({ masks }: Machine, gate: Data | undefined): Data | undefined => {
  const mask = masks.at(-1)
  if (mask === undefined || gate === undefined) return mask ?? gate
  return mask.map((on, i) => on & gate[i]!)
}

/** Records the reads for the race check. */
const trackLoad = (races: Races, local: boolean, element: UOp, index: Data, gate: Data | undefined, at: {
  readonly lanes: number
  readonly first: number
  readonly own: OwnWrites | undefined
}): void => {
  for (let t = 0; t < index.length; t++) {
    if (gate !== undefined && gate[t] === 0) continue
    for (let lane = 0; lane < at.lanes; lane++) {
      const i = index[t]! + lane
      if (local && !races.isWritten(i)) {
        fail(element, `thread ${t} reads element ${i} of workgroup memory that nobody wrote`)
      }
      if (at.own?.isVisible(i) !== true) races.read(i, at.first + t)
    }
  }
}

/** Writes the elements in thread order and records the writes for the race check. A thread may store the value that is there. */
const trackStore = (races: Races, local: boolean, index: Data, gate: Data | undefined, at: {
  readonly lanes: number
  readonly first: number
  readonly buffer: Data
  readonly value: Data
  readonly own: OwnWrites | undefined
}): void => {
  for (let t = 0; t < index.length; t++) {
    if (gate !== undefined && gate[t] === 0) continue
    for (let lane = 0; lane < at.lanes; lane++) {
      const i = index[t]! + lane
      const old = at.buffer[i]
      at.buffer[i] = at.value[t * at.lanes + lane]!
      races.write(i, at.first + t, !local && Object.is(old, at.buffer[i]))
      at.own?.write(i)
    }
  }
}

const checkIndex = (machine: Machine, { node, out }: Instruction): void => {
  const mask = machine.masks.at(-1)
  for (let t = 0; t < out!.length; t++) {
    const value = out![t]!
    if ((value < -(2 ** 31) || value >= 2 ** 31) && (mask === undefined || mask[t] !== 0)) {
      fail(node, `the index ${value} of thread ${t} does not fit 32 bits`)
    }
  }
}

const subgroupReduce = (machine: Machine, { node, out, src }: Instruction): void => {
  const { op, threads } = groupArg(node)
  const { lanes } = node.dtype
  const mask = machine.masks.at(-1)
  if (machine.threads % threads !== 0) fail(node, `a workgroup of ${machine.threads} is not whole groups of ${threads}`)
  const { combine, identity } = monoid(op, node.dtype)
  for (let group = 0; group < machine.threads; group += threads) {
    if (mask !== undefined && mask.subarray(group, group + threads).some((on) => on !== mask[group])) {
      fail(node, `only some threads of the group at ${group} are here`)
    }
    for (let lane = 0; lane < lanes; lane++) {
      let total = identity
      for (let t = group; t < group + threads; t++) total = combine(total, src[0]![t * lanes + lane]!)
      for (let t = group; t < group + threads; t++) out![t * lanes + lane] = total
    }
  }
}

const isOn = (mask: Uint8Array | undefined, thread: number): boolean => mask === undefined || mask[thread] !== 0

/** The trip count, which all running threads must agree on. */
const tripCount = (machine: Machine, { node, src }: Instruction): number => {
  const mask = machine.masks.at(-1)
  let count: number | undefined
  for (let t = 0; t < machine.threads; t++) {
    if (!isOn(mask, t)) continue
    if (count !== undefined && count !== src[0]![t]) {
      fail(node, `threads disagree on the trip count: ${count} and ${src[0]![t]}`)
    }
    count = src[0]![t]!
  }
  return count ?? 0
}

/** Begins one workgroup; `first` is the number of its first thread in the whole launch. */
export const startWorkgroup = (machine: Machine, first: number): void => {
  machine.first = first
  machine.next = 0
}

/** Runs a workgroup to its end, or to where it has to wait for others: so many instructions. */
export const runWorkgroup = (machine: Machine): number => {
  machine.stopped = undefined
  let count = 0
  while (machine.stopped === undefined && machine.next < machine.program.length) {
    const instruction = machine.program[machine.next++]!
    const run = instructions[instruction.node.op] ?? fail(instruction.node, "is not an instruction")
    run(machine, instruction)
    count++
  }
  return count
}

/** Writes a register under the execution mask. */
const write = (machine: Machine, register: Data, lanes: number, valueAt: (i: number) => number): void => {
  const mask = machine.masks.at(-1)
  for (let i = 0; i < register.length; i++) {
    if (isOn(mask, Math.floor(i / lanes))) register[i] = valueAt(i)
  }
}

const load = (machine: Machine, instruction: Instruction): void => {
  const { node } = instruction
  const { buffer, element } = accessOf(node)
  const index = instruction.index!
  const gate = maskedGate(machine, instruction.gate)
  const { lanes } = node.dtype
  machine.memory.load(element, instruction.out!, index, gate, lanes)
  const tracked = machine.races.get(buffer)
  if (tracked === undefined || machine.awaited.has(node)) return
  const own = machine.ownWrites.get(tracked)
  trackLoad(tracked, buffer.op === "LOCAL", element, index, gate, { lanes, first: machine.first, own })
}

const store = (machine: Machine, instruction: Instruction): void => {
  const { first, memory, races } = machine
  const { buffer, element, value: { dtype: { lanes } } } = storeOf(instruction.node)
  const index = instruction.index!
  const value = instruction.src[1]!
  const gate = maskedGate(machine, instruction.gate)
  const tracked = races.get(buffer)
  memory.check(element, index, gate, lanes)
  if (isAccumulating(instruction.node)) {
    memory.accumulate(element, { value, index, gate, lanes, threads: undefined })
    return index.forEach((at, t) => {
      if (gate !== undefined && gate[t] === 0) return
      const thread = isCoherent(buffer) ? atomics : first + t
      for (let i = at; i < at + lanes; i++) {
        tracked?.read(i, thread)
        tracked?.write(i, thread, false)
      }
    })
  }
  if (tracked === undefined) return memory.store(element, value, index, gate, lanes)
  const written = { lanes, first, buffer: memory.bufferOf(element), value, own: machine.ownWrites.get(tracked) }
  trackStore(tracked, buffer.op === "LOCAL", index, gate, written)
}

/** Elementwise arithmetic in all threads: the values of masked ones are never used. */
const compute = (machine: Machine, instruction: Instruction): void => {
  const { node, out, src } = instruction
  const from = node.src.at(-1)!.dtype
  zip(node.op, from, node.dtype, out!, { outer: 1, middle: 1, inner: out!.length }, src.map((s) => dense(s!)))
  if (node.dtype.scalar === "index") checkIndex(machine, instruction)
}

/** All threads of the workgroup are here, and see what each of them has written. */
const meet = (machine: Machine, node: UOp): void => {
  if (machine.masks.at(-1)?.includes(0) === true) fail(node, "some threads do not get here")
  for (const local of machine.locals) machine.races.get(local)?.barrier()
  for (const own of machine.ownWrites.values()) own.barrier()
}

const nothing = (): void => {}

/** The semantics of each operation. Operations without code have their values before the first instruction runs. */
const instructions: Partial<Record<Op, (machine: Machine, instruction: Instruction) => void>> = {
  ...Object.fromEntries([...elementwise].map((op) => [op, compute])),
  CONST: nothing,
  VAR: nothing,
  SPECIAL: nothing,
  PARAM: nothing,
  LOCAL: nothing,
  INDEX: nothing,
  REG: (machine, { node, out, src: [initial] }) => write(machine, out!, node.dtype.lanes, (i) => initial![i]!),
  ACCUMULATE: (machine, { node, src: [register, value] }) => {
    const { dtype } = node.src[0]!
    const { combine } = monoid(argOf(node, "ACCUMULATE").op, dtype)
    write(machine, register!, dtype.lanes, (i) => combine(register![i]!, value![i]!))
  },
  RANGE: (machine, instruction) => {
    const count = tripCount(machine, instruction)
    machine.iteration.set(instruction.node, 0)
    instruction.out!.fill(0)
    if (count <= 0) machine.next = instruction.target + 1
  },
  END: (machine, { target }) => {
    const range = machine.program[target]!
    const next = machine.iteration.get(range.node)! + 1
    machine.iteration.set(range.node, next)
    if (next >= tripCount(machine, range)) return
    range.out!.fill(next)
    machine.next = target + 1
  },
  IF: (machine, { src: [condition], target }) => {
    const mask = machine.masks.at(-1)
    const inner = new Uint8Array(machine.threads).map((_, t) => isOn(mask, t) && condition![t] !== 0 ? 1 : 0)
    machine.masks.push(inner)
    if (!inner.includes(1)) machine.next = target // the ENDIF, which takes the mask away
  },
  ENDIF: (machine) => void machine.masks.pop(),
  BARRIER: (machine, { node }) => {
    meet(machine, node)
  },
  GRID_BARRIER: (machine, { node }) => {
    meet(machine, node)
    // who waits where others pass does so to leave them alone, and for no value
    if (argOf(node, "GRID_BARRIER").passes === undefined) machine.stopped = "barrier"
  },
  LOAD: load,
  AWAIT: (machine, { gate, index, node, out }) => {
    // what its load has not found may be there since
    const open = maskedGate(machine, gate)
    machine.memory.load(accessOf(node.src[0]!).element, out!, index!, open, 1)
    if (!out!.some((word, t) => open?.[t] !== 0 && word === 0)) return
    machine.stopped = "word"
    machine.next--
  },
  STORE: store,
  FRAGMENT: (_, { out }) => void out!.fill(0),
  FRAGMENT_LOAD: Fragments.load,
  FRAGMENT_MULACC: (_, { src: [sum, left, right] }) => Fragments.multiply(sum!, left!, right!),
  FRAGMENT_STORE: Fragments.store,
  SUBGROUP_REDUCE: subgroupReduce,
  STACK: ({ threads }, { out, src }) =>
    src.forEach((s, lane) => {
      for (let t = 0; t < threads; t++) out![t * src.length + lane] = s![t]!
    }),
  LANE: ({ threads }, { node, out, src: [vector] }) => {
    const { lanes } = node.src[0]!.dtype
    const lane = argOf(node, "LANE")
    for (let t = 0; t < threads; t++) out![t] = vector![t * lanes + lane]!
  }
}
