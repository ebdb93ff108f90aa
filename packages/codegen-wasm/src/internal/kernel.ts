import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import { elementwise as elementwiseOps, type Op } from "@tg/core-uop/Op"
import type { Program } from "@tg/core-uop/Program"
import { argOf, isAccumulating, slotOf, type UOp, varArg } from "@tg/core-uop/UOp"
import { additionOf } from "./additions.ts"
import { Address } from "./address.ts"
import { accumulatedDots, noPairSums, type PairSums, pairSumsOf, type Simd } from "./dot.ts"
import { type Body, combine, elementwise, type Helper, helpers } from "./elementwise.ts"
import type { Nest } from "./nest.ts"
import { isLeaf, type Item, type Placement } from "./placement.ts"
import {
  constantOf,
  isConstant,
  isPowerOfTwo,
  literal,
  prefix,
  shuffle,
  uniform,
  type ValueType,
  valueType,
  zero
} from "./value.ts"

/** The memory that kernels share with their device, and with its other threads if it is `shared`. */
export type Memory = "shared" | "own"
/** How a module gets the memory. */
export const memoryImport: Readonly<Record<Memory, string>> = {
  shared: `(import "env" "memory" (memory 1 65536 shared))`,
  own: `(import "env" "memory" (memory 1))`
}

/** Writes the body of `run`, statement by statement. */
class KernelWriter implements Body {
  readonly locals: Array<string> = []
  readonly helpers = new Set<Helper>()
  readonly lines: Array<string> = []
  /** The locals of vector literals. */
  readonly constants = new Map<string, string>()
  readonly simd: Simd
  readonly pairSums: PairSums
  readonly rareHalves: ReadonlySet<UOp>
  private readonly placement: Placement
  private readonly vars: ReadonlyArray<string>
  private readonly nest: ReadonlyArray<UOp>
  /** The local that holds a value, an address, a register or a loop's counter. */
  private readonly names = new Map<Item, string>()
  private indent = 2

  constructor(
    placement: Placement,
    vars: ReadonlyArray<string>,
    { nest, rareHalves, simd }: {
      readonly nest: ReadonlyArray<UOp>
      readonly rareHalves: ReadonlySet<UOp>
      readonly simd: Simd
    }
  ) {
    this.simd = simd
    this.rareHalves = rareHalves
    this.pairSums = simd === "pairs"
      ? pairSumsOf(placement.items.filter((item): item is UOp => !(item instanceof Address)))
      : noPairSums
    this.placement = placement
    this.vars = vars
    this.nest = nest
  }

  write(item: Item): void {
    const { inlined, live } = this.placement
    if (!live.has(item) || inlined.has(item)) return
    if (item instanceof Address) this.define(item)
    else if (!isLeaf(item) || item.op === "RANGE" || item.op === "REG") this.statement(item)
  }

  value(item: Item): string {
    if (!(item instanceof Address)) {
      if (isConstant(item)) return this.constant(item)
      if (item.op === "PARAM") return `(local.get $p${slotOf(item)})`
      if (item.op === "VAR") return `(local.get $v${this.vars.indexOf(varArg(item).name)})`
    }
    return this.placement.inlined.has(item) ? this.compute(item) : `(local.get ${this.names.get(item)!})`
  }

  twice(code: string, type: ValueType): readonly [string, string] {
    if (code.startsWith("(local.get ") || code.startsWith(`(${type}.const `)) return [code, code]
    const name = this.local("t", type)
    return [`(local.tee ${name} ${code})`, `(local.get ${name})`]
  }

  isInlined(node: UOp): boolean {
    return this.placement.inlined.has(node)
  }

  helper(name: Helper): string {
    this.helpers.add(name)
    return `$${name}`
  }

  private constant(node: UOp): string {
    return node.dtype.lanes === 4 ? this.literal(literal(node)) : literal(node)
  }

  /** Engines make a vector literal anew wherever it stands, with several instructions: it is kept in a local. */
  literal(code: string): string {
    if (/^\(v128.const \S+ 0 0 0 0\)$/.test(code)) return code
    const known = this.constants.get(code)
    if (known !== undefined) return `(local.get ${known})`
    const name = this.local("c", "v128")
    this.constants.set(code, name)
    return `(local.get ${name})`
  }

  private line(text: string): void {
    this.lines.push("  ".repeat(this.indent) + text)
  }

  private open(text: string): void {
    this.line(text)
    this.indent++
  }

  private close(text: string): void {
    this.indent--
    this.line(text)
  }

