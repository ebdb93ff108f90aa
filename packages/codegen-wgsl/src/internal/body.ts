import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import { elementwise as elementwiseOps, type Op } from "@tg/core-uop/Op"
import { groupArg, rangeArg, type UOp, varArg } from "@tg/core-uop/UOp"
import { combine, elementwise, inputs as elementwiseInputs, operands as operandsOf } from "./elementwise.ts"
import type { Helper } from "./helpers.ts"
import { literal } from "./literal.ts"
import { type Address, divide, leaves, widths } from "./memory.ts"
import { atom, compound, laneOf, operand, Refusal, type Text, typeName } from "./text.ts"
import * as Usage from "./usage.ts"

export interface Options {
  readonly subgroupSize: number | undefined
  readonly halfSubnormals: boolean
  /** Names of the uniform integers, in their order. */
  readonly vars: ReadonlyArray<string>
}

/** The statements of `main`, and what they need around them. */
export interface Body {
  readonly lines: ReadonlyArray<string>
  readonly helpers: ReadonlySet<Helper>
  readonly builtins: ReadonlySet<string>
  /** Workgroup variables: name and type. */
  readonly locals: ReadonlyArray<readonly [string, string]>
  /** Lanes of the declared element of each PARAM. */
  readonly widths: ReadonlyMap<UOp, DType.Lanes>
}

/** Longer texts get a name, so that lines stay readable. */
const inlineColumns = 64

const letters = "xyzw"
const readsRegister = (node: UOp): boolean => node.src.some((s) => s.op === "REG")
const bufferName = (buffer: UOp): string =>
  buffer.op === "PARAM" ? `data${(buffer.arg as { slot: number }).slot}` : `local${(buffer.arg as { id: number }).id}`

/** Elements that follow each other in a buffer. */
const neighbours = (name: string, at: Text, count: number): ReadonlyArray<string> =>
  Array.from({ length: count }, (_, i) => `${name}[${i === 0 ? at.code : `${operand(at)} + ${i}`}]`)

/** One access: the buffer's element width, the lanes wanted, and the index in units of elements if its form allows. */
interface Access {
  readonly index: UOp
  readonly lanes: number
  readonly width: number
  readonly address: Address | undefined
}

