/** The merge list as a hash table from a pair of symbols to its rank and the symbol it makes. */

/**
 * Symbols are numbers: a token's id, or a number from the number of tokens on for a text that only merges mention.
 * The pair in slot `i` is `left[i]`, `right[i]`; an empty slot has `left[i] = -1`. Linear probing, at most half full.
 */
export interface Merges {
  readonly left: Int32Array
  readonly right: Int32Array
  readonly rank: Int32Array
  readonly result: Int32Array
  readonly mask: number
}

const hash = (left: number, right: number): number => {
  const mixed = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b)
  return mixed ^ mixed >>> 15
}

/** The slot of a pair, or -1. */
export const find = (self: Merges, left: number, right: number): number => {
  for (let slot = hash(left, right) & self.mask;; slot = slot + 1 & self.mask) {
    const found = self.left[slot]!
    if (found === left && self.right[slot] === right) return slot
    if (found < 0) return -1
  }
}

/** A merge list of which one entry cannot be read. */
export interface Malformed {
  readonly index: number
}

/**
 * Reads a merge list. `symbols` maps the texts of ordinary tokens to their ids and grows by texts that are no token. A
 * pair that makes a text in `forbidden` is left out, so that merging never arrives at a special token.
 */
export const make = (
  lines: ReadonlyArray<string>,
  symbols: Map<string, number>,
  { forbidden, firstFree }: { readonly forbidden: ReadonlySet<string>; readonly firstFree: number }
): Merges | Malformed => {
  let capacity = 16
  while (capacity < lines.length * 2) capacity *= 2
  const mask = capacity - 1
  const left = new Int32Array(capacity).fill(-1)
  const right = new Int32Array(capacity)
  const rank = new Int32Array(capacity)
  const result = new Int32Array(capacity)
  let free = firstFree
  const symbolOf = (text: string): number => {
    const symbol = symbols.get(text)
    if (symbol !== undefined) return symbol
    symbols.set(text, free)
    return free++
  }
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index]!
    const space = line.indexOf(" ", 1)
    if (space < 0 || space === line.length - 1) return { index }
    const leftText = line.slice(0, space)
    const rightText = line.slice(space + 1)
    const merged = leftText + rightText
    if (forbidden.has(merged) && !symbols.has(merged)) continue
    const a = symbolOf(leftText)
    const b = symbolOf(rightText)
    let slot = hash(a, b) & mask
    while (left[slot]! >= 0 && (left[slot] !== a || right[slot] !== b)) slot = slot + 1 & mask
    if (left[slot]! >= 0) continue // the first of equal pairs counts
    left[slot] = a
    right[slot] = b
    rank[slot] = index
    result[slot] = symbolOf(merged)
  }
  return { left, right, rank, result, mask }
}
