/** Sets of Unicode scalar values: sorted, disjoint, inclusive ranges. Surrogates are in no set. */

/** A set of scalar values. */
export type CodePoints = ReadonlyArray<readonly [low: number, high: number]>

/** Every scalar value. */
export const all: CodePoints = [[0, 0xd7ff], [0xe000, 0x10ffff]]

/** The set of these ranges, in any order; surrogates fall out. */
export const fromRanges = (ranges: CodePoints): CodePoints => {
  const sorted = ranges.filter(([low, high]) => low <= high).toSorted((a, b) => a[0] - b[0])
  const merged: Array<[number, number]> = []
  for (const [low, high] of sorted) {
    const last = merged.at(-1)
    if (last !== undefined && low <= last[1] + 1) last[1] = Math.max(last[1], high)
    else merged.push([low, high])
  }
  return intersect(merged, all)
}

/** What is in both. */
export const intersect = (a: CodePoints, b: CodePoints): CodePoints => {
  const found: Array<[number, number]> = []
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    const low = Math.max(a[i]![0], b[j]![0])
    const high = Math.min(a[i]![1], b[j]![1])
    if (low <= high) found.push([low, high])
    if (a[i]![1] < b[j]![1]) i++
    else j++
  }
  return found
}

/** What is in either. */
export const union = (...sets: ReadonlyArray<CodePoints>): CodePoints => fromRanges(sets.flat())

/** What is not in the set. */
export const complement = (set: CodePoints): CodePoints => {
  const gaps: Array<[number, number]> = []
  let from = 0
  for (const [low, high] of set) {
    if (from < low) gaps.push([from, low - 1])
    from = high + 1
  }
  if (from <= 0x10ffff) gaps.push([from, 0x10ffff])
  return intersect(gaps, all)
}

/** The set of one value. */
export const single = (codePoint: number): CodePoints => fromRanges([[codePoint, codePoint]])

/** The set of the characters of a text. */
export const ofText = (text: string): CodePoints =>
  fromRanges(Array.from(text, (char) => [char.codePointAt(0)!, char.codePointAt(0)!] as const))
