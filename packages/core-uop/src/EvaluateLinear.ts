import { fail, type Instruction, type Machine, runWorkgroup, startWorkgroup } from "./EvaluateInstructions.ts"
import { type Arguments, Memory, nameOf } from "./EvaluateMemory.ts"
import { allocate, type Data, evaluateScalar, variable, type Vars } from "./EvaluateOps.ts"
import { OwnWrites, Races } from "./EvaluateRaces.ts"
import { side } from "./MatrixTile.ts"
import { elementwise, type Op } from "./Op.ts"
import * as Print from "./Print.ts"
import { signature } from "./Program.ts"
import { isCoherent, specialName, type UOp } from "./UOp.ts"
import { accessOf } from "./View.ts"

export interface Options {
  /** Floats are not rounded to 32 bits. */
  readonly float64?: boolean
  /** Fail on accesses to one element by two threads that nothing orders, and on reading unwritten LOCAL memory (default true). */
  readonly checkRaces?: boolean
  /** Decides the order of workgroups between barriers across the grid (default 1). */
  readonly seed?: number
}

const specialOf = (node: UOp): { readonly name: string; readonly axis: number } => {
  const name = specialName(node)
  return { name, axis: Number(name.slice(-1)) }
}

/** These have no code: literals and names mean the same everywhere, and an address is formed where it is used. */
const isPlaceless = (node: UOp): boolean =>
  node.op === "CONST" || node.op === "VAR" || node.op === "SPECIAL" || node.op === "PARAM" || node.op === "LOCAL" ||
  node.op === "INDEX"

/** Lexical scope: a value is visible in the loop or branch that defines it, and inside of that. */
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
  node.op === "RANGE" || node.op === "LOAD" || node.op === "AWAIT" || node.op === "SUBGROUP_REDUCE" ||
  node.op === "STACK" ||
  node.op === "LANE" || node.op === "FRAGMENT" || node.op === "FRAGMENT_LOAD"

const accesses: ReadonlySet<Op> = new Set<Op>(["LOAD", "STORE", "FRAGMENT_LOAD", "FRAGMENT_STORE"])

