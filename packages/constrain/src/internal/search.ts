/** Text up to the first of some strings, as a leaf: the automaton of Aho and Corasick (CACM 18, 1975). */
import type { Leaf } from "./rule.ts"

interface Node {
  readonly children: Map<number, number>
  fail: number
  isHit: boolean
}

const makeNode = (): Node => ({ children: new Map(), fail: 0, isHit: false })

/** The trie of the strings with the longest proper suffix of each node that is a node, too. */
const trieOf = (strings: ReadonlyArray<Uint8Array>): ReadonlyArray<Node> => {
  const nodes = [makeNode()]
  for (const string of strings) {
    let at = 0
    for (const byte of string) {
      const child = nodes[at]!.children.get(byte) ?? nodes.push(makeNode()) - 1
      nodes[at]!.children.set(byte, child)
      at = child
    }
    nodes[at]!.isHit = true
  }
  const queue = [0]
  for (let i = 0; i < queue.length; i++) {
    const node = nodes[queue[i]!]!
    for (const [byte, child] of node.children) {
      let suffix = node.fail
      while (suffix !== 0 && !nodes[suffix]!.children.has(byte)) suffix = nodes[suffix]!.fail
      const target = queue[i] === 0 ? 0 : nodes[suffix]!.children.get(byte) ?? 0
      nodes[child]!.fail = target
      nodes[child]!.isHit ||= nodes[target]!.isHit
      queue.push(child)
    }
  }
  return nodes
}

/** Leaves by strings: the same ones share their masks. */
const kept = new Map<string, Leaf>()
const maxKept = 256

/**
 * Bytes in which no string occurs: `never`, or `atEnd` and the bytes end with the first occurrence. Without strings, `atEnd`
 * matches nothing.
 */
export const withoutAny = (strings: ReadonlyArray<Uint8Array>, where: "never" | "atEnd"): Leaf => {
  const key = `${where}:${strings.map((string) => string.join()).join(";")}`
  const known = kept.get(key)
  if (known !== undefined) return known
  const nodes = trieOf(strings)
  const letters = [...new Set(strings.flatMap((string) => [...string]))]
  // the last class is that of the bytes in no string; there may be none
  const classOf = new Uint8Array(256).fill(letters.length)
  letters.forEach((byte, i) => {
    classOf[byte] = i
  })
  const width = letters.length + 1
  const next = new Int32Array(nodes.length * width).fill(-1)
  nodes.forEach((node, state) => {
    if (node.isHit) return
    const follow = (byte: number): number => {
      let at = state
      while (at !== 0 && !nodes[at]!.children.has(byte)) at = nodes[at]!.fail
      return nodes[at]!.children.get(byte) ?? 0
    }
    const target = (to: number): number => where === "never" && nodes[to]!.isHit ? -1 : to
    next[state * width + letters.length] = target(0)
    letters.forEach((byte, i) => {
      next[state * width + i] = target(follow(byte))
    })
  })
  const accept = Uint8Array.from(nodes, (node) => Number(node.isHit === (where === "atEnd")))
  const leaf: Leaf = { _tag: "Leaf", name: where, classOf, width, next, accept, counter: undefined }
  if (kept.size >= maxKept) kept.clear()
  kept.set(key, leaf)
  return leaf
}