/** Renders the instructions of a linear kernel. Throws `Refusal` for what WGSL cannot express. */
export const body = (linear: UOp, options: Options): Body => {
  const elementWidths = widths(linear)
  const helpers = new Set<Helper>()
  const builtins = new Set<string>()
  const locals: Array<readonly [string, string]> = []
  const lines: Array<string> = []
  const open: Array<UOp> = []
  const texts = new Map<UOp, Text>()
  /** The RANGE or IF in whose body a value stands; none at the top. */
  const blocks = new Map<UOp, UOp>()
  /** Number of the instruction that is being rendered. */
  let place = 0
  /** Index and gate of an INDEX that names registers: their values at that place. */
  const snapshots = new Map<UOp, ReadonlyArray<Text>>()
  const counters = new Map<string, number>()
  const context = { halfSubnormals: options.halfSubnormals, use: (helper: Helper) => void helpers.add(helper) }

  const accessOf = (node: UOp): Access => {
    const index = node.src[0]!
    const lanes = node.op === "LOAD" ? node.dtype.lanes : node.src[1]!.dtype.lanes
    const width = elementWidths.get(index.src[0]!)!
    return { index, lanes, width, address: lanes < width ? undefined : divide(index.src[1]!, width) }
  }

  const accessInputs = (node: UOp): ReadonlyArray<UOp> => {
    const { address, index, lanes, width } = accessOf(node)
    const used = address === undefined ? [index.src[1]!] : leaves(address)
    const repeated = lanes === width ? used : [...used, ...used]
    const gate = index.src[2] === undefined ? [] : [index.src[2]]
    return [index, index.src[0]!, ...repeated, ...gate]
  }

  const inputs = (node: UOp): ReadonlyArray<UOp> => {
    switch (node.op) {
      case "LOAD":
        return accessInputs(node)
      case "STORE": {
        const { lanes, width } = accessOf(node)
        const value = node.src[1]!
        return lanes === width ? [...accessInputs(node), value] : [...accessInputs(node), value, value]
      }
      case "INDEX":
        return readsRegister(node) ? node.src.slice(1) : []
      case "SPECIAL":
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

  const usage = Usage.of(linear, inputs)

  const line = (text: string): void => void lines.push(`${"  ".repeat(open.length + 1)}${text}`)
  const fresh = (prefix: string): string => {
    const n = counters.get(prefix) ?? 0
    counters.set(prefix, n + 1)
    return `${prefix}${n}`
  }
  const bind = (prefix: string, text: Text): Text => {
    const name = fresh(prefix)
    line(`let ${name} = ${text.code};`)
    return atom(name)
  }

  const text = (node: UOp): Text => {
    const found = texts.get(node)
    if (found === undefined) throw new Refusal(`${node.op} is used but does not stand before its use`)
    const block = node.op === "RANGE" ? node : blocks.get(node)
    if (block !== undefined && !open.includes(block)) {
      throw new Refusal(`${node.op} stands inside a ${block.op} and is used after its end`)
    }
    return found
  }

  /** Operands of which at least one is no constant, so that WGSL does not evaluate the operation itself. */
  const runtimeOperands = (nodes: ReadonlyArray<UOp>): ReadonlyArray<Text> => {
    const found = nodes.map(text)
    if (!found.every((t) => t.constant)) return found
    const name = fresh("c")
    line(`let ${name}: ${typeName(nodes[0]!.dtype)} = ${found[0]!.code};`)
    return [atom(name), ...found.slice(1)]
  }

  const addressText = (address: Address): Text => {
    switch (address.kind) {
      case "constant":
        return atom(String(address.value))
      case "scaled":
        return address.factor === 1
          ? text(address.node)
          : compound(`${operand(text(address.node))} * ${address.factor}`)
      case "sum": {
        const [a, b] = address.parts.map(addressText) as [Text, Text]
        return b.code === "0" ? a : a.code === "0" ? b : compound(`${operand(a)} + ${operand(b)}`)
      }
    }
  }

  /** The places of an access, one per element that it touches. */
  const elements = ({ address, index, lanes, width }: Access): ReadonlyArray<string> => {
    const name = bufferName(index.src[0]!)
    if (address !== undefined && !snapshots.has(index)) return neighbours(name, addressText(address), lanes / width)
    const whole = snapshots.get(index)?.[0] ?? text(index.src[1]!)
    if (lanes < width) {
      const vector = `${name}[${operand(whole)} >> ${Math.log2(width)}u]`
      const first = whole.constant ? String(Number(whole.code) % width) : `${operand(whole)} & ${width - 1}`
      return Array.from({ length: lanes }, (_, i) => `${vector}[${i === 0 ? first : `(${first}) + ${i}`}]`)
    }
    const at = width === 1 ? whole : compound(`${operand(whole)} >> ${Math.log2(width)}u`)
    return neighbours(name, at, lanes / width)
  }

  const gateOf = (index: UOp): Text | undefined =>
    index.src[2] === undefined ? undefined : snapshots.get(index)?.[1] ?? text(index.src[2])

  const load = (node: UOp): Text => {
    const parts = elements(accessOf(node))
    const value = parts.length === 1 ? parts[0]! : `${typeName(node.dtype)}(${parts.join(", ")})`
    const gate = gateOf(node.src[0]!)
    // the read behind a false gate may be out of range: WebGPU keeps it inside the binding, and select drops it
    return gate === undefined ? atom(value) : atom(`select(${typeName(node.dtype)}(), ${value}, ${gate.code})`)
  }

  const store = (node: UOp): void => {
    const access = accessOf(node)
    const value = text(node.src[1]!)
    const statements = elements(access).map((target, i) => {
      if (access.lanes === access.width) return `${target} = ${value.code};`
      return `${target} = ${operand(value)}.${letters.slice(i * access.width, (i + 1) * access.width)};`
    })
    const gate = gateOf(node.src[0]!)
    if (gate === undefined) return statements.forEach(line)
    if (statements.length === 1) return line(`if (${gate.code}) { ${statements[0]} }`)
    line(`if (${gate.code}) {`)
    for (const statement of statements) line(`  ${statement}`)
    line("}")
  }

  const range = (node: UOp): void => {
    if (rangeArg(node).axis === "GLOBAL") throw new Refusal("a GLOBAL range is left; WGSL has a grid for it")
    const size = node.src[0]!
    const name = fresh("i")
    const largest = Math.max(0, Math.min(Bounds.of(size).max, 2 ** 31 - 1))
    const limit = size.op === "CONST" ? undefined : text(size)
    line(`for (var ${name} = 0; ${name} < ${largest}; ${name}++) {`)
    open.push(node)
    // Tint adds a counter to each loop without a constant bound, and a dynamic bound can stand inside
    if (limit !== undefined) line(`if (${name} >= ${operand(limit)}) { break; }`)
    texts.set(node, atom(name))
  }

  const close = (node: UOp): void => {
    if (open.pop() !== node.src[0]) throw new Refusal(`${node.op} closes what is not innermost`)
    line("}")
  }

  const accumulate = (node: UOp): void => {
    const [register, value] = node.src.map(text) as [Text, Text]
    const { op } = node.arg as unknown as { readonly op: Op }
    line(`${register.code} = ${combine(op, node.src[0]!.dtype, register, value).code};`)
  }

  const subgroupReduce = (node: UOp): Text => {
    const { op, threads } = groupArg(node)
    const size = options.subgroupSize
    if (size === undefined) throw new Refusal("SUBGROUP_REDUCE, but the device has no subgroups of one known size")
    if (threads > size || !Number.isInteger(Math.log2(threads))) {
      throw new Refusal(`SUBGROUP_REDUCE over ${threads} threads; subgroups have ${size}, and groups are powers of two`)
    }
    if (node.dtype.scalar === "bool") throw new Refusal("SUBGROUP_REDUCE of bools; cast to u32 first")
    helpers.add("subgroups")
    const value = text(node.src[0]!)
    if (threads === size) {
      const name = { ADD: "subgroupAdd", MUL: "subgroupMul", MAX: "subgroupMax", MIN: "subgroupMin" }[op]
      if (node.dtype !== DType.f32 || (op !== "MAX" && op !== "MIN")) return atom(`${name}(${value.code})`)
      helpers.add("ordered")
      const nan = op === "MAX" ? "-2147483647 - 1" : "2147483647"
      return atom(`from_ordered(${name}(ordered(${value.code}, ${nan})))`)
    }
    let total = value.constant ? bind("v", value) : value
    for (let step = 1; step < threads; step *= 2) {
      total = bind("v", combine(op, node.dtype, total, atom(`subgroupShuffleXor(${total.code}, ${step}u)`)))
    }
    return total
  }

  const special = (node: UOp): void => {
    const { name } = node.arg as { readonly name: string }
    const builtin = name.startsWith("gidx") ? "workgroup_id" : "local_invocation_id"
    builtins.add(builtin)
    line(`let ${name} = i32(${builtin}.${letters[Number(name.slice(-1))]});`)
    texts.set(node, atom(name))
  }

  const stack = (node: UOp): Text => {
    const parts = node.src.map(text)
    const same = node.src.every((s) => s === node.src[0])
    return {
      code: `${typeName(node.dtype)}(${same ? parts[0]!.code : parts.map((p) => p.code).join(", ")})`,
      atom: true,
      constant: parts.every((p) => p.constant)
    }
  }

  const lane = (node: UOp): Text => {
    const x = text(node.src[0]!)
    return { code: laneOf(x, node.src[0]!.dtype.lanes, node.arg as number), atom: true, constant: x.constant }
  }

  /** Registers change and memory changes, so values read from them get a name where they stand. */
  const keep = (node: UOp, value: Text): void => {
    const name = node.op === "LOAD" ? "x" : "v"
    const free = node.op !== "LOAD" && node.op !== "SUBGROUP_REDUCE" && !readsRegister(node)
    const trivial = free && (value.constant || node.op === "LANE" || /^\w+$/.test(value.code))
    const short = free && usage.isInlinable(place) && value.code.length <= inlineColumns
    texts.set(node, trivial || short ? value : bind(name, value))
  }

  const instruction = (node: UOp): void => {
    switch (node.op) {
      case "CONST":
        return void texts.set(node, literal(node, context.use))
      case "VAR": {
        const i = options.vars.indexOf(varArg(node).name)
        return void texts.set(node, atom(`vars[${i >> 2}].${letters[i & 3]}`))
      }
      case "PARAM":
        return
      case "LOCAL": {
        const width = elementWidths.get(node) ?? 1
        const { length } = node.arg as unknown as { readonly length: number }
        const element = typeName(DType.withLanes(node.dtype, width as DType.Lanes))
        return void locals.push([bufferName(node), `array<${element}, ${Math.ceil(length / width)}>`])
      }
      case "SPECIAL":
        return special(node)
      case "REG": {
        const name = fresh("acc")
        line(`var ${name}: ${typeName(node.dtype)} = ${text(node.src[0]!).code};`)
        return void texts.set(node, atom(name))
      }
      case "RANGE":
        return range(node)
      case "END":
      case "ENDIF":
        return close(node)
      case "IF":
        line(`if (${text(node.src[0]!).code}) {`)
        return void open.push(node)
      case "ACCUMULATE":
        return accumulate(node)
      case "INDEX": {
        if (!readsRegister(node)) return
        const values = node.src.slice(1).map((s) => s.op === "REG" ? bind("v", text(s)) : text(s))
        return void snapshots.set(node, values)
      }
      case "LOAD":
        return keep(node, load(node))
      case "STORE":
        return store(node)
      case "BARRIER":
        return line("workgroupBarrier();")
      case "SUBGROUP_REDUCE": {
        const value = subgroupReduce(node)
        return void texts.set(node, /^\w+$/.test(value.code) ? value : bind("v", value))
      }
      case "STACK":
        return keep(node, stack(node))
      case "LANE":
        return keep(node, lane(node))
      default: {
        if (!elementwiseOps.has(node.op)) throw new Refusal(`${node.op} is not an instruction`)
        const args = runtimeOperands(operandsOf(node, options.halfSubnormals))
        return keep(node, elementwise(node, args, context))
      }
    }
  }

  for (const node of linear.src) {
    const block = open[open.length - 1]
    if (usage.isLive(place)) instruction(node)
    if (block === undefined) blocks.delete(node)
    else blocks.set(node, block)
    place++
  }
  return { lines, helpers, builtins, locals, widths: elementWidths }
}
