/** The text format of WebAssembly, read as nested lists. */

/** A word or a string in quotes, or a list in parentheses, and the line where it begins. */
export type Form = Atom | List
export interface Atom {
  readonly text: string
  readonly line: number
}
export interface List {
  readonly items: ReadonlyArray<Form>
  readonly line: number
}

/** What is wrong with a text, and where. */
export const wrong = (line: number, message: string): Error => new Error(`line ${line}: ${message}`)

const wordEnd = /[\s()";]|$/g

/** Where a word, a string or a comment ends that begins at `at`. */
const endOf = (text: string, at: number, line: number): number => {
  const find = (what: string): number => text.indexOf(what, at + 1) < 0 ? text.length : text.indexOf(what, at + 1)
  if (text.startsWith(";;", at)) return find("\n")
  if (text[at] === "\"") {
    const string = text.slice(at, find("\"") + 1)
    if (/^"[^"\\\n]*"$/.test(string)) return at + string.length
    throw wrong(line, `${string.slice(0, 20)} is no string; it ends on its line, with ", and has no escapes`)
  }
  wordEnd.lastIndex = at
  const end = wordEnd.exec(text)!.index
  if (end === at) throw wrong(line, `${text.slice(at, at + 2)} is not known; comments begin with ;;`)
  return end
}

/** The forms of a text. */
export const read = (text: string): ReadonlyArray<Form> => {
  const open: Array<{ readonly items: Array<Form>; readonly line: number }> = [{ items: [], line: 1 }]
  let line = 1
  for (let at = 0; at < text.length;) {
    const c = text[at]!
    if (c === "\n") line++
    if (c === "(" && text[at + 1] !== ";") open.push({ items: [], line })
    else if (c === ")") {
      const list = open.pop()!
      if (open.length === 0) throw wrong(line, "a ) closes nothing; take it out")
      open.at(-1)!.items.push(list)
    } else if (c !== " " && c !== "\n" && c !== "\t" && c !== "\r") {
      const end = endOf(text, at, line)
      if (c !== ";") open.at(-1)!.items.push({ text: text.slice(at, end), line })
      at = end
      continue
    }
    at++
  }
  if (open.length > 1) throw wrong(open.at(-1)!.line, "a ( is not closed; write )")
  return open[0]!.items
}

export const isList = (form: Form | undefined): form is List => form !== undefined && "items" in form

/** The word that a list begins with. */
export const headOf = (list: List): Atom => {
  const [head] = list.items
  if (head === undefined || isList(head)) throw wrong(list.line, "a list begins with a word")
  return head
}

/** What is behind the first word of a list, taken one after the other. */
export class Cursor {
  private at = 1
  private readonly forms: ReadonlyArray<Form>
  readonly line: number

  constructor({ items, line }: List) {
    this.forms = items
    this.line = line
  }

  get next(): Form | undefined {
    return this.forms[this.at]
  }

  take(): Form | undefined {
    return this.forms[this.at++]
  }

  rest(): ReadonlyArray<Form> {
    return this.forms.slice(this.at)
  }

  atom(what: string): Atom {
    const form = this.take()
    if (form === undefined || isList(form)) throw wrong(form?.line ?? this.line, `${what} is missing`)
    return form
  }

  /** All that is left, which are words. */
  atoms(): ReadonlyArray<Atom> {
    return this.rest().map(() => this.atom("a word"))
  }

  /** The next word, if it is of this form. */
  optional(pattern: RegExp): Atom | undefined {
    const { next } = this
    if (next === undefined || isList(next) || !pattern.test(next.text)) return undefined
    this.at++
    return next
  }

  /** The next lists, as far as they begin with this word. */
  lists(name: string): ReadonlyArray<List> {
    const found: Array<List> = []
    for (let { next } = this; isList(next) && headOf(next).text === name; { next } = this) {
      found.push(next)
      this.at++
    }
    return found
  }
}
