import { dense, zip } from "./EvaluateArray.ts"
import { type Arguments, Memory, nameOf } from "./EvaluateMemory.ts"
import { allocate, type Data, evaluateScalar, monoid, variable, type Vars } from "./EvaluateOps.ts"
import { Races } from "./EvaluateRaces.ts"
import { elementwise } from "./Op.ts"
import * as Print from "./Print.ts"
import { signature } from "./Program.ts"
import { argOf, groupArg, specialName, type UOp } from "./UOp.ts"

export interface Options {
  /** Floats are not rounded to 32 bits. */
  readonly float64?: boolean
  /** Fail on accesses to one element by two threads that nothing orders, and on reading unwritten LOCAL memory (default true). */
  readonly checkRaces?: boolean
}

/** One instruction with the arrays it works on: a value for every thread of the workgroup, lanes innermost. */
interface Instruction {
  readonly node: UOp
  readonly out: Data | undefined
  readonly src: ReadonlyArray<Data | undefined>
  /** Of the address of a LOAD or STORE. */
  readonly index: Data | undefined
  readonly gate: Data | undefined
  /** Where a loop or branch that does not run continues; where END jumps back to. */
  target: number
}

interface Machine {
  readonly threads: number
  readonly program: ReadonlyArray<Instruction>
  readonly memory: Memory
  readonly races: ReadonlyMap<UOp, Races>
  readonly locals: ReadonlyArray<UOp>
  /** Which threads run, for each enclosing IF; empty means all. */
  readonly masks: Array<Uint8Array>
  readonly iteration: Map<UOp, number>
}

const fail = (node: UOp, problem: string): never => {
  throw new Error(`${Print.line(node)}: ${problem}`)
}

const specialOf = (node: UOp): { readonly name: string; readonly axis: number } => {
  const name = specialName(node)
  return { name, axis: Number(name.slice(-1)) }
}

/** These have no code: literals and names mean the same everywhere, and an address is formed where it is used. */
const isPlaceless = (node: UOp): boolean =>
  node.op === "CONST" || node.op === "VAR" || node.op === "SPECIAL" || node.op === "PARAM" || node.op === "LOCAL" ||
  node.op === "INDEX"

/** A value is visible in the loop or branch that defines it and inside of that, as a `let` is. */
const checkScopes = (linear: UOp): void => {
  const open: Array<UOp> = []
  const scope = new Map<UOp, UOp | undefined>()
  const check = (user: UOp, s: UOp): void => {
    if (!scope.has(s)) fail(user, `uses ${s.op} before its definition`)
    const home = scope.get(s)
    if (home !== undefined && !open.includes(home)) {
      fail(user, `uses ${Print.line(s)} outside the ${home.op} that defines it`)
    }
    if (s.op === "INDEX") { for (const inner of s.src) check(user, inner) }
  }
  for (const node of linear.src) {
    if (node.op === "END" || node.op === "ENDIF") {
      if (open.pop() !== node.src[0]) fail(node, "closes what is not innermost")
      continue
    }
    for (const s of node.src) check(node, s)
    if (node.op === "RANGE" || node.op === "IF") open.push(node)
    scope.set(node, isPlaceless(node) ? undefined : open[open.length - 1])
  }
  if (open.length > 0) fail(open[0]!, "is never closed")
}

const hasValue = (node: UOp): boolean =>
  elementwise.has(node.op) || node.op === "CONST" || node.op === "VAR" || node.op === "SPECIAL" || node.op === "REG" ||
  node.op === "RANGE" || node.op === "LOAD" || node.op === "SUBGROUP_REDUCE" || node.op === "STACK" ||
  node.op === "LANE"

const assemble = (linear: UOp, threads: number, float64: boolean): ReadonlyArray<Instruction> => {
  const values = new Map<UOp, Data>()
  const program = linear.src.map((node): Instruction => {
    const out = hasValue(node) ? allocate(node.dtype, threads * node.dtype.lanes, float64) : undefined
    if (out !== undefined) values.set(node, out)
    // A node may stand in several places (a LOAD repeated after a BARRIER); a user means the latest one.
    const address = node.op === "LOAD" || node.op === "STORE" ? node.src[0]!.src : []
    const [, index, gate] = address.map((s) => values.get(s))
    return { node, out, src: node.src.map((s) => values.get(s)), index, gate, target: 0 }
  })
  const open: Array<number> = []
  program.forEach((instruction, i) => {
    const { op } = instruction.node
    if (op === "RANGE" || op === "IF") open.push(i)
    if (op !== "END" && op !== "ENDIF") return
    instruction.target = open.pop()!
    program[instruction.target]!.target = i
  })
  return program
}

