import * as Bounds from "@tg/core-uop/Bounds"
import type * as DType from "@tg/core-uop/DType"
import { rangeArg, type UOp } from "@tg/core-uop/UOp"
import { Branches, type Guarded } from "./branches.ts"
import type { Units } from "./fragments.ts"
import type { Helper } from "./helpers.ts"
import { atom, indented, operand, Refusal, type Text } from "./text.ts"

/** Features of the device, and the kernel's variables. */
export interface Options {
  readonly subgroupSize: number | undefined
  readonly halfSubnormals: boolean
  readonly halfRounding: boolean
  readonly matrixUnits?: Units | undefined
  /** Whether the device leaves indices as they are. */
  readonly unclamped: boolean
  /** Names of the uniform integers, in their order. */
  readonly vars: ReadonlyArray<string>
}

/** Reserved names that a letter and a number may form. */
const types: ReadonlySet<string> = new Set(["i32"])

/** The statements of `main` under construction, the declarations that they need, and the text of each value so far. */
export class Writer {
  readonly options: Options
  /** Lanes of the declared element of each buffer. */
  readonly widths: ReadonlyMap<UOp, DType.Lanes>
  readonly lines: Array<string> = []
  readonly helpers = new Set<Helper>()
  readonly builtins = new Set<string>()
  /** Workgroup variables: name and type. */
  readonly locals: Array<readonly [string, string]> = []
  /** Index and gate of an INDEX that reads registers: their values at that point. */
  readonly snapshots = new Map<UOp, ReadonlyArray<Text>>()
  /** Whether a barrier across the grid follows: then what is stored for other workgroups is there in front of it. */
  isBeforeBarrier = false
  /** Whether it is a launch of several phases. */
  isPersistent = false
  /** Whether readers await words that cross phases. */
  awaits = false
  /** What waits for loads that were issued in front of a barrier, behind the first look at the words that cross it. */
  later: string | undefined
  /** The loops and branches around the next line. */
  readonly #open: Array<UOp> = []
  readonly #texts = new Map<UOp, Text>()
  /** The RANGE or IF in whose body a value stands; none at the top. */
  readonly #blocks = new Map<UOp, UOp>()
  readonly #counters = new Map<string, number>()
  readonly #branches = new Branches()

  constructor(options: Options, widths: ReadonlyMap<UOp, DType.Lanes>) {
    this.options = options
    this.widths = widths
  }

  /** Notes that the kernel needs a helper. */
  readonly use = (helper: Helper): void => void this.helpers.add(helper)

  line(text: string): void {
    this.lines.push(indented(this.#open.length + 1, text))
  }

  /** Writes a branch, or more of the one in front of it. */
  branch(condition: string, guarded: Guarded): void {
    this.#branches.write(this.lines, { condition, guarded, depth: this.#open.length + 1 })
  }

  /** A fresh name. */
  fresh(prefix: string): string {
    const n = this.#counters.get(prefix) ?? 0
    this.#counters.set(prefix, n + 1)
    const name = `${prefix}${n}`
    return types.has(name) ? this.fresh(prefix) : name
  }

  /** Binds a value to a fresh name. */
  bind(prefix: string, text: Text): Text {
    const name = this.fresh(prefix)
    this.line(`let ${name} = ${text.code};`)
    return atom(name)
  }

  /** Sets the text of a value. */
  set(node: UOp, text: Text): void {
    this.#texts.set(node, text)
  }

  /** The text of a value. */
  text(node: UOp): Text {
    const found = this.#texts.get(node)
    if (found === undefined) throw new Refusal(`${node.op} is used but does not stand before its use`)
    const block = node.op === "RANGE" ? node : this.#blocks.get(node)
    if (block !== undefined && !this.#open.includes(block)) {
      throw new Refusal(`${node.op} stands inside a ${block.op} and is used after its end`)
    }
    return found
  }

  /** Runs the writer of an instruction, and records the innermost block that was open before it. */
  place(node: UOp, write: () => void): void {
    const block = this.#open.at(-1)
    write()
    if (block === undefined) this.#blocks.delete(node)
    else this.#blocks.set(node, block)
  }

  openLoop(range: UOp): void {
    if (rangeArg(range).axis === "GLOBAL") throw new Refusal("a GLOBAL range is left; WGSL has a grid for it")
    const size = range.src[0]!
    const name = this.fresh("i")
    const largest = Math.max(0, Math.min(Bounds.of(size).max, 2 ** 31 - 1))
    const limit = size.op === "CONST" ? undefined : this.text(size)
    this.line(`for (var ${name} = 0; ${name} < ${largest}; ${name}++) {`)
    this.#open.push(range)
    // Tint adds an iteration counter to each loop without a constant bound, so the dynamic bound is a break inside
    if (limit !== undefined) this.line(`if (${name} >= ${operand(limit)}) { break; }`)
    this.set(range, atom(name))
  }

  /** What holds at the next line. */
  conditions(): ReadonlyArray<UOp> {
    return this.#open.flatMap((around) => around.op === "IF" ? [around.src[0]!] : [])
  }

  isInLoop(): boolean {
    return this.#open.some(({ op }) => op === "RANGE")
  }

  openBranch(branch: UOp): void {
    this.line(`if (${this.text(branch.src[0]!).code}) {`)
    this.#open.push(branch)
  }

  close(end: UOp): void {
    if (this.#open.pop() !== end.src[0]) throw new Refusal(`${end.op} closes what is not innermost`)
    this.line("}")
  }
}
