/**
 * Persistent launches without some of what they do, as changes of their text: what is left is what they take at least. Their values mean nothing, all accesses stay inside of their buffers.
 */

/** What is left out: weights that no cache of a processor holds, waiting for each other, and words of other phases. */
export const parts = ["weights", "waiting", "words"] as const
export type Part = typeof parts[number]

/** Elements of an argument that all loads go to: as much as each processor's own cache holds. */
const kept = 1024

/** Where the bracket that opens at a place closes. */
const closing = (code: string, from: number): number => {
  let depth = 0
  for (let i = from; i < code.length; i++) {
    if (code[i] === "[") depth++
    if (code[i] === "]" && --depth === 0) return i
  }
  throw new Error("a bracket is not closed")
}

/** The indices of all accesses of these arrays, changed. */
const indexed = (code: string, arrays: ReadonlyArray<string>, change: (index: string) => string): string => {
  const access = new RegExp(`\\b(?:${arrays.join("|")})\\[`, "g")
  let made = ""
  let done = 0
  for (let found = access.exec(code); found !== null; found = access.exec(code)) {
    const open = found.index + found[0].length
    const close = closing(code, open - 1)
    made += code.slice(done, open) + change(indexed(code.slice(open, close), arrays, change))
    access.lastIndex = done = close
  }
  return made + code.slice(done)
}

const changes: Readonly<Record<Part, (main: string, all: string) => string>> = {
  weights: (main, all) => {
    const arrays = [...all.matchAll(/var<storage, read> (data\d+): array<vec4<u32>>/g)].map(([, name]) => name!)
    return arrays.length === 0 ? main : indexed(main, arrays, (index) => `i32(${index}) & ${kept - 1}`)
  },
  waiting: (main) =>
    main
      .replace(/= arrive\(local_invocation_id\.x\);/g, "= 0u;")
      .replace(/^( *)(?:if \(workgroup_id.*\{ )?meet\(.*\);(?: \})?$/gm, "$1workgroupBarrier();")
      // nobody has arrived who could leave
      .replace(/^ *if \(local_invocation_id\.x == 0u && atomicAdd\(.*$/gm, "")
      .replace(/while \(w\d+ == 0u.*\) \{$/gm, "while (false) {"),
  // as a float it is 1
  words: (main) => main.replace(/atomicLoad\(&data\d+\[[^\]]*\]\)/g, "1065353216u")
}

/** The text of a persistent launch without these parts. */
export const without = (code: string, left: ReadonlyArray<Part>): string => {
  const at = code.indexOf("fn main(")
  const made = left.reduce((main, part) => changes[part](main, code), code.slice(at))
  return code.slice(0, at) + made
}