  private local(kind: string, type: ValueType): string {
    const name = `$${kind}${this.locals.length}`
    this.locals.push(`(local ${name} ${type})`)
    return name
  }

  private address({ base, constant, terms }: Address): string {
    const sum = terms.reduce((code, { node, scale }) => {
      const x = this.value(node)
      const step = Math.abs(scale)
      const operator = scale < 0 ? "sub" : "add"
      if (step === 1) return `(i32.${operator} ${code} ${x})`
      const scaled = isPowerOfTwo(step)
        ? `(i32.shl ${x} (i32.const ${Math.log2(step)}))`
        : `(i32.mul ${x} (i32.const ${step | 0}))`
      return `(i32.${operator} ${code} ${scaled})`
    }, this.value(base))
    return constant === 0 ? sum : `(i32.add ${sum} (i32.const ${constant | 0}))`
  }

  /** `instruction offset=n address` of a LOAD or STORE. */
  private memory(node: UOp, instruction: string): string {
    const { address, offset } = this.placement.access.get(node)!
    return `${instruction}${offset === 0 ? "" : ` offset=${offset}`} ${this.value(address)}`
  }

  private load(node: UOp): string {
    const { gate } = this.placement.access.get(node)!
    const type = valueType(node.dtype)
    const condition = gate === undefined ? undefined : this.value(gate)
    const code = `(${this.memory(node, `${type}.load`)})`
    return condition === undefined
      ? code
      : `(if (result ${type}) ${condition} (then ${code}) (else ${zero(node.dtype)}))`
  }

  private splat(node: UOp, scalar: UOp): string {
    if (scalar.op === "LANE" && this.isInlined(scalar) && scalar.dtype.scalar !== "bool") {
      const [first, second] = this.twice(this.value(scalar.src[0]!), "v128")
      const bytes = [0, 1, 2, 3].map((i) => 4 * Number(scalar.arg) + i).join(" ")
      return `(i8x16.shuffle ${Array(4).fill(bytes).join(" ")} ${first} ${second})`
    }
    return this.loadedSplat(scalar) ?? `(${prefix(node.dtype)}.splat ${this.laneOf(node, scalar)})`
  }

  /** A loaded word in all lanes, and what is cheap to do there: a scalar would have to cross from another register. */
  private loadedSplat(scalar: UOp): string | undefined {
    const load = this.loadOf(scalar)
    if (load !== undefined) return `(${this.memory(load, "v128.load32_splat")})`
    const [x, y] = scalar.src
    if (scalar.op !== "MUL" || DType.isFloat(scalar.dtype) || !this.isInlined(scalar)) return undefined
    const factor = constantOf(y!)
    const vector = isPowerOfTwo(factor) ? this.loadedSplat(x!) : undefined
    return vector === undefined ? undefined : `(i32x4.shl ${vector} (i32.const ${Math.log2(factor!)}))`
  }

  /** The LOAD whose word a scalar is, if its code stands here and it always happens. */
  private loadOf(scalar: UOp): UOp | undefined {
    const { access, inlined } = this.placement
    if (!inlined.has(scalar)) return undefined
    if (scalar.op === "BITCAST") return this.loadOf(scalar.src[0]!)
    return scalar.op === "LOAD" && access.get(scalar)!.gate === undefined ? scalar : undefined
  }

  /** Puts a scalar into one lane. */
  private replaceLane(vector: UOp, lane: number, code: string, scalar: UOp): string {
    const load = this.loadOf(scalar)
    if (load === undefined) {
      return `(${prefix(vector.dtype)}.replace_lane ${lane} ${code} ${this.laneOf(vector, scalar)})`
    }
    const { address, offset } = this.placement.access.get(load)!
    return `(v128.load32_lane${offset === 0 ? "" : ` offset=${offset}`} ${lane} ${this.value(address)} ${code})`
  }

  /** A scalar as the lane of a vector. */
  private laneOf(vector: UOp, scalar: UOp): string {
    return vector.dtype.scalar === "bool" ? `(i32.sub (i32.const 0) ${this.value(scalar)})` : this.value(scalar)
  }

  private stack(node: UOp): string {
    const scalar = uniform(node)
    if (scalar !== undefined) return this.splat(node, scalar)
    const from = shuffle(node)
    if (from !== undefined) {
      const [a, b] = from.vectors.map((v) => this.value(v))
      if (from.lanes.every((lane, i) => lane === i)) return a!
      const [first, second] = b === undefined ? this.twice(a!, "v128") : [a!, b]
      const bytes = from.lanes.flatMap((i) => [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3]).join(" ")
      return `(i8x16.shuffle ${bytes} ${first} ${second})`
    }
    const [first] = node.src
    return node.src.reduce(
      (code, s, i) => s === first ? code : this.replaceLane(node, i, code, s),
      this.splat(node, first!)
    )
  }