/** The gate of an access together with the branches around it. */
const maskedGate = (machine: Machine, gate: Data | undefined): Data | undefined => {
  const mask = machine.masks[machine.masks.length - 1]
  if (mask === undefined || gate === undefined) return mask ?? gate
  return mask.map((on, i) => on & gate[i]!)
}

/** Notes who has read what. */
const trackLoad = (races: Races, local: boolean, element: UOp, index: Data, gate: Data | undefined, at: {
  readonly lanes: number
  readonly first: number
}): void => {
  for (let t = 0; t < index.length; t++) {
    if (gate !== undefined && gate[t] === 0) continue
    for (let lane = 0; lane < at.lanes; lane++) {
      const i = index[t]! + lane
      if (local && !races.isWritten(i)) {
        fail(element, `thread ${t} reads element ${i} of workgroup memory that nobody wrote`)
      }
      races.read(i, at.first + t)
    }
  }
}

/** Writes the elements, thread by thread: each compares with what the one before has left. */
const trackStore = (races: Races, local: boolean, index: Data, gate: Data | undefined, at: {
  readonly lanes: number
  readonly first: number
  readonly buffer: Data
  readonly value: Data
}): void => {
  for (let t = 0; t < index.length; t++) {
    if (gate !== undefined && gate[t] === 0) continue
    for (let lane = 0; lane < at.lanes; lane++) {
      const i = index[t]! + lane
      const old = at.buffer[i]
      at.buffer[i] = at.value[t * at.lanes + lane]!
      races.write(i, at.first + t, !local && Object.is(old, at.buffer[i]))
    }
  }
}

