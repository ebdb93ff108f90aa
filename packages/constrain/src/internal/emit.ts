/** From formulas to rules: one net per formula, array shape and object shape. Structure is written without white space. */
import * as CharDfa from "./charDfa.ts"
import type { Formula, Formulas } from "./formula.ts"
import * as Leaf from "./leaf.ts"
import type { Normal, Strings } from "./normal.ts"
import * as Numbers from "./numbers.ts"
import { arrayNet } from "./arrays.ts"
import { objectNet } from "./objects.ts"
import { at } from "./refusal.ts"
import { addState, callEdge, literal, makeNet, type Net, type Rule, utf8 } from "./rule.ts"
import { plainString } from "./strings.ts"

/** Spelling out a bounded length in states is worth it up to this many. */
const maxSpelledLength = 512

/** The rules of one schema. */
export class Emitter {
  private readonly rules = new Map<Formula, Net>()
  private readonly pending: Array<readonly [net: Net, formula: Formula]> = []
  private readonly leaves = new Map<string, Rule | undefined>()
  private readonly parts: Parameters<typeof objectNet>[0]

  constructor(formulas: Formulas, normalOf: (formula: Formula) => Normal) {
    this.parts = {
      formulas,
      normalOf,
      ruleOf: (formula) => this.ruleOf(formula),
      keyRule: (names) => this.string({ dfa: names, min: 0, max: Infinity })
    }
  }

  /** The rule of a formula, with all that it calls. */
  emit(root: Formula): Net {
    const rule = this.ruleOf(root)
    for (let next = this.pending.pop(); next !== undefined; next = this.pending.pop()) {
      const [net, formula] = next
      at(formula, "schema", () => this.fill(net, formula))
    }
    return rule
  }

  private ruleOf(formula: Formula): Net {
    const known = this.rules.get(formula)
    if (known !== undefined) return known
    const net = makeNet("value")
    this.rules.set(formula, net)
    this.pending.push([net, formula])
    return net
  }

  private fill(net: Net, formula: Formula): void {
    const normal = this.parts.normalOf(formula)
    const end = addState(net)
    net.states[end]!.accept = true
    for (const word of ["null", "true", "false"] as const) if (normal[word]) literal(net, 0, utf8(word), end)
    const call = (rule: Rule | undefined): void => {
      if (rule !== undefined) callEdge(net, 0, rule, end)
    }
    call(this.number(normal.number))
    for (const strings of normal.strings) call(this.string(strings))
    for (const shape of normal.arrays) call(arrayNet(this.parts, shape))
    for (const shape of normal.objects) call(objectNet(this.parts, shape))
  }

  private leaf(key: string, make: () => Rule | undefined): Rule | undefined {
    if (this.leaves.has(key)) return this.leaves.get(key)
    const made = make()
    this.leaves.set(key, made)
    return made
  }

  private number(dfa: CharDfa.CharDfa): Rule | undefined {
    if (CharDfa.isEmpty(dfa)) return undefined
    return this.leaf(`number:${CharDfa.key(dfa)}`, () => Leaf.ofText("number", Numbers.spelled(dfa)))
  }

  private string({ dfa, max, min }: Strings): Rule | undefined {
    if (min === 0 && max === Infinity && CharDfa.isAll(dfa)) return plainString
    const key = `string:${min},${max}:${CharDfa.key(dfa)}`
    return this.leaf(key, () => {
      if (CharDfa.isAll(dfa)) return Leaf.ofJsonString("string", dfa, { min, max })
      const spelledMax = max <= maxSpelledLength ? max : Infinity
      const spelled = CharDfa.intersect(dfa, CharDfa.lengthBetween(min, spelledMax))
      return Leaf.ofJsonString("string", spelled, { min: 0, max: spelledMax === Infinity ? max : Infinity })
    })
  }
}
