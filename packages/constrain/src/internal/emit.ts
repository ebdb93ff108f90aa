/** From formulas to rules: one net per formula, array shape and object shape. Structure is written without white space. */
import type { Formula, Formulas } from "./formula.ts"
import type { Normal } from "./normal.ts"
import { arrayNet } from "./arrays.ts"
import { objectNet } from "./objects.ts"
import { at } from "./refusal.ts"
import { addState, callEdge, literal, makeNet, type Net, type Rule, utf8 } from "./rule.ts"
import { numberLeaf, stringLeaf } from "./strings.ts"

/** The rules of one schema. */
export class Emitter {
  private readonly rules = new Map<Formula, Net>()
  private readonly pending: Array<readonly [net: Net, formula: Formula]> = []
  private readonly parts: Parameters<typeof objectNet>[0]

  constructor(formulas: Formulas, normalOf: (formula: Formula) => Normal) {
    this.parts = {
      formulas,
      normalOf,
      ruleOf: (formula) => this.ruleOf(formula),
      keyRule: (names) => stringLeaf(names, 0, Infinity)
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
    call(numberLeaf(normal.number))
    for (const { dfa, max, min } of normal.strings) call(stringLeaf(dfa, min, max))
    for (const shape of normal.arrays) call(arrayNet(this.parts, shape))
    for (const shape of normal.objects) call(objectNet(this.parts, shape))
  }
}
