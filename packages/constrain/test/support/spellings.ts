/**
 * The texts of a value as JSON.stringify writes them, with the keys of objects in any order. A schema's grammar has one of
 * them if the value is valid (in the order of its properties), and none if it is not.
 */
export const spellings = (value: unknown, limit = 720): ReadonlyArray<string> => {
  if (Array.isArray(value)) {
    return product(value.map((item) => spellings(item, limit)), limit).map((items) => `[${items.join()}]`)
  }
  if (typeof value !== "object" || value === null) return [JSON.stringify(value)]
  const members = Object.entries(value).map(([key, item]) =>
    spellings(item, limit).map((text) => `${JSON.stringify(key)}:${text}`)
  )
  return orders(members).slice(0, limit).flatMap((order) => product(order, limit).map((texts) => `{${texts.join()}}`))
    .slice(0, limit)
}

const orders = <A>(list: ReadonlyArray<A>): ReadonlyArray<ReadonlyArray<A>> =>
  list.length === 0 || list.length > 6
    ? [list]
    : list.flatMap((first, i) => orders(list.toSpliced(i, 1)).map((rest) => [first, ...rest]))

const product = <A>(lists: ReadonlyArray<ReadonlyArray<A>>, limit: number): ReadonlyArray<ReadonlyArray<A>> =>
  lists.reduce<ReadonlyArray<ReadonlyArray<A>>>(
    (found, list) => found.flatMap((row) => list.map((item) => [...row, item])).slice(0, limit),
    [[]]
  )