  private compute(item: Item): string {
    if (item instanceof Address) return this.address(item)
    const code = this.node(item)
    return this.pairSums.widened.has(item) ? `(i32x4.extadd_pairwise_i16x8_s ${code})` : code
  }

  private node(item: UOp): string {
    switch (item.op) {
      case "LOAD":
        return this.load(item)
      case "STACK":
        return this.stack(item)
      case "LANE": {
        const vector = item.src[0]!
        const lane = `(${prefix(vector.dtype)}.extract_lane ${Number(item.arg)} ${this.value(vector)})`
        return item.dtype.scalar === "bool" ? `(i32.and ${lane} (i32.const 1))` : lane
      }
      default:
        return elementwise(item, this)
    }
  }

  private define(item: Item): void {
    const code = this.compute(item)
    const isAddress = item instanceof Address
    const name = this.local(isAddress ? "a" : "x", isAddress ? "i32" : valueType(item.dtype))
    this.names.set(item, name)
    this.line(`(local.set ${name} ${code})`)
  }

  private statement(node: UOp): void {
    switch (node.op) {
      case "REG": {
        const name = this.local("r", valueType(node.dtype))
        this.names.set(node, name)
        return this.line(`(local.set ${name} ${this.value(node.src[0]!)})`)
      }
      case "ACCUMULATE": {
        const [register, x] = node.src as [UOp, UOp]
        const { op } = argOf(node, "ACCUMULATE")
        const code = (op === "ADD" ? accumulatedDots(register, x, this) : undefined) ??
          combine(op, register.dtype, this.value(register), this.value(x), this)
        return this.line(`(local.set ${this.names.get(register)!} ${code})`)
      }
      case "STORE":
        return this.store(node)
      case "RANGE":
        return this.openLoop(node)
      case "END":
        return this.closeLoop(node.src[0]!)
      case "IF":
        return this.open(`(if ${this.value(node.src[0]!)} (then`)
      case "ENDIF":
        return this.close("))")
      default:
        return this.define(node)
    }
  }

  private store(node: UOp): void {
    const { gate } = this.placement.access.get(node)!
    const x = node.src[1]!
    if (gate !== undefined) this.open(`(if ${this.value(gate)} (then`)
    if (isAccumulating(node)) {
      const { address, offset } = this.placement.access.get(node)!
      for (const line of additionOf(node, { address: this.value(address), offset }, this)) this.line(line)
    } else this.line(`(${this.memory(node, `${valueType(x.dtype)}.store`)} ${this.value(x)})`)
    if (gate !== undefined) this.close("))")
  }

  /** The test is at the bottom: a guard skips loops that may have no iteration. One iteration needs no loop. */
  private openLoop(range: UOp): void {
    if (this.nest.includes(range)) return this.openShared(range)
    const counter = this.local("i", "i32")
    this.names.set(range, counter)
    const size = range.src[0]!
    const { max, min } = Bounds.of(size)
    if (min < 1) this.open(`(if (i32.gt_s ${this.value(size)} (i32.const 0)) (then`)
    this.line(`(local.set ${counter} (i32.const 0))`)
    if (max > 1) this.open(`(loop $loop_${counter.slice(1)}`)
  }

  private closeLoop(range: UOp): void {
    if (this.nest.includes(range)) return this.closeShared(range)
    const counter = this.names.get(range)!
    const size = range.src[0]!
    const { max, min } = Bounds.of(size)
    if (max > 1) {
      const next = `(local.tee ${counter} (i32.add (local.get ${counter}) (i32.const 1)))`
      this.line(`(br_if $loop_${counter.slice(1)} (i32.lt_s ${next} ${this.value(size)}))`)
      this.close(")")
    }
    if (min < 1) this.close("))")
  }

