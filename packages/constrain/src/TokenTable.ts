/** A vocabulary as a trie of bytes, over which masks are computed. Made once for a model. */
import type { Leaf } from "./internal/rule.ts"
import { type Base, PlainStrings } from "./internal/base.ts"

/** The input of a table: a vocabulary. */
export interface Vocabulary {
  /** How many token ids there are. */
  readonly size: number
  /**
   * The bytes that a token stands for. Special tokens, which stand for no text, give undefined: only grammars that name
   * them (`Grammar.token`) allow them.
   */
  readonly bytesOf: (id: number) => Uint8Array | undefined
  /** The tokens that end a text. */
  readonly endTokens: Iterable<number>
}

/** A vocabulary as a trie, and the memoised masks that do not depend on a grammar. */
export interface TokenTable {
  readonly size: number
  readonly endTokens: ReadonlyArray<number>
  /** Words of 32 bits in a mask. */
  readonly words: number
  /** The bytes of each token with text. */
  readonly bytesOf: (id: number) => Uint8Array | undefined
  /** The trie in preorder; node 0 is the root. */
  readonly tree: Tree
  /** Masks of the states of leaves, by leaf and state. */
  readonly leaves: WeakMap<Leaf, Map<string, Base>>
  /** Masks of strings whose length alone is bounded. */
  readonly plain: PlainStrings
}

/** Nodes in preorder, each with the byte that leads to it. */
export interface Tree {
  readonly byte: Uint8Array
  /** The number of the first node after a node's descendants. */
  readonly end: Int32Array
  readonly depth: Uint16Array
  /** The first token that ends at a node, or -1; `sameAs[id]` is the next token with the same bytes, or -1. */
  readonly token: Int32Array
  readonly sameAs: Int32Array
}

/** Builds the trie: about 100 ms for 150 000 tokens. */
export const make = (vocabulary: Vocabulary): TokenTable => {
  const { size } = vocabulary
  const endTokens = [...new Set(vocabulary.endTokens)].filter((id) => id >= 0 && id < size)
  const isEnd = new Set(endTokens)
  const bytes = Array.from({ length: size }, (_, id) => {
    const found = isEnd.has(id) ? undefined : vocabulary.bytesOf(id)
    return found === undefined || found.length === 0 ? undefined : found
  })
  const tree = treeOf(bytes)
  const words = Math.ceil(size / 32)
  return {
    size,
    endTokens,
    words,
    bytesOf: (id) => bytes[id],
    tree,
    leaves: new WeakMap(),
    plain: new PlainStrings(tree, words)
  }
}

const treeOf = (bytes: ReadonlyArray<Uint8Array | undefined>): Tree => {
  // strings with one character a byte: the fastest comparison there is
  const keys = bytes.map((text) => text === undefined ? "" : String.fromCharCode(...text))
  const ids = [...bytes.keys()].filter((id) => bytes[id] !== undefined)
    .sort((a, b) => keys[a]! < keys[b]! ? -1 : keys[a]! > keys[b]! ? 1 : a - b)
  const byte: Array<number> = [0]
  const depth: Array<number> = [0]
  const token: Array<number> = [-1]
  const sameAs = new Int32Array(bytes.length).fill(-1)
  let previous = new Uint8Array(0)
  for (const id of ids) {
    const text = bytes[id]!
    let common = 0
    while (common < previous.length && common < text.length && previous[common] === text[common]) common++
    for (let i = common; i < text.length; i++) {
      byte.push(text[i]!)
      depth.push(i + 1)
      token.push(-1)
    }
    // sorted: the text of the node made last is this text, also when it is the same as before
    const node = byte.length - 1
    sameAs[id] = token[node]!
    token[node] = id
    previous = text as Uint8Array<ArrayBuffer>
  }
  const end = new Int32Array(byte.length)
  const open: Array<number> = []
  depth.forEach((level, node) => {
    while (open.length > level) end[open.pop()!] = node
    open.push(node)
  })
  while (open.length > 0) end[open.pop()!] = byte.length
  return {
    byte: Uint8Array.from(byte),
    end,
    depth: Uint16Array.from(depth),
    token: Int32Array.from(token),
    sameAs
  }
}
