/** Modules from their text: those of kernels, which are functions around a memory that is imported. */
import { counted, float, integer, lanesOf, natural, signed, unsigned, vector, vectorBytes } from "./encode.ts"
import { type Immediate, instructions } from "./opcodes.ts"
import { type Atom, Cursor, type Form, headOf, isList, type List, read, wrong } from "./source.ts"

type Bytes = ReadonlyArray<number>

const valueTypes: Readonly<Record<string, number>> = { i32: 0x7f, i64: 0x7e, f32: 0x7d, f64: 0x7c, v128: 0x7b }
const end = 0x0b
const noResult = 0x40
const mostOffset = 2 ** 32 - 1
const mostPages = 65536

const typeOf = ({ line, text }: Atom): number => {
  const type = valueTypes[text]
  if (type === undefined) throw wrong(line, `${text} is no type; those are ${Object.keys(valueTypes).join(", ")}`)
  return type
}

const stringBytes = ({ line, text }: Atom): Bytes => {
  if (!text.startsWith("\"")) throw wrong(line, `${text} stands where a string in quotes belongs`)
  return counted([...new TextEncoder().encode(text.slice(1, -1))])
}

/** Names of one kind, which are numbers in a module. */
class Names {
  private readonly known = new Map<string, number>()
  private readonly what: string
  private count = 0

  constructor(what: string) {
    this.what = what
  }

  /** Returns the number of the name. */
  add(name: Atom | undefined): number {
    if (name !== undefined && this.known.has(name.text)) {
      throw wrong(name.line, `there are two of ${this.what} ${name.text}`)
    }
    if (name !== undefined) this.known.set(name.text, this.count)
    return this.count++
  }

  indexOf(atom: Atom): number {
    const index = atom.text.startsWith("$") ? this.known.get(atom.text) : natural(atom, this.count - 1)
    if (index === undefined) throw wrong(atom.line, `no ${this.what} is called ${atom.text}`)
    return index
  }
}

/** The types of things declared as `(param $x i32)` or `(param i32 i32)`, whose names are added to others. */
const declared = (cursor: Cursor, word: string, names?: Names): Bytes =>
  cursor.lists(word).flatMap((list) => {
    const inside = new Cursor(list)
    const name = inside.optional(/^\$/)
    if (name !== undefined) names?.add(name)
    return inside.atoms().map((atom) => {
      if (name === undefined) names?.add(undefined)
      return typeOf(atom)
    })
  })

const offsetWord = /^offset=/
const alignWord = /^align=/

/** `offset=n align=n` of an access, which default to 0 and to the bytes of it. */
const access = (cursor: Cursor, width: number): Bytes => {
  const value = (word: RegExp): number | undefined => {
    const atom = cursor.optional(word)
    return atom && natural({ ...atom, text: atom.text.slice(atom.text.indexOf("=") + 1) }, mostOffset)
  }
  const offset = value(offsetWord) ?? 0
  const align = Math.log2(value(alignWord) ?? width)
  if (!Number.isInteger(align)) throw wrong(cursor.line, "align is a power of two")
  return [align, ...unsigned(offset)]
}

/** Writes the instructions of a function. */
class Code {
  readonly bytes: Array<number> = []
  private readonly labels: Array<string | undefined> = []
  private readonly functions: Names
  private readonly locals: Names

  constructor(functions: Names, locals: Names) {
    this.functions = functions
    this.locals = locals
  }

  /** All that is left, each instruction in parentheses with its operands. */
  sequence(cursor: Cursor): void {
    for (let form = cursor.take(); form !== undefined; form = cursor.take()) {
      if (!isList(form)) {
        throw wrong(form.line, `${form.text}: write instructions in parentheses, around their operands`)
      }
      this.instruction(form)
    }
  }

  private instruction(list: List): void {
    const { line, text } = headOf(list)
    const cursor = new Cursor(list)
    if (text === "block" || text === "loop") return this.block(text === "block" ? 0x02 : 0x03, cursor)
    if (text === "if") return this.conditional(cursor)
    const known = instructions.get(text)
    if (known === undefined) throw wrong(line, `no instruction is called ${text}`)
    const { immediate, opcode, prefix, width } = known
    const behind = this.immediates(immediate, cursor, width)
    this.sequence(cursor)
    if (prefix === undefined) this.bytes.push(opcode, ...behind)
    else this.bytes.push(prefix, ...unsigned(opcode), ...behind)
  }

  /** `$label (result t)`; gives what names the block and its type. */
  private blockType(cursor: Cursor): readonly [label: string | undefined, type: number] {
    const label = cursor.optional(/^\$/)
    const results = declared(cursor, "result")
    if (results.length > 1) throw wrong(cursor.line, "a block has one result or none; use locals")
    return [label?.text, results[0] ?? noResult]
  }

  private block(opcode: number, cursor: Cursor): void {
    const [label, type] = this.blockType(cursor)
    this.bytes.push(opcode, type)
    this.labels.push(label)
    this.sequence(cursor)
    this.labels.pop()
    this.bytes.push(end)
  }

  /** `(if $label (result t) condition (then ..) (else ..))`: the condition comes first. */
  private conditional(cursor: Cursor): void {
    const [label, type] = this.blockType(cursor)
    while (isList(cursor.next) && headOf(cursor.next).text !== "then") this.instruction(cursor.take() as List)
    const [then, ...others] = cursor.lists("then")
    if (then === undefined || others.length > 0) throw wrong(cursor.line, "an if has one (then ..)")
    this.bytes.push(0x04, type)
    this.labels.push(label)
    this.sequence(new Cursor(then))
    for (const otherwise of cursor.lists("else")) {
      this.bytes.push(0x05)
      this.sequence(new Cursor(otherwise))
    }
    if (cursor.next !== undefined) throw wrong(cursor.next.line, "an if ends with (then ..) (else ..)")
    this.labels.pop()
    this.bytes.push(end)
  }

