/**
 * Relocates the arguments of rendered programs into shared bindings (`Placement`), by rewriting their text.
 *
 * A shared binding is an `array<vec4<u32>>`, whatever lies in it: vectors of four are read and written whole, single words as
 * components. Values are bitcast, so they keep their bits.
 */
import type { Binding, Placement, Program } from "@tg/core-uop/Program"

/** An argument as the program declares it, and where it lies. */
interface Argument {
  readonly lanes: 1 | 2 | 4
  readonly scalar: string
  readonly at: number
  /** In vectors of four words. */
  readonly offset: number
}

const vectorBytes = 16
const letters = "xyzw"
const storage = /^@group\(0\) @binding\(\d+\) var<storage, \w+> data(\d+): array<(?:vec([24])<(\w+)>|(\w+))>;$/
const uniform = /^@group\(0\) @binding\(\d+\) var<uniform> vars: .*;$/
const reference = /\bdata(\d+)\[/g
const variable = /\bvars\[(\d+)\]\.([xyzw])/g
const address = /&\s*data\d/
/** Behind the element of a vector: one of its components. */
const component = /^(?:\[|\.([xyzw])(?![xyzw]))/

/** Where the bracket at `open` is closed. */
const closing = (text: string, open: number): number => {
  let depth = 0
  for (let i = open; i < text.length; i++) {
    if (text[i] === "[") depth++
    else if (text[i] === "]" && --depth === 0) return i
  }
  throw new Error(`no end of the bracket in ${text}`)
}

const isNumber = (index: string): boolean => /^\d+$/.test(index)

/** Vector number `index` of an argument. */
const vectorAt = ({ at, offset }: Argument, index: string): string =>
  isNumber(index)
    ? `given${at}[${offset + Number(index)}]`
    : `given${at}[${offset === 0 ? index : `(${index}) + ${offset}`}]`

/** Words `index` on of an argument, as the components of a vector: `lanes` of them, which lie in one vector. */
const wordsAt = (argument: Argument, index: string): ReadonlyArray<string> => {
  const { lanes } = argument
  if (isNumber(index)) {
    const word = lanes * Number(index)
    const vector = vectorAt(argument, String(Math.floor(word / 4)))
    return Array.from({ length: lanes }, (_, i) => `${vector}[${word % 4 + i}]`)
  }
  const vector = vectorAt(argument, `(${index}) >> ${lanes === 1 ? 2 : 1}u`)
  return lanes === 1
    ? [`${vector}[(${index}) & 3]`]
    : [`${vector}[((${index}) & 1) * 2]`, `${vector}[((${index}) & 1) * 2 + 1]`]
}

const valueOf = (scalar: string, word: string): string => scalar === "u32" ? word : `bitcast<${scalar}>(${word})`
const bitsOf = (scalar: string, value: string): string => scalar === "u32" ? value : `bitcast<u32>(${scalar}(${value}))`

/** An element of an argument, or a component of it, as a value. */
const loaded = (argument: Argument, index: string, part: string | undefined): string => {
  const { lanes, scalar } = argument
  if (lanes === 4) {
    const vector = vectorAt(argument, index)
    if (part !== undefined) return valueOf(scalar, `${vector}[${part}]`)
    return scalar === "u32" ? vector : `bitcast<vec4<${scalar}>>(${vector})`
  }
  const words = wordsAt(argument, index).map((word) => valueOf(scalar, word))
  if (lanes === 1) return words[0]!
  const whole = `vec2<${scalar}>(${words.join(", ")})`
  return part === undefined ? whole : `${whole}[${part}]`
}

/** The statement that stores a value. */
const stored = (
  argument: Argument,
  { index, part, value }: { readonly index: string; readonly part: string | undefined; readonly value: string }
): string => {
  const { lanes, scalar } = argument
  if (lanes === 4) {
    const vector = vectorAt(argument, index)
    if (part !== undefined) return `${vector}[${part}] = ${bitsOf(scalar, value)};`
    return `${vector} = ${scalar === "u32" ? value : `bitcast<vec4<u32>>(vec4<${scalar}>(${value}))`};`
  }
  const [first, second] = wordsAt(argument, index)
  if (lanes === 1) return `${first} = ${bitsOf(scalar, value)};`
  return part === undefined
    ? `{ let given = ${value}; ${first} = ${bitsOf(scalar, "given.x")}; ${second} = ${bitsOf(scalar, "given.y")}; }`
    : `if ((${part}) == 0) { ${first} = ${bitsOf(scalar, value)}; } else { ${second} = ${bitsOf(scalar, value)}; }`
}

/** A line of the body with every access relocated. */
const rewritten = (text: string, given: ReadonlyMap<string, Argument>): string => {
  reference.lastIndex = 0
  const found = reference.exec(text)
  if (found === null) return text
  const [head, slot] = found
  const argument = given.get(slot!)!
  const before = text.slice(0, found.index)
  const open = found.index + head.length - 1
  const close = closing(text, open)
  const index = rewritten(text.slice(open + 1, close), given)
  let rest = text.slice(close + 1)
  let part: string | undefined
  const behind = argument.lanes === 1 ? null : component.exec(rest)
  if (behind !== null) {
    const end = behind[1] === undefined ? closing(rest, 0) : 1
    part = behind[1] === undefined ? rewritten(rest.slice(1, end), given) : String(letters.indexOf(behind[1]))
    rest = rest.slice(end + 1)
  }
  const assigned = /^ = ([^;]*);/.exec(rest)
  return assigned === null
    ? before + loaded(argument, index, part) + rewritten(rest, given)
    : before + stored(argument, { index, part, value: rewritten(assigned[1]!, given) }) +
      rewritten(rest.slice(assigned[0].length), given)
}

/** Renumbers the variables to their places among those of all programs. */
const withVars = (text: string, own: ReadonlyArray<string>, all: ReadonlyArray<string>): string =>
  text.replace(variable, (_, vector: string, letter: string) => {
    const at = all.indexOf(own[4 * Number(vector) + letters.indexOf(letter)]!)
    return `vars[${Math.floor(at / 4)}].${letters[at % 4]}`
  })

/** The arguments that the text declares, by their slots; undefined unless all bindings are found. */
const argumentsOf = (lines: ReadonlyArray<string>, { bindings }: Program, { places }: Placement) => {
  const given = new Map<string, Argument>()
  for (const line of lines) {
    const [, slot, lanes, vector, scalar] = storage.exec(line) ?? []
    const place = places[bindings.findIndex((binding) => binding.slot === Number(slot))]
    if (slot === undefined || place === undefined || place.offset % vectorBytes !== 0) continue
    given.set(slot, {
      lanes: lanes === "4" ? 4 : lanes === "2" ? 2 : 1,
      scalar: vector ?? scalar!,
      at: place.at,
      offset: place.offset / vectorBytes
    })
  }
  return given.size === bindings.length ? given : undefined
}

/** The bindings of the relocated program: each shared one once, in the order of their numbers. */
const bindingsOf = ({ bindings }: Program, { group, places }: Placement): ReadonlyArray<Binding> => {
  const numbers = [...new Set(places.map(({ at }) => at))].sort((a, b) => a - b)
  return numbers.map((at) => {
    const own = bindings.flatMap((binding, i) => places[i]!.at === at ? [{ binding, place: places[i]! }] : [])
    const ends = own.map(({ binding, place }) => binding.bytes === undefined ? undefined : place.offset + binding.bytes)
    const known = ends.filter((end) => end !== undefined)
    return {
      slot: own[0]!.binding.slot,
      access: group[at]!,
      at,
      ...(known.length === 0 ? {} : { bytes: Math.max(...known) })
    }
  })
}

/** The relocated program; undefined if its text is not this renderer's, or takes the address of an argument (atomics). */
export const place = (program: Program, placement: Placement): Program | undefined => {
  const { code, vars } = program
  const { group } = placement
  if (typeof code !== "string" || vars.some((name) => !placement.vars.includes(name))) return undefined
  const lines = code.split("\n")
  const given = argumentsOf(lines, program, placement)
  if (given === undefined || address.test(code)) return undefined
  const bindings = bindingsOf(program, placement)
  const declared = [
    ...bindings.map(({ access, at }) =>
      `@group(0) @binding(${at}) var<storage, ${
        access === "write" ? "read_write" : "read"
      }> given${at}: array<vec4<u32>>;`
    ),
    ...(vars.length === 0 ? [] : [
      `@group(0) @binding(${group.length}) var<uniform> vars: array<vec4<i32>, ${
        Math.ceil(placement.vars.length / 4)
      }>;`
    ])
  ]
  const first = lines.findIndex((line) => storage.test(line))
  const body = lines.map((line) => storage.test(line) || uniform.test(line) ? undefined : rewritten(line, given))
  const whole = [...body.slice(0, first), ...declared, ...body.slice(first)].filter((line) => line !== undefined)
    .join("\n")
  if (/\bdata\d/.test(whole)) return undefined
  const { bounds } = program
  return {
    ...program,
    code: withVars(whole, vars, placement.vars),
    group,
    bindings,
    vars: placement.vars,
    ...(bounds === undefined
      ? {}
      : { bounds: placement.vars.map((name) => bounds[vars.indexOf(name)] ?? { min: -(2 ** 31), max: 2 ** 31 - 1 }) })
  }
}
