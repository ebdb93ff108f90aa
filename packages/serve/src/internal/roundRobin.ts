/**
 * A bounded line of waiting items in which every client gets its turn: clients are served one after the other, and
 * each client's items in their order. When the line is full, the client with the most items gives way.
 */

/** The line. */
export interface RoundRobin<A> {
  readonly size: () => number
  /** Puts an item at the end of its client's items. Answers with the item that has no place: this one, or another's. */
  readonly add: (client: string, item: A) => A | undefined
  /** Takes the item whose turn it is. */
  readonly take: () => A | undefined
  /** Takes an item out, wherever it is. */
  readonly remove: (client: string, item: A) => void
  /** Takes everything. */
  readonly clear: () => ReadonlyArray<A>
}

/** An empty line for `limit` items. */
export const make = <A>(limit: number): RoundRobin<A> => {
  // in the order of turns: a Map keeps the order in which keys came, and a served client goes to the end
  const lines = new Map<string, Array<A>>()
  let size = 0

  const drop = (client: string, index: number): A | undefined => {
    const line = lines.get(client)
    const [item] = line?.splice(index, 1) ?? []
    if (item !== undefined) size--
    if (line?.length === 0) lines.delete(client)
    return item
  }

  const longest = (): readonly [client: string, length: number] => {
    let found: readonly [string, number] = ["", 0]
    for (const [client, { length }] of lines) if (length > found[1]) found = [client, length]
    return found
  }

  const push = (client: string, item: A): void => {
    const line = lines.get(client)
    if (line === undefined) lines.set(client, [item])
    else line.push(item)
    size++
  }

  return {
    size: () => size,
    add: (client, item) => {
      if (size < limit) return void push(client, item)
      const [other, length] = longest()
      if (length <= (lines.get(client)?.length ?? 0) + 1) return item
      const out = drop(other, length - 1)
      push(client, item)
      return out
    },
    take: () => {
      const [first] = lines
      if (first === undefined) return undefined
      const [client, line] = first
      const item = drop(client, 0)
      if (lines.delete(client)) lines.set(client, line)
      return item
    },
    remove: (client, item) => {
      const index = lines.get(client)?.indexOf(item) ?? -1
      if (index >= 0) drop(client, index)
    },
    clear: () => {
      const all = [...lines.values()].flat()
      lines.clear()
      size = 0
      return all
    }
  }
}