  private immediates(kind: Immediate, cursor: Cursor, width: number): Bytes {
    const atom = (): Atom => cursor.atom("what an instruction needs")
    switch (kind) {
      case "none":
        return []
      case "local":
        return unsigned(this.locals.indexOf(atom()))
      case "function":
        return unsigned(this.functions.indexOf(atom()))
      case "label":
        return unsigned(this.depthOf(atom()))
      case "zero":
        return [0]
      case "zeros":
        return [0, 0]
      case "lane":
        return [natural(atom(), 15)]
      case "lanes":
        return Array.from({ length: 16 }, () => natural(atom(), 31))
      case "i32":
        return signed(integer(atom(), 32))
      case "i64":
        return signed(integer(atom(), 64))
      case "f32":
        return float(atom(), 32)
      case "f64":
        return float(atom(), 64)
      case "v128": {
        const shape = atom()
        return vectorBytes(shape, Array.from({ length: lanesOf(shape) }, atom))
      }
      case "access":
        return access(cursor, width)
      case "access lane":
        return [...access(cursor, width), natural(atom(), 15)]
    }
  }

  /** How many blocks are between a branch and the one that its label names. */
  private depthOf(atom: Atom): number {
    if (!atom.text.startsWith("$")) return natural(atom, this.labels.length)
    const at = this.labels.lastIndexOf(atom.text)
    if (at < 0) throw wrong(atom.line, `no block around is called ${atom.text}`)
    return this.labels.length - 1 - at
  }
}

/** Types with how many of them stand behind one another. */
const runs = (types: Bytes): ReadonlyArray<Bytes> => {
  const found: Array<{ count: number; readonly type: number }> = []
  for (const type of types) {
    const last = found.at(-1)
    if (last?.type === type) last.count++
    else found.push({ count: 1, type })
  }
  return found.map(({ count, type }) => [...unsigned(count), type])
}

/** Writes a module, field by field. */
class Module {
  private readonly functions = new Names("function")
  private readonly types: Array<Bytes> = []
  private readonly imports: Array<Bytes> = []
  private readonly exports: Array<Bytes> = []
  private readonly typesOfFunctions: Array<Bytes> = []
  /** Written when the names of all functions are known. */
  private readonly bodies: Array<() => Bytes> = []

  add(field: Form): void {
    const head = isList(field) ? headOf(field).text : field.text
    if (isList(field) && head === "func") return this.function(new Cursor(field))
    if (isList(field) && head === "import") return this.memory(new Cursor(field))
    throw wrong(field.line, `${head} is none of the fields of a kernel: (func ..), (import "env" "memory" (memory ..))`)
  }

  bytes(): Uint8Array<ArrayBuffer> {
    const section = (id: number, parts: ReadonlyArray<Bytes>): Bytes =>
      parts.length === 0 ? [] : [id, ...counted(vector(parts))]
    return Uint8Array.from([
      [0, 97, 115, 109, 1, 0, 0, 0],
      section(1, this.types),
      section(2, this.imports),
      section(3, this.typesOfFunctions),
      section(7, this.exports),
      section(10, this.bodies.map((body) => body()))
    ].flat())
  }

  /** `"module" "name" (memory least most shared)`, in pages. */
  private memory(cursor: Cursor): void {
    const names = [cursor.atom("a module"), cursor.atom("a name")].flatMap(stringBytes)
    const [list] = cursor.lists("memory")
    if (list === undefined) throw wrong(cursor.line, "a kernel imports (memory ..) and nothing else")
    const inside = new Cursor(list)
    inside.optional(/^\$/)
    const pages = [inside.atom("the least pages"), inside.optional(/^\d/)].filter((atom) => atom !== undefined)
    const flags = pages.length - 1 | (inside.optional(/^shared$/) === undefined ? 0 : 2)
    this.imports.push([...names, 2, flags, ...pages.flatMap((atom) => unsigned(natural(atom, mostPages)))])
  }

  private function(cursor: Cursor): void {
    const index = this.functions.add(cursor.optional(/^\$/))
    for (const list of cursor.lists("export")) {
      this.exports.push([...stringBytes(new Cursor(list).atom("a name")), 0, ...unsigned(index)])
    }
    const locals = new Names("local")
    const type = [0x60, ...counted(declared(cursor, "param", locals)), ...counted(declared(cursor, "result"))]
    const known = this.types.findIndex((t) => t.join() === type.join())
    this.typesOfFunctions.push(unsigned(known < 0 ? this.types.push(type) - 1 : known))
    const ofLocals = declared(cursor, "local", locals)
    this.bodies.push(() => {
      const code = new Code(this.functions, locals)
      code.sequence(cursor)
      return counted([...vector(runs(ofLocals)), ...code.bytes, end])
    })
  }
}

/** The bytes of a module whose text is given. Throws what is wrong with the text, and where. */
export const assemble = (text: string): Uint8Array<ArrayBuffer> => {
  const [list, ...rest] = read(text)
  if (!isList(list) || headOf(list).text !== "module" || rest.length > 0) throw wrong(1, "a text is one (module ..)")
  const module = new Module()
  for (const field of new Cursor(list).rest()) module.add(field)
  return module.bytes()
}