const assemble = (linear: UOp, threads: number, float64: boolean): ReadonlyArray<Instruction> => {
  const values = new Map<UOp, Data>()
  const program = linear.src.map((node): Instruction => {
    const size = node.is("FRAGMENT") || node.is("FRAGMENT_LOAD")
      ? threads / node.arg.threads * side ** 2
      : threads * node.dtype.lanes
    const out = hasValue(node) ? allocate(node.dtype, size, float64) : undefined
    if (out !== undefined) values.set(node, out)
    // A node may stand in several places (a LOAD repeated after a BARRIER); a user means the latest one.
    const address = accesses.has(node.op) ? node.src[0]!.src : node.op === "AWAIT" ? node.src[0]!.src[0]!.src : []
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
  const [columns, rows, layers] = [width!, height!, depth!]
  const place = (group: number): ReadonlyArray<number> => [
    group % columns,
    Math.floor(group / columns) % rows,
    Math.floor(group / (columns * rows))
  ]
  const given: Launched = { linear, args, vars, options, threads, workgroup }
  const count = columns * rows * layers
  if (linear.src.some(({ op }) => op === "GRID_BARRIER")) return together(given, count, place)
  const machine = machineOf(given)
  for (let group = 0; group < count; group++) {
    enter(machine, group, place(group))
    runWorkgroup(machine)
  }
}

/** A launch that is to be evaluated. */
interface Launched {
  readonly linear: UOp
  readonly args: Arguments
  readonly vars: Vars
  readonly options: Options
  readonly threads: number
  readonly workgroup: ReadonlyArray<number>
}

/** A machine for workgroups of the launch. Machines that run at once share the race trackers of their arguments. */
const machineOf = (
  { args, linear, options, threads, vars, workgroup }: Launched,
  shared: ReadonlyMap<string, Races> = new Map()
): Machine => {
  const program = assemble(linear, threads, options.float64 === true)
  const memory = new Memory(linear.src, args, {})
  const races = options.checkRaces === false ? new Map<UOp, Races>() : trackers(linear, memory, shared)
  fillConstants(program, workgroup, vars)
  return {
    threads,
    program,
    memory,
    races,
    locals: linear.src.filter((n) => n.op === "LOCAL"),
    ownWrites: ownWritesOf(linear, races),
    masks: [],
    iteration: new Map(),
    next: 0,
    first: 0,
    awaited: passes(linear) ? new Set(linear.src.flatMap((n) => n.op === "AWAIT" ? n.src : [])) : new Set(),
    stopped: undefined
  }
}

/** Whether there is a GRID_BARRIER that workgroups pass. */
const passes = (linear: UOp): boolean => linear.src.some((n) => n.is("GRID_BARRIER") && n.arg.passes !== undefined)

/** Begins a workgroup at its place in the grid, with unwritten workgroup memory. */
const enter = (machine: Machine, group: number, position: ReadonlyArray<number>): void => {
  for (const { node, out } of machine.program) {
    if (node.op === "SPECIAL" && specialOf(node).name.startsWith("gidx")) out!.fill(position[specialOf(node).axis]!)
  }
  for (const local of machine.locals) {
    machine.memory.buffer(local).fill(0)
    machine.races.get(local)?.restart()
  }
  startWorkgroup(machine, group * machine.threads)
}

/**
 * A launch with barriers across the grid: all workgroups run to the next GRID_BARRIER that none passes, in a random order, before any goes on. A
 * barrier makes writes to coherent buffers visible to all; a workgroup may never read what another one wrote to a plain buffer. Who awaits a word that is not there
 * goes on behind others.
 */
const together = (given: Launched, count: number, place: (group: number) => ReadonlyArray<number>): void => {
  const { linear, options: { checkRaces = true, seed = 1 } } = given
  const first = machineOf(given)
  const shared = new Map(
    [...first.races].flatMap(([node, races]) => node.op === "PARAM" ? [[nameOf(node), races]] : [])
  )
  const machines = Array.from({ length: count }, (_, group) => group === 0 ? first : machineOf(given, shared))
  machines.forEach((machine, group) => enter(machine, group, place(group)))
  const coherent = new Set([...first.races].flatMap(([node, races]) => isCoherent(node) ? [races] : []))
  for (let phase = 0; machines.some(({ next }) => next < linear.src.length); phase++) {
    const order = shuffled(count, seed + phase)
    for (const group of order) runWorkgroup(machines[group]!)
    runStarved(order.map((group) => machines[group]!))
    const waiting = machines.filter(({ stopped }) => stopped === "barrier").length
    if (waiting !== 0 && waiting !== count) fail(linear, `${waiting} of ${count} workgroups wait for all`)
    if (checkRaces) { for (const races of coherent) races.barrier() }
  }
}

/** Runs workgroups that await words, as long as one of them gets on. */
const runStarved = (machines: ReadonlyArray<Machine>): void => {
  const starvedOf = (all: ReadonlyArray<Machine>): ReadonlyArray<Machine> =>
    all.filter(({ stopped }) => stopped === "word")
  for (let starved = starvedOf(machines); starved.length > 0; starved = starvedOf(starved)) {
    const [{ next, program }] = starved as [Machine]
    // each of them has looked at its words, and no more
    if (starved.map(runWorkgroup).every((count) => count === 1)) {
      fail(program[next]!.node, "waits for a word that nobody writes")
    }
  }
}

/** A permutation of the numbers below `count`: Fisher-Yates with the generator of "Numerical Recipes", from the seed. */
const shuffled = (count: number, seed: number): ReadonlyArray<number> => {
  const order = Array.from({ length: count }, (_, i) => i)
  let state = seed >>> 0
  for (let i = count - 1; i > 0; i--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    const j = state % (i + 1)
    const [a, b] = [order[i]!, order[j]!]
    order[i] = b
    order[j] = a
  }
  return order
}

/** Race trackers of the buffers that are written. Buffers of one name share one. */
const trackers = (
  linear: UOp,
  memory: Memory,
  known: ReadonlyMap<string, Races>
): ReadonlyMap<UOp, Races> => {
  const races = new Map<UOp, Races>()
  const shared = new Map(known)
  const stored = new Set(
    linear.src.filter((n) => n.op === "STORE" || n.op === "FRAGMENT_STORE").map((n) => nameOf(accessOf(n).buffer))
  )
  for (const buffer of linear.src) {
    if ((buffer.op !== "PARAM" && buffer.op !== "LOCAL") || !stored.has(nameOf(buffer))) continue
    const name = nameOf(buffer)
    const tracker = shared.get(name) ?? new Races(name, memory.buffer(buffer).length)
    shared.set(name, tracker)
    races.set(buffer, tracker)
  }
  return races
}

/** Of plain arguments that are written and read. */
const ownWritesOf = (linear: UOp, races: ReadonlyMap<UOp, Races>): ReadonlyMap<Races, OwnWrites> =>
  new Map(
    linear.src.filter((node) => node.op === "LOAD").flatMap((load) => {
      const { buffer } = accessOf(load)
      const tracked = races.get(buffer)
      const isPlain = buffer.op === "PARAM" && !isCoherent(buffer)
      return tracked === undefined || !isPlain ? [] : [[tracked, new OwnWrites()] as const]
    })
  )

/** Fills the values that are the same in every workgroup: literals, variables, thread indices. */
const fillConstants = (program: ReadonlyArray<Instruction>, workgroup: ReadonlyArray<number>, vars: Vars): void => {
  for (const { node, out } of program) {
    if (node.op === "CONST") out!.fill(Number(node.arg))
    if (node.op === "VAR") out!.fill(variable(node, vars))
    if (node.op === "SPECIAL" && specialOf(node).name.startsWith("lidx")) {
      const { axis } = specialOf(node)
      const below = workgroup.slice(0, axis).reduce((n, d) => n * d, 1)
      for (let t = 0; t < out!.length; t++) out![t] = Math.floor(t / below) % workgroup[axis]!
    }
  }
}
