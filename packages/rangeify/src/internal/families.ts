/** Which launches may be variants of one program: what predicts that and what makes it ask here. */

/** Whether so many kernels of so many are few: the others are most of the code. */
export const areFew = (differing: number, of: number): boolean => 2 * differing < of

/**
 * The different items, by their texts, in families: each joins the first one whose first item it is related to. One whose text occurs once is in none: a program that runs once is nobody's variant.
 * An item is related to itself.
 */
export const familiesOf = <A, R>(
  items: ReadonlyArray<A>,
  textOf: (item: A) => string,
  relate: (first: A, own: A) => R | undefined
): ReadonlyArray<ReadonlyMap<string, R>> => {
  const families: Array<{ readonly first: A; readonly members: Map<string, R> }> = []
  for (const [text, [own, ...others]] of Map.groupBy(items, textOf)) {
    if (others.length === 0) continue
    const join = (first: A, members: Map<string, R>): boolean => {
      const relation = relate(first, own!)
      if (relation !== undefined) members.set(text, relation)
      return relation !== undefined
    }
    if (families.some(({ first, members }) => join(first, members))) continue
    const members = new Map<string, R>()
    families.push({ first: own!, members })
    join(own!, members)
  }
  return families.map(({ members }) => members)
}
