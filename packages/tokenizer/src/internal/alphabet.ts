/** A private-use copy of some characters: taint tracking, which distinguishes two origins of equal text. */

/** Replaces characters one by one; `unmark` is the inverse on texts without private characters of their own. */
export interface Alphabet {
  readonly mark: (text: string) => string
  readonly unmark: (text: string) => string
  /** Whether the text has a marked character. */
  readonly touches: (text: string) => boolean
}

// The private use areas: one unit each first, so that a copy is as long as the original while they last.
const areas: ReadonlyArray<readonly [first: number, last: number]> = [
  [0xe000, 0xf8ff],
  [0xf0000, 0xffffd],
  [0x100000, 0x10fffd]
]

const privateUse = /[\ue000-\uf8ff\u{f0000}-\u{ffffd}\u{100000}-\u{10fffd}]/gu

/** The private characters of a text. */
export const privateIn = (text: string): ReadonlyArray<string> => text.match(privateUse) ?? []

/** Copies the characters of `originals` to private ones that are not in `taken`; `undefined` if they do not suffice. */
export const make = (originals: string, taken: ReadonlySet<string>): Alphabet | undefined => {
  const free = freeOutside(taken)
  const to = new Map<string, string>()
  for (const letter of new Set(originals)) {
    const next = free.next()
    if (next.done === true) return undefined
    to.set(letter, next.value)
  }
  const from = new Map([...to].map(([letter, copy]) => [copy, letter]))
  return {
    mark: (text) => Array.from(text, (letter) => to.get(letter) ?? letter).join(""),
    unmark: (text) =>
      inPieces(text).map((piece) => piece.replace(privateUse, (copy) => from.get(copy) ?? copy)).join(""),
    touches: (text) => inPieces(text).some((piece) => privateIn(piece).some((letter) => from.has(letter)))
  }
}

const pieceLength = 65536

/** A text in pieces, split between characters: the matches of a regular expression take forty times the memory of the text. */
const inPieces = (text: string): ReadonlyArray<string> => {
  if (text.length <= pieceLength) return [text]
  const pieces: Array<string> = []
  for (let start = 0; start < text.length;) {
    const isPair = (text.charCodeAt(start + pieceLength - 1) & 0xfc00) === 0xd800
    const end = start + pieceLength + (isPair ? 1 : 0)
    pieces.push(text.slice(start, end))
    start = end
  }
  return pieces
}

const freeOutside = function*(taken: ReadonlySet<string>): Generator<string, undefined> {
  for (const [first, last] of areas) {
    for (let code = first; code <= last; code++) {
      const letter = String.fromCodePoint(code)
      if (!taken.has(letter)) yield letter
    }
  }
  return undefined
}