const checkIndex = (machine: Machine, { node, out }: Instruction): void => {
  const mask = machine.masks[machine.masks.length - 1]
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
  const mask = machine.masks[machine.masks.length - 1]
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
  const mask = machine.masks[machine.masks.length - 1]
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

/** Runs one workgroup; `first` is the number of its first thread in the whole launch. */
const runWorkgroup = (machine: Machine, first: number): void => {
  const { masks, memory, program, races, threads } = machine
  let pc = 0
  while (pc < program.length) {
    const instruction = program[pc]!
    const { node, out, src } = instruction
    const mask = masks[masks.length - 1]
    pc++
    if (elementwise.has(node.op)) {
      const from = node.src[node.src.length - 1]!.dtype
      zip(node.op, from, node.dtype, out!, { outer: 1, middle: 1, inner: out!.length }, src.map((s) => dense(s!)))
      if (node.dtype.scalar === "index") checkIndex(machine, instruction)
      continue
    }
    switch (node.op) {
      case "CONST":
      case "VAR":
      case "SPECIAL":
      case "PARAM":
      case "LOCAL":
      case "INDEX":
        break
      case "REG":
      case "ACCUMULATE": {
        const register = node.op === "REG" ? out! : src[0]!
        const value = node.op === "REG" ? src[0]! : src[1]!
        const { lanes } = node.op === "REG" ? node.dtype : node.src[0]!.dtype
        const combine = node.op === "REG"
          ? (_: number, x: number) => x
          : monoid(argOf(node, "ACCUMULATE").op, node.src[0]!.dtype).combine
        for (let i = 0; i < register.length; i++) {
          if (isOn(mask, Math.floor(i / lanes))) register[i] = combine(register[i]!, value[i]!)
        }
        break
      }
      case "RANGE": {
        const count = tripCount(machine, instruction)
        machine.iteration.set(node, 0)
        out!.fill(0)
        if (count <= 0) pc = instruction.target + 1
        break
      }
      case "END": {
        const range = program[instruction.target]!
        const next = machine.iteration.get(range.node)! + 1
        machine.iteration.set(range.node, next)
        if (next >= tripCount(machine, range)) break
        range.out!.fill(next)
        pc = instruction.target + 1
        break
      }
      case "IF": {
        const condition = src[0]!
        const inner = new Uint8Array(threads).map((_, t) => isOn(mask, t) && condition[t] !== 0 ? 1 : 0)
        masks.push(inner)
        if (!inner.includes(1)) pc = instruction.target // the ENDIF, which takes the mask away
        break
      }
      case "ENDIF":
        masks.pop()
        break
      case "BARRIER":
        if (mask?.includes(0) === true) fail(node, "some threads do not get here")
        for (const local of machine.locals) races.get(local)?.barrier()
        break
      case "LOAD": {
        const element = node.src[0]!
        const index = instruction.index!
        const gate = maskedGate(machine, instruction.gate)
        const { lanes } = node.dtype
        memory.load(element, out!, index, gate, lanes)
        const tracked = races.get(element.src[0]!)
        if (tracked !== undefined) {
          trackLoad(tracked, element.src[0]!.op === "LOCAL", element, index, gate, { lanes, first })
        }
        break
      }
      case "STORE": {
        const element = node.src[0]!
        const index = instruction.index!
        const gate = maskedGate(machine, instruction.gate)
        const { lanes } = node.src[1]!.dtype
        const tracked = races.get(element.src[0]!)
        memory.check(element, index, gate, lanes)
        if (tracked !== undefined) {
          const buffer = memory.bufferOf(element)
          trackStore(tracked, element.src[0]!.op === "LOCAL", index, gate, { lanes, first, buffer, value: src[1]! })
        } else memory.store(element, src[1]!, index, gate, lanes)
        break
      }
      case "SUBGROUP_REDUCE":
        subgroupReduce(machine, instruction)
        break
      case "STACK":
        src.forEach((s, lane) => {
          for (let t = 0; t < threads; t++) out![t * src.length + lane] = s![t]!
        })
        break
      case "LANE": {
        const { lanes } = node.src[0]!.dtype
        for (let t = 0; t < threads; t++) out![t] = src[0]![t * lanes + Number(node.arg)]!
        break
      }
      default:
        fail(node, "is not an instruction")
    }
  }
}

/**
 * Executes a linear kernel: the workgroups of the grid in turn, and the threads of a workgroup in lock step, one
 * instruction after the other. Registers round after each step, as a machine does.
 *
 * Throws on what a device would do wrong silently: an access outside a buffer or not aligned to its lanes, a value used
 * outside the block that defines it, an index beyond 32 bits, a BARRIER or a loop that threads disagree about, and
 * (unless `checkRaces` is false) unordered accesses of two threads to one element.
 */
export const evaluateLinear = (linear: UOp, args: Arguments, vars: Vars = {}, options: Options = {}): void => {
  if (linear.op !== "LINEAR") fail(linear, "is not a linear kernel")
  checkScopes(linear)
  const { grid, workgroup } = signature(linear)
  const threads = workgroup[0] * workgroup[1] * workgroup[2]
  const [width, height, depth] = grid.map((size) => typeof size === "number" ? size : evaluateScalar(size, vars))
  const program = assemble(linear, threads, options.float64 === true)
  const memory = new Memory(linear.src, args, {})
  const races = new Map<UOp, Races>()
  const shared = new Map<string, Races>()
  const locals = linear.src.filter((n) => n.op === "LOCAL")
  if (options.checkRaces !== false) {
    const stored = new Set(linear.src.filter((n) => n.op === "STORE").map((n) => nameOf(n.src[0]!.src[0]!)))
    for (const buffer of linear.src) {
      if ((buffer.op !== "PARAM" && buffer.op !== "LOCAL") || !stored.has(nameOf(buffer))) continue
      const name = nameOf(buffer)
      const tracker = shared.get(name) ?? new Races(name, memory.buffer(buffer).length)
      shared.set(name, tracker)
      races.set(buffer, tracker)
    }
  }
  const machine: Machine = { threads, program, memory, races, locals, masks: [], iteration: new Map() }
  for (const { node, out } of program) {
    if (node.op === "CONST") out!.fill(Number(node.arg))
    if (node.op === "VAR") out!.fill(variable(node, vars))
    if (node.op === "SPECIAL" && specialOf(node).name.startsWith("lidx")) {
      const { axis } = specialOf(node)
      const below = workgroup.slice(0, axis).reduce((n, d) => n * d, 1)
      for (let t = 0; t < threads; t++) out![t] = Math.floor(t / below) % workgroup[axis]!
    }
  }
  for (let group = 0; group < width! * height! * depth!; group++) {
    const position = [group % width!, Math.floor(group / width!) % height!, Math.floor(group / (width! * height!))]
    for (const { node, out } of program) {
      if (node.op === "SPECIAL" && specialOf(node).name.startsWith("gidx")) out!.fill(position[specialOf(node).axis]!)
    }
    for (const local of locals) {
      memory.buffer(local).fill(0)
      races.get(local)?.restart()
    }
    runWorkgroup(machine, group * threads)
  }
}
