/** From formulas to rules: one net per formula, array shape and object shape. Structure is written without white space. */
import * as CharDfa from "./charDfa.ts"
import type { Formula, Formulas } from "./formula.ts"
import * as Leaf from "./leaf.ts"
import type { ArrayShape, Normal, ObjectShape, Strings } from "./normal.ts"
import * as Numbers from "./numbers.ts"
import { addState, callEdge, emptyEdge, literal, makeNet, type Net, type Rule, utf8 } from "./rule.ts"
import { plainString } from "./strings.ts"

/** Spelling out a bounded length in states is worth it up to this many. */
const maxSpelledLength = 512

/** The rules of one schema. */
export class Emitter {
  private readonly rules = new Map<Formula, Net>()
  private readonly pending: Array<readonly [net: Net, formula: Formula]> = []
  private readonly leaves = new Map<string, Rule | undefined>()
  private readonly formulas: Formulas
  private readonly normalOf: (formula: Formula) => Normal

  constructor(formulas: Formulas, normalOf: (formula: Formula) => Normal) {
    this.formulas = formulas
    this.normalOf = normalOf
  }

  /** The rule of a formula, with all that it calls. */
  emit(root: Formula): Net {
    const rule = this.ruleOf(root)
    for (let next = this.pending.pop(); next !== undefined; next = this.pending.pop()) this.fill(...next)
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
    const normal = this.normalOf(formula)
    const end = addState(net)
    net.states[end]!.accept = true
    for (const word of ["null", "true", "false"] as const) if (normal[word]) literal(net, 0, utf8(word), end)
    const call = (rule: Rule | undefined): void => {
      if (rule !== undefined) callEdge(net, 0, rule, end)
    }
    call(this.number(normal.number))
    for (const strings of normal.strings) call(this.string(strings))
    for (const shape of normal.arrays) call(this.array(shape))
    for (const shape of normal.objects) call(this.object(shape))
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

  private array({ max, min, prefix, rest }: ArrayShape): Net {
    const net = makeNet("array")
    const end = addState(net)
    net.states[end]!.accept = true
    const close = (from: number): void => void literal(net, from, utf8("]"), end)
    let at = literal(net, 0, utf8("["))
    const items = Math.min(prefix.length, max)
    for (let i = 0; i < items; i++) {
      if (i >= min) close(at)
      const start = i === 0 ? at : literal(net, at, utf8(","))
      at = addState(net)
      callEdge(net, start, this.ruleOf(prefix[i]!), at)
    }
    if (items >= min) close(at)
    if (items >= max || rest === this.formulas.false_) return net
    // the others: the counter is of those only
    net.min = Math.max(1, min - items)
    net.max = max - items
    const [entered, item, after] = [addState(net), addState(net), addState(net)]
    const [more, leaving] = [addState(net), addState(net)]
    emptyEdge(net, at, entered, "enter")
    if (items === 0) emptyEdge(net, entered, item)
    else literal(net, entered, utf8(","), item)
    callEdge(net, item, this.ruleOf(rest), after)
    emptyEdge(net, after, more, "enter")
    literal(net, more, utf8(","), item)
    emptyEdge(net, after, leaving, "leave")
    close(leaving)
    return net
  }

  private object({ named, regions, required }: ObjectShape): Net {
    const net = makeNet("object")
    const end = addState(net)
    net.states[end]!.accept = true
    // two rows of states, one before and one after the first property that is written
    let first: number | undefined = literal(net, 0, utf8("{"))
    let later: number | undefined
    const names = [...named.keys(), ...[...required].filter((name) => !named.has(name))]
    for (const name of names) {
      const value = named.get(name) ?? this.valueOf(regions, name)
      const written = addState(net)
      const key = utf8(`${JSON.stringify(name)}:`)
      if (value !== this.formulas.false_) {
        const rule = this.ruleOf(value)
        if (first !== undefined) callEdge(net, literal(net, first, key), rule, written)
        if (later !== undefined) callEdge(net, literal(net, literal(net, later, utf8(",")), key), rule, written)
      }
      if (required.has(name)) first = undefined
      else if (later !== undefined) emptyEdge(net, later, written)
      later = written
    }
    const close = (from: number): void => void literal(net, from, utf8("}"), end)
    const others = this.others(names, regions)
    if (first !== undefined) {
      close(first)
      for (const [key, value] of others) callEdge(net, this.called(net, first, key), value, later ??= addState(net))
    }
    if (later === undefined) return net
    close(later)
    for (const [key, value] of others) {
      callEdge(net, this.called(net, literal(net, later, utf8(",")), key), value, later)
    }
    return net
  }

  /** A name by its language, and the colon: the state after them. */
  private called(net: Net, from: number, key: Rule): number {
    const colon = addState(net)
    callEdge(net, from, key, colon)
    return literal(net, colon, utf8(":"))
  }

  private valueOf(regions: ObjectShape["regions"], name: string): Formula {
    return regions.find(({ names }) => CharDfa.accepts(names, name))?.value ?? this.formulas.false_
  }

  /** Names that are not listed, by language, and the rules of their values. */
  private others(names: ReadonlyArray<string>, regions: ObjectShape["regions"]): ReadonlyArray<readonly [Rule, Net]> {
    const listed = CharDfa.words(names)
    return regions.flatMap((region): ReadonlyArray<readonly [Rule, Net]> => {
      if (region.value === this.formulas.false_) return []
      const key = this.string({ dfa: CharDfa.subtract(region.names, listed), min: 0, max: Infinity })
      return key === undefined ? [] : [[key, this.ruleOf(region.value)]]
    })
  }
}
