/** Objects as nets: listed properties in their order, then all others. */
import * as CharDfa from "./charDfa.ts"
import { TooComplex } from "./formula.ts"
import { maxNetStates, type Parts } from "./arrays.ts"
import { type ObjectShape, valueOf } from "./normal.ts"
import { addState, callEdge, emptyEdge, literal, makeNet, type Net, type Rule, utf8 } from "./rule.ts"

/** Required properties without a schema of their own may come in any order if they are this many at most. */
const maxFree = 4

interface Others {
  /** Names by language, and the values. */
  readonly regions: ReadonlyArray<readonly [Rule, Net]>
  /** Names that must be among them. */
  readonly free: ReadonlyArray<readonly [name: string, value: Net]>
}

/** The texts of an object. `keyRule` makes a rule of a language of names. */
export const objectNet = (
  parts: Parts & { readonly keyRule: (names: CharDfa.CharDfa) => Rule | undefined },
  shape: ObjectShape
): Net => {
  const { formulas, keyRule, ruleOf } = parts
  const unlisted = [...shape.required].filter((name) => !shape.named.has(name))
  const isFree = unlisted.length <= maxFree
  const listed = isFree ? [...shape.named.keys()] : [...shape.named.keys(), ...unlisted]
  const isOpen = shape.regions.some(({ value }) => value !== formulas.false_)
  const named = isOpen ? CharDfa.words([...listed, ...unlisted]) : CharDfa.nothing
  const others: Others = {
    regions: shape.regions.flatMap(({ names, value }): ReadonlyArray<readonly [Rule, Net]> => {
      const key = value === formulas.false_ ? undefined : keyRule(CharDfa.subtract(names, named))
      return key === undefined ? [] : [[key, ruleOf(value)]]
    }),
    free: isFree ? unlisted.map((name) => [name, ruleOf(valueOf(shape, name))] as const) : []
  }
  // a name that is not listed may come twice: then it counts once, so only one of them can be relied on
  if (others.regions.length > 0 && shape.min > shape.required.size + 1) {
    throw new TooComplex("minProperties above 1 needs properties that are all listed")
  }
  return build(parts, shape, listed, others)
}

/** States remember which name is next, how many properties there are, and which of the free names were there. */
const build = ({ formulas, ruleOf }: Parts, shape: ObjectShape, listed: ReadonlyArray<string>, others: Others): Net => {
  const net = makeNet("object")
  const end = addState(net)
  net.states[end]!.accept = true
  const last = shape.max === Infinity ? Math.max(1, shape.min) : Math.max(1, shape.max)
  const known = new Map<string, number>()
  const queue: Array<readonly [at: number, index: number, count: number, seen: number]> = []
  const stateOf = (index: number, count: number, seen: number): number => {
    const key = `${index},${count},${seen}`
    const found = known.get(key)
    if (found !== undefined) return found
    if (known.size >= maxNetStates) throw new TooComplex(`an object would need more than ${maxNetStates} states`)
    const made = addState(net)
    known.set(key, made)
    queue.push([made, index, count, seen])
    return made
  }
  literal(net, 0, utf8("{"), stateOf(0, 0, 0))
  const all = (1 << others.free.length) - 1
  for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
    const [at, index, count, seen] = next
    const name = listed[index]
    const isFull = count >= shape.max
    const more = (): number => count === 0 ? at : literal(net, at, utf8(","))
    const counted = Math.min(count + 1, last)
    if (name !== undefined) {
      const value = valueOf(shape, name)
      if (value !== formulas.false_ && !isFull) {
        callEdge(
          net,
          literal(net, more(), utf8(`${JSON.stringify(name)}:`)),
          ruleOf(value),
          stateOf(index + 1, counted, 0)
        )
      }
      if (!shape.required.has(name)) emptyEdge(net, at, stateOf(index + 1, count, 0))
      continue
    }
    if (count >= shape.min && seen === all) literal(net, at, utf8("}"), end)
    if (isFull || (others.regions.length === 0 && others.free.length === 0)) continue
    const start = more()
    for (const [key, value] of others.regions) {
      const colon = addState(net)
      callEdge(net, start, key, colon)
      callEdge(net, literal(net, colon, utf8(":")), value, stateOf(index, counted, seen))
    }
    others.free.forEach(([free, value], i) => {
      if ((seen >>> i) & 1) return
      const start_ = literal(net, start, utf8(`${JSON.stringify(free)}:`))
      callEdge(net, start_, value, stateOf(index, counted, seen | (1 << i)))
    })
  }
  return net
}
