import * as Bounds from "@tg/core-uop/Bounds"
import type * as DType from "@tg/core-uop/DType"
import { rangeArg, type UOp } from "@tg/core-uop/UOp"
import type { Units } from "./fragments.ts"
import type { Helper } from "./helpers.ts"
import { atom, operand, Refusal, type Text } from "./text.ts"

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

/** What is done behind a condition: in place of what the writer has for it, where it goes on. */
export interface Guarded {
  /** Variables that it assigns to. */
  readonly names?: ReadonlyArray<string>
  /** Words that it stores for readers who wait for them: none of them may be 0. */
  readonly awaited?: ReadonlyArray<string>
  readonly statements: ReadonlyArray<string>
}

/** A branch, and the lines that it is. */
interface Branch extends Required<Guarded> {
  readonly condition: string
  readonly depth: number
  readonly begin: number
  readonly end: number
}

/** A line of arithmetic, which a branch may stand behind as well as in front of: it neither waits nor touches memory. */
const isArithmetic = (line: string): boolean =>
  /^ *(let|var) /.test(line) && !/\b(data|local|atomic|subgroup|dot4|arrive|exp2)/.test(line)

const mentions = (line: string, name: string): boolean => new RegExp(`\\b${name}\\b`).test(line)

/** Looks at words that are awaited before they are stored, at all of them at once. */
export const checked = (words: ReadonlyArray<string>): ReadonlyArray<string> =>
  words.length === 0
    ? []
    : [`if ((${words.reduceRight((rest, word) => `min(${word}, ${rest})`)}) == 0u) { cannot_store(); }`]

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
  #branch: Branch | undefined

  constructor(options: Options, widths: ReadonlyMap<UOp, DType.Lanes>) {
    this.options = options
    this.widths = widths
  }

  /** Notes that the kernel needs a helper. */
  readonly use = (helper: Helper): void => void this.helpers.add(helper)

  line(text: string): void {
    this.lines.push(`${"  ".repeat(this.#open.length + 1)}${text}`)
  }

  /**
   * Writes a branch. Those of one condition are one, where nothing but arithmetic stands between that does not use what they assign: NVIDIA's compiler turns each short branch into instructions
   * behind a predicate, which it copies in front of each of them if the condition is one of the whole workgroup (16 instructions for a load instead of 4).
   */
  branch(condition: string, { awaited = [], names = [], statements }: Guarded): void {
    const before = this.#branch
    const depth = this.#open.length
    const goesOn = before !== undefined && before.condition === condition && before.depth === depth &&
      this.lines.slice(before.end).every((line) =>
        isArithmetic(line) && !before.names.some((name) => mentions(line, name))
      )
    if (goesOn) this.lines.splice(before.begin, before.end - before.begin)
    const whole = {
      names: [...goesOn ? before.names : [], ...names],
      awaited: [...goesOn ? before.awaited : [], ...awaited],
      statements: [...goesOn ? before.statements : [], ...statements]
    }
    const begin = this.lines.length
    const inside = [...checked(whole.awaited), ...whole.statements]
    if (inside.length === 1) this.line(`if (${condition}) { ${inside[0]} }`)
    else {
      this.line(`if (${condition}) {`)
      for (const statement of inside) this.line(`  ${statement}`)
      this.line("}")
    }
    this.#branch = { condition, depth, begin, end: this.lines.length, ...whole }
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
