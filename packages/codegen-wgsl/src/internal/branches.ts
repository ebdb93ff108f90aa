/**
 * Branches that follow each other behind one condition, as one. NVIDIA's compiler turns each short branch into instructions behind a predicate, which it copies in front of each of them if the
 * condition is one of the whole workgroup (16 instructions for a load ahead of a barrier of a persistent launch, seven of them copies; `docs/persistent.md`, "Instructions").
 */
import { indented } from "./text.ts"

/** What is done behind a condition. */
export interface Guarded {
  /** Variables that it assigns to. */
  readonly names?: ReadonlyArray<string>
  /** Words that it stores for readers who wait for them: none of them may be 0. */
  readonly awaited?: ReadonlyArray<string>
  readonly statements: ReadonlyArray<string>
}

/** The branch that was written last, and the lines that it is. */
interface Branch extends Required<Guarded> {
  readonly condition: string
  readonly depth: number
  readonly begin: number
  readonly end: number
}

/** A line of cheap arithmetic, which a branch may stand behind as well as in front of: it neither waits nor touches memory, nor is it work that loads of the branch should be in flight with. */
const isArithmetic = (line: string): boolean =>
  /^ *(let|var) /.test(line) && !/\b(data|local|atomic|subgroup|dot4|arrive|exp2)/.test(line)

const mentions = (line: string, name: string): boolean => new RegExp(`\\b${name}\\b`).test(line)

/** Looks at words that are awaited before they are stored, at all of them at once. */
export const checked = (words: ReadonlyArray<string>): ReadonlyArray<string> =>
  words.length === 0
    ? []
    : [`if ((${words.reduceRight((rest, word) => `min(${word}, ${rest})`)}) == 0u) { cannot_store(); }`]

/** The branches of a text under construction. */
export class Branches {
  #last: Branch | undefined

  /** Writes a branch behind these lines; in place of the last one, with what that does, where only arithmetic stands between that does not use what it assigns. */
  write(
    lines: Array<string>,
    { condition, depth, guarded: { awaited = [], names = [], statements } }: {
      readonly condition: string
      readonly depth: number
      readonly guarded: Guarded
    }
  ): void {
    const last = this.#last
    const goesOn = last !== undefined && last.condition === condition && last.depth === depth &&
      lines.slice(last.end).every((line) => isArithmetic(line) && !last.names.some((name) => mentions(line, name)))
    if (goesOn) lines.splice(last.begin, last.end - last.begin)
    const whole: Required<Guarded> = goesOn
      ? {
        names: [...last.names, ...names],
        awaited: [...last.awaited, ...awaited],
        statements: [...last.statements, ...statements]
      }
      : { names, awaited, statements }
    const inside = [...checked(whole.awaited), ...whole.statements]
    const begin = lines.length
    const text = inside.length === 1
      ? [`if (${condition}) { ${inside[0]} }`]
      : [`if (${condition}) {`, ...inside.map((statement) => `  ${statement}`), "}"]
    lines.push(...text.map((line) => indented(depth, line)))
    this.#last = { condition, depth, begin, end: lines.length, ...whole }
  }
}
