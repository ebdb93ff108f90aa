import * as DType from "@tg/core-uop/DType"
import { elementwise as elementwiseOps, type Op } from "@tg/core-uop/Op"
import { accessOf } from "@tg/core-uop/View"
import { argOf, groupArg, specialName, type UOp, varArg } from "@tg/core-uop/UOp"
import * as Access from "./access.ts"
import * as Fragments from "./fragments.ts"
import { combine, elementwise, inputs as elementwiseInputs, operands as operandsOf } from "./elementwise.ts"
import type { Helper } from "./helpers.ts"
import { literal } from "./literal.ts"
import * as Awaiting from "./awaiting.ts"
import { behindStores } from "./barriers.ts"
import * as Meeting from "./meeting.ts"
import { widths } from "./memory.ts"
import { subgroupReductions } from "./subgroups.ts"
import { atom, isName, laneOf, Refusal, type Text, typeName } from "./text.ts"
import * as Usage from "./usage.ts"
import { type Options, Writer } from "./writer.ts"

/** The statements of `main`, and the declarations that they need. */
export interface Body {
  readonly lines: ReadonlyArray<string>
  readonly helpers: ReadonlySet<Helper>
  readonly builtins: ReadonlySet<string>
  /** Workgroup variables: name and type. */
  readonly locals: ReadonlyArray<readonly [string, string]>
  /** Lanes of the declared element of each PARAM. */
  readonly widths: ReadonlyMap<UOp, DType.Lanes>
}

/** Renders the instructions of a linear kernel. Throws `Refusal` for what WGSL cannot express. */
export const body = (linear: UOp, options: Options): Body => {
  const writer = new Writer(options, widths(linear, options.matrixUnits === "emulated"))
  const arrivals = Meeting.arrivals(linear)
  const inFlight = Meeting.inFlight(linear, arrivals)
  const usage = Usage.of(linear, (node) => inFlight.get(node) ?? inputs(node, writer))
  writer.isPersistent = arrivals.size > 0
  writer.awaits = Meeting.awaits(linear)
  const reductions = sideBySide(linear, usage)
  const awaited = Awaiting.rows(linear, usage)
  const ordering = behindStores(linear)
  const lastArrival = Math.max(...arrivals.keys())
  writer.lines.push(...Meeting.enter(linear))
  linear.src.forEach((node, place) => {
    const barrier = arrivals.get(place)
    if (barrier !== undefined) Meeting.arrive(linear, barrier).forEach((line) => writer.line(line))
    writer.isBeforeBarrier = place < lastArrival
    writer.place(node, () => {
      if (!usage.isLive(place)) return
      if (node.op === "AWAIT") return Awaiting.write(writer, awaited.get(place) ?? [])
      if (node.op !== "SUBGROUP_REDUCE") {
        return instruction({ linear, writer, inFlight, ordering, isInlinable: usage.isInlinable(place) }, node)
      }
      const group = reductions.get(place)
      if (group !== undefined) subgroupReductions(writer, group).forEach((text, i) => writer.set(group[i]!, text))
    })
  })
  writer.lines.push(...Meeting.leave(linear))
  return writer
}

/** The reductions over subgroups that follow each other, of one operation over as many threads: each group by the place of its first one. */
const sideBySide = (linear: UOp, usage: Usage.Usage): ReadonlyMap<number, ReadonlyArray<UOp>> => {
  const groups = new Map<number, Array<UOp>>()
  let open: Array<UOp> = []
  linear.src.forEach((node, place) => {
    if (node.op !== "SUBGROUP_REDUCE") {
      open = []
      return
    }
    if (!usage.isLive(place)) return
    const [first] = open
    const isSame = first !== undefined && first.dtype === node.dtype && groupArg(first).op === groupArg(node).op &&
      groupArg(first).threads === groupArg(node).threads && !open.includes(node.src[0]!) && !open.includes(node)
    if (isSame) open.push(node)
    else groups.set(place, open = [node])
  })
  return groups
}

/** Longer texts get a name, for readable lines. */
const inlineColumns = 64

const letters = "xyzw"
const readsRegister = (node: UOp): boolean => node.src.some((s) => s.op === "REG")

/** The operands of an instruction, as often as its text contains them. */
const inputs = (node: UOp, { options, widths }: Writer): ReadonlyArray<UOp> => {
  switch (node.op) {
    case "LOAD":
    case "STORE":
      return Access.inputs(node, widths)
    case "FRAGMENT_LOAD":
      return [accessOf(node).at]
    case "FRAGMENT_STORE":
      return [accessOf(node).at, node.src[1]!]
    case "INDEX":
      return readsRegister(node) ? node.src.slice(1) : []
    case "AWAIT":
      return [node.src[0]!, ...Access.inputs(node.src[0]!, widths)]
    case "SPECIAL":
    case "GRID_BARRIER":
    case "END":
    case "ENDIF":
      return []
    case "RANGE":
      return node.src[0]!.op === "CONST" ? [] : [node.src[0]!]
    case "SUBGROUP_REDUCE":
      return [node.src[0]!, node.src[0]!]
    default:
      return elementwiseOps.has(node.op) ? elementwiseInputs(node, options.halfSubnormals) : node.src
  }
}

/** The context of writing an instruction. */
interface Place {
  readonly linear: UOp
  readonly writer: Writer
  /** Loads that are waited for at a grid barrier. */
  readonly inFlight: ReadonlyMap<UOp, ReadonlyArray<UOp>>
  /** Barriers that order memory outside of the workgroup, too. */
  readonly ordering: ReadonlySet<UOp>
  /** Whether its text may stand in that of its user. */
  readonly isInlinable: boolean
}