  /**
   * A loop of the nest whose iterations, counted through all of its loops, this call does from `$from` to `$to`. The
   * counters start in the middle; the innermost loop takes what is left, up to its end.
   */
  private openShared(range: UOp): void {
    const { nest } = this
    const inner = nest.at(-1)!
    if (range === nest[0]) {
      this.open("(if (i32.lt_s (local.get $from) (local.get $to)) (then")
      for (const loop of nest) this.names.set(loop, this.local("i", "i32"))
      if (nest.length > 1) this.locals.push("(local $left i32) (local $stop i32)")
      if (nest.length > 1) this.line("(local.set $left (i32.sub (local.get $to) (local.get $from)))")
      for (const loop of nest.slice(1).reverse()) {
        const size = this.value(loop.src[0]!)
        this.line(`(local.set ${this.names.get(loop)!} (i32.rem_u (local.get $from) ${size}))`)
        this.line(`(local.set $from (i32.div_u (local.get $from) ${size}))`)
      }
      this.line(`(local.set ${this.names.get(range)!} (local.get $from))`)
    }
    const counter = this.names.get(range)!
    if (range === inner && nest.length > 1) {
      const size = this.value(range.src[0]!)
      const all = `(i32.add (local.get ${counter}) (local.get $left))`
      this.line(`(local.set $stop (select ${size} ${all} (i32.lt_u ${size} ${all})))`)
      this.line(`(local.set $left (i32.sub (local.get $left) (i32.sub (local.get $stop) (local.get ${counter}))))`)
    }
    this.open(`(loop $loop_${counter.slice(1)}`)
  }

  private closeShared(range: UOp): void {
    const { nest } = this
    const counter = this.names.get(range)!
    const next = `(local.tee ${counter} (i32.add (local.get ${counter}) (i32.const 1)))`
    const again = nest.length === 1
      ? `(i32.lt_s ${next} (local.get $to))`
      : range === nest.at(-1)
      ? `(i32.lt_u ${next} (local.get $stop))`
      : `(i32.and (i32.lt_u ${next} ${this.value(range.src[0]!)}) (i32.ne (local.get $left) (i32.const 0)))`
    this.line(`(br_if $loop_${counter.slice(1)} ${again})`)
    this.close(")")
    if (range !== nest[0]) this.line(`(local.set ${counter} (i32.const 0))`)
    else this.close("))")
  }
}

/**
 * The text of a module whose exported function `run` is the kernel: iterations `from` to `to` (not included) of the
 * nest. A kernel without a nest runs whole.
 */
export const moduleText = (
  placement: Placement,
  { bindings, vars }: Pick<Program, "bindings" | "vars">,
  { memory, nest, rareHalves, simd }: {
    readonly memory: Memory
    readonly nest: Nest
    readonly rareHalves: ReadonlySet<UOp>
    readonly simd: Simd
  }
): string => {
  const writer = new KernelWriter(placement, vars, { nest: nest.ranges, rareHalves, simd })
  for (const item of placement.items) writer.write(item)
  const parameters = ["$from", "$to", ...bindings.map((b) => `$p${b.slot}`), ...vars.map((_, i) => `$v${i}`)]
  return [
    "(module",
    `  ${memoryImport[memory]}`,
    ...[...writer.helpers].toSorted().map((name) => `  ${helpers[name]}`),
    `  (func (export "run")${parameters.map((p) => ` (param ${p} i32)`).join("")}`,
    ...(writer.locals.length === 0 ? [] : [`    ${writer.locals.join(" ")}`]),
    ...[...writer.constants].map(([code, name]) => `    (local.set ${name} ${code})`),
    ...writer.lines,
    "  ))",
    ""
  ].join("\n")
}

const structural: ReadonlySet<Op> = new Set<Op>([
  "CONST",
  "VAR",
  "PARAM",
  "REG",
  "RANGE",
  "END",
  "ACCUMULATE",
  "INDEX",
  "LOAD",
  "STORE",
  "IF",
  "ENDIF",
  "STACK",
  "LANE"
])

/** Why a node cannot be rendered, if it cannot. */
export const unsupported = (node: UOp, rendered: ReadonlySet<Op>): string | undefined => {
  if (elementwiseOps.has(node.op) && !rendered.has(node.op)) {
    return `${node.op} is not native: decompose it first (caps.ops lists what is)`
  }
  if (!elementwiseOps.has(node.op) && !structural.has(node.op)) {
    return `${node.op} needs a grid, a workgroup or a subgroup, which WebAssembly does not have; expand the kernel for hasGrid = false`
  }
  if (node.dtype.lanes === 2) return `${node.op} of ${DType.print(node.dtype)}: vectors have 4 lanes`
  if (node.op === "CONST" && node.dtype.scalar === "index" && Math.abs(Number(node.arg)) >= 2 ** 31) {
    return `the index ${String(node.arg)} does not fit 32 bits; split the buffer`
  }
  return undefined
}