const instruction = (place: Place, node: UOp): void => {
  const write = instructions[node.op] ?? (elementwiseOps.has(node.op) ? operation : undefined)
  if (write === undefined) throw new Refusal(`${node.op} is not an instruction`)
  write(place, node)
}

/** Registers and memory change, so values that are read from them are bound to a name at that point. */
const keep = ({ isInlinable, writer }: Place, node: UOp, value: Text): void => {
  const name = node.op === "LOAD" ? "x" : "v"
  const isFree = node.op !== "LOAD" && node.op !== "SUBGROUP_REDUCE" && !readsRegister(node)
  const isNamed = node.op === "LOAD" && isName(value)
  const isTrivial = isNamed || isFree && (value.constant || node.op === "LANE" || isName(value))
  const isShort = isFree && isInlinable && value.code.length <= inlineColumns
  writer.set(node, isTrivial || isShort ? value : writer.bind(name, value))
}

/** An elementwise operation. One operand is made a `let` if all are constants: WGSL rejects overflow in constant expressions. */
const operation = (place: Place, node: UOp): void => {
  const { writer } = place
  const { halfRounding, halfSubnormals } = writer.options
  const nodes = operandsOf(node, halfSubnormals)
  const found = nodes.map((n) => writer.text(n))
  if (found.every((t) => t.constant)) {
    const name = writer.fresh("c")
    writer.line(`let ${name}: ${typeName(nodes[0]!.dtype)} = ${found[0]!.code};`)
    found[0] = atom(name)
  }
  keep(place, node, elementwise(node, found, { halfRounding, halfSubnormals, use: writer.use }))
}

/** Writers of the operations that are not elementwise. */
const instructions: Partial<Record<Op, (place: Place, node: UOp) => void>> = {
  CONST: ({ writer }, node) => writer.set(node, literal(node, writer.use)),
  VAR: ({ writer }, node) => {
    const i = writer.options.vars.indexOf(varArg(node).name)
    writer.set(node, atom(`vars[${i >> 2}].${letters[i & 3]}`))
  },
  PARAM: () => {},
  LOCAL: ({ writer }, node) => {
    const width = writer.widths.get(node) ?? 1
    const element = typeName(DType.withLanes(node.dtype, width))
    const length = Math.ceil(argOf(node, "LOCAL").length / width)
    writer.locals.push([Access.bufferName(node), `array<${element}, ${length}>`])
  },
  SPECIAL: ({ writer }, node) => {
    const name = specialName(node)
    const builtin = name.startsWith("gidx") ? "workgroup_id" : "local_invocation_id"
    writer.builtins.add(builtin)
    writer.line(`let ${name} = i32(${builtin}.${letters[Number(name.slice(-1))]});`)
    writer.set(node, atom(name))
  },
  REG: ({ writer }, node) => {
    const name = writer.fresh("acc")
    writer.line(`var ${name}: ${typeName(node.dtype)} = ${writer.text(node.src[0]!).code};`)
    writer.set(node, atom(name))
  },
  ACCUMULATE: ({ writer }, node) => {
    const [register, value] = node.src.map((s) => writer.text(s)) as [Text, Text]
    const { op } = argOf(node, "ACCUMULATE")
    writer.line(`${register.code} = ${combine(op, node.src[0]!.dtype, register, value).code};`)
  },
  RANGE: ({ writer }, node) => writer.openLoop(node),
  IF: ({ writer }, node) => writer.openBranch(node),
  END: ({ writer }, node) => writer.close(node),
  ENDIF: ({ writer }, node) => writer.close(node),
  BARRIER: ({ ordering, writer }, node) => {
    if (ordering.has(node)) writer.line("storageBarrier();")
    writer.line("workgroupBarrier();")
  },
  GRID_BARRIER: ({ inFlight, linear, writer }, node) => Meeting.wait(writer, linear, node, inFlight.get(node)),
  INDEX: ({ writer }, node) => {
    if (!readsRegister(node)) return
    const values = node.src.slice(1).map((s) => s.op === "REG" ? writer.bind("v", writer.text(s)) : writer.text(s))
    writer.snapshots.set(node, values)
  },
  FRAGMENT: ({ writer }, node) => Fragments.define(writer, node),
  FRAGMENT_LOAD: ({ writer }, node) => Fragments.load(writer, node),
  FRAGMENT_MULACC: ({ writer }, node) => Fragments.multiply(writer, node),
  FRAGMENT_STORE: ({ writer }, node) => Fragments.store(writer, node),
  LOAD: (place, node) => keep(place, node, Access.load(place.writer, node)),
  STORE: ({ writer }, node) => Access.store(writer, node),
  STACK: (place, node) => {
    const parts = node.src.map((s) => place.writer.text(s))
    const same = node.src.every((s) => s === node.src[0])
    keep(place, node, {
      code: `${typeName(node.dtype)}(${same ? parts[0]!.code : parts.map((p) => p.code).join(", ")})`,
      atom: true,
      constant: parts.every((p) => p.constant)
    })
  },
  LANE: (place, node) => {
    const x = place.writer.text(node.src[0]!)
    const code = laneOf(x, node.src[0]!.dtype.lanes, argOf(node, "LANE"))
    keep(place, node, { code, atom: true, constant: x.constant })
  }
}
